"""How an SLO is divided among the stages of a workflow: groups, shares, and what is left to later ones."""

from itertools import pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.planning import average_weights, proportional, slo_split

CHAIN = [[], [0], [1], [2]]
DIAMOND = [[], [0], [0], [1, 2]]
BRIDGE = [[], [0], [0], [1], [1, 2], [3, 4]]  # 0 forks into 1 and 2, 4 waits for both, 3 for the first only


def near(values):
    return pytest.approx(values, abs=1e-12)


def test_chain_is_split_by_weight_in_groups_of_three():
    split = slo_split(CHAIN, [1, 2, 3, 4])
    assert split.groups == ((0, 1, 2), (3,))
    assert split.group_of == (0, 0, 0, 1)
    assert split.share == near([0.1, 0.2, 0.3, 0.4])
    assert split.group_share == near([0.6, 0.4])
    assert split.finish == near([0.6, 0.6, 0.6, 1.0])


def test_in_a_chain_what_is_left_is_shared_by_what_is_still_to_come():
    split = slo_split(CHAIN, [1, 2, 3, 4])
    assert [split.fraction(stage) for stage in range(4)] == near([6 / 10, 5 / 9, 3 / 7, 1])
    assert [split.rest(stage) for stage in range(4)] == [(0, 1, 2), (1, 2), (2,), (3,)]


@pytest.mark.parametrize(
    ("group_size", "groups"), [(1, ((0,), (1,), (2,), (3,))), (2, ((0, 1), (2, 3))), (9, ((0, 1, 2, 3),))]
)
def test_group_size_bounds_what_is_planned_together(group_size, groups):
    split = slo_split(CHAIN, [1, 1, 1, 1], group_size=group_size)
    assert split.groups == groups
    assert split.share == near([0.25] * 4)


def test_both_arms_of_a_diamond_have_the_same_deadline():
    split = slo_split(DIAMOND, [1, 1, 3, 1])
    assert split.groups == ((0,), (1,), (2,), (3,))
    assert split.share == near([0.2, 0.6, 0.6, 0.2])  # the light arm has the heavy one's time
    assert split.finish == near([0.2, 0.8, 0.8, 1.0])
    assert split.fractions == near([1 / 5, 3 / 4, 3 / 4, 1])


def test_unequal_arms_are_split_within_before_the_tail():
    # 0, then 1-2 (2 and 4) beside 3 (3), then 4-5 (1 and 2): 10 in all, the region 6
    split = slo_split([[], [0], [1], [0], [2, 3], [4]], [1, 2, 4, 3, 1, 2])
    assert split.groups == ((0,), (1, 2), (3,), (4, 5))
    assert split.share == near([0.1, 0.2, 0.4, 0.6, 0.1, 0.2])
    assert split.finish == near([0.1, 0.7, 0.7, 0.7, 1.0, 1.0])
    # 1-2 have all of the region: 6 of the 9 that are left; 2 has 4 of 7; then 3 of 3.
    assert [split.fraction(stage) for stage in (1, 2, 3, 4, 5)] == near([6 / 9, 4 / 7, 6 / 9, 1, 1])


def test_an_arm_is_stretched_to_the_time_of_its_region():
    # 1-2-3-4 of weight 1 each beside 5 of weight 8, between 0 and 6 of weight 1: the arm has 0.8 of the SLO.
    split = slo_split([[], [0], [1], [2], [3], [0], [4, 5]], [1, 1, 1, 1, 1, 8, 1])
    assert split.groups == ((0,), (1, 2, 3), (4,), (5,), (6,))
    assert split.share == near([0.1, 0.2, 0.2, 0.2, 0.2, 0.8, 0.1])
    assert split.finish == near([0.1, 0.7, 0.7, 0.7, 0.9, 0.9, 1.0])
    assert split.fraction(1) == near(0.6 / 0.9)
    assert split.fraction(4) == near(0.2 / 0.3)  # of the region all that is left, of the whole 2 parts of 3


def test_a_diamond_in_an_arm_is_split_by_the_same_rule():
    # 0; then [1; 2 beside 3; 4] beside 5; then 6
    split = slo_split([[], [0], [1], [1], [2, 3], [0], [4, 5], [6]], [2, 1, 1, 2, 1, 1, 1, 1])
    assert split.share == near([0.25, 0.125, 0.25, 0.25, 0.125, 0.5, 0.125, 0.125])
    assert split.finish == near([0.25, 0.375, 0.625, 0.625, 0.75, 0.75, 1.0, 1.0])
    assert split.fraction(2) == near(0.25 / 0.625)


def test_in_a_bridge_each_stage_has_its_part_of_the_heaviest_path_through_it():
    split = slo_split(BRIDGE, [1, 2, 1, 1, 2, 1])
    # The region 1..4 has 4 of 6: 1-4 makes 4, 1-3 makes 3 (of stretch 4/3), 2-4 makes 3.
    assert split.groups == ((0,), (1,), (2,), (3,), (4,), (5,))
    assert split.share == near([1 / 6, 2 / 6, 4 / 6 / 3, 4 / 6 / 3, 2 / 6, 1 / 6])
    assert split.finish == near([1 / 6, 3 / 6, 1 / 6 + 4 / 18, 5 / 6, 5 / 6, 1])
    assert split.fraction(2) == near((4 / 18) / (5 / 6))


def test_where_all_of_one_set_precede_all_of_another_no_stage_between_is_needed():
    split = slo_split([[], [], [0, 1], [0, 1]], [1, 3, 1, 3])
    assert split.share == near([0.5] * 4)
    assert split.finish == near([0.5, 0.5, 1, 1])


def test_two_sources_and_two_sinks_have_the_whole_time():
    split = slo_split([[], [], [0, 1], [2], [2]], [1, 3, 1, 4, 2])
    assert split.share == near([3 / 8, 3 / 8, 1 / 8, 4 / 8, 4 / 8])
    assert split.finish == near([3 / 8, 3 / 8, 4 / 8, 1, 1])


def test_what_does_not_hang_together_is_side_by_side():
    split = slo_split([[], [0], [], [2], [3]], [1, 3, 1, 1, 2])
    assert split.groups == ((0, 1), (2, 3, 4))
    assert split.share == near([1 / 4, 3 / 4, 1 / 4, 1 / 4, 2 / 4])
    assert split.finish == near([1] * 5)


def test_an_implied_precedence_changes_nothing():
    assert slo_split([[], [0], [0, 1], [0, 2]], [1, 2, 3, 4]) == slo_split(CHAIN, [1, 2, 3, 4])


def test_an_empty_workflow_has_no_groups():
    assert slo_split([], []).groups == ()


def test_weights_of_nothing_are_equal():
    assert slo_split(CHAIN, [0, 0, 0, 0]).share == near([0.25] * 4)


def test_a_stage_of_no_weight_still_has_a_little_time():
    split = slo_split(CHAIN, [0, 1, 1, 0], group_size=1)
    assert split.share == pytest.approx([0, 0.5, 0.5, 0], abs=1e-8)
    assert min(split.share) > 0
    assert min(split.fractions) > 0


@pytest.mark.parametrize(
    ("graph", "weights", "message"),
    [
        ([[], [0]], [1], "got 2 stages and 1 weights"),
        ([[1], []], [1, 1], "stage 0 names 1"),
        ([[]], [-1], "must be finite and not negative"),
        ([[]], [inf], "must be finite and not negative"),
        ([[]], [float("nan")], "must be finite and not negative"),
    ],
)
def test_what_cannot_be_split_is_refused(graph, weights, message):
    for divide in (slo_split, proportional):
        with pytest.raises(ValueError, match=message):
            divide(graph, weights)


def test_a_group_holds_at_least_one():
    with pytest.raises(ValueError, match="group_size must be at least 1; got 0"):
        slo_split(CHAIN, [1, 1, 1, 1], group_size=0)


def test_the_plain_split_looks_at_the_heaviest_path_through_a_stage():
    assert proportional(DIAMOND, [1, 1, 3, 1]) == near([1 / 5, 1 / 3, 3 / 5, 1 / 5])
    assert proportional(CHAIN, [1, 2, 3, 4]) == near([0.1, 0.2, 0.3, 0.4])


def test_average_weights_are_parts_of_each_configuration():
    # 1 of 4 and 30 of 40: the mean of 1/4 and 3/4, though the second takes ten times as long
    assert average_weights([[1, 30], [3, 10]]) == near([0.5, 0.5])


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([[1, 3], [6]], [0.25, 0.75]),  # unlike lists: means 2 and 6
        ([[1, inf], [3, 5]], [0.25, 0.75]),  # only the first configuration runs both
        ([[2, inf], [inf, 6]], [0.25, 0.75]),  # none does
        ([[0, 0], [0, 0]], [0.5, 0.5]),
        ([], []),
    ],
    ids=["unlike", "not-all-run", "none-common", "all-zero", "empty"],
)
def test_average_weights_use_what_is_finite(times, expected):
    assert average_weights(times) == near(expected)


@pytest.mark.parametrize(("times", "message"), [([[1], [inf]], "stage 1 has none"), ([[1], [-1]], "for stage 1")])
def test_average_weights_need_times(times, message):
    with pytest.raises(ValueError, match=message):
        average_weights(times)


def heaviest(graph, values):
    """The largest sum of these values over any path."""
    sums = []
    for predecessors, value in zip(graph, values, strict=True):
        sums.append(value + max((sums[each] for each in predecessors), default=0.0))
    return max(sums, default=0.0)


def check(graph, weights, group_size):
    split = slo_split(graph, weights, group_size=group_size)
    stages = range(len(graph))
    after = [[j for j in stages if i in graph[j]] for i in stages]
    for values in (split.share, proportional(graph, weights)):
        assert min(values) > 0
        assert heaviest(graph, values) <= 1 + 1e-9
    assert sorted(stage for group in split.groups for stage in group) == list(stages)
    for position, group in enumerate(split.groups):
        assert 1 <= len(group) <= group_size
        assert all(split.group_of[stage] == position for stage in group)
        assert sum(split.share[stage] for stage in group) == pytest.approx(split.group_share[position])
        for a, b in pairwise(group):
            assert a in graph[b]
            assert all(x == b or leads_to(graph, b, x) for x in after[a])  # what else waits for a waits for b too
            assert all(x == a or leads_to(graph, x, a) for x in graph[b])
    for stage in stages:
        assert 0 < split.fraction(stage) <= 1
        assert 0 < split.finish[stage] <= 1 + 1e-12
        for each in graph[stage]:
            is_same = split.group_of[each] == split.group_of[stage]
            assert split.finish[each] == split.finish[stage] if is_same else split.finish[each] < split.finish[stage]
    # Who takes all of what a group may take, by weight inside it, is done when planned, and the last at the deadline.
    done = [0.0] * len(graph)
    for stage in stages:
        start = max((done[each] for each in graph[stage]), default=0.0)
        rest = split.rest(stage)
        part = split.share[stage] / sum(split.share[each] for each in rest)
        done[stage] = start + (1 - start) * split.fraction(stage) * part
        assert done[stage] <= split.finish[stage] + 1e-9
    assert max(done) == pytest.approx(1)


def leads_to(graph, first, last):
    reached = {first}
    for stage in range(first + 1, last + 1):
        if reached & set(graph[stage]):
            reached.add(stage)
    return last in reached


def test_shares_of_a_thousand_random_graphs_are_sound():
    rng = np.random.default_rng(5)
    for _ in range(1000):
        count = int(rng.integers(1, 16))
        reach = int(rng.integers(1, 8))  # short reaches make chains and braids, long ones forks
        density = rng.uniform(0.05, 0.9)
        graph = [
            [int(each) for each in range(max(0, stage - reach), stage) if rng.random() < density]
            for stage in range(count)
        ]
        weights = np.where(rng.random(count) < 0.1, 0.0, rng.exponential(size=count) ** 3)
        check(graph, weights.tolist(), int(rng.integers(1, 5)))


trees = st.recursive(
    st.integers(1, 9),
    lambda inner: st.tuples(st.sampled_from(["series", "parallel"]), st.lists(inner, min_size=2, max_size=4)),
    max_leaves=14,
)


def plant(tree, graph, weights, before):
    """Add this tree's stages after those; gives its sinks."""
    if isinstance(tree, int):
        graph.append(list(before))
        weights.append(tree)
        return [len(graph) - 1]
    kind, inner = tree
    if kind == "parallel":
        return [sink for each in inner for sink in plant(each, graph, weights, before)]
    for each in inner:
        before = plant(each, graph, weights, before)
    return before


def flat(tree):
    """A series as the list of what follows each other, those inside it included."""
    if isinstance(tree, int) or tree[0] == "parallel":
        return [tree]
    return [unit for each in tree[1] for unit in flat(each)]


def weigh(tree):
    if isinstance(tree, int):
        return tree
    return (sum if tree[0] == "series" else max)(weigh(each) for each in tree[1])


def divide(tree, length):
    """The shares of a tree's stages, straight from its definition."""
    units = flat(tree)
    whole = sum(weigh(unit) for unit in units)
    for unit in units:
        part = length * weigh(unit) / whole
        if isinstance(unit, int):
            yield part
        else:
            for arm in unit[1]:
                yield from divide(arm, part)


@settings(max_examples=60, deadline=None)
@given(trees)
def test_series_parallel_graphs_are_split_by_their_definition(tree):
    graph, weights = [], []
    plant(tree, graph, weights, [])
    if isinstance(tree, tuple) and tree[0] == "parallel":
        expected = list(divide(("series", [tree]), 1.0))
    else:
        expected = list(divide(tree, 1.0))
    assert slo_split(graph, weights).share == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(trees, st.integers(1, 4))
def test_series_parallel_graphs_are_sound(tree, group_size):
    graph, weights = [], []
    plant(tree, graph, weights, [])
    check(graph, weights, group_size)


def test_hundreds_of_stages_nested_deeply_are_split():
    graph, open_forks = [[]], []
    for _ in range(250):  # a fork in an arm of a fork, 250 deep
        fork = len(graph) - 1
        graph += [[fork], [fork]]
        open_forks.append(len(graph) - 2)
    last = len(graph) - 1
    for side in reversed(open_forks):
        graph.append([last, side])
        last = len(graph) - 1
    split = slo_split(graph, [1.0] * len(graph))
    assert heaviest(graph, split.share) == pytest.approx(1)
    assert len(split.groups) == len(graph)
