"""The growth experiment: its load, its claims, and that its table is the committed one."""

import numpy as np
import pytest

from fairlead.experiments import committed_experiment, run_experiment
from fairlead.experiments.cases import read_settings
from fairlead.experiments.growth.run import GROWING, best_fixed, instants, judge, rates

SETTINGS = read_settings("fairlead.experiments.growth")
CALM = {**SETTINGS["load"], "walk_deviation": 0.0, "bursts": 0}


def row(scenario, cluster, attainment, node_hours):
    nodes = None if cluster == GROWING else int(cluster.split()[0])
    seeds = {
        "attainment_by_seed": " ".join(map(str, attainment)),
        "node_hours_by_seed": " ".join(map(str, node_hours)),
    }
    means = {"attainment": float(np.mean(attainment)), "node_hours": float(np.mean(node_hours))}
    return {"scenario": scenario, "cluster": cluster, "nodes": nodes, **means, **seeds}


class TestLoad:
    def test_the_rate_goes_from_its_valley_to_five_times_that_and_back(self):
        rate = rates(CALM, 6.0, 1200.0, seed=0)
        assert rate.mean() == pytest.approx(6.0)
        assert rate.max() / rate.min() == pytest.approx(5.0)
        assert rate.argmax() == 600

    def test_a_burst_rises_and_ends(self):
        calm = rates(CALM, 6.0, 1200.0, seed=0)
        factors = rates({**CALM, "bursts": 1}, 6.0, 1200.0, seed=0) / calm
        assert factors.max() == pytest.approx(1.5)
        assert (factors > 1).sum() == 45
        assert np.isclose(factors, 1.5).sum() == 35  # after a rise of 10 s

    def test_arrivals_are_as_many_as_the_rates_say(self):
        rate = rates(SETTINGS["load"], 6.0, 1200.0, seed=1)
        times = instants(rate, seed=1)
        assert len(times) == pytest.approx(rate.sum(), rel=0.05)
        assert (np.diff(times) >= 0).all()
        assert times[-1] < 1200


class TestClaims:
    def test_the_smallest_fixed_cluster_that_is_enough_is_the_one_to_beat(self):
        rows = [row("cpu", f"{n} nodes", [share], [n]) for n, share in ((6, 100), (4, 99.2), (2, 50))]
        assert best_fixed(rows, 0.99)["nodes"] == 4
        assert best_fixed(rows[2:], 0.99)["nodes"] == 2  # none is enough: the best

    def test_verdicts_follow_the_rules(self):
        rows = [
            row("cpu", "4 nodes", [99.5, 99.6, 99.4], [4, 4, 4]),
            row("cpu", GROWING, [99.4, 99.5, 99.3], [2.4, 2.5, 2.6]),
            row("gpu", "4 nodes", [99.5, 99.6, 99.4], [4, 4, 4]),
            row("gpu", GROWING, [97.4, 97.5, 97.3], [3.4, 3.5, 3.6]),
        ]
        assert [claim.verdict for claim in judge(rows)] == ["met", "met", "not met", "not met"]


def test_a_quick_look_has_every_cluster_and_the_columns_of_the_whole():
    result = run_experiment("growth", quick=True)
    assert [(one["scenario"], one["cluster"]) for one in result.rows] == [
        ("cpu", "6 nodes"),
        ("cpu", GROWING),
        ("gpu", "6 nodes"),
        ("gpu", GROWING),
    ]
    assert [figure.name for figure in result.figures] == ["growth", "growth-cpu", "growth-gpu"]
    assert all(one["asked"] == 0 for one in result.rows if one["cluster"] != GROWING)
    assert all(one["asked"] > 0 for one in result.rows if one["cluster"] == GROWING)
    assert list(result.rows[0]) == list(committed_experiment("growth").rows[0])


@pytest.mark.slow
def test_the_table_is_the_committed_one():
    found = run_experiment("growth")
    committed = committed_experiment("growth")
    assert found.to_csv() == committed.to_csv()
    assert [claim.verdict for claim in found.claims] == [claim.verdict for claim in committed.claims]
