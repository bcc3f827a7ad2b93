"""Placement fronts: which placements are on them, against brute force and against other algorithms."""

from fractions import Fraction
from itertools import pairwise, product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.planning import brute_force_front, placement_front
from fairlead.planning.decomposition import Kind, decompose

# The thesis' benchmark: 3/2, 5/1 and 1/5 ms on CPU/GPU at 5 and 15 units per ms, and 1 ms to load, which is free.
LINEAR = [[], [0], [1]]
CPU_GPU = [[(4, 15), (3, 30)], [(6, 25), (2, 15)], [(2, 5), (6, 75)]]
N = [[], [], [0], [0, 1]]


def members(front):
    return list(zip(front.latency_s.tolist(), front.cost_usd.tolist(), strict=True))


def test_front_of_the_thesis_benchmark():
    front = placement_front(LINEAR, CPU_GPU)
    assert members(front) == [(7.0, 50.0), (8.0, 35.0)]
    assert front.choices.tolist() == [[1, 1, 0], [0, 1, 0]]
    assert front.epsilon == 0


def test_side_by_side_the_slower_counts():
    front = placement_front([[], []], [[(1, 10), (4, 1)], [(2, 10), (3, 1)]])
    # (1 or 4) beside (2 or 3): 2 s cost 20, 3 s cost 11, 4 s cost 2.
    assert members(front) == [(2.0, 20.0), (3.0, 11.0), (4.0, 2.0)]


def test_slack_beside_a_slow_stage_is_not_paid_for():
    front = placement_front([[], []], [[(5, 1)], [(1, 9), (5, 2), (6, 1)]])
    assert members(front) == [(5.0, 3.0), (6.0, 2.0)]


def test_graph_that_is_not_series_parallel():
    front = placement_front(N, [[(1, 4), (2, 1)], [(3, 0)], [(5, 0)], [(1, 3), (3, 0)]])
    # Stage 0 and 2 in a row take 6 or 7; stages 1 and 3 take 4 or 6, and 0 and 3 never more than 5.
    assert members(front) == [(6.0, 4.0), (7.0, 1.0)]


def test_of_equal_placements_one_is_kept():
    front = placement_front(LINEAR, [[(1, 2), (1, 2), (2, 1)]] * 3)
    assert members(front) == [(3.0, 6.0), (4.0, 5.0), (5.0, 4.0), (6.0, 3.0)]
    again = placement_front(LINEAR, [[(1, 2), (1, 2), (2, 1)]] * 3)
    assert front.choices.tolist() == again.choices.tolist()
    assert front.choices.max() == 2
    assert 1 not in front.choices  # the first of two equal options


def test_sums_that_are_equal_on_paper_are_one_member():
    # 0.1 + 0.2 is not 0.3 for a computer.
    options = [[(0.1, 0.3), (0.2, 0.2), (0.3, 0.1)]] * 3
    front = placement_front(LINEAR, options)
    assert front.latency_s == pytest.approx([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    assert len(brute_force_front(LINEAR, options)) == 7


def test_what_does_not_exist_is_not_chosen():
    front = placement_front([[], [0]], [[(inf, 0), (2, 1)], [(1, 1), (0, inf)]])
    assert members(front) == [(3.0, 2.0)]
    assert front.choices.tolist() == [[1, 0]]


@pytest.mark.parametrize("search", [placement_front, brute_force_front])
def test_stage_without_an_option_leaves_no_placement(search):
    for nothing in ([], [(inf, 1.0)]):
        front = search(N, [[(1, 1)], nothing, [(1, 1)], [(1, 1)]])
        assert len(front) == 0
        assert front.choices.shape == (0, 4)
        assert front.within(10, 10) == slice(0, 0)


@pytest.mark.parametrize("search", [placement_front, brute_force_front])
def test_no_stages_take_no_time(search):
    assert members(search([], [])) == [(0.0, 0.0)]


@pytest.mark.parametrize(
    ("graph", "options", "message"),
    [
        ([[0]], [[(1, 1)]], "topological order"),
        ([[]], [], "every stage needs its options"),
        ([[]], [[(-1.0, 1)]], "must not be negative"),
        ([[]], [[(float("nan"), 1)]], "must not be negative"),
    ],
)
@pytest.mark.parametrize("search", [placement_front, brute_force_front])
def test_what_makes_no_sense_is_refused(search, graph, options, message):
    with pytest.raises(ValueError, match=message):
        search(graph, options)


def test_ranges_of_the_parameters():
    with pytest.raises(ValueError, match="limit must be at least 16; got 1"):
        placement_front([[]], [[(1, 1)]], limit=1)
    with pytest.raises(ValueError, match=r"epsilon must be in \[0, 1\); got 1"):
        placement_front([[]], [[(1, 1)]], epsilon=1)


def test_brute_force_knows_its_limit():
    with pytest.raises(ValueError, match="1,000,000 placements at most; got 1,048,576"):
        brute_force_front([[]] * 20, [[(1, 2), (2, 1)]] * 20)


def random_graph(rng, stages):
    share = rng.random()
    return [[j for j in range(i) if rng.random() < share] for i in range(stages)]


def kernel_graph(rng, stages):
    """One that is not series-parallel: an N, and more stages at random."""
    return N + [[j for j in range(i) if rng.random() < 0.3] for i in range(4, stages)]


def random_options(rng, stages, draw):
    return [[tuple(row) for row in draw((int(rng.integers(1, 4)), 2)).tolist()] for _ in range(stages)]


@pytest.mark.parametrize("start", range(0, 500, 100))
def test_front_equals_brute_force(start):
    """500 random graphs of up to 8 stages and 3 options; every other has whole numbers, hence exact ties."""
    for seed in range(start, start + 100):
        rng = np.random.default_rng(seed)
        graph = kernel_graph(rng, int(rng.integers(4, 9))) if seed % 3 == 0 else random_graph(rng, rng.integers(1, 9))
        is_whole = seed % 2 == 0
        options = random_options(rng, len(graph), (lambda size: rng.integers(0, 9, size)) if is_whole else rng.random)  # noqa: B023
        found, truth = placement_front(graph, options), brute_force_front(graph, options)
        assert found.epsilon == 0
        if is_whole:
            assert members(found) == members(truth), (graph, options)
        else:
            assert np.array(members(found)) == pytest.approx(np.array(members(truth)), rel=1e-12), (graph, options)


def test_decimals_are_compared_as_decimals():
    """Against exact fractions, written without the functions under test."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graph = kernel_graph(rng, 5) if seed % 2 else random_graph(rng, 5)
        tenths = random_options(rng, 5, lambda size: rng.integers(0, 9, size))  # noqa: B023
        outcomes = set()
        for placement in product(*tenths):
            finishes = []
            for predecessors, (latency, _) in zip(graph, placement, strict=True):
                finishes.append(Fraction(latency, 10) + max((finishes[p] for p in predecessors), default=Fraction(0)))
            outcomes.add((max(finishes), sum(Fraction(cost, 1000) for _, cost in placement)))
        best = sorted(o for o in outcomes if not any(x != o and x[0] <= o[0] and x[1] <= o[1] for x in outcomes))
        front = placement_front(graph, [[(a / 10, b / 1000) for a, b in each] for each in tenths])
        assert np.array(members(front)) == pytest.approx(np.array(best, dtype=np.float64), rel=1e-12, abs=1e-15)


def least_cost_by_time(latency_and_cost, horizon):
    """For each whole number of seconds the least cost of one stage within it."""
    least = np.full(horizon + 1, inf)
    for latency, cost in latency_and_cost:
        least[latency:] = np.minimum(least[latency:], cost)
    return least


def in_a_row(one, other):
    sums = [one[: t + 1] + other[t::-1] for t in range(len(one))]
    return np.array([each.min() for each in sums])


@pytest.mark.parametrize("width", [1, 2, 5])
def test_forty_stages_of_four_types_equal_a_table_over_time(width):
    """Layers, each after all of the layer before: the front of whole seconds by dynamic programming over time."""
    rng = np.random.default_rng(width)
    latency = rng.integers(1, 12, (40, 4))
    cost = 12 - latency + rng.integers(0, 4, latency.shape)
    options = np.stack([latency, cost], axis=2).tolist()
    graph = [[j for j in range(i) if j // width == i // width - 1] for i in range(40)]
    table = np.zeros(11 * 40 // width + 1)
    for first in range(0, 40, width):
        layer = sum(least_cost_by_time(options[i], len(table) - 1) for i in range(first, first + width))
        table = in_a_row(table, layer)
    reached = [(float(t), table[t]) for t in range(len(table)) if table[t] < (table[t - 1] if t else inf)]
    front = placement_front(graph, [[tuple(row) for row in each] for each in options])
    assert front.epsilon == 0
    assert members(front) == reached


def test_choices_give_the_latency_and_the_cost():
    rng = np.random.default_rng(3)
    graph = kernel_graph(rng, 12)
    options = random_options(rng, 12, rng.random)
    front = placement_front(graph, options)
    assert any(part.kind is Kind.KERNEL for part in decompose(graph))
    for latency, cost, choice in zip(front.latency_s, front.cost_usd, front.choices, strict=True):
        finishes = []
        for predecessors, each, index in zip(graph, options, choice, strict=True):
            finishes.append(max((finishes[p] for p in predecessors), default=0.0) + each[index][0])
        assert max(finishes) == latency
        assert sum(each[index][1] for each, index in zip(options, choice, strict=True)) == cost


WHOLE = st.tuples(st.integers(0, 12), st.integers(0, 12))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_front_is_ordered_and_within_is_an_intersection(data):
    stages = data.draw(st.integers(1, 6))
    graph = [data.draw(st.lists(st.integers(0, i - 1), unique=True)) if i else [] for i in range(stages)]
    front = placement_front(graph, [data.draw(st.lists(WHOLE, min_size=1, max_size=4)) for _ in range(stages)])
    assert all(a < b for a, b in pairwise(front.latency_s.tolist()))
    assert all(a > b for a, b in pairwise(front.cost_usd.tolist()))
    latency_s, cost_usd = data.draw(st.tuples(st.integers(0, 40), st.integers(0, 40)))
    chosen = front.within(latency_s, cost_usd)
    inside = [(a, b) for a, b in members(front) if a <= latency_s and b <= cost_usd]
    assert members(front)[chosen] == inside
    assert chosen.start <= chosen.stop


def test_front_cannot_be_changed():
    front = placement_front(LINEAR, CPU_GPU)
    with pytest.raises(ValueError, match="read-only"):
        front.latency_s[0] = 0
