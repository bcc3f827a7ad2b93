"""Table 4.1 and the admission sweep: that the cells are the printed ones, and the bound is what it says."""

import csv
import io
from importlib.resources import files

import pytest

from fairlead.engine import simulate
from fairlead.experiments import run_experiment
from fairlead.experiments.admission_sweep.run import _overload_claim
from fairlead.experiments.cases import read_settings
from fairlead.experiments.claims import exact
from fairlead.experiments.families import bound_rps, one_model, random_dag, with_load
from fairlead.experiments.table_4_1.run import _cells, _policy, _prints_as, _row, _scenario
from fairlead.policy import make_policy
from fairlead.report import summarise
from fairlead.workload import Poisson

SETTINGS = read_settings("fairlead.experiments.table_4_1")


@pytest.mark.parametrize("system", ["FIFO", "Clockwork"])
def test_every_cell_of_a_rival_is_the_printed_one(system):
    policy = _policy(SETTINGS["rivals"][system])
    rows = [_row(system, ms, simulate(_scenario(SETTINGS, ms), policy)) for ms in SETTINGS["objectives_ms"]]
    claims = list(_cells(SETTINGS, system, rows))
    assert len(claims) == 16
    assert {claim.verdict for claim in claims} == {"met"}
    assert [claim.kind for claim in claims].count("reproduction") == 8  # the cells that are printed


def test_printing_cuts_off_or_rounds():
    assert _prints_as(0.49).verdict(exact(0.4998)) == "met"
    assert _prints_as(0.42).verdict(exact(0.4167)) == "met"
    assert _prints_as(0.49).verdict(exact(0.51)) == "not met"


@pytest.mark.parametrize(("selection", "at_least"), [("fastest", 195), ("balanced", 220)])
def test_admission_control_answers_what_the_table_could_not(selection, at_least):
    policy = make_policy("dag-admission", {"selection": selection})
    row = _row(selection, 20, simulate(_scenario(SETTINGS, 20), policy))
    assert row["kept"] == row["admitted"]
    assert row["kept"] / row["makespan_ms"] * 1000 >= at_least


@pytest.mark.parametrize("selection", ["fastest", "balanced", "cheapest", "random"])
def test_a_row_is_the_committed_one(selection):
    text = (files("fairlead.experiments.table_4_1") / "expected.csv").read_text(encoding="utf-8")
    rows = [r for r in csv.DictReader(io.StringIO(text)) if r["system"] == selection and not r["dag"]]
    (committed,) = [row for row in rows if row["objective_ms"] == "40"]
    policy = make_policy("dag-admission", {"selection": selection})
    row = _row(selection, 40, simulate(_scenario(SETTINGS, 40), policy))
    assert {key: str(value) for key, value in row.items()} == {key: committed[key] for key in row}


def test_the_bound_of_the_chain_is_the_linear_program_of_its_two_placements():
    # GPU 5 ms and CPU 2 ms, or GPU 2 ms and CPU 6 ms: 4/26 and 3/26 of them per ms use up both.
    assert bound_rps(_scenario(SETTINGS, 20)) == pytest.approx(7 / 26 * 1000)


def test_nobody_answers_more_than_the_bound():
    scenario = random_dag(5)
    summary = summarise(simulate(scenario, "dag-admission"))
    assert summary.completed / summary.makespan_s <= bound_rps(scenario) * 1.02  # the first and last are not steady


@pytest.mark.parametrize("policy", ["dag-admission", "clockwork"])
def test_goodput_is_level_under_overload(policy):
    bench = one_model({1: 0.003, 4: 0.006, 16: 0.016}, load_s=0.008, latency_s=0.1)
    goodputs = []
    for load in (1.3, 4):
        summary = summarise(simulate(with_load(bench, Poisson("single", 1000 * load), 0.6), policy))
        goodputs.append(summary.slo_attainment * summary.requests / 0.7)
    assert min(goodputs) > 0.85 * max(goodputs) > 600


@pytest.mark.slow
@pytest.mark.parametrize(("name", "missed"), [("table-4.1", 0), ("admission-sweep", 1)])
def test_a_quick_run_misses_no_more_claims_than_the_known_ones(name, missed):
    result = run_experiment(name, quick=True)
    assert len([claim for claim in result.claims if claim.verdict == "not met"]) <= missed


def overloaded(system, goodputs):
    """Rows of one system on one bench; each goodput is that of two seeds."""
    loads = (0.8, 1.3, 3, 10)
    return [
        {"part": "overload", "bench": "chain", "system": system, "load": load, "goodput_rps": pair[0]}
        | {"goodput_rps_by_seed": f"{pair[0]} {pair[1]}"}
        for load, pair in zip(loads, goodputs, strict=True)
    ]


def test_goodput_under_overload_is_judged_over_the_seeds():
    settings = read_settings("fairlead.experiments.admission_sweep")
    level = overloaded("dag-admission", [(100, 100), (98, 98), (97, 97), (96, 96)])
    assert _overload_claim(settings, "chain", "dag-admission", level).verdict == "met"
    fallen = overloaded("dag-admission", [(100, 100), (98, 98), (50, 50), (10, 10)])
    assert _overload_claim(settings, "chain", "dag-admission", fallen).verdict == "not met"
    noisy = overloaded("dag-admission", [(100, 100), (98, 98), (97, 97), (99, 80)])
    assert _overload_claim(settings, "chain", "dag-admission", noisy).verdict == "not decided"
    once = [{key: value for key, value in row.items() if key != "goodput_rps_by_seed"} for row in level]
    assert _overload_claim(settings, "chain", "dag-admission", once).verdict == "not decided"
