"""The pipelines experiment: what it claims follows from its table, and the table from the model."""

import csv
import io
import json
from importlib.resources import files

import pytest
import yaml

from fairlead.experiments import committed_experiment, run_experiment
from fairlead.experiments.cases import measure, read_settings
from fairlead.experiments.pipelines.claims import crossing, reductions
from fairlead.experiments.pipelines.run import _latency, _table, _throughput
from fairlead.workload import load_scenario

PACKAGE = "fairlead.experiments.pipelines"
SETTINGS = read_settings(PACKAGE)


def rows_of(text):
    """The rows with their types; a cell that is empty is not there."""
    table = csv.DictReader(io.StringIO(text))
    return [{key: yaml.safe_load(cell) for key, cell in row.items() if cell != ""} for row in table]


EXPECTED = rows_of((files(PACKAGE) / "expected.csv").read_text(encoding="utf-8"))


def close(one, other):
    if isinstance(one, float | int) and not isinstance(one, bool):
        return other == pytest.approx(one, rel=1e-3, abs=2e-3)
    return one == other


def missed(claims):
    return [claim.claim for claim in claims if claim.verdict != "met"]


def found(planned):
    """A planned row with the latency, or the throughput, of its first seed."""
    row, case = planned
    return row, measure([case], range(1), lambda done, what: None)[case.name].estimates


def test_the_committed_table_has_every_planned_row():
    planned = [*_table(SETTINGS, False), *_latency(SETTINGS, False), *_throughput(SETTINGS, False)]
    names = [case.name for _, case in planned]
    assert len(set(names)) == len(names)
    for (row, _), expected in zip(planned, EXPECTED, strict=True):
        assert {key: expected[key] for key in row} == row


def test_what_is_claimed_follows_from_the_committed_table():
    claims = committed_experiment("pipelines").claims
    assert missed(claims) == MISSED
    assert all(claim.note for claim in claims if claim.verdict == "not met")
    json.dumps([claim.ours for claim in claims], allow_nan=False)


MISSED = [
    "Table 3.1: the cascade takes so many times as long as the ensemble, on Cloudburst",
    "ensemble, busy load: fusion lowers the mean latency",
    "ensemble, busy load: competition lowers the 99th percentile",
    "ensemble, busy load: batching lowers the 99th percentile",
    "cascade, busy load: fusion lowers the mean latency",
    "cascade, busy load: competition lowers the 99th percentile",
]


def test_table_3_1_of_the_ensemble_can_be_added_up():
    by_system = {}
    for row, estimates in map(found, _table(SETTINGS, True)):
        if row["pipeline"] == "ensemble":
            by_system[row["system"], row.get("call_s")] = estimates["latency_s.mean"].mean
    stages = 0.004 + 0.006 + 0.16 + 0.0005 + 0.0005  # decode, transform, ResNet, join, pick
    assert by_system["Cloudburst", None] == pytest.approx(stages + 5 * 0.001)  # both models in one decision
    for call_s in (0, 0.02, 0.06):  # AlexNet's 20 ms come on top, and three calls
        assert by_system["Clipper", call_s] == pytest.approx(stages + 0.02 + 3 * call_s)


def test_a_reduction_is_the_share_of_clippers_latency_that_is_saved():
    rows = [
        {"part": "table 3.1", "pipeline": "p", "system": "Cloudburst", "latency_ms": 60.0},
        {"part": "table 3.1", "pipeline": "p", "system": "Clipper", "call_s": 0.02, "latency_ms": 100.0},
        {"part": "table 3.1", "pipeline": "p", "system": "Clipper", "call_s": 0, "latency_ms": 80.0},
    ]
    assert reductions(rows, "p") == pytest.approx({0: 0.25, 0.02: 0.4})
    assert crossing({0: 0.25, 0.02: 0.4}, 0.325) == pytest.approx(0.01)
    assert crossing({0: 0.25, 0.02: 0.4}, 0.5) is None


def test_one_gpu_answers_as_fast_as_its_models_allow_at_batches_of_one():
    planned = [(row, case) for row, case in _throughput(SETTINGS, True) if (row["node"], row["batch"]) == ("gpu", 1)]
    for row, estimates in map(found, planned):
        seconds = {"ensemble": 0.0012 + 0.0056, "cascade": 0.0056 + 0.4 * 0.006}[row["pipeline"]]
        assert estimates["goodput_rps"].mean == pytest.approx(1 / seconds, rel=0.05)


def test_resnet_101_lies_halfway_between_the_published_models():
    published = {1: (3, 8.2), 2: (4, 11.7), 4: (6, 17.0), 8: (9, 27.6), 16: (16, 48.5)}
    for name in SETTINGS["scenarios"].values():
        profile = load_scenario(name).profiles["resnet"]
        assert {c.batch: profile.latency_s(c, "gpu") * 1e3 for c in profile.configurations} == pytest.approx(
            {batch: (fifty + one_fifty_two) / 2 for batch, (fifty, one_fifty_two) in published.items()}
        )


@pytest.mark.slow
def test_pipelines_give_the_committed_table():
    result = run_experiment("pipelines")
    assert missed(result.claims) == MISSED
    for row, expected in zip(rows_of(result.to_csv()), EXPECTED, strict=True):
        different = {key: (row[key], expected[key]) for key in expected if not close(expected[key], row[key])}
        assert not different, expected
    assert [figure.name for figure in result.figures] == ["throughput-by-batch", "latency-by-copies", "latency-by-call"]
    assert all(figure.svg.startswith("<svg") for figure in result.figures)
