"""Configuration search: three methods against sums over all paths, at the edges of the budget and among equals."""

import subprocess
import sys
from functools import cache
from itertools import accumulate, product
from math import inf, nan, nextafter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.planning import Search, top_paths
from fairlead.planning.search import Recall

FAST = ("frontier", "dual-blade")
METHODS = (*FAST, "brute-force")

# (latency_s, cost_usd) per option. Paths: (0, 0) 2 s for 12, (0, 1) 4 s for 9, (1, 0) 3 s for 7, (1, 1) 5 s for 4.
TWO = [[(1, 8), (2, 3)], [(1, 4), (3, 1)]]


def added(values):
    """The sum in order, as floats."""
    *_, total = accumulate(values)
    return total


def truth(stages, budget_s, k):
    """Every path, with numpy: (cost, choice, latency), cheapest first, then by its choice."""
    latency_s, cost_usd = np.zeros(1), np.zeros(1)
    for stage in stages:  # outer sums add in the order of the stages too
        latency_s = np.add.outer(latency_s, [pair[0] for pair in stage]).ravel()
        cost_usd = np.add.outer(cost_usd, [pair[1] for pair in stage]).ravel()
    in_time = np.flatnonzero((latency_s <= budget_s) & (np.maximum(latency_s, cost_usd) < inf))
    first = in_time[np.argsort(cost_usd[in_time], kind="stable")][:k]
    choices = np.column_stack(np.unravel_index(first, [len(stage) for stage in stages])).tolist()
    return list(zip(cost_usd[first].tolist(), map(tuple, choices), latency_s[first].tolist(), strict=True))


def assert_answers(found, wanted, stages, budget_s):
    """The same costs; and each path is what it says, within the budget, and there once."""
    assert len(found) == len(wanted)
    for path, (cost_usd, _, _) in zip(found, wanted, strict=True):
        assert abs(path.cost_usd - cost_usd) <= 1e-12 * max(1.0, cost_usd)
        options = [stage[i] for stage, i in zip(stages, path.choice, strict=True)]
        assert path.latency_s == added(latency_s for latency_s, _ in options) <= budget_s
        assert path.cost_usd == added(cost_usd for _, cost_usd in options)
    assert len({path.choice for path in found}) == len(found)
    assert found == sorted(found, key=lambda path: (path.cost_usd, path.choice))


def random_stages(rng):
    """One to five stages of one to twelve options: any numbers, decimals, or few whole numbers and thus many ties."""
    count = int(rng.integers(1, 6))
    most = {1: 12, 2: 12, 3: 12, 4: 8, 5: 5}[count]
    kind = rng.integers(5)
    stages = []
    for _ in range(count):
        size = 1 if rng.random() < 0.1 else int(rng.integers(1, most + 1))
        if kind == 0:
            pairs = rng.random((size, 2))
        elif kind == 1:  # cost falls with latency
            latency = rng.random(size)
            pairs = np.column_stack([latency, 1 / (latency + 0.1)])
        elif kind == 2:
            pairs = rng.integers(0, 4, (size, 2)).astype(float)
        elif kind == 3:
            pairs = rng.integers(1, 30, (size, 2)) / 10
        else:
            pairs = rng.integers(1, 12, (size, 2)) / [1000, 1]
        if rng.random() < 0.1:
            pairs[rng.integers(size), rng.integers(2)] = inf
        stages.append(pairs.tolist())
    return stages


def random_budget(rng, stages):
    """Anything, or exactly what a path takes, or the next float below that."""
    choice = [stage[rng.integers(len(stage))][0] for stage in stages]
    exact_s = added(choice)
    if exact_s == inf:
        return inf if rng.random() < 0.5 else 1.0
    kind = rng.integers(5)
    if kind == 0:
        return exact_s
    if kind == 1:
        return nextafter(exact_s, -inf)
    if kind == 2:
        return added(min(latency_s for latency_s, _ in stage) for stage in stages)  # barely feasible, if at all
    return float(exact_s * rng.uniform(0.2, 1.5))


@cache
def instances():
    """2,000 of stages, budget, k and the truth."""
    rng = np.random.default_rng(5)
    cases = []
    for _ in range(2000):
        stages = random_stages(rng)
        budget_s, k = random_budget(rng, stages), int(rng.integers(1, 21))
        cases.append((stages, budget_s, k, truth(stages, budget_s, k)))
    return cases


def test_the_random_instances_are_of_every_kind():
    cases = instances()
    feasible = [case for case in cases if case[3]]
    assert 1000 < len(feasible) < 1900
    assert {len(stages) for stages, *_ in cases} == {1, 2, 3, 4, 5}
    assert {k for _, _, k, _ in cases} == set(range(1, 21))
    assert any(all(len(stage) == 1 for stage in stages) for stages, *_ in cases)
    assert sum(len({cost for cost, *_ in wanted}) < len(wanted) for *_, wanted in cases) > 300  # ties
    barely = [case for case in feasible if any(latency_s == case[1] for _, _, latency_s in case[3])]
    assert len(barely) > 100


@pytest.mark.parametrize("method", METHODS)
def test_two_thousand_random_instances_are_answered_as_by_brute_force(method):
    for stages, budget_s, k, wanted in instances():
        assert_answers(top_paths(stages, budget_s, k, method), wanted, stages, budget_s)


def test_brute_force_prefers_small_indices_among_equals():
    for stages, budget_s, k, wanted in instances()[:500]:
        assert [path.choice for path in top_paths(stages, budget_s, k, "brute-force")] == [c for _, c, _ in wanted]


@pytest.mark.parametrize("method", METHODS)
def test_the_cheapest_in_time_come_first(method):
    found = top_paths(TWO, 5, 3, method)
    assert [(path.choice, path.latency_s, path.cost_usd) for path in found] == [
        ((1, 1), 5.0, 4.0),
        ((1, 0), 3.0, 7.0),
        ((0, 1), 4.0, 9.0),
    ]
    assert [path.choice for path in top_paths(TWO, 4.9, 9, method)] == [(1, 0), (0, 1), (0, 0)]
    assert top_paths(TWO, 1.9, method=method) == []


@pytest.mark.parametrize("method", METHODS)
def test_the_budget_is_compared_with_the_sum_in_the_order_of_the_stages(method):
    stages = [[(0.1, 1)], [(0.2, 1)], [(0.3, 1)]]
    in_order = 0.1 + 0.2 + 0.3
    assert in_order > 0.3 + 0.2 + 0.1 == 0.6
    assert top_paths(stages, 0.6, method=method) == []
    assert len(top_paths(stages, in_order, method=method)) == 1
    assert len(top_paths(stages[::-1], 0.6, method=method)) == 1


@pytest.mark.parametrize("method", METHODS)
def test_what_does_not_exist_is_not_taken(method):
    assert [path.choice for path in top_paths([[(inf, 1), (2, 2), (1, inf)], [(1, 1)]], 9, method=method)] == [(1, 0)]
    assert top_paths([[(1, 1)], []], 9, method=method) == []
    assert top_paths([[(1, 1)], [(inf, 1)]], inf, method=method) == []
    assert Search([[(1, 1)], []]).fastest_s == Search([[(1, 1)], []]).cheapest_usd == inf


@pytest.mark.parametrize("method", METHODS)
def test_a_budget_may_be_negative_or_infinite(method):
    assert top_paths(TWO, -1, method=method) == []
    assert len(top_paths(TWO, inf, 9, method)) == 4
    assert len(top_paths([[(0, 0)]], 0, method=method)) == 1


@pytest.mark.parametrize("method", FAST)
def test_equal_paths_without_number_do_not_delay_the_search(method):
    stages = [[(0.1, 0.7)] * 40] * (3 if method == "dual-blade" else 10)
    found = Search(stages).run(50, 8, method)
    assert len({path.choice for path in found.paths}) == 8
    assert found.steps < 70_000


@pytest.mark.parametrize("below", [False, True])
def test_a_grid_of_whole_numbers_one_float_below_a_sum_is_searched_quickly(below):
    # Half a million paths and more add up to 200, and look as if they were in time to whoever allows for rounding.
    stages = [[(i, 60 - i) for i in range(1, 61)]] * 6
    found = Search(stages).run(nextafter(200, 0) if below else 200, 5)
    assert [path.cost_usd for path in found.paths] == [360 - (199 if below else 200)] * 5
    assert found.steps < 5_000


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "kind", [list, np.array, lambda i: np.isin(np.arange(6), i), lambda i: np.isin(range(6), i) * np.uint8(1)]
)
def test_the_first_stage_can_be_limited(method, kind):
    rng = np.random.default_rng(8)
    stages = rng.random((3, 6, 2))
    search = Search(stages)
    for allowed in ([0, 4], [5], [1, 2, 3]):
        kept = stages.tolist()
        kept[0] = [pair if i in allowed else (inf, inf) for i, pair in enumerate(kept[0])]
        for budget_s in (0.3, 0.8, 2.0):
            found = list(search.run(budget_s, 7, method, kind(allowed)).paths)
            assert_answers(found, truth(kept, budget_s, 7), kept, budget_s)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_allowed_gives_nothing(method):
    assert Search(TWO).run(9, 5, method, []).paths == ()
    assert Search(TWO).run(9, 5, method, np.zeros(2, dtype=np.bool_)).paths == ()


def test_a_read_only_mark_is_taken_too():
    marks = np.array([False, True])
    marks.setflags(write=False)
    assert [path.choice for path in Search(TWO).run(9, 5, allowed=marks).paths] == [(1, 1), (1, 0)]


def test_prepared_once_it_answers_every_budget_and_k():
    rng = np.random.default_rng(3)
    stages = rng.random((3, 30, 2)).tolist()
    search = Search(stages)
    for budget_s in rng.uniform(0, 3, 200):
        for k in (1, 6):
            again = search.run(budget_s, k)
            assert list(again.paths) == top_paths(stages, budget_s, k)
            assert again == search.run(budget_s, k)


def test_fastest_and_cheapest_are_sums_of_the_least():
    search = Search([[(0.1, 5), (9, 1)], [(0.2, 5), (9, 2)], [(0.3, 4), (9, 3)]])
    assert search.fastest_s == 0.1 + 0.2 + 0.3
    assert search.cheapest_usd == 6
    assert search.run(search.fastest_s).paths
    assert not search.run(nextafter(search.fastest_s, 0)).paths


def test_dual_blade_counts_what_each_blade_cuts():
    # Stage 1 by cost: (2, 3), (1, 8). Budget 4: both pass (2 + 1 and 1 + 1 at the fastest): 2 steps. Upper bounds, the
    # rest at its fastest: 3 + 4 = 7 and 12; k = 1, so after the first the bound is 7, and 8 + 1 > 7 cuts the second.
    # Stage 2 by cost: (3, 1) is too slow after (2, 3); then (1, 4). 2 steps more.
    found = Search(TWO).run(4, 1, "dual-blade")
    assert (found.steps, found.cut_by_time, found.cut_by_cost) == (4, 1, 1)
    assert [path.choice for path in found.paths] == [(1, 0)]
    # Budget 6: (2, 3) gives the bound 7 again and cuts (1, 8); then (3, 1) is in time: 4, and (1, 4) is dearer.
    found = Search(TWO).run(6, 1, "dual-blade")
    assert (found.steps, found.cut_by_time, found.cut_by_cost) == (4, 0, 2)


def test_every_extension_is_kept_or_cut_once():
    rng = np.random.default_rng(4)
    stages = rng.random((1, 50, 2))
    for budget_s in (0.1, 0.5, 1.0):
        found = Search(stages).run(budget_s, 5, "dual-blade")
        assert found.cut_by_time + found.cut_by_cost <= 50
        assert found.steps <= 50
        every = Search(stages).run(budget_s, 5, "frontier")
        assert every.steps == 50
        assert every.cut_by_time == (stages[0, :, 0] > budget_s).sum()
        assert every.cut_by_time + every.cut_by_cost == 50 - len(every.paths)


def test_brute_force_looks_at_every_path():
    found = Search(TWO).run(5, 1, "brute-force")
    assert (found.steps, found.cut_by_time) == (4, 0)
    assert Search(TWO).run(4, 1, "brute-force").cut_by_time == 1


def test_frontier_takes_few_steps_where_dual_blade_takes_many():
    rng = np.random.default_rng(6)
    latency = rng.random((3, 64))
    search = Search(np.stack([latency, 1 / (0.2 + latency)], axis=2))
    for budget_s in (0.5, 1.0, 2.0):
        dual, best = (search.run(budget_s, 5, method) for method in ("dual-blade", "frontier"))
        assert [path.choice for path in dual.paths] == [path.choice for path in best.paths]
        assert best.steps < 1000
        assert dual.steps > best.steps


def test_fronts_that_are_too_large_are_bounds_and_the_answer_stays_exact(monkeypatch):
    monkeypatch.setattr("fairlead.planning.search.frontier._MEMBERS_MOST", 8)
    for stages, budget_s, k, wanted in instances()[:400]:
        assert_answers(top_paths(stages, budget_s, k), wanted, stages, budget_s)


@pytest.mark.parametrize(
    ("stages", "budget_s", "options", "message"),
    [
        (
            TWO,
            5,
            {"method": "dijkstra"},
            "no search method named 'dijkstra'; there are frontier, dual-blade, brute-force",
        ),
        (TWO, 5, {"k": 0}, "k must be at least 1; got 0"),
        (TWO, nan, {}, "budget_s must be a number; got nan"),
        ([], 5, {}, "a search needs a stage at least; got none"),
        ([[(1, 1)], [(1, 1), (-1, 2)]], 5, {}, r"at least 0; got \(-1, 2\) for option 1 of stage 1"),
        ([[(1, nan)]], 5, {}, r"at least 0; got \(1, nan\) for option 0 of stage 0"),
        ([[(1, 2, 3)]], 5, {}, r"a pair \(latency_s, cost_usd\); got an array of shape \(1, 3\) for stage 0"),
        ([[1, 2]], 5, {}, r"a pair \(latency_s, cost_usd\); got an array of shape \(2,\) for stage 0"),
        ([[(1e308, 1)]] * 2, 5, {}, "must have finite sums; got up to inf s and 2 USD"),
        ([[(1, 1)] * 256] * 4, 5, {"method": "brute-force"}, "2,000,000,000 paths at most; got 4,294,967,296"),
    ],
    ids=["method", "k", "nan", "no-stage", "negative", "nan-cost", "triple", "number", "overflow", "too-many"],
)
def test_what_is_asked_wrongly_is_said(stages, budget_s, options, message):
    with pytest.raises(ValueError, match=message):
        top_paths(stages, budget_s, **options)


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        ([2], "first stage's 2 options, from 0; got"),
        ([-1], "from 0; got"),
        ([0.5], "from 0; got"),
        (np.ones(3, dtype=np.bool_), "a mark for each of the first stage's 2 options; got 3"),
    ],
)
def test_wrong_limits_of_the_first_stage_are_said(allowed, message):
    with pytest.raises(ValueError, match=message):
        Search(TWO).run(5, allowed=allowed)


@pytest.mark.parametrize("method", FAST)
def test_it_is_said_when_too_many_paths_would_be_kept(method, monkeypatch):
    module = f"fairlead.planning.search.{method.replace('-', '_')}"
    monkeypatch.setattr(f"{module}._PATHS_MOST", 50)
    stages = np.random.default_rng(1).random((3, 70, 2))
    with pytest.raises(ValueError, match=rf"{method} keeps 50 paths at most, and 3 stages of .*70 options"):
        top_paths(stages, 2.0, 5, method)


numbers = st.one_of(st.integers(0, 5), st.floats(0, 1e6), st.sampled_from([0.1, 0.2, 0.3, 1e-300]))


@settings(max_examples=60, deadline=None)
@given(
    stages=st.lists(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=5), min_size=1, max_size=4),
    k=st.integers(1, 12),
    data=st.data(),
)
def test_any_numbers_give_the_same_with_every_method(stages, k, data):
    paths = [added(latency_s for latency_s, _ in path) for path in product(*stages)]
    budget_s = data.draw(st.one_of(st.sampled_from(paths), st.floats(0, 5e6)))
    if data.draw(st.booleans()):
        budget_s = nextafter(budget_s, -inf)
    wanted = truth(stages, budget_s, k)
    for method in METHODS:
        assert_answers(top_paths(stages, budget_s, k, method), wanted, stages, budget_s)


def test_importing_the_search_does_not_load_the_compiler():
    code = "import sys, fairlead.planning; fairlead.planning.Search([[(1, 1)]]); sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("seed", range(40))
def test_what_is_recalled_is_what_a_search_finds(seed):
    rng = np.random.default_rng(seed)
    stages = random_stages(rng)
    search, k = Search(stages), int(rng.integers(1, 6))
    recall = Recall(search, k, "frontier")
    for budget_s in rng.uniform(-0.1, 1.2, 60) * sum(max(latency_s for latency_s, _ in stage) for stage in stages):
        found, wanted = recall.run(float(budget_s)).paths, search.run(float(budget_s), k).paths
        assert [path.cost_usd for path in found] == [path.cost_usd for path in wanted]
        assert all(path.latency_s <= budget_s for path in found)


def test_a_budget_between_the_slowest_path_found_and_the_one_searched_with_needs_no_search(monkeypatch):
    search = Search(TWO)
    budgets = []
    run = search.run
    monkeypatch.setattr(search, "run", lambda budget_s, k, method: budgets.append(budget_s) or run(budget_s, k, method))
    recall = Recall(search, 1, "frontier")
    # Within 9 s the cheapest takes 5 s, and so for every budget down to 5; within 4.9 s it takes 3 s.
    assert [recall.run(budget_s).paths[0].latency_s for budget_s in (9.0, 5.0, 7.0, 4.9, 3.0, 10.0, 9.5)] == [
        5, 5, 5, 3, 3, 5, 5,
    ]  # fmt: skip
    assert budgets == [9.0, 4.9, 10.0]
