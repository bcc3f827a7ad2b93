"""The keep-alive experiment: what it claims, and that its table is the committed one."""

import csv
import io
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest

from fairlead.experiments import run_experiment

EXCERPT = Path(__file__).parents[2] / ".." / "shared" / "data" / "azure2019_500"
AT_MOST = "Greedy-dual has at most the cold starts of {} on the same server ({})"


@pytest.fixture(autouse=True)
def no_trace(monkeypatch):
    monkeypatch.delenv("FAIRLEAD_AZURE", raising=False)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def missed(result):
    return [claim.claim for claim in result.claims if claim.verdict != "met"]


def test_a_quick_look_has_every_rule_and_the_shape_of_the_whole():
    seen = []
    result = run_experiment("keep-alive", quick=True, progress=lambda done, what: seen.append(done))
    ample = {row["rule"]: row for row in result.rows if row["where"] == "ample"}
    fixed = [ample[f"fixed {minutes} min"] for minutes in (5, 10, 20, 30, 60, 120)] + [ample["no unloading"]]
    for shorter, longer in pairwise(fixed):
        assert shorter["cold_starts"] >= longer["cold_starts"]
        assert shorter["wasted_gb_s"] <= longer["wasted_gb_s"]
    assert ample["fixed 10 min"]["wasted_percent"] == 100
    assert all(row["evicted"] == 0 for row in ample.values())
    assert len(result.rows) == 11 + 2 * 5 * 3
    assert [figure.name for figure in result.figures] == ["keep-alive-waste", "keep-alive-rare", "keep-alive-all"]
    assert seen[-1] == 1
    committed = rows_of((files("fairlead.experiments.keep_alive") / "expected.csv").read_text(encoding="utf-8"))
    assert list(result.rows[0]) == list(committed[0])


@pytest.mark.slow
def test_the_table_is_the_committed_one():
    result = run_experiment("keep-alive")
    found = rows_of(result.to_csv())
    committed = rows_of((files("fairlead.experiments.keep_alive") / "expected.csv").read_text(encoding="utf-8"))
    assert found == committed
    assert missed(result) == [
        "A fixed time that wastes as much has so many times the cold share of hybrid, 75th percentile",
        AT_MOST.format("lru", "all functions"),
    ]


@pytest.mark.slow
@pytest.mark.skipif(not EXCERPT.is_dir(), reason="the excerpt of the Azure trace is not here")
def test_the_published_ratio_is_reached_on_the_real_trace(monkeypatch):
    monkeypatch.setenv("FAIRLEAD_AZURE", str(EXCERPT))
    assert missed(run_experiment("keep-alive")) == [
        AT_MOST.format(rival, "all functions") for rival in ("fixed 10 min", "lru")
    ]
