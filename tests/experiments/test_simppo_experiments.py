"""The experiments on SIMPPO: how runs are judged, and what is claimed of figures. Training itself is in tests/learn."""

import csv
from importlib.resources import files

import pytest

from fairlead.experiments import run_experiment
from fairlead.experiments.cases import read_settings
from fairlead.experiments.rows import columns, from_csv, to_csv
from fairlead.experiments.simppo_bench import Served, degradation, judge_scaler
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


def test_a_run_is_judged_by_its_requests():
    scenario = alone(tenants_scenario(2, nodes=1), "primes")
    few = judge_scaler(scenario, make_policy("static-replicas", {"replicas": 1}), 0, duration_s=200.0)
    many = judge_scaler(scenario, make_policy("static-replicas", {"replicas": 6}), 0, duration_s=200.0)
    assert many.p99_s["primes"] < few.p99_s["primes"]
    assert many.mean_attainment >= few.mean_attainment
    assert many.vcpu_hours == pytest.approx(6 * few.vcpu_hours, rel=0.05)


def isolation_claims(**degraded):
    labels = {isolation.ALONE: 0.0, **degraded}
    runs = {label: [served(1.0 + more), served(1.0 + more)] for label, more in labels.items()}
    return list(isolation.judge(from_csv(to_csv(isolation._rows(runs, [])))))


def test_isolation_claims_follow_from_the_degradations():
    claims = isolation_claims(**{isolation.AMONG: 0.3, isolation.SIMPPO: 0.05, "threshold": 1.5})
    assert [claim.verdict for claim in claims] == ["met"] * 4
    assert claims[2].ours.startswith("6.0x")
    claims = isolation_claims(**{isolation.AMONG: 9.0, isolation.SIMPPO: 0.2, "threshold": 1.5})
    # 10 times alone is more than the printed 4.8, 20 % more than 9.2 %, 45x more than 2x, and 7.5x less than 21.4x.
    assert [claim.verdict for claim in claims] == ["not met", "not met", "met", "not met"]


def test_nothing_lost_is_infinitely_less_than_something():
    claims = isolation_claims(**{isolation.AMONG: 0.3, isolation.SIMPPO: -0.1, "threshold": 0.5})
    assert [claim.verdict for claim in claims] == ["met"] * 4
    assert "against none" in claims[2].ours


def change(functions, drop, episodes=30):
    """Two seeds, hardly apart."""
    row = {"functions": functions, "episodes": episodes}
    return [row | {"seed": seed, "drop_percent": drop + 0.01 * seed} for seed in (0, 1)]


def test_a_hump_is_one_only_between_the_ends():
    hump = [*change(5, 1.0), *change(20, 4.0), *change(110, 2.0, 40)]
    rising = [*change(5, 1.0), *change(20, 2.0), *change(110, 4.0, 60)]
    assert [claim.verdict for claim in incremental.judge(hump)] == ["met", "met", "met"]
    assert [claim.verdict for claim in incremental.judge(rising)] == ["not met", "not met", "not met"]
    once = [row for row in rising if row["seed"] == 0]
    assert [claim.verdict for claim in incremental.judge(once)] == ["not decided"] * 3


@pytest.mark.parametrize(
    ("turns", "p95", "verdict"),
    [
        ("20 20 21", 49.0, "met"),
        ("20 20 21", 51.0, "not met"),
        ("51 52 53", 53.0, "not met"),
        ("20 49", 49.0, "not decided"),
    ],
)
def test_a_turn_must_be_short_enough_on_average_and_at_its_p95(turns, p95, verdict):
    few = {
        "functions": 12,
        "decision_ms": 1.0,
        "decision_ms_p95": 1.0,
        "decision_cpu_ms": 1.0,
        "decision_cpu_ms_p95": 1.0,
    }
    most = few | {"functions": 1000, "decision_ms_p95": p95, "turn_ms": 20, "turn_ms_by_seed": turns}
    (claim,) = scale.judge([few, most])
    assert claim.verdict == verdict
    assert "1,000 functions" in claim.claim


def test_aware_agents_must_lead_beyond_the_interval():
    def verdict(aware):
        both = ((workflows.AWARE, aware), (workflows.UNAWARE, (0.95, 0.94)))
        (claim,) = workflows.judge([{"scaler": label, **columns("attainment", own, 4)} for label, own in both])
        return claim.verdict

    assert verdict((0.99, 0.98)) == "met"
    assert verdict((0.99, 0.93)) == "not decided"
    assert verdict((0.91, 0.90)) == "not met"


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
