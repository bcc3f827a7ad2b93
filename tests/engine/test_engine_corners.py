"""Corners where two features meet: each test is the smallest case in which they could get in each other's way."""

from collections import Counter
from contextlib import suppress

import pytest
from toy_policies import Adjusting, Doing, start_oldest, yielding

from fairlead.engine import simulate
from fairlead.errors import FairleadError, PolicyError
from fairlead.model import Configuration, Price, Stage, Workflow
from fairlead.policy import Cancel, Policy, Resize, Retire, Scale, Searched, Shrink, Start, Wake, Warm
from fairlead.policy.fifo import Fifo
from fairlead.profile import Row, Table
from fairlead.testing import check_accounts, check_capacity, check_immutable, cluster, declared, scenario, site_of
from fairlead.workload import ClosedLoop, DecisionTime, Listed, NodeFault

LATER = DecisionTime(fixed_s=1.0)


class TestMaps:
    def test_stage_in_a_map_waits_for_its_item_also_if_it_follows_the_maps_source(self):
        """The output of `a` must not count twice as an input of `c`: once when the map opens, once by itself."""
        stages = (
            Stage(name="a", function="f"),
            Stage(name="b", function="f", after=("a",), map=(2, 2)),
            Stage(name="c", function="f", after=("b", "a")),
        )
        recording = simulate(scenario(1.0, workflows={"main": Workflow(name="main", stages=stages)}))
        table = recording.invocations
        assert table.filter(table["stage"] == "c")["ready"].to_list() == [2.0, 2.0]


class TestDecisionTime:
    def test_start_and_cancel_in_one_decision(self):
        def deed(view):
            if view.now == 0:
                invocation = view.oldest()
                yield Start((invocation,), Configuration(), "n0")
                yield Cancel(invocation.id)
            else:
                yield from start_oldest(view)

        recording = simulate(scenario(1.0, arrivals=[0.0, 5.0], decision=LATER), Doing(deed))
        assert set(recording.requests["outcome"]) == {"completed"}

    def test_node_that_is_lost_before_a_decision_is_made_leaves_no_run_that_ends_before_it_starts(self):
        where = scenario(1.0, decision=LATER, node_faults=(NodeFault(node="n0", at_s=0.5, back_s=5.0),))
        recording = simulate(where)
        assert (recording.invocations["end"] >= recording.invocations["start"]).all()

    def test_claim_of_a_warming_instance_begins_when_the_decision_is_made(self):
        def deed(view):
            if view.now == 0:
                yield Warm("f", Configuration(), "n0")
                yield Wake(4.0)
            elif view.now == 4.0:
                yield from start_oldest(view)

        where = scenario(declared(1.0, cold_start_s=3.5), decision=LATER)  # warm from 1 to 4.5, claimed at 4
        recording = simulate(where, Doing(deed))
        assert recording.invocations["start"].to_list() == [5.0]

    def test_run_limit_counts_from_the_start(self):
        where = scenario(declared(1.5, run_limit_s=2.0), arrivals=[0.0, 10.0], decision=LATER)
        assert simulate(where).requests["outcome"].to_list() == ["completed"] * 2

    def test_search_that_starts_nothing_takes_its_time_too(self):

        asked = []

        def deed(view):
            asked.append(view.now)
            yield Searched(100)

        where = scenario(1.0, arrivals=[0.0, 0.5], decision=DecisionTime(per_step_s=0.01))
        simulate(where, Doing(deed))
        assert asked == [0.0, 1.0]


class TestInstances:
    def test_eviction_spares_what_does_not_hold_what_is_short(self):
        """vCPUs are short at 4: the idle kernel holds none of them, so its eviction would help nobody."""
        functions = {
            "kernel": declared(1.0, memory_gb=1, idle_holds="memory"),
            "small": declared(1.0, memory_gb=1),
            "large": declared(Table((Row(vcpus=4, seconds=1.0),)), memory_gb=1),
        }
        where = scenario(
            functions,
            workflows={name: (name,) for name in functions},
            arrivals=[Listed("kernel", (0.0,)), Listed("small", (2.0,)), Listed("large", (4.0,))],
            on=cluster(memory_gb=100),
        )
        table = simulate(where).instances
        assert dict(table.select("function", "cause").rows()) == {"kernel": None, "small": "evicted", "large": None}

    def test_cold_start_that_is_not_billed_is_not_billed_either_if_it_is_cut_short(self):
        where = scenario(
            declared(1.0, cold_start_s=5),
            on=cluster(price=Price(bill_cold_start=False)),
            node_faults=(NodeFault(node="n0", at_s=2.0, back_s=1.0),),
        )
        recording = simulate(where)
        lost = recording.invocations.row(0, named=True)
        assert (lost["outcome"], lost["end"]) == ("lost", 2.0)
        assert lost["cost_usd"] == 0
        assert lost["cold_s"] == 2.0

    def test_room_taken_by_a_warming_instance_is_room_for_its_claim(self):
        def deed(view):
            if view.now == 0:
                yield Warm("f", Configuration(), "n0")
                assert view.fits("f", Configuration(), "n0")
                yield from start_oldest(view)

        recording = simulate(scenario(declared(1.0, cold_start_s=2), on=cluster(vcpus=1)), Doing(deed))
        assert recording.invocations.select("start", "end").rows() == [(0.0, 3.0)]


class TestScaling:
    LAW = Table((Row(vcpus=1, seconds=2.0), Row(vcpus=4, seconds=1.0)))

    def scaled(self, where, *deeds, policy=None):
        return simulate(where, policy or Doing(), scaler=Adjusting(deeds))

    def test_node_with_two_idle_replicas_can_be_given_back(self):
        where = scenario(1.0, arrivals=[5.0], on=cluster(2, vcpus=2), control_period_s=1.0)
        recording = self.scaled(where, yielding(Scale("f", 4)), yielding(Shrink("plain")))
        check_accounts(recording)
        assert recording.requests["outcome"].to_list() == ["completed"]

    def test_node_with_a_warming_instance_goes_when_that_is_ready(self):
        seen = []

        def deed(view):
            seen.append((view.now, len(view.nodes)))
            if view.now == 0.5:
                yield Warm("f", Configuration(), "n1")
            yield Start((view.oldest(),), Configuration(), "n0")

        where = scenario(declared(1.0, cold_start_s=2), arrivals=[0.5, 9.0], on=cluster(2), control_period_s=1.0)
        self.scaled(where, yielding(Shrink("plain")), policy=Doing(deed))
        assert seen[-1] == (9.0, 1)

    def test_replica_is_not_the_dispatchers_to_retire(self):
        def deed(view):
            for instance in view.instances("f"):
                if view.now == 3.0 and instance.is_idle:
                    yield Retire(instance.id)
                    return
            yield from start_oldest(view)

        where = scenario(1.0, arrivals=[3.0, 4.0, 4.0, 4.0], on=cluster(vcpus=2), control_period_s=1.0)
        recording = self.scaled(where, yielding(Scale("f", 2)), policy=Doing(deed))
        check_accounts(recording)
        check_capacity(recording)

    def test_batch_on_a_replica_takes_the_time_of_its_size(self):
        def deed(view):
            if view.waiting() == 4:
                yield Start(tuple(view.by_ready()), Configuration(batch=4), "n0")

        law = Table((Row(batch=1, seconds=1.0), Row(batch=4, seconds=3.0)))
        where = scenario(law, arrivals=[2.0] * 4, control_period_s=1.0)
        recording = self.scaled(where, yielding(Scale("f", 1)), policy=Doing(deed))
        assert recording.invocations["end"].to_list() == [5.0] * 4

    def test_resize_of_a_busy_replica_frees_nothing_that_its_run_still_has(self):
        deeds = yielding(Scale("f", 1, Configuration(vcpus=4))), yielding(Resize("f", 1.0))
        where = scenario(
            {"f": declared(self.LAW), "g": declared(1.0)},
            workflows={"main": ("f",), "other": ("g",)},
            arrivals=[1.5, Listed("other", (2.1,))],
            control_period_s=1.0,
        )
        check_capacity(self.scaled(where, *deeds))

    def test_instance_that_was_warming_when_its_function_was_scaled_does_not_stay(self):
        def deed(view):
            if view.now == 0.5:
                yield Warm("f", Configuration(), "n0")
            else:
                yield from start_oldest(view)

        where = scenario(declared(1.0, cold_start_s=2), arrivals=[0.5, 9.0], control_period_s=1.0)
        recording = self.scaled(where, yielding(Scale("f", 1)), policy=Doing(deed))
        assert recording.instances.filter(recording.instances["stopped"].is_null()).height == 1


def test_site_cannot_be_changed():
    """What a policy is told in `prepare` is the scenario's own, and everybody's."""
    where = scenario(1.0)

    class Grasping(Policy):
        """Changes the scenario for everybody."""

        def prepare(self, site, rng):
            site.functions.clear()

        def decide(self, view):
            yield from start_oldest(view)

    with pytest.raises(PolicyError, match="no attribute 'clear'"):
        simulate(where, Grasping())
    assert where.functions
    check_immutable(site_of(where).cluster, "site.cluster")
    check_immutable(site_of(where).workflows["main"], "site.workflows['main']")


def test_instance_that_is_lost_before_a_decision_is_made_does_not_stop_before_it_starts():
    """It is lost at 0.5, while the decision to start it takes until 1."""
    faults = (NodeFault(node="n0", at_s=0.5, back_s=5.0),)
    recording = simulate(scenario(1.0, decision=DecisionTime(fixed_s=1.0), node_faults=faults))
    check_accounts(recording)


def test_replica_that_never_starts_in_time_does_not_keep_the_run_going_for_ever():
    """It takes 5 s to start and may take 2: it could be started again and again, long after all requests ended."""

    def progress(now):
        if now > 1e4:
            pytest.fail(f"the run is at {now:g} s, and its only request ended at 2 s")

    where = scenario(declared(1.0, cold_start_s=5, start_limit_s=2), control_period_s=1.0)
    simulate(where, Doing(), scaler=Adjusting((yielding(Scale("f", 1)),)), progress=progress)


def test_run_on_a_replica_that_waits_for_its_replacement_has_that_replicas_size():
    """At 2.5 the new replica, without a GPU, still starts and the old one serves, with its GPU."""
    law = Table((Row(vgpus=1, seconds=1.0), Row(vgpus=0, seconds=4.0)))
    where = scenario(declared(law, cold_start_s=1.0), arrivals=[2.5], on=cluster(vgpus=4), control_period_s=1.0)
    deeds = yielding(Scale("f", 1, Configuration(vgpus=1))), yielding(Scale("f", 1, Configuration()))
    recording = simulate(where, Doing(), scaler=Adjusting(deeds))
    check_accounts(recording)
    assert recording.invocations.select("device", "vgpus", "end").rows() == [(0, 1, 3.5)]


def test_replica_that_waits_for_its_replacement_keeps_its_gpu_after_a_batch():
    """From 4 on the function is to run without a GPU. Until its replacement is ready at 7, the old replica serves.

    After its first batch it must not take over the new size: the second run has the GPU as well.
    """
    law = Table((Row(vcpus=0.5, vgpus=1, seconds=1.0), Row(vcpus=1, seconds=9.0)))
    where = scenario(declared(law, cold_start_s=3.0), arrivals=[4.5, 4.5], on=cluster(vgpus=4), control_period_s=1.0)
    old, new = Configuration(vcpus=0.5, vgpus=1), Configuration()
    deeds = yielding(Scale("f", 1, old)), yielding(), yielding(), yielding(Scale("f", 1, new))
    recording = simulate(where, Doing(), scaler=Adjusting(deeds))
    check_accounts(recording)
    assert recording.invocations.select("start", "vgpus", "end").rows() == [(4.5, 1, 5.5), (5.5, 1, 6.5)]


def test_user_who_is_rejected_and_does_not_think_does_not_stop_time():
    """While the other's call runs, a rejected user could call again at the same instant, for ever."""
    seen = Counter()

    def progress(now):
        seen[now] += 1
        if seen[now] > 5:
            pytest.fail(f"thousands of calls at {now:g} s, and no end")

    loop = ClosedLoop("main", users=2, think_s=0, think="constant")
    where = scenario(1.0, arrivals=[loop], on=cluster(vcpus=1), duration_s=5)
    with suppress(FairleadError):  # to say that this cannot work would do as well
        simulate(where, Fifo(queue_limit=0), progress=progress)
