"""Placement fronts that are not exact: the bound that they report holds, and memory stays bounded."""

from functools import partial

import numpy as np
import pytest

from fairlead.planning import brute_force_front, merging, placement, placement_front
from fairlead.planning.bound import distance
from fairlead.planning.kernel import thin_labels
from fairlead.planning.merging import Allowance, Partial, thin

CHAIN = [[i - 1] if i else [] for i in range(8)]
BLOCKS = [[], [0], [], [2], [1, 3], [4], [1, 3], [6]]  # two chains side by side, then again
KERNEL = [[], [], [0], [0, 1], [1], [2, 3], [3, 4], [2, 4]]  # three finish times at once


def on_a_line(rng, stages):
    """Cost is a constant minus latency: no placement beats another."""
    latency = rng.random((stages, 3)) + 0.1
    return [[(a, 2 - a) for a in row] for row in latency.tolist()]


def reach(found, truth):
    """The least factor at which every member of the truth is matched by a found one."""
    slower = np.divide.outer(found.latency_s, truth.latency_s)
    dearer = np.divide.outer(found.cost_usd, truth.cost_usd)
    return np.maximum(np.maximum(slower, dearer), 1.0).min(axis=0).max()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("limit", [16, 64])
def test_bound_holds_when_labels_are_merged(seed, limit):
    options = on_a_line(np.random.default_rng(seed), 8)
    found, truth = placement_front(KERNEL, options, limit=limit), brute_force_front(KERNEL, options)
    assert found.epsilon > 0
    assert 1 < reach(found, truth) <= 1 + found.epsilon
    assert found.latency_s[0] == pytest.approx(truth.latency_s[0], rel=1e-12)
    assert found.cost_usd[-1] == pytest.approx(truth.cost_usd[-1], rel=1e-12)


@pytest.mark.parametrize("graph", [CHAIN, BLOCKS], ids=["chain", "blocks"])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.2])
def test_bound_holds_when_a_series_parallel_front_is_too_large(monkeypatch, graph, epsilon):
    monkeypatch.setattr(placement, "Allowance", partial(Allowance, front_most=40))
    options = on_a_line(np.random.default_rng(5), 8)
    found, truth = placement_front(graph, options, epsilon=epsilon), brute_force_front(graph, options)
    assert len(found) <= 40 < len(truth)
    assert 1 < reach(found, truth) <= 1 + found.epsilon
    assert found.latency_s[0] == pytest.approx(truth.latency_s[0], rel=1e-12)


def test_epsilon_is_kept_where_it_suffices(monkeypatch):
    monkeypatch.setattr(placement, "Allowance", partial(Allowance, front_most=300))
    front = placement_front(CHAIN, on_a_line(np.random.default_rng(6), 8), epsilon=0.1)
    assert 0 < front.epsilon <= 0.1


def test_large_limit_is_exact():
    options = on_a_line(np.random.default_rng(0), 8)
    found, truth = placement_front(KERNEL, options), brute_force_front(KERNEL, options)
    assert found.epsilon == 0
    assert found.latency_s == pytest.approx(truth.latency_s, rel=1e-12)


def test_sums_in_small_chunks_are_the_same(monkeypatch):
    options = on_a_line(np.random.default_rng(7), 8)
    at_once = placement_front(BLOCKS, options)
    monkeypatch.setattr(merging, "_CHUNK", 500)
    in_chunks = placement_front(BLOCKS, options)
    assert in_chunks.epsilon == 0
    assert in_chunks.latency_s.tolist() == at_once.latency_s.tolist()


def test_sums_too_many_to_hold_are_made_from_fewer(monkeypatch):
    monkeypatch.setattr(merging, "_CHUNK", 20)
    options = on_a_line(np.random.default_rng(8), 8)
    found, truth = placement_front(BLOCKS, options), brute_force_front(BLOCKS, options)
    assert len(found) <= 20 < len(truth)
    assert 1 < reach(found, truth) <= 1 + found.epsilon


def test_too_many_pairs_are_made_from_fewer(monkeypatch):
    monkeypatch.setattr(merging, "PAIRS_MOST", 100)
    options = on_a_line(np.random.default_rng(9), 8)
    found, truth = placement_front(BLOCKS, options), brute_force_front(BLOCKS, options)
    assert 1 < reach(found, truth) <= 1 + found.epsilon


def test_thinning_keeps_the_ends_and_measures_what_it_lost():
    latency = np.array([0.0, 1.0, 1.05, 1.2, 2.0])
    left, factor = thin(latency, 4, np.log(1.1))
    assert left.tolist() == [0, 2, 3, 4]  # 1.0 is within a tenth of 1.05, which is cheaper
    assert factor == pytest.approx(1.05)


def test_thinning_labels_keeps_zero_apart():
    labels = np.array([[1.0, 0.0], [1.01, 0.5], [1.02, 0.0], [3.0, 0.5]])
    left, factor = thin_labels(labels, 16, np.log(1.1))
    assert left.tolist() == [0, 1, 3]
    assert factor == pytest.approx(1.0)  # the third is worse than the first, which stands for it


def test_distance_from_what_cannot_be_beaten():
    # N: 0 and 1 first, 2 after 0, 3 after both. Every stage takes 1 s for 2 or 2 s for 1.
    stage = Partial(np.array([1.0, 2.0]), np.array([2.0, 1.0]))
    fastest = Partial(np.array([2.0]), np.array([8.0]), stages=4)
    factor = distance(fastest, [stage] * 4, (0b1100, 0b1000, 0, 0), Allowance(0.01, 4))
    assert factor == pytest.approx(2.0)  # the cheapest costs 4 and takes 4 s


def test_wide_graph_ends_with_a_useful_bound():
    rng = np.random.default_rng(0)
    graph = [[j for j in range(i) if rng.random() < 0.1] for i in range(40)]
    latency = rng.random((40, 4))
    options = [[(a, 1 / (a + 0.1)) for a in row] for row in latency.tolist()]
    front = placement_front(graph, options, limit=256)
    assert 0 < front.epsilon < 1.0
    assert len(front) > 10
