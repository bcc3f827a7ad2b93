"""Nodes that change their size while they are up."""

import pytest
from toy_policies import Doing, start_oldest

from fairlead.engine.core import Controller
from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.model import Configuration, Device, Node, Request
from fairlead.policy.base import NodeChange, Scale
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, scenario


def controller(on=None, functions=None, deed=start_oldest, awaits_end=False, **settings):
    functions = functions or declared(1.0, memory_gb=1, idle_holds="memory")
    where = scenario(functions, on=on or cluster(vcpus=4, memory_gb=8), **settings)
    return Controller(where, Doing(deed), awaits_end=awaits_end)


def arrived(id=0):
    return ev.Arrived(Request(id, "main", 0.0))


def kinds(effects):
    return [type(effect) for effect in effects]


def change(vcpus, memory_gb=8.0, node="n0", devices=None):
    return ev.NodeChanged(node, vcpus, memory_gb, devices)


def busy(it, count):
    """Start this number of batches, one vCPU each; returns their ids."""
    starts = it.handle(0.0, [arrived(i) for i in range(count)])
    runs = it.handle(0.0, [ev.InstanceReady(start.instance) for start in starts])
    return [run.batch for run in runs]


def test_what_runs_goes_on_and_nothing_starts_until_there_is_room():
    it = controller()
    batches = busy(it, 3)
    assert it.handle(0.1, [change(1.5)]) == []
    node = it.nodes["n0"]
    assert (node.total, node.free) == (1500, -1500)
    assert it.handle(0.2, [arrived(3)]) == []
    assert it.view.place("f", Configuration()) is None
    assert not it.view.fits("f", Configuration(), "n0")
    assert kinds(it.handle(1.0, [ev.Finished(batches[0], 1.0)])) == [fx.Answer]  # -0.5 are free
    assert kinds(it.handle(1.1, [ev.Finished(batches[1], 1.0)])) == [fx.Answer]  # 0.5 are free
    effects = it.handle(1.2, [ev.Finished(batches[2], 1.0)])
    assert kinds(effects) == [fx.Answer, fx.RunBatch]


def test_a_node_that_grows_lets_waiting_work_start():
    it = controller(on=cluster(vcpus=1, memory_gb=8))
    busy(it, 1)
    assert it.handle(0.1, [arrived(1), arrived(2)]) == []
    effects = it.handle(0.2, [change(3.0)])
    assert kinds(effects) == [fx.StartInstance, fx.StartInstance]
    assert it.view.load("n0") == 1.0


def test_a_node_may_grow_beyond_what_any_node_had_at_first():
    it = controller(on=cluster(vcpus=1))
    it.handle(0.0, [change(64.0, float("inf"))])
    assert len(it.handle(0.1, [arrived(i) for i in range(70)])) == 64


def test_idle_instances_make_way_for_less_memory():
    it = controller()
    for batch in busy(it, 3):
        it.handle(1.0, [ev.Finished(batch, 1.0)])
    stops = it.handle(2.0, [change(4.0, 1.5)])
    assert [(type(stop), stop.instance) for stop in stops] == [(fx.StopInstance, 0), (fx.StopInstance, 1)]
    assert it.nodes["n0"].memory_held == 1024


def test_an_instance_that_turns_idle_on_a_node_that_is_too_small_is_evicted():
    it = controller()
    (batch,) = busy(it, 1)
    it.handle(0.5, [change(4.0, 0.5)])
    assert kinds(it.handle(1.0, [ev.Finished(batch, 1.0)])) == [fx.StopInstance, fx.Answer]
    assert it.pool.instances == {}


def test_a_node_may_shrink_to_nothing_and_come_back():
    it = controller()
    (batch,) = busy(it, 1)
    it.handle(0.5, [change(0.0, 0.0), arrived(1)])
    node = it.nodes["n0"]
    assert (node.total, node.free, node.memory_free) == (0, -1000, -1024)
    assert it.view.load("n0") == 1.0
    (shown,) = it.view.nodes
    assert (shown.vcpus, shown.memory_gb) == (0.001, 1 / 1024)  # policies may divide by the size of a node
    assert kinds(it.handle(1.0, [ev.Finished(batch, 1.0)])) == [fx.StopInstance, fx.Answer]
    assert (node.free, node.memory_free) == (0, 0)
    assert kinds(it.handle(2.0, [change(4.0)])) == [fx.StartInstance]
    assert (node.free, node.memory_free) == (3000, 7 * 1024)


def test_policies_see_the_new_size_and_the_change():
    seen = []

    def deed(view):
        seen.append((view.nodes, view.changes.nodes, view.freed))
        return iter(())

    it = controller(deed=deed, on=cluster(vcpus=4, memory_gb=8, overcommit=2))
    it.handle(0.0, [change(3.0, 2.0), arrived()])
    node = Node(name="n0", kind="plain", vcpus=1.5, memory_gb=2.0, overcommit=2)
    assert seen == [((node,), (NodeChange(node, "changed"),), ("n0",))]


def test_a_change_of_a_node_that_is_not_up_is_stale():
    it = controller()
    it.handle(0.0, [ev.NodeLost("n0")])
    it.handle(0.1, [change(1.0), change(1.0, node="n9")])
    assert it.stale_events == 2


def test_a_node_that_comes_back_may_have_another_size():
    it = controller()
    it.handle(0.0, [ev.NodeLost("n0")])
    it.handle(0.1, [ev.NodeJoined(Node(name="n0", kind="plain", vcpus=2, memory_gb=8))])
    assert len(it.handle(0.2, [arrived(i) for i in range(3)])) == 2


def test_what_was_evicted_still_takes_its_memory_until_it_is_gone():
    it = controller(awaits_end=True)
    for batch in busy(it, 2):
        it.handle(1.0, [ev.Finished(batch, 1.0)])
    assert it.pool.uses(it.nodes["n0"]) == (0, 2048)
    it.handle(2.0, [change(4.0, 0.0)])
    assert it.pool.uses(it.nodes["n0"]) == (0, 2048)
    it.handle(2.1, [ev.InstanceGone(0)])
    assert it.pool.uses(it.nodes["n0"]) == (0, 1024)


# --- replicas ------------------------------------------------------------------------------------------------------


def scaled(count, vcpus=4.0):
    it = controller(awaits_end=True, on=cluster(vcpus=vcpus))
    starts = it.handle(0.0, [ev.Ordered(Scale("f", count))])
    it.handle(0.5, [ev.InstanceReady(start.instance) for start in starts])
    return it


def test_replicas_give_way_to_a_smaller_size_and_the_last_when_it_has_rested():
    it = scaled(3)
    stops = it.handle(1.0, [change(1.0, float("inf"))])
    assert [stop.instance for stop in stops] == [2, 1]  # the youngest first
    assert it.handle(1.1, [change(0.5, float("inf"))]) == []
    assert it.handle(1.2, [ev.InstanceGone(1), ev.InstanceGone(2)]) == []
    assert it.next_wake <= 2.2
    (stop,) = it.handle(2.2, [])  # more than a second after it was ready
    assert stop.instance == 0


def test_replicas_come_back_with_the_size():
    it = scaled(3)
    it.handle(1.0, [change(1.0, float("inf"))])
    it.handle(1.1, [ev.InstanceGone(1), ev.InstanceGone(2)])
    assert kinds(it.handle(2.0, [change(2.0, float("inf"))])) == [fx.StartInstance]
    assert kinds(it.handle(3.0, [change(4.0, float("inf"))])) == [fx.StartInstance]


def test_a_busy_replica_ends_with_its_batch():
    it = scaled(2, vcpus=2.0)
    first, second = it.handle(1.0, [arrived(0), arrived(1)])
    assert it.handle(1.1, [change(1.0, float("inf"))]) == []
    assert kinds(it.handle(2.0, [ev.Finished(first.batch, 1.0)])) == [fx.Answer]
    assert kinds(it.handle(2.0, [ev.Finished(second.batch, 1.0)])) == [fx.StopInstance, fx.Answer]


def test_a_replica_may_become_smaller_while_too_much_is_in_use():
    law = Table((Row(vcpus=1, seconds=1.0), Row(vcpus=2, seconds=1.0)))
    it = controller(functions=declared(law, idle_holds="memory"), on=cluster(vcpus=2))
    (start,) = it.handle(0.0, [ev.Ordered(Scale("f", 1, Configuration(vcpus=2)))])
    it.handle(0.5, [ev.InstanceReady(start.instance), change(0.5, float("inf"))])
    assert it.nodes["n0"].free == -1500
    assert it.view.resizes("f", 1.0)


# --- devices -------------------------------------------------------------------------------------------------------

GPU = declared(Table((Row(vgpus=1, vcpus=1, seconds=1.0),)), idle_holds="memory", device_memory_gb=1)
SMALL, LARGE = Device(vgpus=1.0, memory_gb=8.0), Device(vgpus=2.0, memory_gb=8.0)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [((LARGE,), (SMALL,)), ((), (SMALL,)), ((LARGE, LARGE), (SMALL, LARGE))],
    ids=["stays-as-it-is", "stays", "others-change"],
)
def test_a_device_in_use_stays(devices, expected):
    it = controller(functions=GPU, on=cluster(vcpus=4, vgpus=1, device_memory_gb=8))
    (start,) = it.handle(0.0, [arrived()])
    it.handle(0.1, [change(4.0, float("inf"), devices=devices)])
    assert it.view.nodes[0].devices == expected
    (run,) = it.handle(0.5, [ev.InstanceReady(start.instance)])
    it.handle(1.5, [ev.Finished(run.batch, 1.0)])
    effects = it.handle(2.0, [change(4.0, float("inf"), devices=devices)])
    assert kinds(effects) == [fx.StopInstance]  # the idle instance goes with its device
    assert it.view.nodes[0].devices == devices


def test_a_device_that_appears_is_used():
    it = controller(functions=GPU, on=cluster(vcpus=4, vgpus=1, device_memory_gb=8))
    assert len(it.handle(0.0, [arrived(i) for i in range(4)])) == 1
    assert len(it.handle(0.1, [change(4.0, float("inf"), devices=(SMALL, LARGE))])) == 2
