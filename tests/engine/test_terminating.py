"""Instances that take time to end: what they used stays used, and a successor waits for those evicted for it."""

import pytest
from toy_policies import Doing, start_oldest

from fairlead.engine.core import Controller
from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.model import Configuration, Request
from fairlead.policy.base import Cancel, Retire, Scale, Shrink, Warm
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, scenario


def controller(on=None, functions=None, deed=start_oldest, workflows=None, **settings):
    functions = functions or {"f": declared(1.0, memory_gb=2, idle_holds="memory", keep_alive_s=5, retries=1)}
    where = scenario(functions, on=on or cluster(vcpus=1, memory_gb=4), workflows=workflows, **settings)
    return Controller(where, Doing(deed), awaits_end=True)


def arrived(id=0, workflow="main"):
    return ev.Arrived(Request(id, workflow, 0.0))


def kinds(effects):
    return [type(effect) for effect in effects]


def free(it, node="n0"):
    """vCPUs and GB that are free, idle instances counted as free."""
    state = it.nodes[node]
    return state.free / 1000, state.memory_free / 1024


def unheld_gb(it, node="n0"):
    state = it.nodes[node]
    return (state.memory_free - state.memory_held) / 1024


def run_once(it, at=0.0, request=0, workflow="main"):
    """One request from arrival to answer, on an instance that is then idle; its number."""
    (start,) = it.handle(at, [arrived(request, workflow)])
    (run,) = it.handle(at, [ev.InstanceReady(start.instance)])
    it.handle(at + 1, [ev.Finished(run.batch, 1.0)])
    return start.instance


def test_a_busy_instance_that_is_stopped_keeps_everything_until_it_is_gone():
    def deed(view):
        if view.now == 1:
            yield Cancel(view.running()[0].invocations[0].id)
        yield from start_oldest(view)

    it = controller(deed=deed)
    (start,) = it.handle(0.0, [arrived()])
    it.handle(0.5, [ev.InstanceReady(start.instance)])
    (stop,) = it.handle(1.0, [arrived(1)])  # both wait: the node's one vCPU is still taken
    assert (type(stop), stop.instance) == (fx.StopInstance, start.instance)
    assert free(it) == (0, 2)
    (again,) = it.handle(1.2, [ev.InstanceGone(start.instance)])
    assert (type(again), again.at) == (fx.StartInstance, 1.2)
    assert it.stale_events == 0


def test_an_idle_instance_that_expires_keeps_its_memory_until_it_is_gone():
    it = controller()
    instance = run_once(it)
    assert free(it) == (1, 4)
    assert unheld_gb(it) == 2
    (stop,) = it.handle(6.0, [])
    assert (type(stop), stop.instance) == (fx.StopInstance, instance)
    assert free(it) == (1, 2)  # a process without work takes no CPU time
    it.handle(6.1, [ev.InstanceGone(instance)])
    assert free(it) == (1, 4)
    assert it.nodes["n0"].memory_held == 0


def test_an_idle_instance_that_keeps_its_slice_keeps_it_until_it_is_gone():
    it = controller(functions={"f": declared(1.0, memory_gb=2, idle_holds="slice", keep_alive_s=5)})
    instance = run_once(it)
    it.handle(6.0, [])
    assert free(it) == (0, 2)
    it.handle(6.1, [ev.InstanceGone(instance)])
    assert free(it) == (1, 4)


TWO = {
    "f": declared(1.0, memory_gb=3, idle_holds="memory"),
    "g": declared(1.0, memory_gb=3, idle_holds="memory"),
}
EITHER = {"main": ("f",), "other": ("g",)}


def test_the_successor_of_an_evicted_instance_starts_when_that_is_gone():
    it = controller(functions=TWO, workflows=EITHER, on=cluster(vcpus=2, memory_gb=4))
    evicted = run_once(it)
    (stop,) = it.handle(2.0, [arrived(1, "other")])  # its room is given away, and its successor waits
    assert (type(stop), stop.instance) == (fx.StopInstance, evicted)
    assert free(it) == (1, 1)
    (start,) = it.handle(2.3, [ev.InstanceGone(evicted)])
    assert (type(start), start.function, start.at) == (fx.StartInstance, "g", 2.3)
    (run,) = it.handle(2.8, [ev.InstanceReady(start.instance)])
    it.handle(3.8, [ev.Finished(run.batch, 1.0)])
    *_, row = it.books.recorder.invocations
    assert row[14:16] == (2.0, pytest.approx(0.8))  # its cold start counts from the decision


def test_a_start_waits_for_those_evicted_before_it_and_not_for_later_ones():
    it = controller(
        functions={name: declared(1.0, memory_gb=1, idle_holds="memory") for name in "abcd"},
        workflows={name: (name,) for name in "abcd"},
        on=cluster(vcpus=4, memory_gb=2),
    )
    a, b = run_once(it, 0.0, 0, "a"), run_once(it, 1.0, 1, "b")
    it.handle(2.0, [arrived(2, "c")])  # evicts a
    it.handle(2.1, [arrived(3, "d")])  # evicts b
    (start,) = it.handle(2.2, [ev.InstanceGone(a)])
    assert start.function == "c"
    (start,) = it.handle(2.3, [ev.InstanceGone(b)])
    assert start.function == "d"


def test_a_start_that_was_held_back_and_is_not_wanted_any_more_is_never_told():
    it = controller(
        functions=TWO | {"g": declared(1.0, memory_gb=3, start_limit_s=9, idle_holds="memory")},
        workflows=EITHER,
        on=cluster(vcpus=2, memory_gb=4),
    )
    evicted = run_once(it)
    assert kinds(it.handle(2.0, [ev.Ordered(Scale("g", 1))])) == [fx.StopInstance]
    assert it.handle(2.1, [ev.Ordered(Scale("g", 0))]) == []
    assert free(it) == (2, 4)
    assert it.handle(2.2, [ev.InstanceGone(evicted)]) == []
    assert it.handle(20.0, []) == []


def test_a_lost_instance_is_free_at_once():
    it = controller()
    instance = run_once(it)
    it.handle(2.0, [ev.InstanceLost(instance)])
    assert free(it) == (1, 4)
    assert unheld_gb(it) == 4


def test_the_loss_of_a_terminating_instance_is_its_end():
    it = controller()
    instance = run_once(it)
    it.handle(2.0, [ev.Ordered(Retire(instance))])
    assert free(it) == (1, 2)
    it.handle(2.1, [ev.InstanceLost(instance, "it crashed while it was told to stop")])
    assert free(it) == (1, 4)
    assert it.stale_events == 0


def test_an_instance_that_is_gone_without_being_told_to_stop_is_lost():
    it = controller()
    (start,) = it.handle(0.0, [arrived()])
    effects = it.handle(0.5, [ev.InstanceGone(start.instance)])
    assert kinds(effects) == [fx.StopInstance, fx.StartInstance]  # and its work is tried again


def test_a_second_end_is_stale():
    it = controller()
    instance = run_once(it)
    it.handle(2.0, [ev.Ordered(Retire(instance)), ev.InstanceGone(99)])
    it.handle(2.1, [ev.InstanceGone(instance)])
    it.handle(2.2, [ev.InstanceGone(instance)])
    assert it.stale_events == 2


def test_without_waiting_an_end_is_not_awaited():
    where = scenario(declared(1.0, memory_gb=2, keep_alive_s=5), on=cluster(vcpus=1, memory_gb=4))
    it = Controller(where, Doing())
    instance = run_once(it)
    it.handle(6.0, [])
    assert free(it) == (1, 4)
    it.handle(6.1, [ev.InstanceGone(instance)])
    assert it.stale_events == 1


def test_a_lost_node_takes_terminating_instances_and_held_back_starts_with_it():
    it = controller(functions=TWO, workflows=EITHER, on=cluster(2, vcpus=1, memory_gb=4))
    evicted = run_once(it)
    busy = it.handle(2.0, [arrived(1)])  # on the warm one; n0 is full
    assert kinds(busy) == [fx.RunBatch]
    it.handle(3.0, [ev.Finished(busy[0].batch, 1.0)])
    (start,) = it.handle(3.0, [ev.Ordered(Warm("g", Configuration(), "n0"))])
    assert type(start) is fx.StopInstance
    assert it.handle(3.1, [ev.NodeLost("n0")]) == []
    assert free(it) == (1, 4)
    it.handle(3.2, [ev.InstanceGone(evicted)])
    assert it.stale_events == 1
    assert it.handle(3.3, [ev.NodeJoined(it.nodes["n0"].node)]) == []


def test_the_emptied_node_is_removed_only_after_its_instances_are_gone():
    def deed(view):
        if view.now == 2:
            yield Shrink("plain")

    it = controller(deed=deed, on=cluster(1, vcpus=1, memory_gb=4))
    (start,) = it.handle(0.0, [ev.Ordered(Warm("f", Configuration(), "n0"))])
    it.handle(1.0, [ev.InstanceReady(start.instance)])
    (stop,) = it.handle(2.0, [arrived()])
    assert type(stop) is fx.StopInstance
    assert it.view.nodes == ()
    (remove,) = it.handle(2.5, [ev.InstanceGone(start.instance)])
    assert (type(remove), remove.node) == (fx.RemoveNode, "n0")


SIZES = Table((Row(vcpus=1, seconds=1.0), Row(vcpus=2, seconds=1.0)))


def test_a_refused_resize_is_booked_as_it_is():
    it = controller(on=cluster(vcpus=4), functions={"f": declared(SIZES, idle_holds="memory")})
    (start,) = it.handle(0.0, [arrived()])
    assert start.configuration.vcpus == 1
    it.handle(0.5, [ev.InstanceReady(start.instance)])
    assert free(it)[0] == 3
    it.handle(0.6, [ev.ResizeRefused(start.instance, 3.0)])
    assert free(it)[0] == 1
    it.handle(1.5, [ev.Finished(0, 1.0)])
    assert free(it)[0] == 4
    it.handle(1.6, [ev.ResizeRefused(99, 1.0)])
    assert it.stale_events == 1


def test_a_refused_resize_may_take_more_than_there_is():
    it = controller(on=cluster(vcpus=1), functions={"f": declared(1.0, idle_holds="memory")})
    (start,) = it.handle(0.0, [arrived()])
    it.handle(0.5, [ev.InstanceReady(start.instance)])
    it.handle(0.6, [ev.ResizeRefused(start.instance, 2.0)])
    assert free(it)[0] == -1
    assert it.handle(0.7, [arrived(1)]) == []
    effects = it.handle(1.5, [ev.Finished(0, 1.0)])
    assert kinds(effects) == [fx.Answer, fx.RunBatch]


@pytest.mark.parametrize(
    "event", [ev.ResizeRefused(0, 2.0), ev.NodeChanged("n0", 1.0, 4.0)], ids=["refused-resize", "smaller-node"]
)
def test_a_start_that_was_held_back_is_given_up_when_its_room_is_gone(event):
    it = controller(
        functions=TWO | {"h": declared(1.0, memory_gb=1, idle_holds="memory")},
        workflows=EITHER | {"third": ("h",)},
        on=cluster(vcpus=2, memory_gb=4),
    )
    (start,) = it.handle(0.0, [arrived(0, "third")])
    it.handle(0.0, [ev.InstanceReady(start.instance)])  # a batch runs on instance 0, with one of two vCPUs
    evicted = run_once(it, 1.0, 1)
    (stop,) = it.handle(2.0, [arrived(2, "other")])  # the other vCPU is for `g`, once `f` is gone
    assert stop.instance == evicted
    assert it.handle(2.1, [event]) == []
    assert it.view.waiting("other", "g") == 1
    assert it.handle(2.2, [ev.InstanceGone(evicted)]) == []
    assert kinds(it.handle(3.0, [ev.Finished(0, 1.0)])) == [fx.Answer, fx.StartInstance]


def test_a_terminating_replica_gives_back_the_size_it_could_not_leave():
    it = controller(on=cluster(vcpus=4), functions={"f": declared(SIZES, idle_holds="memory")})
    (start,) = it.handle(0.0, [ev.Ordered(Scale("f", 1, Configuration(vcpus=2)))])
    it.handle(0.5, [ev.InstanceReady(start.instance)])
    it.handle(1.0, [ev.Ordered(Scale("f", 0))])
    it.handle(1.1, [ev.ResizeRefused(start.instance, 1.0)])
    assert free(it)[0] == 3
    it.handle(1.2, [ev.InstanceGone(start.instance)])
    assert free(it)[0] == 4


def test_time_spent_on_transfer_is_not_learned_as_work():
    it = controller(functions={"f": declared(1.0)})
    (start,) = it.handle(0.0, [arrived()])
    it.handle(0.0, [ev.InstanceReady(start.instance)])
    it.handle(3.0, [ev.Finished(0, 1.0, 2.0)])
    belief = it.beliefs.shape("f", Configuration()).beliefs["plain"]
    assert (belief.observed, belief.correction) == (1, 1.0)
    assert it.books.recorder.invocations[0][16] == 2.0


# --- adoption ------------------------------------------------------------------------------------------------------


def test_an_adopted_instance_is_warm_and_numbered_like_the_others():
    it = controller()
    event = it.adopt("f", Configuration(), "n0")
    assert event.instance == 0
    assert it.handle(0.0, [event]) == []
    assert unheld_gb(it) == 2
    (run,) = it.handle(1.0, [arrived()])
    assert (type(run), run.instance) == (fx.RunBatch, 0)
    (answer,) = it.handle(2.0, [ev.Finished(run.batch, 1.0)])
    assert answer.outcome == "completed"
    (start,) = it.handle(2.0, [ev.Ordered(Warm("f", Configuration(), "n0"))])
    assert start.instance == 1


def test_an_adopted_instance_expires_like_any_other():
    it = controller()
    it.handle(0.0, [it.adopt("f", Configuration(), "n0")])
    (stop,) = it.handle(5.0, [])
    assert (type(stop), stop.instance) == (fx.StopInstance, 0)


@pytest.mark.parametrize(
    ("function", "configuration", "node"),
    [("g", Configuration(), "n0"), ("f", Configuration(vcpus=3), "n0"), ("f", Configuration(), "n7")],
    ids=["unknown-function", "unknown-size", "unknown-node"],
)
def test_what_cannot_be_adopted_is_stopped(function, configuration, node):
    it = controller()
    (stop,) = it.handle(0.0, [it.adopt(function, configuration, node)])
    assert (type(stop), stop.instance) == (fx.StopInstance, 0)
    assert it.pool.instances == {}


def test_an_adopted_instance_without_room_is_stopped_and_keeps_its_memory_until_it_is_gone():
    it = controller()
    events = [it.adopt("f", Configuration(), "n0") for _ in range(3)]
    (stop,) = it.handle(0.0, events)
    assert stop.instance == 2
    assert it.nodes["n0"].memory_free == 2048  # it is there, and 4 GB hold two of them
    it.handle(0.5, [ev.InstanceGone(2)])
    assert it.nodes["n0"].memory_free == 4096
    assert it.stale_events == 0


def test_a_replay_of_the_events_gives_the_same_numbers():
    events = []
    it = controller()
    first = [it.adopt("f", Configuration(), "n0"), arrived(), ev.Ordered(Warm("f", Configuration(), "n0"))]
    events.append((0.0, first))
    effects = [it.handle(*events[-1])]
    events.append((1.0, [ev.Finished(0, 1.0), it.adopt("f", Configuration(), "n0")]))
    effects.append(it.handle(*events[-1]))
    again = controller()
    assert [again.handle(*each) for each in events] == effects
    assert set(again.pool.instances) == set(it.pool.instances)
