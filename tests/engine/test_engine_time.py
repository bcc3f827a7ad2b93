"""When things happen: starts, ends, keep-alive, decisions that take time, users that wait for answers."""

import pytest
from toy_policies import Doing, start_oldest

from fairlead.engine import simulate
from fairlead.policy import Reject, Searched, Start, Wake
from fairlead.policy.fifo import Fifo
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import ClosedLoop, DecisionTime, Listed

ONE = cluster(vcpus=1)


def rows(recording, *columns):
    """These columns of the invocations, in order of start."""
    return recording.invocations.sort("start", "request").select(columns).rows()


def latencies(recording):
    table = recording.requests.sort("request")
    return (table["end"] - table["arrival"]).to_list()


def test_cold_start_is_part_of_latency_and_not_of_wait():
    recording = simulate(scenario(declared(2.0, cold_start_s=0.5), arrivals=[1.0]))
    assert rows(recording, "ready", "start", "cold_s", "end", "is_cold") == [(1.0, 1.0, 0.5, 3.5, True)]
    assert latencies(recording) == [2.5]


def test_second_run_is_warm():
    recording = simulate(scenario(declared(2.0, cold_start_s=0.5), arrivals=[0, 10.0], on=ONE))
    assert rows(recording, "start", "cold_s", "end", "is_cold") == [(0, 0.5, 2.5, True), (10, 0, 12, False)]
    assert recording.instances.height == 1


def test_capacity_freed_at_an_instant_is_used_at_that_instant():
    recording = simulate(scenario(1.0, arrivals=[0, 0.25, 1.0], on=ONE))
    assert rows(recording, "request", "start", "end") == [(0, 0, 1), (1, 1, 2), (2, 2, 3)]


def test_completion_and_arrival_of_one_instant_are_seen_together():
    seen = []

    def shortest_first(view):
        seen.append((view.now, view.waiting(), view.freed, len(view.fresh)))
        while view.waiting():
            shortest = min(view.by_ready(), key=lambda i: (i.function != "short", i.id))
            node = view.place(shortest.function, view.profile(shortest.function).configurations[0])
            if node is None:
                return
            yield Start((shortest,), view.profile(shortest.function).configurations[0], node)

    two = scenario(
        {"long": 2.0, "short": 1.0},
        workflows={"main": ("long",), "other": ("short",)},
        arrivals=[0, 0.5, Listed("other", (2.0,))],
        on=ONE,
    )
    recording = simulate(two, Doing(shortest_first))
    # At 2 the first long one ends while a short one arrives: one call sees both, and the short one goes first.
    assert rows(recording, "request", "function", "start") == [(0, "long", 0), (2, "short", 2), (1, "long", 3)]
    assert next(entry for entry in seen if entry[0] == 2.0) == (2.0, 2, ("n0",), 1)


def test_arrivals_of_one_instant_are_one_call():
    policy = Doing()
    simulate(scenario(1.0, arrivals=[3.0, 3.0, 3.0]), policy)
    assert policy.asked == [3.0]


@pytest.mark.parametrize(
    ("again", "is_cold"), [(10.999, False), (11.0, True), (11.001, True)], ids=["before", "at", "after"]
)
def test_keep_alive_ends_at_its_instant(again, is_cold):
    recording = simulate(scenario(declared(1.0, keep_alive_s=10), arrivals=[0, again], on=ONE))
    assert rows(recording, "is_cold")[1] == (is_cold,)
    if is_cold:
        first = recording.instances.sort("instance").row(0, named=True)
        assert (first["stopped"], first["cause"]) == (11.0, "expired")


def test_without_keep_alive_every_run_is_cold():
    recording = simulate(scenario(declared(1.0, keep_alive_s=0, cold_start_s=1), arrivals=[0, 0, 0], on=ONE))
    assert rows(recording, "is_cold", "end") == [(True, 2), (True, 4), (True, 6)]


@pytest.mark.parametrize("keep_alive_s", [0, 10])
def test_the_last_warm_instances_outlive_their_keep_alive(keep_alive_s):
    two = cluster(vcpus=2)
    function = declared(1.0, keep_alive_s=keep_alive_s, warm=1)
    recording = simulate(scenario(function, arrivals=[0, 0, 500], on=two))
    assert rows(recording, "is_cold") == [(True,), (True,), (False,)]
    stopped = recording.instances.sort("instance")["stopped"].to_list()
    assert sorted(stopped, key=str) == [1.0 + keep_alive_s, None]


def test_use_renews_keep_alive():
    recording = simulate(scenario(declared(1.0, keep_alive_s=2), arrivals=[0, 2.5, 5.0, 7.5], on=ONE))
    assert recording.instances.height == 1


def test_wake_brings_a_call_and_nothing_else():
    def deed(view):
        if view.now < 4:
            yield Wake(view.now + 2)
        else:
            yield from start_oldest(view)

    policy = Doing(deed)
    recording = simulate(scenario(1.0, arrivals=[1.0]), policy)
    assert policy.asked == [1.0, 3.0, 5.0]
    assert rows(recording, "start") == [(5.0,)]


class TestDecisionTime:
    def test_what_is_started_begins_when_the_decision_is_made(self):
        fixed = scenario(declared(1.0, cold_start_s=0.5), arrivals=[0], decision=DecisionTime(fixed_s=0.25))
        recording = simulate(fixed)
        assert rows(recording, "ready", "start", "cold_s", "end") == [(0, 0.25, 0.5, 1.75)]
        assert recording.instances["started"].to_list() == [0.25]

    def test_dispatcher_is_busy_until_then(self):
        policy = Doing()
        fixed = scenario(1.0, arrivals=[0, 0.1, 0.2], on=cluster(vcpus=3), decision=DecisionTime(fixed_s=0.25))
        recording = simulate(fixed, policy)
        assert policy.asked == [0, 0.25]
        assert rows(recording, "start") == [(0.25,), (0.5,), (0.5,)]

    def test_steps_that_are_reported_cost_time(self):
        def deed(view):
            yield Searched(30)
            yield Searched(20)
            yield from start_oldest(view)

        per_step = scenario(1.0, arrivals=[0], decision=DecisionTime(fixed_s=0.1, per_step_s=0.01))
        recording = simulate(per_step, Doing(deed))
        assert rows(recording, "start", "end") == [(pytest.approx(0.6), pytest.approx(1.6))]

    def test_capacity_is_taken_from_the_start_of_the_decision(self):
        fixed = scenario(1.0, arrivals=[0, 0], on=ONE, decision=DecisionTime(fixed_s=0.25))
        assert rows(simulate(fixed), "start", "end") == [(0.25, 1.25), (1.5, 2.5)]

    def test_requests_that_come_while_the_dispatcher_thinks_are_fresh_afterwards(self):
        def deed(view):
            for request in view.fresh:
                if request.id == 1:
                    yield Reject(request.id, "no")
            yield from start_oldest(view)

        recording = simulate(scenario(1.0, arrivals=[0.0, 0.5], decision=DecisionTime(fixed_s=1.0)), Doing(deed))
        assert recording.requests.sort("request")["outcome"].to_list() == ["completed", "rejected"]

    def test_without_it_decisions_take_no_time(self):
        def deed(view):
            yield Searched(10**6)
            yield from start_oldest(view)

        assert rows(simulate(scenario(1.0), Doing(deed)), "start") == [(0,)]


class TestClosedLoop:
    def test_user_thinks_calls_waits_and_thinks_again(self):
        loop = ClosedLoop("main", users=1, think_s=2, think="constant")
        recording = simulate(scenario(3.0, arrivals=[loop], duration_s=12))
        # Thinks until 2, answered at 5, thinks until 7, answered at 10, would call at 12: the run is over.
        assert recording.requests.select("arrival", "end").rows() == [(2, 5), (7, 10)]

    def test_users_call_from_one_instant_to_another(self):
        loop = ClosedLoop("main", users=1, think_s=2, think="constant", from_s=10, until_s=17)
        recording = simulate(scenario(declared(1.0), arrivals=[loop], duration_s=60), Fifo())
        assert recording.requests["arrival"].to_list() == [12.0, 15.0]

    def test_users_share_the_server(self):
        loop = ClosedLoop("main", users=2, think_s=1, think="constant")
        recording = simulate(scenario(1.0, arrivals=[loop], on=ONE, duration_s=4))
        # Both call at 1; answers at 2 and 3; they call at 3 and 4, which is too late.
        assert recording.requests.sort("request").select("arrival", "end").rows() == [(1, 2), (1, 3), (3, 4)]

    def test_rejected_user_thinks_and_comes_back(self):
        loop = ClosedLoop("main", users=2, think_s=1, think="constant")
        lossy = scenario(2.5, arrivals=[loop], on=ONE, duration_s=4)

        table = simulate(lossy, Fifo(queue_limit=0)).requests.sort("request")
        assert table.select("arrival", "outcome").rows() == [
            (1, "completed"),
            (1, "rejected"),
            (2, "rejected"),
            (3, "rejected"),
        ]

    def test_a_closed_loop_never_has_more_open_requests_than_users(self):
        loop = ClosedLoop("main", users=7, think_s=0.1)
        table = simulate(scenario(0.3, arrivals=[loop], on=cluster(vcpus=2), duration_s=30)).requests
        steps = sorted([(t, 1) for t in table["arrival"]] + [(t, -1) for t in table["end"]])
        count = peak = 0
        for _, step in steps:
            count += step
            peak = max(peak, count)
        assert peak <= 7
