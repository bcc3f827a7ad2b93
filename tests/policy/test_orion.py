"""Orion: the distribution of a request's latency, the search over sizes, and the plan that is made once and kept."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead import simulate
from fairlead.model import SLO, Configuration, Price, Stage, Workflow
from fairlead.policy import Plan, Searched, Start, Warm
from fairlead.policy.kit.expected import expected_counts
from fairlead.policy.kit.options import Options
from fairlead.policy.kit.preplanned import planned
from fairlead.policy.orion.alternatives import alternatives, by_share
from fairlead.policy.orion.distribution import (
    Histogram,
    first_of_equal,
    latest,
    latest_of_equal,
    of_times,
    one_after_the_other,
)
from fairlead.policy.orion.latency import Latency, Relative
from fairlead.policy.orion.policy import Orion
from fairlead.policy.orion.sizing import next_larger, search
from fairlead.profile import Row, Table
from fairlead.testing import Waits, cluster, decisions, declared, scenario
from fairlead.workload import DecisionTime, Deterministic, Listed, load_scenario

COIN = Histogram(1, np.array([0.5, 0.5]))  # bin 1 or bin 2
SURE = Histogram(3, np.array([1.0]))


def shares(histogram):
    return {histogram.first + i: share for i, share in enumerate(histogram.share.tolist()) if share > 1e-12}


# --- distributions -------------------------------------------------------------------------------------------------


def test_times_fall_into_the_nearest_bin_and_late_ones_into_the_last():
    assert shares(of_times(np.array([0.9, 1.4, 1.6, 99.0]), 1.0, most=5)) == {1: 0.5, 2: 0.25, 5: 0.25}


def test_two_in_series_are_a_convolution():
    assert shares(one_after_the_other(COIN, COIN)) == {2: 0.25, 3: 0.5, 4: 0.25}
    assert shares(one_after_the_other(COIN, SURE)) == {4: 0.5, 5: 0.5}


def test_two_in_parallel_end_with_the_later():
    assert shares(latest([COIN, COIN])) == {1: 0.25, 2: 0.75}
    assert shares(latest([COIN, SURE])) == {3: 1.0}


def test_equal_copies_are_powers_of_the_distribution():
    assert shares(latest_of_equal(COIN, 3)) == {1: 0.125, 2: 0.875}
    assert shares(first_of_equal(COIN, 3)) == {1: 0.875, 2: 0.125}


def test_a_quantile_is_the_least_bin_that_is_enough():
    fair = Histogram(0, np.full(20, 0.05))
    assert fair.quantile(0.95) == 18
    assert fair.quantile(0.951) == 19
    assert COIN.quantile(0.5) == 1


histograms = st.tuples(st.integers(0, 5), st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any)).map(
    lambda drawn: Histogram(drawn[0], np.array(drawn[1]) / sum(drawn[1]))
)


@given(histograms, histograms)
@settings(max_examples=60, deadline=None)
def test_sum_and_maximum_agree_with_all_pairs(one, other):
    total, later = {}, {}
    for (a, p), (b, q) in product(shares(one).items(), shares(other).items()):
        total[a + b] = total.get(a + b, 0.0) + p * q
        later[max(a, b)] = later.get(max(a, b), 0.0) + p * q
    assert shares(one_after_the_other(one, other)) == pytest.approx(total)
    assert shares(latest([one, other])) == pytest.approx(later)


def latency_of(*stages, times):
    """Bins of a second; every stage takes exactly the time of its option."""
    workflow = Workflow(name="main", stages=stages)
    exact = [[np.array([float(t)]) for t in times[stage.name]] for stage in workflow.stages]
    return Latency(workflow, exact, 1.0, 100)


def test_without_spread_the_latency_is_the_longest_path():
    latency = latency_of(
        Stage(name="a", function="f"),
        Stage(name="b", function="f", after=("a",)),
        Stage(name="c", function="f", after=("a",)),
        Stage(name="d", function="f", after=("b", "c")),
        Stage(name="e", function="f", after=("a",)),
        times={"a": [2, 1], "b": [5, 3], "c": [4], "d": [1], "e": [9, 2]},
    )
    # A workflow has its stages in the order a, b, c, e, d.
    assert shares(latency.distribution((0, 0, 0, 0, 0))) == {11: 1.0}  # a, e
    assert shares(latency.distribution((0, 0, 0, 1, 0))) == {8: 1.0}  # a, b, d
    assert shares(latency.distribution((1, 1, 0, 1, 0))) == {6: 1.0}  # a, c, d


def test_all_arms_of_a_branch_count():
    latency = latency_of(
        Stage(name="a", function="f"),
        Stage(name="b", function="f", after=("a",), when=0.9),
        Stage(name="c", function="f", after=("a",), when=0.1),
        times={"a": [1], "b": [1], "c": [7]},
    )
    assert shares(latency.distribution((0, 0, 0))) == {8: 1.0}


def test_a_map_waits_for_the_slowest_of_its_most_items_and_copies_for_the_quickest():
    stages = (Stage(name="a", function="f", map=(1, 3)), Stage(name="b", function="f", after=("a",), join=True))
    coin = [np.array([1.0, 2.0])]
    mapped = Latency(Workflow(name="main", stages=stages), [coin, [np.array([1.0])]], 1.0, 100)
    assert shares(mapped.distribution((0, 0))) == {2: 0.125, 3: 0.875}
    raced = Latency(Workflow(name="main", stages=(Stage(name="a", function="f", compete=3),)), [coin], 1.0, 100)
    assert shares(raced.distribution((0,))) == {1: 0.875, 2: 0.125}


def test_what_was_observed_outweighs_what_was_declared():
    relative = Relative()
    declared_ones = relative.factors(1.2)
    assert np.quantile(declared_ones, 0.95) == pytest.approx(1.2, abs=0.03)
    assert declared_ones.mean() == pytest.approx(1.0)
    for _ in range(300):  # of which 200 are remembered, against 20 that stand for the declared spread
        relative.see(1.5)
    assert np.median(relative.factors(1.2)) == 1.5
    assert len(relative.factors(1.2)) == 220


# --- the search ----------------------------------------------------------------------------------------------------

LADDER = [[1], [2], []]  # each option leads to the next


def find(target, states_most=100, state_time=0.0, times=((4, 2, 1), (8, 6, 5)), costs=((1, 2, 4), (1, 3, 9))):
    return search(
        (0, 0),
        [LADDER, LADDER],
        lambda state: float(sum(times[i][choice] for i, choice in enumerate(state))),
        lambda state: float(sum(costs[i][choice] for i, choice in enumerate(state))),
        target,
        states_most,
        state_time,
    )


def test_the_smallest_sizes_are_taken_if_they_do():
    found = find(12.0)
    assert (found.state, found.percentile, found.is_met, found.states) == ((0, 0), 12.0, True, 1)


def test_a_round_is_the_last_that_finds_one_within_the_target():
    found = find(10.0)  # both moves give 10: the cheaper
    assert (found.state, found.is_met, found.states) == ((1, 0), True, 3)


def test_the_search_goes_on_from_the_state_nearest_to_the_target():
    found = find(8.0)  # (1, 0) and (0, 1) are both at 10, the first is cheaper: its moves are 9 and 8
    assert (found.state, found.is_met, found.states) == ((1, 1), True, 5)


def test_when_nothing_does_the_quickest_is_taken_after_all_states():
    found = find(5.0)
    assert (found.state, found.percentile, found.is_met, found.states) == ((2, 2), 6.0, False, 9)


def test_at_the_cut_off_the_quickest_so_far_is_taken():
    assert (find(8.0, states_most=1).state, find(8.0, states_most=1).states) == ((0, 0), 1)
    cut = find(8.0, states_most=3)
    assert (cut.state, cut.percentile, cut.is_met, cut.states) == ((1, 0), 10.0, False, 3)


def test_the_time_of_the_search_is_taken_off_the_target():
    assert find(10.0, state_time=0.1).state != (1, 0)  # 10 is too late after three states
    assert find(10.3, state_time=0.1).state == (1, 0)


@given(st.floats(0, 14), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_what_is_said_to_meet_the_target_does_and_the_limit_holds(target, states_most):
    found = find(target, states_most)
    assert found.states <= states_most
    assert found.is_met == (found.percentile <= target)


def options_of(*configurations):
    count = len(configurations)
    return Options(tuple(configurations), (1.0,) * count, (1.0,) * count)


def test_moves_are_one_step_in_one_dimension():
    grid = [Configuration(batch=b, vcpus=c, vgpus=g) for b in (1, 4) for c in (1, 2, 8) for g in (1, 2)]
    moves = next_larger(options_of(*grid))
    assert {grid[i] for i in moves[grid.index(Configuration(vcpus=1, vgpus=1))]} == {
        Configuration(batch=4, vcpus=1, vgpus=1),
        Configuration(vcpus=2, vgpus=1),
        Configuration(vcpus=1, vgpus=2),
    }
    assert moves[grid.index(Configuration(batch=4, vcpus=8, vgpus=2))] == []


def test_gaps_in_the_space_are_stepped_over_and_what_is_apart_is_reached_from_the_smallest():
    cpu, more, both, gpu = (
        Configuration(vcpus=1),
        Configuration(vcpus=4),
        Configuration(batch=2, vcpus=8, vgpus=1),
        Configuration(vcpus=0, vgpus=1),
    )
    assert next_larger(options_of(cpu, more, both, gpu)) == [[1, 3], [2], [], [2]]


def test_the_search_begins_with_the_cheapest_of_the_sizes_that_contain_no_other():
    wide, gpu, both = Configuration(vcpus=4), Configuration(vcpus=1, vgpus=1), Configuration(vcpus=4, vgpus=2)
    assert Options((wide, gpu, both), (0.55, 0.15, 0.1), (7.5, 3.5, 9.0)).least == 1
    assert Options((wide, gpu, both), (0.55, 0.15, 0.1), (2.5, 3.5, 1.0)).least == 0  # `both` contains the two others


def test_a_gpu_is_not_passed_over_for_more_vcpus_that_are_slower_and_dearer():
    """In the quickstart, four vCPUs take 0.55 s where one and a vGPU take 0.15 s: for 36 photos/s, 79 of 28 vCPUs."""
    recording = simulate(load_scenario("quickstart", overrides={"duration_s": 20}), Orion())
    assert planned(recording.requests["plan"][-1])["detect"] == Configuration(vcpus=1, vgpus=1)
    later = recording.requests.filter(recording.requests["arrival"] > 10)
    assert (later["end"] <= later["deadline"]).mean() > 0.7


# --- the policy ----------------------------------------------------------------------------------------------------

PRICE = Price(vcpu_usd_per_hour=1.0, vgpu_usd_per_hour=10.0)
ONE, TWO = Configuration(vcpus=1, vgpus=1), Configuration(vcpus=1, vgpus=2)
# Nothing was observed, so that a 95th percentile lies 1.175 times above the mean.
SIZES = Table((Row(vgpus=1, seconds=1.0), Row(vgpus=2, seconds=0.5)))
BATCHES = Table(tuple(Row(batch=b, vgpus=1, seconds=s) for b, s in ((1, 1.0), (2, 1.2), (4, 1.4))))


def gpus(functions, slo_s, **more):
    return scenario(functions, on=cluster(2, vcpus=8, vgpus=7, price=PRICE), slo_s=slo_s, **more)


def starts_of(actions):
    return [action for action in actions if isinstance(action, Start)]


@pytest.mark.parametrize(
    ("slo_s", "vgpus", "states"),
    [(1.2, 1, 1), (1.0, 2, 2), (0.4, 2, 2)],
    ids=["smallest-does", "larger-does", "nothing-does-so-the-quickest"],
)
def test_sizes_follow_the_objective_and_the_search_is_charged(slo_s, vgpus, states):
    actions = decisions(Orion(), slo_s, scenario=gpus(SIZES, slo_s))
    (start,) = starts_of(actions)
    assert start.configuration.vgpus == vgpus
    assert actions[0] == Searched(1000 * states)
    assert isinstance(actions[1], Plan)
    assert actions[1].steps == (f"f b1 c1 g{vgpus}",)


def test_the_target_is_what_is_left_of_the_objective():
    where = gpus(SIZES, 1.5)
    for now, vgpus in ((0.0, 1), (0.5, 2)):  # 1.175 s is less than 1.5, but not than what half a second has left
        (start,) = starts_of(decisions(Orion(), Waits(deadline=1.5), scenario=where, now=now))
        assert start.configuration.vgpus == vgpus


def test_ahead_of_time_there_is_one_plan_that_costs_nobody_time():
    where = gpus(SIZES, 1.5)
    actions = decisions(Orion(replans=False), Waits(deadline=1.5), scenario=where, now=0.5)
    assert not [action for action in actions if isinstance(action, Searched)]
    assert starts_of(actions)[0].configuration == ONE


def test_late_requests_run_cheaply_together_and_those_in_time_do_not_join_them():
    where = gpus(BATCHES, 2.0)
    late = [Waits(deadline=2.0)] * 3
    actions = decisions(Orion(), *late, Waits(deadline=6.0, at=4.0), scenario=where)
    sizes = [(len(start.batch), start.configuration.batch) for start in starts_of(actions)]
    assert sizes == [(2, 2), (1, 1), (1, 1)]
    assert [action for action in actions if isinstance(action, Searched)] == [Searched(1000)]  # for the last only
    plans = {action.request: action.steps for action in actions if isinstance(action, Plan)}
    assert plans == {0: ("f b4 c1 g1",), 1: ("f b4 c1 g1",), 2: ("f b4 c1 g1",), 3: ("f b1 c1 g1",)}


def test_a_plan_is_made_once_and_kept_however_late_the_first_stage_is():
    functions = {"first": declared(SIZES, bias=2.0), "second": SIZES}
    where = gpus(functions, 2.5, arrivals=(0.0,))
    recording = simulate(where, "orion")
    (request,) = recording.requests.rows(named=True)
    assert planned(request["plan"]) == {"first": ONE, "second": ONE}
    runs = recording.invocations.sort("start")
    assert runs["vgpus"].to_list() == [1.0, 1.0]  # the second could have been hurried: 2 + 0.5 is 2.5
    assert runs["end"].to_list() == pytest.approx([2.0, 3.0])


def test_observed_spread_changes_later_plans():
    """Runs take exactly what is declared, which is learned: 1 s meets 1.1 s, that 1.175 s does not."""
    where = gpus(SIZES, 1.1, arrivals=[Deterministic("main", 2.0)], duration_s=400.0)
    runs = simulate(where, Orion()).invocations.sort("start")
    assert runs["vgpus"][0] == 2.0
    assert runs["vgpus"][-1] == 1.0


def test_the_cut_off_bounds_the_states_and_the_search_delays_the_start():
    def first_run(limit_s):
        """A state takes 0.1 s. At 1.2 s no state meets what the search leaves, so that it goes on to its end."""
        decision = DecisionTime(per_step_s=1e-4)
        where = gpus({"a": SIZES, "b": SIZES, "c": SIZES}, 1.2, decision=decision)
        recording = simulate(where, Orion(search_limit_s=limit_s))
        return recording.invocations.sort("start")["start"][0], planned(recording.requests["plan"][0])

    for limit_s, states in ((0.1, 1), (0.4, 4), (10.0, 8)):  # 2^3 states in all
        start, plan = first_run(limit_s)
        assert start == pytest.approx(0.1 * states)
        assert [c.vgpus for c in plan.values()].count(2) == {1: 0, 4: 1, 8: 3}[states]


def test_another_size_is_taken_where_the_planned_one_is_not_warm():
    """The first leaves a container of one vGPU. The second wants one of two, which takes a minute to start."""
    function = declared(SIZES, cold_start_s=60.0, idle_holds="memory")
    flows = {
        "loose": Workflow.chain("loose", "f", slo=SLO(latency_s=200.0)),
        "tight": Workflow.chain("tight", "f", slo=SLO(latency_s=1.0)),
    }
    arrivals = [Listed("loose", (0.0,)), Listed("tight", (100.0,))]
    where = gpus({"f": function}, 1.0, workflows=flows, arrivals=arrivals)
    recording = simulate(where, Orion(prewarms=False))
    tight = recording.requests.filter(recording.requests["workflow"] == "tight")
    assert planned(tight["plan"][0]) == {"f": TWO}
    run = recording.invocations.filter(recording.invocations["workflow"] == "tight")
    assert (run["vgpus"][0], run["is_cold"][0]) == (1.0, False)


def test_alternatives_are_no_slower_ones_by_cost_then_slower_ones_by_time():
    sizes = {(1, 1): (1.0, 1.0), (2, 1): (0.9, 1.1), (1, 2): (0.6, 1.2), (2, 2): (0.5, 1.3), (1, 4): (0.4, 2.0)}
    configurations = tuple(Configuration(vcpus=c, vgpus=g) for c, g in sizes)
    known = Options(configurations, tuple(s for s, _ in sizes.values()), tuple(usd for _, usd in sizes.values()))
    found = alternatives(known, Configuration(vcpus=2, vgpus=2))
    assert [(c.vcpus, c.vgpus) for c in found] == [(1, 4), (1, 2), (2, 1)]
    assert [c.vgpus for c in by_share(known)] == [1, 2, 4]


def test_containers_of_the_expected_sizes_are_started_ahead_of_need():
    """Four requests in two seconds with 1 s of work for each function: 2 are busy, and 2 + 2 sqrt(2) makes 5."""
    cold = declared(SIZES, cold_start_s=5.0, idle_holds="memory")
    where = gpus({"a": cold, "b": cold}, 3.0)
    arrived = [Waits(deadline=5.0, at=2.0)] * 4
    actions = decisions(Orion(), *arrived, scenario=where)
    ahead = [(warm.function, warm.configuration) for warm in actions if isinstance(warm, Warm)]
    assert len(starts_of(actions)) == 1  # nothing runs or starts, so the first must wait; the others may be luckier
    assert ahead == [("a", ONE)] * 4 + [("b", ONE)] * 5
    on_need = decisions(Orion(prewarms=False), *arrived, scenario=where)
    assert [warm.function for warm in on_need if isinstance(warm, Warm)] == ["a"]


def test_how_often_a_stage_runs_follows_branches_maps_and_copies():
    stages = (
        Stage(name="a", function="f", compete=2),
        Stage(name="b", function="f", after=("a",), when=0.5),
        Stage(name="c", function="f", after=("b",), map=(1, 5)),
        Stage(name="d", function="f", after=("c",), join=True),
    )
    assert expected_counts(Workflow(name="main", stages=stages)) == [2.0, 0.5, 1.5, 0.5]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"search_limit_s": 0.0}, "search_limit_s must be positive; got 0.0."),
        ({"refresh_s": -1.0}, "refresh_s must be positive; got -1.0."),
        ({"steps_per_state": 0}, "steps_per_state must be at least 1; got 0."),
        ({"state_limit": 0}, "state_limit must be at least 1; got 0."),
        ({"rounds": 0}, "rounds must be at least 1; got 0."),
        ({"percentile": 1.0}, r"percentile must be in \(0, 1\); got 1.0."),
    ],
)
def test_parameters_have_ranges(given, message):
    with pytest.raises(ValueError, match=message):
        Orion(**given)
