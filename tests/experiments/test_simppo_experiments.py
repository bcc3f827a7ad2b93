"""The experiments on SIMPPO: how runs are judged, and what is claimed of figures. Training itself is in tests/learn."""

import csv
from importlib.resources import files

import pytest

from fairlead.experiments import run_experiment
from fairlead.experiments.cases import read_settings
from fairlead.experiments.simppo_bench import Served, degradation, interval, judge
from fairlead.experiments.simppo_incremental import run as incremental
from fairlead.experiments.simppo_isolation import run as isolation
from fairlead.experiments.simppo_scale import run as scale
from fairlead.experiments.simppo_workflows import run as workflows
from fairlead.learn.functions.tenants import alone, tenants_scenario
from fairlead.policy import make_policy

TRAINED = ("isolation", "incremental", "ablation", "scale", "workflows")


def served(p99_s, attainment=1.0, held=1.0):
    return Served(p99_s={"a": p99_s, "b": 2 * p99_s}, attainment={"a": attainment, "b": attainment}, vcpu_hours=held)


def test_degradation_is_the_mean_over_functions():
    reference = Served(p99_s={"a": 1.0, "b": 2.0}, attainment={}, vcpu_hours=0)
    found = Served(p99_s={"a": 1.5, "b": 2.0}, attainment={}, vcpu_hours=0)
    assert degradation(found, reference) == pytest.approx(0.25)


def test_intervals_are_students():
    mean, half = interval([1.0, 2.0, 3.0])
    assert (mean, half) == pytest.approx((2.0, 4.303 / 3**0.5))
    assert interval([4.0]) == (4.0, 0.0)


def test_a_run_is_judged_by_its_requests():
    scenario = alone(tenants_scenario(2, nodes=1), "primes")
    few = judge(scenario, make_policy("static-replicas", {"replicas": 1}), 0, duration_s=200.0)
    many = judge(scenario, make_policy("static-replicas", {"replicas": 6}), 0, duration_s=200.0)
    assert many.p99_s["primes"] < few.p99_s["primes"]
    assert many.mean_attainment >= few.mean_attainment
    assert many.vcpu_hours == pytest.approx(6 * few.vcpu_hours, rel=0.05)


def isolation_claims(**degraded):
    labels = {isolation.ALONE: 0.0, **degraded}
    runs = {label: [served(1.0 + more), served(1.0 + more)] for label, more in labels.items()}
    return isolation._claims(read_settings(isolation.__package__), runs)


def test_isolation_claims_follow_from_the_degradations():
    claims = isolation_claims(**{isolation.AMONG: 0.3, isolation.SIMPPO: 0.05, "threshold": 0.5})
    assert [claim.met for claim in claims] == [True, True, True, True]
    assert claims[2].ours.startswith("6.0x")
    claims = isolation_claims(**{isolation.AMONG: 0.0, isolation.SIMPPO: 0.2, "threshold": 0.5})
    assert [claim.met for claim in claims] == [False, False, False, False]


def test_nothing_lost_is_infinitely_less_than_something():
    claims = isolation_claims(**{isolation.AMONG: 0.3, isolation.SIMPPO: -0.1, "threshold": 0.5})
    assert [claim.met for claim in claims] == [True] * 4
    assert "against none" in claims[2].ours


def change(functions, drop, episodes=30):
    return {"functions": functions, "seed": 0, "drop_percent": drop, "episodes": episodes}


def test_a_hump_is_one_only_between_the_ends():
    settings = read_settings(incremental.__package__)
    hump = [change(5, 1.0), change(20, 4.0), change(110, 2.0, 40)]
    rising = [change(5, 1.0), change(20, 2.0), change(110, 4.0, 60)]
    assert [c.met for c in incremental._claims(settings, [5, 20, 110], hump)] == [True, True, True]
    assert [c.met for c in incremental._claims(settings, [5, 20, 110], rising)] == [False, False, False]


@pytest.mark.parametrize(("median", "p95", "is_met"), [(20.0, 49.0, True), (20.0, 51.0, False), (51.0, 52.0, False)])
def test_a_turn_must_be_short_enough_at_its_median_and_its_p95(median, p95, is_met):
    few = {
        "functions": 12,
        "decision_ms": 1.0,
        "decision_ms_p95": 1.0,
        "decision_cpu_ms": 1.0,
        "decision_cpu_ms_p95": 1.0,
    }
    most = few | {"functions": 1000, "decision_ms": median, "decision_ms_p95": p95}
    (claim,) = scale._claims(read_settings(scale.__package__), [few, most])
    assert claim.met is is_met
    assert "1,000 functions" in claim.claim


def test_aware_agents_must_lead_beyond_the_interval():
    found = {
        (label, seed): served(1.0, attainment)
        for label, own in ((workflows.AWARE, (0.99, 0.98)), (workflows.UNAWARE, (0.95, 0.94)))
        for seed, attainment in enumerate(own)
    }
    assert workflows._claim(found, [0, 1]).met
    found[workflows.AWARE, 1] = served(1.0, 0.93)
    assert not workflows._claim(found, [0, 1]).met


@pytest.mark.parametrize("name", TRAINED)
def test_committed_rows_have_what_the_page_speaks_of(name):
    text = (files(f"fairlead.experiments.simppo_{name}") / "expected.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    settings = read_settings(f"fairlead.experiments.simppo_{name}")
    assert rows
    if name == "incremental":
        assert {int(row["functions"]) for row in rows} == set(settings["functions"])
    if name == "scale":
        assert [int(row["functions"]) for row in rows] == settings["functions"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_a_quick_run_ends_and_claims_something(name):
    found = run_experiment(f"simppo-{name}", quick=True, progress=lambda share, what: None)
    assert found.claims
    assert found.rows
