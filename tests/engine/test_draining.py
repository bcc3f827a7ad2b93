"""A node that is drained: instances are ready elsewhere first, running work ends, then it is empty; and back."""

from toy_policies import Doing, start_oldest

from fairlead.engine.core import Controller
from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.model import Configuration, Request
from fairlead.policy.base import Move, Scale, Warm
from fairlead.testing import cluster, declared, scenario


def controller(nodes=2):
    functions = {"f": declared(1.0, memory_gb=2, idle_holds="memory")}
    where = scenario(functions, on=cluster(nodes, vcpus=1, memory_gb=4))
    return Controller(where, Doing(start_oldest), awaits_end=True)


def arrived(id):
    return ev.Arrived(Request(id, "main", 0.0))


def idle_on(it, node, at):
    (start,) = it.handle(at, [ev.Ordered(Warm("f", Configuration(), node))])
    it.handle(at, [ev.InstanceReady(start.instance)])
    return start.instance


def test_an_idle_instance_is_started_elsewhere_and_the_node_goes_when_its_own_has_ended():
    it = controller()
    old = idle_on(it, "n0", 0.0)
    (start,) = it.handle(1.0, [ev.NodeDraining("n0", "move")])
    assert (type(start), start.node) == (fx.StartInstance, "n1")
    assert it.drains.is_moving("n0")
    (run,) = it.handle(1.5, [arrived(0)])  # until then, the old one works
    assert (type(run), run.instance) == (fx.RunBatch, old)
    it.handle(2.0, [ev.InstanceReady(start.instance)])
    assert not it.drains.is_moving("n0")
    assert it.handle(2.1, [ev.NodeDraining("n0", "close")]) == []
    (run,) = it.handle(2.2, [arrived(1)])
    assert run.instance == start.instance  # nothing new on the closed node
    assert not it.drains.has_left("n0")
    effects = it.handle(2.5, [ev.Finished(0, 1.0)])
    assert [type(effect) for effect in effects] == [fx.StopInstance, fx.Answer]  # with its batch, and nothing sooner
    (remove,) = it.handle(2.6, [ev.InstanceGone(old)])
    assert (type(remove), remove.node) == (fx.RemoveNode, "n0")
    assert it.drains.has_left("n0")
    assert it.stale_events == 0


def test_an_idle_instance_elsewhere_is_enough():
    it = controller()
    idle_on(it, "n0", 0.0)
    idle_on(it, "n1", 0.0)
    assert it.handle(1.0, [ev.NodeDraining("n0", "move")]) == []
    assert not it.drains.is_moving("n0")


def test_without_room_elsewhere_nothing_is_evicted_and_work_waits_for_the_other_node():
    it = controller()
    (start,) = it.handle(0.0, [arrived(0)])
    it.handle(0.0, [ev.InstanceReady(start.instance)])
    (other,) = it.handle(0.0, [arrived(1)])
    it.handle(0.1, [ev.InstanceReady(other.instance)])
    assert it.handle(0.2, [ev.NodeDraining("n0", "move")]) == []
    it.handle(0.3, [ev.NodeDraining("n0", "close"), arrived(2)])
    effects = it.handle(1.0, [ev.Finished(0, 1.0)])
    assert [type(effect) for effect in effects] == [fx.StopInstance, fx.Answer]  # the third does not go to n0
    effects = it.handle(1.2, [ev.Finished(1, 1.0)])
    assert [type(effect) for effect in effects] == [fx.Answer, fx.RunBatch]


def test_a_drain_that_is_undone_leaves_the_node_as_it_was():
    it = controller(1)
    old = idle_on(it, "n0", 0.0)
    (run,) = it.handle(0.5, [arrived(0)])
    it.handle(1.0, [ev.NodeDraining("n0", "close"), arrived(1)])
    it.handle(1.1, [ev.NodeDraining("n0", "open")])
    effects = it.handle(1.5, [ev.Finished(run.batch, 1.0)])
    assert [(type(e), e.instance) for e in effects if isinstance(e, fx.RunBatch)] == [(fx.RunBatch, old)]


def test_an_emptied_node_can_be_opened_while_its_instances_end():
    it = controller(1)
    old = idle_on(it, "n0", 0.0)
    (stop,) = it.handle(1.0, [ev.NodeDraining("n0", "close")])
    assert (type(stop), it.view.nodes) == (fx.StopInstance, ())
    it.handle(1.1, [ev.NodeDraining("n0", "open")])
    assert [node.name for node in it.view.nodes] == ["n0"]
    assert it.handle(1.2, [ev.InstanceGone(old)]) == []  # no RemoveNode
    assert it.nodes["n0"].memory_free == 4 * 1024


def test_replicas_have_their_successors_first_and_a_move_to_the_node_is_forgotten():
    it = controller()
    (start,) = it.handle(0.0, [ev.Ordered(Scale("f", 1, Configuration()), True), ev.Ordered(Move("f", "n0"), True)])
    it.handle(0.1, [ev.InstanceReady(start.instance)])
    (new,) = it.handle(1.0, [ev.NodeDraining("n0", "move")])
    assert (type(new), new.node) == (fx.StartInstance, "n1")
    (run,) = it.handle(1.1, [arrived(0)])
    assert run.instance == start.instance
    it.handle(1.5, [ev.InstanceReady(new.instance)])
    it.handle(1.6, [ev.NodeDraining("n0", "close")])
    effects = it.handle(2.1, [ev.Finished(run.batch, 1.0)])
    assert fx.StopInstance in [type(effect) for effect in effects]
    (remove,) = it.handle(2.2, [ev.InstanceGone(start.instance)])
    assert (type(remove), remove.node) == (fx.RemoveNode, "n0")
    assert it.replicas.sets["f"].target == 1


def test_what_cannot_be_drained_or_opened_changes_nothing():
    it = controller()
    for number, event in enumerate([("n9", "move"), ("n0", "open"), ("n9", "open")]):
        assert it.handle(float(number), [ev.NodeDraining(*event)]) == []
    assert it.stale_events == 3
