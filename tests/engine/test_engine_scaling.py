"""Replicas and nodes that a scaler asks for."""

import pytest
from toy_policies import Adjusting, Doing, start_oldest, yielding

from fairlead.engine import simulate
from fairlead.model import Configuration
from fairlead.policy import Grow, Move, Resize, Scale, Shrink, Start, Warm
from fairlead.profile import Row, Table
from fairlead.testing import check_accounts, cluster, declared, scenario
from fairlead.workload import NodeFault

NOTHING = yielding()


def scaled(where, *deeds, policy=None):
    """A run in which the n-th control period, at n seconds, does the n-th deed."""
    return simulate(where, policy or Doing(), scaler=Adjusting(deeds))


def slow(arrivals, **settings):
    """A function of a second with a cold start of half a second, and a control period of a second."""
    settings = {"control_period_s": 1.0, "provision_s": 2.0, **settings}
    return scenario(declared(1.0, cold_start_s=0.5), arrivals=arrivals, **settings)


def lives(recording):
    columns = ("node", "started", "stopped", "cause")
    return recording.instances.sort("instance").select(columns).rows()


def starts(recording):
    return sorted(recording.invocations["start"])


class TestScale:
    def test_scaled_function_runs_only_on_its_replicas(self):
        recording = scaled(slow([2.0, 2.0, 2.0]), yielding(Scale("f", 2)))
        assert starts(recording) == [2, 2, 3]
        assert recording.instances.select("started", "ready", "on_demand").rows() == [(1, 1.5, False)] * 2
        assert not any(recording.invocations["is_cold"])

    def test_what_waits_starts_when_a_replica_is_ready(self):
        recording = scaled(slow([0.9, 1.1], on=cluster(vcpus=1)), yielding(Scale("f", 1)))
        # The first run began before scaling and goes on; then the machine is free for the replica.
        assert starts(recording)[0] == 0.9
        assert recording.requests["outcome"].to_list() == ["completed"] * 2
        check_accounts(recording)

    def test_scale_in_lets_the_busy_finish(self):
        recording = scaled(
            slow([1.9, 1.9, 4.0]), yielding(Scale("f", 2)), yielding(Scale("f", 0)), NOTHING, yielding(Scale("f", 1))
        )
        assert starts(recording) == [1.9, 1.9, 4.5]
        assert [(stopped, cause) for _, _, stopped, cause in lives(recording)] == [
            (2.9, "drained"),
            (2.9, "drained"),
            (None, None),
        ]

    def test_a_function_given_back_is_the_dispatchers_again(self):
        where = slow([1.6, 3.6])
        recording = scaled(where, yielding(Scale("f", 2)), yielding(Scale("f", None)))
        # At 2 the idle replica goes and the busy one ends with its batch; the next request starts an instance itself.
        assert lives(recording) == [
            ("n0", 1, 2.6, "drained"),
            ("n0", 1, 2, "drained"),
            ("n0", 3.6, None, None),
        ]
        assert starts(recording) == [1.6, 3.6]
        check_accounts(recording)

    def test_scale_takes_idle_first(self):
        recording = scaled(slow([1.9, 5.0]), yielding(Scale("f", 2)), yielding(Scale("f", 1)))
        assert [(stopped, cause) for _, _, stopped, cause in lives(recording)] == [(None, None), (2, "drained")]

    def test_what_does_not_fit_comes_later(self):
        def deed(view):
            yield Scale("f", 1)

        where = scenario(
            {"f": 1.0, "g": declared(5.0)},
            workflows={"main": ("g",), "other": ("f",)},
            arrivals=[0.0],
            on=cluster(vcpus=1),
            control_period_s=1.0,
        )
        recording = scaled(where, deed)
        started = dict(recording.instances.select("function", "started").rows())
        assert started == {"g": 0, "f": 5}

    def test_lost_replica_is_replaced(self):

        where = slow([6.0], on=cluster(2), node_faults=(NodeFault(node="n0", at_s=3),))
        recording = scaled(where, yielding(Scale("f", 1)))
        assert lives(recording) == [("n0", 1, 3, "lost"), ("n1", 3, None, None)]
        assert starts(recording) == [6]

    def test_dispatcher_may_not_warm_what_is_scaled(self):
        def deed(view):
            yield Warm("f", Configuration(), "n0")

        recording = scaled(slow([2.0]), yielding(Scale("f", 1)), policy=Doing(deed))
        assert "its scaler decides" in recording.refusals[0].reason

    @pytest.mark.parametrize(
        ("action", "reason"),
        [
            (Scale("f", -1), "negative"),
            (Scale("nothing", 1), "no function 'nothing'"),
            (Scale("f", 1, Configuration(vcpus=3)), "has no configuration"),
            (Resize("f", 1.0), "is not scaled"),
            (Move("f", "n0"), "is not scaled"),
            (Grow("huge"), "no kind of node 'huge'"),
            (Shrink("huge"), "huge"),
        ],
        ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
    )
    def test_what_cannot_be_is_refused(self, action, reason):
        recording = scaled(slow([2.0]), yielding(action))
        assert reason in recording.refusals[0].reason


class TestResize:
    LAW = Table((Row(vcpus=1, seconds=2.0), Row(vcpus=2, seconds=1.0)))

    def where(self, arrivals, **settings):
        return scenario(declared(self.LAW, cold_start_s=0.5), arrivals=arrivals, control_period_s=1.0, **settings)

    def test_vcpus_change_in_place(self):
        recording = scaled(
            self.where([1.6, 5.0]), yielding(Scale("f", 1)), NOTHING, NOTHING, yielding(Resize("f", 2.0))
        )
        assert recording.invocations.select("start", "end", "vcpus").rows() == [(1.6, 3.6, 1), (5, 6, 2)]
        assert recording.instances.height == 1

    def test_memory_changes_by_replacement(self):
        deeds = yielding(Scale("f", 1)), NOTHING, yielding(Resize("f", 1.0, memory_gb=2))
        recording = scaled(self.where([5.0]), *deeds)
        assert recording.instances.sort("instance").select("started", "stopped", "memory_gb").rows() == [
            (1, 3.5, 0),
            (3, None, 2),
        ]

    def test_more_than_there_is_is_refused(self):
        deeds = yielding(Scale("f", 2)), yielding(Resize("f", 2.0))
        recording = scaled(self.where([5.0], on=cluster(vcpus=3)), *deeds)
        assert "does not fit where its replicas are" in recording.refusals[0].reason


class TestMove:
    def test_replacement_is_ready_first(self):
        deeds = yielding(Scale("f", 1)), NOTHING, yielding(Move("f", "n1"))
        recording = scaled(slow([3.2, 5.0], on=cluster(2)), *deeds)
        # At 3.2 the old one still serves; it drains when the new one is ready at 3.5, and ends with its batch.
        assert lives(recording) == [("n0", 1, 4.2, "drained"), ("n1", 3, None, None)]
        assert recording.invocations.select("node", "start", "is_cold").rows() == [("n0", 3.2, False), ("n1", 5, False)]

    def test_idle_replica_ends_when_the_other_is_ready(self):
        deeds = yielding(Scale("f", 1)), NOTHING, yielding(Move("f", "n1"))
        recording = scaled(slow([5.0], on=cluster(2)), *deeds)
        assert lives(recording) == [("n0", 1, 3.5, "drained"), ("n1", 3, None, None)]

    def test_unknown_node_is_refused(self):
        recording = scaled(slow([5.0]), yielding(Scale("f", 1), Move("f", "n7")))
        assert "no node 'n7'" in recording.refusals[0].reason


class TestNodes:
    def test_grow_brings_a_node_after_its_time(self):
        recording = scaled(slow([0.5, 0.5], on=cluster(vcpus=1)), yielding(Grow("plain")))
        # One runs until 2; asked for at 1, the second node would come at 3: too late to help.
        assert starts(recording) == [0.5, 2]
        busy = slow([0.5, 0.5, 0.5, 0.5], on=cluster(vcpus=1))
        recording = scaled(busy, yielding(Grow("plain")))
        table = recording.invocations.sort("start", "node")
        assert table["start"].to_list() == [0.5, 2, 3, 3]
        assert len(set(table["node"])) == 2

    def test_shrink_waits_for_what_runs(self):
        seen = []

        def deed(view):
            seen.append((view.now, tuple(node.name for node in view.nodes)))
            yield from start_oldest(view)

        where = scenario(3.0, arrivals=[0, 0, 2.0, 6.0], on=cluster(2, vcpus=1), control_period_s=1.0)
        recording = scaled(where, yielding(Shrink("plain")), policy=Doing(deed))
        table = recording.invocations.sort("request").select("node", "start").rows()
        # The second node takes no more work from 1 on, and goes at 3.
        assert table == [("n0", 0), ("n1", 0), ("n0", 3), ("n0", 6)]
        assert (2.0, ("n0", "n1")) in seen
        assert (6.0, ("n0",)) in seen

    def test_shrink_takes_the_emptiest(self):
        def first_node(view):
            for invocation in view.by_ready():
                yield Start((invocation,), Configuration(), "n1" if invocation.request == 0 else view.nodes[0].name)

        where = scenario(3.0, arrivals=[0, 2.0], on=cluster(2, vcpus=2), control_period_s=1.0)
        recording = scaled(where, yielding(Shrink("plain")), policy=Doing(first_node))
        assert recording.invocations.sort("request")["node"].to_list() == ["n1", "n1"]
