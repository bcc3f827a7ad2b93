"""The Orion cut-off experiment: what it claims follows from its table, and the table is the committed one."""

import csv
import io
from importlib.resources import files

import pytest

from fairlead.experiments import committed_experiment, run_experiment
from fairlead.experiments.cases import measure, read_settings
from fairlead.experiments.esg_orion_cutoff.run import _case, judge

PACKAGE = "fairlead.experiments.esg_orion_cutoff"
MISSED = [
    "ESG has a higher hit rate than Orion, however long that may search (moderate-normal)",
    "ESG has a higher hit rate than Orion, however long that may search (relaxed-heavy)",
]


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def expected():
    return rows_of((files(PACKAGE) / "expected.csv").read_text(encoding="utf-8"))


def missed(result):
    return [claim.claim for claim in result.claims if claim.verdict != "met"]


def row(policy, hit_rate, limit_ms=""):
    seeds = {"hit_rate_by_seed": f"{hit_rate} {hit_rate}"}
    return {"setting": "strict-light", "policy": policy, "search_limit_ms": limit_ms, "hit_rate": hit_rate} | seeds


def table(*curve, esg):
    limits = [row("Orion", rate, 10.0**i) for i, rate in enumerate(curve)]
    return [*limits, row("Orion, ahead of time", 0.7), row("ESG", esg)]


def test_the_shape_is_told_as_it_is():
    depends, better = judge(table(0.2, 0.9, 0.1, esg=0.95))
    assert depends.verdict == "met"
    assert (
        depends.note == "It rises from 0.200 at 1 ms, is best (0.900) at 10 ms, falls after 10 ms, to 0.100 at 100 ms."
    )
    assert better.verdict == "met"
    assert better.ours == "ESG 0.950; Orion 0.900 at 10 ms, 0.700 ahead of time"


def test_a_flat_curve_is_no_dependence_and_a_rival_that_is_as_good_is_said_to_be():
    depends, better = judge(table(0.9, 0.95, esg=0.95))
    assert depends.verdict == "not met"
    assert depends.note == "It rises from 0.900 at 1 ms, is best (0.950) at 10 ms."
    assert better.verdict == "not met"
    assert better.note


def test_what_is_said_follows_from_the_committed_table():
    assert missed(committed_experiment("esg-orion-cutoff")) == MISSED


def test_the_default_limit_is_the_best_of_the_committed_table():
    """Over the three settings together: the rival is shown at its best."""
    totals = {}
    for line in expected():
        if line["policy"] == "Orion":
            limit_ms = float(line["search_limit_ms"])
            totals[limit_ms] = totals.get(limit_ms, 0.0) + float(line["hit_rate"])
    assert max(totals, key=totals.get) == 15.0


@pytest.mark.slow
def test_one_point_is_the_committed_one():
    settings = read_settings(PACKAGE)
    case = _case(settings, "strict-light", "Orion", 0.005)
    found = measure([case], range(settings["seeds"]), lambda done, what: None)[case.name]
    (line,) = (
        line
        for line in expected()
        if (line["setting"], line["policy"], line["search_limit_ms"]) == ("strict-light", "Orion", "5.0")
    )
    assert found.estimates["slo_attainment"].mean == pytest.approx(float(line["hit_rate"]), abs=1e-4)


@pytest.mark.slow
def test_the_experiment_gives_the_committed_table():
    result = run_experiment("esg-orion-cutoff")
    assert missed(result) == MISSED
    assert rows_of(result.to_csv()) == expected()
    assert [figure.name for figure in result.figures] == [
        f"esg-orion-cutoff-{setting}" for setting in ("strict-light", "moderate-normal", "relaxed-heavy")
    ]
