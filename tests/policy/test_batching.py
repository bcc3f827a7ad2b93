"""Batching: who runs together, when it pays to wait, and what is learned."""

from math import inf
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead import simulate
from fairlead.model import Configuration, Invocation, Record
from fairlead.policy import Start, Wake
from fairlead.policy.earliest_deadline import EarliestDeadline
from fairlead.policy.fifo import Fifo
from fairlead.policy.kit.batching import Aimd, Batching, Deadline, make_batcher
from fairlead.policy.kit.batching.deadline import Candidate, Option, best_choice
from fairlead.policy.kit.batching.gathering import _distinct
from fairlead.policy.least_loaded import LeastLoaded
from fairlead.profile import Row, Table
from fairlead.report import summarise
from fairlead.testing import (
    SCENARIOS,
    Waits,
    check_dispatcher,
    cluster,
    decisions,
    declared,
    prepared,
    scenario,
    site_of,
    view_of,
)
from fairlead.workload import Deterministic

ONE = cluster(vcpus=1)


def table(**settings_):
    """Batch sizes 1, 2, 4 and 8 take 1, 1.5, 2 and 4 s."""
    rows = (Row(batch=size, seconds=s) for size, s in ((1, 1.0), (2, 1.5), (4, 2.0), (8, 4.0)))
    return declared(Table(tuple(rows)), **settings_)


def sizes_of(recording) -> list[int]:
    batches = recording.invocations.unique("batch").sort("start")
    return batches["batch_size"].to_list()


def started(actions) -> list[int]:
    return [len(action.batch) for action in actions if isinstance(action, Start)]


class TestFull:
    def test_a_full_batch_starts_at_once(self):
        crowd = scenario({"f": table()}, arrivals=[0.0] * 11, on=ONE)
        # Without a wait what is left over goes when the machine is free: 3 in the size of 4.
        recording = simulate(crowd, Fifo(batching="full"))
        batches = recording.invocations.unique("batch").sort("start")
        assert batches.select("batch_size", "start", "end").rows() == [(8, 0, 4), (3, 4, 6)]

    def test_one_that_is_not_full_waits_for_others_but_not_for_ever(self):
        few = scenario({"f": table()}, arrivals=[0.0, 0.5, 5.0], on=ONE)
        rows = simulate(few, Fifo(batching="full", batch_wait_s=2.0)).invocations.sort("request")
        assert rows.select("start", "end", "batch_size").rows() == [(2, 3.5, 2), (2, 3.5, 2), (7, 8, 1)]

    def test_the_wait_ends_when_the_batch_is_full(self):
        many = scenario({"f": table()}, arrivals=[0.25 * i for i in range(8)], on=ONE)
        rows = simulate(many, Fifo(batching="full", batch_wait_s=60.0)).invocations
        assert set(rows.select("start", "batch_size").rows()) == {(1.75, 8)}

    def test_a_batch_of_one_size_only_counts_as_full_at_that_size(self):
        fours = scenario({"f": declared(Table((Row(batch=4, seconds=2.0),)))}, on=ONE)
        policy = Fifo(batching="full", batch_wait_s=1.0)
        assert started(decisions(policy, 9.0, 9.0, 9.0, 9.0, scenario=fours)) == [4]
        assert decisions(policy, 9.0, 9.0, 9.0, scenario=fours) == [Wake(1.0)]

    def test_cheapest_configuration_of_the_size_is_used(self):
        rows = (Row(batch=4, vcpus=4, seconds=0.6), Row(batch=4, vcpus=2, seconds=1.0), Row(seconds=1.0))
        wide = scenario({"f": declared(Table(rows))}, on=cluster(vcpus=4))
        (start,) = decisions(Fifo(batching="full"), *[9.0] * 4, scenario=wide)
        assert start.configuration == Configuration(batch=4, vcpus=2)

    def test_a_smaller_batch_goes_where_the_larger_finds_no_room(self):
        rows = (Row(batch=1, vcpus=1, seconds=1.0), Row(batch=4, vcpus=4, seconds=1.0))
        narrow = scenario({"f": declared(Table(rows))}, on=cluster(vcpus=2, beside=cluster(vcpus=4, kind="wide")))
        # One batch of four on the wide node, then one by one on the other.
        policy = Fifo(batching="full")
        assert started(decisions(policy, *[9.0] * 7, scenario=narrow)) == [4, 1, 1]

    def test_members_come_from_every_workflow_that_uses_the_function(self):
        two = scenario({"f": table()}, workflows={"main": ("f",), "other": ("f",)}, on=ONE)
        (start,) = decisions(LeastLoaded(batching="full"), Waits(), Waits(workflow="other"), scenario=two)
        assert [member.workflow for member in start.batch] == ["main", "other"]

    def test_who_waits_by_choice_does_not_hold_up_another_function(self):
        both = scenario({"f": table(), "g": 1.0}, workflows={"main": ("f",), "other": ("g",)}, on=ONE)
        wake, start = decisions(
            Fifo(batching="full", batch_wait_s=1.0), Waits(), Waits(workflow="other"), scenario=both
        )
        assert wake == Wake(1.0)
        assert start.batch[0].function == "g"


class TestAimd:
    def test_limit_grows_by_one_and_shrinks_by_a_tenth(self):
        # Up to 4 run in 2 s, which is the objective; 5 run in the batch size 8, in 4 s. The limit, cut or raised:
        # 1, 2, 3, 4, 5 late 4.5, 5.5 late 4.95, 5.95 late 5.355 late 4.8195.
        crowd = scenario({"f": table()}, arrivals=[0.0] * 60, on=ONE, slo_s=2.0)
        assert sizes_of(simulate(crowd, Fifo(batching="aimd")))[:11] == [1, 2, 3, 4, 5, 4, 5, 4, 5, 5, 4]

    def test_limit_stays_within_the_largest_batch_size(self):
        crowd = scenario({"f": table()}, arrivals=[0.0] * 60, on=ONE)
        assert max(sizes_of(simulate(crowd, Fifo(batching="aimd")))) == 8

    def test_a_batch_runs_in_the_smallest_size_that_holds_it(self):
        crowd = scenario({"f": table()}, arrivals=[0.0] * 6, on=ONE)
        batches = simulate(crowd, Fifo(batching="aimd")).invocations.unique("batch").sort("start")
        assert list(zip(batches["batch_size"], batches["end"] - batches["start"], strict=True)) == [
            (1, 1.0),
            (2, 1.5),
            (3, 2.0),
        ]

    def test_objective_of_a_stage_is_its_share_of_the_path(self):
        chain = scenario({"a": 1.0, "b": 3.0}, slo_s=10.0)
        assert Aimd(site_of(chain)).objectives_s == {("main", "a"): 2.5, ("main", "b"): 7.5}

    @pytest.mark.parametrize(
        ("seconds", "cold_s", "sizes", "expected"),
        [
            (2.0, 0.0, [1, 1], [2.0, 2.0]),  # the second was smaller than the limit by then
            (2.0, 0.0, [1, 2, 3], [2.0, 3.0, 4.0]),
            (2.1, 0.0, [1], [1.0]),  # never below one
            (2.1, 0.1, [1], [2.0]),  # a cold start is nobody's fault
            (2.0, 0.0, [3], [1.0]),  # formed before the limit was cut
        ],
        ids=["reached", "raised", "least", "cold", "larger"],
    )
    def test_what_is_learned_from_a_batch(self, seconds, cold_s, sizes, expected):
        batcher = Aimd(site_of(scenario({"f": table()}, slo_s=2.0)))
        limits = []
        for i, size in enumerate(sizes):
            for _ in range(size):
                batcher.observe(record(start=10.0 * i, seconds=seconds, cold_s=cold_s, size=size))
            limits.append(batcher.limits["f"])
        assert limits == expected

    def test_a_lost_batch_teaches_nothing(self):
        batcher = Aimd(site_of(scenario({"f": table()}, slo_s=2.0)))
        batcher.observe(record(start=0.0, seconds=1.0, cold_s=0.0, size=1, outcome="lost"))
        assert batcher.limits["f"] == 1.0

    def test_a_batch_is_late_if_it_is_late_for_one_of_its_members(self):
        flows = scenario({"f": table()}, workflows={"main": ("f",), "other": ("f",)}, slo_s=2.0)
        strict = msgspec.structs.replace(flows.workflows["other"].slo, latency_s=1.0)
        flows.workflows["other"] = msgspec.structs.replace(flows.workflows["other"], slo=strict)
        batcher = Aimd(site_of(flows))
        batcher.limits["f"] = 2.0
        for workflow in ("other", "main"):
            batcher.observe(record(start=0.0, seconds=1.5, cold_s=0.0, size=2, workflow=workflow))
        assert batcher.limits["f"] == 1.8

    def test_first_of_a_batch_waits_for_others_but_not_for_ever(self):
        few = scenario({"f": table()}, arrivals=[0.0, 2.0, 5.0, 5.25], on=ONE)
        rows = simulate(few, Fifo(batching="aimd", batch_wait_s=0.5)).invocations.sort("request")
        # The limit is 1, then 2: the second waits in vain, the next two find each other.
        assert rows["start"].to_list() == [0.0, 2.5, 5.25, 5.25]


def record(*, start, seconds, cold_s, size, outcome="done", workflow="main") -> Record:
    return Record(
        request=0,
        workflow=workflow,
        stage="f",
        function="f",
        node="n0",
        device=-1,
        ready=0.0,
        start=start,
        cold_s=cold_s,
        transfer_s=0.0,
        end=start + seconds,
        batch_size=size,
        vcpus=1.0,
        vgpus=0.0,
        cost_usd=0.0,
        deadline=inf,
        outcome=outcome,
    )


class TestDeadline:
    @pytest.mark.parametrize(
        ("deadline", "first"),
        [(4.0, 8), (3.9, 4), (1.9, 2), (1.4, 1), (0.5, 8)],
        ids=["eight-in-time", "four-keeps-all", "two", "one", "late-anyhow"],
    )
    def test_largest_batch_that_breaks_no_deadline(self, deadline, first):
        policy = EarliestDeadline(batching="deadline", headroom=0.0, drop_late=False)
        crowd = scenario({"f": table()}, on=ONE)
        assert started(decisions(policy, *[deadline] * 8, scenario=crowd)) == [first]

    def test_time_for_later_stages_is_set_aside(self):
        chain = scenario({"f": table(), "g": 1.0}, on=ONE)
        policy = EarliestDeadline(batching="deadline", headroom=0.0)
        assert started(decisions(policy, *[4.9] * 8, scenario=chain)) == [4]
        assert started(decisions(policy, *[5.0] * 8, scenario=chain)) == [8]

    def test_cold_start_counts_where_nothing_is_warm(self):
        cold = scenario({"f": table(cold_start_s=1.0)}, on=ONE)
        policy = EarliestDeadline(batching="deadline", headroom=0.0)
        assert started(decisions(policy, *[4.0] * 8, scenario=cold)) == [4]

    def test_headroom_is_left_unplanned(self):
        policy = EarliestDeadline(batching="deadline", headroom=0.5)
        assert started(decisions(policy, *[7.9] * 8, scenario=scenario({"f": table()}, on=ONE))) == [4]

    def test_a_large_batch_with_empty_seats_gives_way_to_a_full_one(self):
        crowd = scenario({"f": table()}, on=cluster(2, vcpus=1))
        # Five in the size of 8 take 4 s; four and one take 2 s and 1 s.
        assert started(decisions(Fifo(batching="deadline"), *[99.0] * 5, scenario=crowd)) == [4, 1]

    def test_cheapest_configuration_in_time_is_used(self):
        rows = (Row(batch=4, vcpus=1, seconds=4.0), Row(batch=4, vcpus=4, seconds=2.0))
        wide = scenario({"f": declared(Table(rows))}, on=cluster(vcpus=4))
        policy = EarliestDeadline(batching="deadline", headroom=0.0)
        (loose,) = decisions(policy, *[4.0] * 4, scenario=wide)
        (tight,) = decisions(policy, *[3.0] * 4, scenario=wide)
        assert (loose.configuration.vcpus, tight.configuration.vcpus) == (1, 4)

    def test_members_come_from_every_workflow_that_uses_the_function(self):
        two = scenario({"f": table()}, workflows={"main": ("f",), "other": ("f",)}, on=ONE)
        waiting = [Waits(deadline=9.0), Waits(deadline=8.0, workflow="other")]
        (start,) = decisions(EarliestDeadline(batching="deadline"), *waiting, scenario=two)
        assert [member.workflow for member in start.batch] == ["other", "main"]


class TestPassingOver:
    """Two options on one instance: a batch of 1 takes 1 s, a batch of 4 takes 2 s."""

    OFFERS = {  # noqa: RUF012 - never written to
        1: [Option(Configuration(batch=1), "n0", 1.0, 1.0)],
        4: [Option(Configuration(batch=4), "n0", 2.0, 2.0)],
    }

    def chosen(self, *budgets_s) -> list[int]:
        waiting = [Candidate(waits(i), float(budget_s)) for i, budget_s in enumerate(budgets_s)]
        return [member.invocation.id for member in best_choice(waiting, self.OFFERS).members]

    def test_who_can_be_saved_alone_goes_alone_if_the_others_have_time(self):
        assert self.chosen(1.5, 3, 3, 3, 3) == [0]

    def test_one_is_passed_over_where_serving_it_first_would_cost_more(self):
        assert self.chosen(1.5, 2.5, 2.5, 2.5, 2.5) == [1, 2, 3, 4]

    def test_one_for_one_the_first_goes_first(self):
        assert self.chosen(1.5, 2.5, 9, 9, 9) == [0]

    def test_who_is_late_in_any_case_goes_along(self):
        assert self.chosen(0.5, 1.5, 2.5, 2.5, 2.5) == [0, 2, 3, 4]

    def test_goodput_holds_under_overload(self):
        # One GPU's worth: singly 1 per second, in fours 2 per second; 6 per second come.
        rows = (Row(batch=1, seconds=1.0), Row(batch=4, seconds=2.0))
        crowd = scenario(
            {"f": declared(Table(rows))}, arrivals=[Deterministic("main", 1 / 6)], on=ONE, slo_s=6.0, duration_s=60.0
        )
        plain, batched = (
            summarise(simulate(crowd, EarliestDeadline(batching=batching))).goodput_rps
            for batching in ("none", "deadline")
        )
        assert plain == pytest.approx(1.0, abs=0.1)
        assert batched > 1.85


def waits(id: int, **more) -> Invocation:
    return Invocation(id, id, "main", "f", "f", 0.0, inf, **more)


class TestWaiting:
    """One per second; alone it takes 1 s, two take 1.2 s together."""

    PAIRS = declared(Table((Row(batch=1, seconds=1.0), Row(batch=2, seconds=1.2))))

    def starts(self, policy, slo_s, count=5):
        world = scenario({"f": self.PAIRS}, arrivals=[float(i) for i in range(count)], on=cluster(4), slo_s=slo_s)
        return simulate(world, policy).invocations.sort("request")["start"].to_list()

    def test_waits_for_the_next_once_it_knows_the_gap_and_not_for_one_that_does_not_come(self):
        # 0 and 1 teach the gap of 1 s; 2 waits for 3; 4 waits until 5, when nobody comes.
        assert self.starts(Fifo(batching="deadline"), 10.0) == [0.0, 1.0, 3.0, 3.0, 5.0]

    def test_does_not_wait_past_the_latest_start(self):
        # Waiting a second and running 1.2 s with a tenth of the time unplanned takes 2.33 s.
        assert self.starts(Fifo(batching="deadline"), 2.3) == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert self.starts(Fifo(batching="deadline"), 2.4) == [0.0, 1.0, 3.0, 3.0, 5.0]

    def test_without_an_objective_nobody_waits(self):
        assert self.starts(Fifo(batching="deadline"), inf) == [0.0, 1.0, 2.0, 3.0, 4.0]

    def test_later_stages_keep_their_share_of_the_time(self):
        chain = scenario(
            {"f": self.PAIRS, "g": 1.0}, arrivals=[0.0, 1.0, 2.0, 3.0], on=cluster(4), slo_s=4.0
        )  # half of the 4 s is f's, which is less than the 2.33 s of a wait and a run
        rows = simulate(chain, Fifo(batching="deadline")).invocations.filter(function="f").sort("request")
        assert rows["start"].to_list() == [0.0, 1.0, 2.0, 3.0]

    def test_a_wake_is_asked_for_once(self):
        alone = scenario({"f": table()}, on=ONE)
        batcher = prepared(Forced(batching="aimd", batch_wait_s=1.0), alone)._batcher
        view = view_of(9.0, scenario=alone)
        first, second = (batcher.next(view, view.oldest()) for _ in range(2))
        assert (first.action, first.is_held) == (Wake(1.0), True)
        assert (second.action, second.is_held) == (None, True)

    def test_who_waits_by_choice_does_not_hold_up_another_function(self):
        both = scenario({"f": table(), "g": 1.0}, workflows={"main": ("f",), "other": ("g",)}, on=ONE)
        policy = Forced(batching="aimd", batch_wait_s=1.0)
        wake, start = decisions(policy, Waits(), Waits(workflow="other"), scenario=both)
        assert isinstance(wake, Wake)
        assert start.batch[0].function == "g"


class Forced(Fifo):
    """A fifo that has learned that two go together."""

    def prepare(self, site, rng) -> None:
        super().prepare(site, rng)
        self._batcher.limits["f"] = 2.0


budgets = st.lists(st.one_of(st.floats(-2, 12), st.just(inf)), min_size=1, max_size=20)
offers = st.lists(
    st.tuples(st.floats(0.1, 5), st.floats(0.1, 5), st.floats(0, 3)), min_size=1, max_size=5
)  # per size: time, time of a second option, price per second


@settings(max_examples=60, deadline=None)
@given(budgets, offers)
def test_no_member_loses_a_deadline_that_a_smaller_batch_would_keep(budgets_s, times):
    options = {
        2**i: [
            Option(Configuration(batch=2**i), "n0", one_s, one_s * usd),
            Option(Configuration(batch=2**i, vcpus=2), "n0", two_s, usd),
        ]
        for i, (one_s, two_s, usd) in enumerate(times)
    }
    choice = best_choice([Candidate(waits(i), budget_s) for i, budget_s in enumerate(budgets_s)], options)
    size = choice.option.configuration.batch
    assert 1 <= len(choice.members) <= size
    smaller = [option.seconds for other, some in options.items() if other < size for option in some]
    for member in choice.members:
        if smaller and member.budget_s >= min(smaller):
            assert choice.option.seconds <= member.budget_s


def test_two_copies_of_one_item_never_share_a_batch():
    head, copy, other = (Invocation(i, r, "w", "s", "f", 0.0, inf) for i, r in ((0, 7), (1, 7), (2, 8)))
    assert list(_distinct(head, [head, copy, other])) == [head, other]


@pytest.mark.parametrize("policy", [Fifo, LeastLoaded, EarliestDeadline])
class TestDispatchers:
    @pytest.mark.parametrize(
        "parameters",
        [
            {"batching": "full", "batch_wait_s": 0.15},
            {"batching": "aimd", "batch_wait_s": 0.15},
            {"batching": "deadline"},
        ],
    )
    def test_conform_with_batching(self, policy, parameters):
        names = ("gpu-mps", "gpu-mig", "cpu-only", "map-join", "node-loss", "thinking")
        check_dispatcher(lambda: policy(**parameters), {name: SCENARIOS[name] for name in names})

    @pytest.mark.parametrize("batching", ["full", "aimd", "deadline"])
    def test_batching_carries_what_single_runs_cannot(self, policy, batching):
        # Singly one per second, in fours two per second, in eights two per second: 1.5 per second come.
        crowd = scenario(
            {"f": table()}, arrivals=[Deterministic("main", 1 / 1.5)], on=ONE, slo_s=12.0, duration_s=120.0
        )
        assert summarise(simulate(crowd, policy())).slo_attainment < 0.8
        assert summarise(simulate(crowd, policy(batching=batching))).slo_attainment == 1.0

    def test_records_are_only_made_where_they_teach_something(self, policy):
        observing = {batching for batching in get_args(Batching) if policy(batching=batching).observes}
        assert observing == {"aimd"}

    def test_parameters_have_ranges(self, policy):
        with pytest.raises(ValueError, match="batch_wait_s"):
            policy(batch_wait_s=-1.0)
        with pytest.raises(ValueError, match="batching"):
            policy(batching="always")


def test_none_is_no_batcher():
    site = site_of(scenario())
    assert make_batcher("none", site) is None
    assert isinstance(make_batcher("deadline", site), Deadline)
