"""simppo-live: the load is the same for all, what is held adds up, and the claims follow from the runs."""

import csv
from importlib.resources import files

import numpy as np
import pytest

from fairlead.app.load import load_app
from fairlead.app.scenario import profile_beside
from fairlead.experiments import run_experiment
from fairlead.experiments.cases import read_settings
from fairlead.experiments.simppo_live.plan import arrivals, rate_rps
from fairlead.experiments.simppo_live.run import attainment, fewest_ready, judge, row, spread
from fairlead.experiments.simppo_live.serving import Served, held_vcpu_s, prepare_app
from fairlead.load import LoadResult, Times
from fairlead.runlog import ScalingRow

PACKAGE = "fairlead.experiments.simppo_live"
SETTINGS = read_settings(PACKAGE)
FUNCTIONS = list(SETTINGS["rates_rps"])


def test_a_repeat_has_the_same_instants_for_every_scaler_and_another_repeat_has_others():
    assert arrivals(SETTINGS, 60.0, 0) == arrivals(SETTINGS, 60.0, 0)
    assert arrivals(SETTINGS, 60.0, 0) != arrivals(SETTINGS, 60.0, 1)


def test_rates_wander_around_their_means_and_their_sum_does_not():
    times = np.linspace(0.0, SETTINGS["swing_s"], 300, endpoint=False)
    for name in FUNCTIONS:
        mean = SETTINGS["rates_rps"][name]
        rates = rate_rps(SETTINGS, name, times)
        assert rates.mean() == pytest.approx(mean)
        assert (rates.min(), rates.max()) == (pytest.approx(0.2 * mean, rel=1e-3), pytest.approx(1.8 * mean, rel=1e-3))
    long = arrivals(SETTINGS, 3000.0, 0)
    for name in FUNCTIONS:  # within 4 standard deviations of a Poisson count
        wanted = 3000.0 * SETTINGS["rates_rps"][name]
        assert len(long[name].times) == pytest.approx(wanted, abs=4 * wanted**0.5)


def test_the_app_that_is_served_has_the_functions_of_the_settings_with_their_measured_profiles(tmp_path):
    path = prepare_app(tmp_path)
    assert list(load_app(path).workflows) == FUNCTIONS
    assert set(FUNCTIONS) <= set(profile_beside(path))


def scaled(now: float, function: str, vcpus: float, ready: int = 1) -> ScalingRow:
    return ScalingRow(now, function, ready, 1.0, ready, vcpus, 0.5)


def test_what_is_held_counts_from_one_control_period_to_the_next():
    rows = [scaled(0, "a", 1), scaled(0, "b", 2), scaled(10, "a", 3), scaled(10, "b", 0)]
    assert held_vcpu_s(rows, 0.0, 20.0) == 10 * 1 + 10 * 3 + 10 * 2
    assert held_vcpu_s(rows, 5.0, 12.0) == 5 * 1 + 2 * 3 + 5 * 2
    assert held_vcpu_s([], 0.0, 20.0) == 0


def load(offered: int, in_time: int) -> LoadResult:
    times = Times(p50_s=0.1, p95_s=0.2, p99_s=0.3, max_s=0.4)
    return LoadResult(
        url="http://x",
        duration_s=10.0,
        warm_up_s=0.0,
        deadline_s=0.5,
        users=None,
        offered=offered,
        answered=offered,
        in_time=in_time,
        refused={},
        errors={},
        unsent=0,
        attainment=in_time / offered,
        offered_rps=1.0,
        answered_rps=1.0,
        goodput_rps=1.0,
        latency=times,
        refusal_latency=times,
        refused_in_time=None,
        lag=times,
        generator_cpu=0.1,
        is_generator_late=False,
    )


def served(in_time: int, *, held: float = 10.0, cpu_s: float = 5.0, ready: int = 1, busy: float = 0.1) -> Served:
    loads = {name: load(10, in_time) for name in FUNCTIONS}
    rows = [scaled(-2.0, "a", 1.0, 0), scaled(0.0, "a", 1.0, ready), scaled(2.0, "a", 1.0, 2)]
    return Served(loads=loads, cpu_s=cpu_s, held_vcpu_s=held, machine_busy=0.5, busy_before=busy, scaling=rows)


def test_a_row_has_everything_of_a_run():
    found = row(SETTINGS, "threshold", 0, served(9))
    assert (found["requests"], found["attainment"], found["p99_ms_base64"]) == (40, 0.9, 300.0)
    assert found["fewest_ready"] == 1  # what was before the load does not count
    with (files(PACKAGE) / "expected.csv").open(encoding="utf-8") as file:
        assert next(csv.reader(file)) == list(found)


@pytest.mark.parametrize(
    ("learned", "met"),
    [
        (served(9, held=5.0, cpu_s=4.0), ["met", "met", "met", "met"]),
        (served(8, held=5.0, cpu_s=4.0), ["met", "met", "met", "met"]),
        (served(7, held=5.0, cpu_s=4.0), ["met", "not met", "met", "met"]),
        (served(9, held=20.0, cpu_s=6.0), ["met", "met", "not met", "not met"]),
        (served(9, held=5.0, cpu_s=4.0, ready=0), ["not met", "met", "met", "met"]),
    ],
    ids=["better", "as-good", "worse", "dearer", "left-alone"],
)
def test_claims_follow_from_the_runs(learned, met):
    runs = {"simppo": [learned] * 2, "threshold": [served(8)] * 2, "two each": [served(5)] * 2}
    assert [claim.verdict for claim in claims(runs)] == met


def claims(runs):
    rows = [row(SETTINGS, name, repeat, one) for name, own in runs.items() for repeat, one in enumerate(own)]
    return list(judge(rows))


def test_one_repeat_decides_nothing():
    found = claims({"simppo": [served(9)], "threshold": [served(5)]})
    assert {claim.verdict for claim in found} == {"not decided"}


def test_a_comparison_on_a_busy_machine_says_so():
    quiet = claims({"simppo": [served(9)] * 2, "threshold": [served(8)] * 2})
    busy = claims({"simppo": [served(9)] * 2, "threshold": [served(8, busy=0.6)] * 2})
    assert {claim.note for claim in quiet} == {None}
    assert all("up to 60%" in claim.note for claim in busy[1:])


def test_without_a_trained_network_only_what_holds_for_all_is_claimed():
    found = claims({"threshold": [served(9)]})
    assert [claim.ours for claim in found] == [{"threshold": 1}]
    assert (attainment(served(9)), fewest_ready(served(9)), spread([1.0, 2.0])) == (0.9, 1, "1.5 (1 to 2)")


@pytest.mark.slow
def test_the_quick_experiment_serves_every_scaler_and_leaves_no_function_alone():
    result = run_experiment("simppo-live", quick=True)
    assert {"threshold", "two each"} <= {str(row["scaler"]) for row in result.rows}
    assert all(row["fewest_ready"] >= 1 for row in result.rows)
    for found in result.rows:
        assert found["requests"] > 100
        assert found["cpu_s"] > 0
