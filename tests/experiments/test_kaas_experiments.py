"""The registry of experiments, and the KaaS ones: what they claim, and that their tables are the committed ones."""

import csv
import io
import json
from importlib import import_module
from importlib.resources import files

import pytest

from fairlead.errors import UnknownNameError
from fairlead.experiments import EXPERIMENTS, Reproduction, committed_experiment, experiment_names, run_experiment
from fairlead.experiments.cases import Case, measure, run_case
from fairlead.experiments.claims import decide, equal, exact
from fairlead.workload import load_scenario

KAAS = ("kaas-poisson", "kaas-sweeps", "kaas-traces")
SWEEPS_MISSED = [
    "Round Robin has the longest mean wait at every load",
    "Mean waits fall as GPUs are added",
    "The cold-start time has no discernible effect on waits",
    "The execution time has no effect on waits",
    "The execution time has no effect on wait / execution time",
    "The number of clients has no effect on waits",
]


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def expected(name):
    folder = files(EXPERIMENTS[name].module.rpartition(".")[0])
    return rows_of((folder / "expected.csv").read_text(encoding="utf-8"))


def same(one, other):
    """Whether two cells agree: numbers up to the last digit that is written."""
    try:
        return float(one) == pytest.approx(float(other), rel=1e-3, abs=2e-3)
    except ValueError:
        return one == other


def assert_rows(found, wanted):
    assert len(found) == len(wanted)
    for row, want in zip(found, wanted, strict=True):
        assert row.keys() == want.keys()
        different = {key: (row[key], want[key]) for key in row if not same(row[key], want[key])}
        assert not different, (want, different)


def missed(result):
    return [claim.claim for claim in result.claims if claim.verdict != "met"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_a_folder_with_all_its_parts(name):
    experiment = EXPERIMENTS[name]
    module = import_module(experiment.module)
    assert callable(module.run)
    assert callable(module.judge)
    folder = files(experiment.module.rpartition(".")[0])
    for part in ("README.md", "experiment.yaml", "expected.csv"):
        assert (folder / part).is_file(), part
    assert f"fairlead reproduce {name}" in (folder / "README.md").read_text(encoding="utf-8")


def test_names_come_with_one_line_each():
    names = experiment_names()
    assert set(KAAS) <= set(names)
    assert all(line and "\n" not in line for line in names.values())


def test_an_unknown_experiment_is_named_with_the_near_misses():
    with pytest.raises(UnknownNameError, match=r"No experiment named 'kaas-trace'. Did you mean 'kaas-traces'"):
        run_experiment("kaas-trace")


def test_json_has_the_documented_shape():
    claim = decide("FIFO, 20 ms: answers in time", equal(3), exact(3), paper=3)
    result = Reproduction(name="table-4.1", title="A table", claims=(claim,), rows=({"a": 1}, {"b": 2}), notes=("n",))
    assert json.loads(json.dumps(result.to_json())) == {
        "name": "table-4.1",
        "claims": [
            {
                "claim": "FIFO, 20 ms: answers in time",
                "paper": 3,
                "ours": 3,
                "interval": [3, 3],
                "rule": "equal",
                "verdict": "met",
                "kind": "reproduction",
                "note": None,
            }
        ],
        "rows": [{"a": 1}, {"b": 2}],
    }
    assert result.to_csv() == "a,b\n1,\n,2\n"


def test_means_do_not_depend_on_how_the_work_is_spread():
    overrides = {"policy": {"dispatch": "kaas-balance"}, "duration_s": 100}
    cases = [Case(f"case {i}", "kaas-poisson", overrides | {"rate_scale": 0.5 + i / 10}) for i in range(6)]
    together = measure(cases, range(10), lambda done, what: None)  # enough runs for two processes
    for case in cases:
        alone = measure([case], range(10), lambda done, what: None)[case.name]
        assert alone.estimates["wait_s.mean"] == together[case.name].estimates["wait_s.mean"]
        assert alone.by_seed("wait_s.mean") == together[case.name].by_seed("wait_s.mean")
        assert len(alone.by_seed("wait_s.mean")) == 10


def test_progress_ends_at_one():
    seen = []
    cases = [Case(name, "kaas-example", {}) for name in ("a", "b")]
    measure(cases, range(2), lambda done, what: seen.append((done, what)))
    assert seen == [(0.5, "a"), (1.0, "b")]


def test_traces_are_those_printed():
    result = run_experiment("kaas-traces", quick=True)
    assert missed(result) == ["The printed total times follow from the constants in the text"]
    assert len(result.claims) == 5 * 8 - 1 + 1
    assert_rows(rows_of(result.to_csv()), expected("kaas-traces"))
    json.dumps(result.to_json(), allow_nan=False)


def test_one_point_of_the_poisson_experiment_is_the_committed_one():
    seeds = range(30)
    (case,) = [
        Case("one", "kaas-poisson", {"policy": {"dispatch": "kaas-exclusive", "stealing": False}}),
    ]
    (row,) = [
        row
        for row in expected("kaas-poisson")
        if (row["mix"], row["load"], row["policy"]) == ("equal rates", "0.8", "Exclusive, no stealing")
    ]
    estimates = measure([case], seeds, lambda done, what: None)["one"].estimates
    assert float(row["wait"]) == pytest.approx(estimates["wait_s.mean"].mean, abs=0.01)
    assert float(row["cold_starts"]) == estimates["cold_starts"].mean == 4


def test_the_rates_of_the_mixes_make_the_load_they_say():
    rates = {"equal rates": (0.16, 0.16), "equal work": (0.4, 0.1)}
    scenario = load_scenario("kaas-poisson")
    for resnet, bert in rates.values():
        assert (resnet * 5 + bert * 20) / len(scenario.cluster.nodes) == pytest.approx(1)


def test_a_policy_that_leaves_requests_open_is_not_measured():
    faults = [{"node": f"gpu-{i}", "at_s": 5} for i in (1, 2)]
    with pytest.raises(AssertionError):
        run_case(Case("lost", "kaas-example", {"faults": faults}), range(1))


@pytest.mark.slow
def test_poisson_gives_the_committed_table():
    result = run_experiment("kaas-poisson")
    assert missed(result) == [
        "Cold starts, Exclusive, 150 %",
        "Round Robin has the longest wait of BERT (equal rates)",
        "SRTF, mean wait of BERT at a load of 0.8",
    ]
    assert_rows(rows_of(result.to_csv()), expected("kaas-poisson"))


def test_what_is_said_of_the_sweeps_follows_from_the_committed_table():
    assert missed(committed_experiment("kaas-sweeps")) == SWEEPS_MISSED


@pytest.mark.slow
def test_sweeps_give_the_committed_table():
    result = run_experiment("kaas-sweeps")
    assert missed(result) == SWEEPS_MISSED
    assert_rows(rows_of(result.to_csv()), expected("kaas-sweeps"))
