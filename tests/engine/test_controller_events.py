"""The controller by itself: no clock, no driver; what it is told late or twice, and what it says in return."""

import pytest
from toy_policies import Doing, start_oldest

from fairlead.engine.core import Controller
from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.engine.core.books import NoRows, Rows
from fairlead.model import Node, Request
from fairlead.testing import declared, scenario


def controller(recorder=None, **settings):
    return Controller(scenario(declared(1.0, cold_start_s=0.5), **settings), Doing(), recorder=recorder)


def arrived(id=0, at=0.0):
    return ev.Arrived(Request(id, "main", at))


def kinds(effects):
    return [type(effect) for effect in effects]


def test_a_request_from_arrival_to_answer():
    it = controller()
    (start,) = it.handle(0.0, [arrived()])
    assert (type(start), start.at, start.function, start.node) == (fx.StartInstance, 0.0, "f", "n0")
    (run,) = it.handle(0.5, [ev.InstanceReady(start.instance)])
    assert (type(run), run.at, run.instance, len(run.invocations)) == (fx.RunBatch, 0.5, start.instance, 1)
    (answer,) = it.handle(1.5, [ev.Finished(run.batch, 1.0)])
    assert (type(answer), answer.request, answer.outcome) == (fx.Answer, 0, "completed")
    assert it.stale_events == 0


@pytest.mark.parametrize(
    "event",
    [
        ev.Finished(99, 1.0),
        ev.InstanceReady(99),
        ev.InstanceLost(99),
        ev.NodeLost("nowhere"),
        ev.NodeJoined(Node(name="n0", kind="plain", vcpus=4)),
        ev.Pressure("nowhere", 0.5),
        ev.Cancelled(99),
    ],
    ids=lambda event: type(event).__name__,
)
def test_stale_events_are_counted_and_ignored(event):
    it = controller()
    assert it.handle(1.0, [event]) == []
    assert it.stale_events == 1


def test_second_end_of_a_batch_is_stale():
    it = controller()
    (start,) = it.handle(0.0, [arrived()])
    (run,) = it.handle(0.5, [ev.InstanceReady(start.instance)])
    it.handle(1.5, [ev.Finished(run.batch, 1.0)])
    assert it.handle(1.6, [ev.Finished(run.batch, 1.0)]) == []
    assert it.handle(1.7, [ev.InstanceReady(start.instance)]) == []
    assert it.stale_events == 2


def test_time_never_goes_back():
    it = controller()
    it.handle(2.0, [])
    it.handle(2.0, [])
    with pytest.raises(ValueError, match=r"time went back from 2\.0 to 1\.0"):
        it.handle(1.0, [])


def test_instance_that_could_not_start_is_tried_again():
    it = controller()
    (start,) = it.handle(0.0, [arrived()])
    effects = it.handle(0.2, [ev.InstanceLost(start.instance, "no image")])
    assert kinds(effects) == [fx.StopInstance, fx.StartInstance]
    assert effects[1].instance != start.instance


def test_lost_work_fails_after_its_attempts():
    it = controller(max_attempts=1)
    (start,) = it.handle(0.0, [arrived()])
    effects = it.handle(0.2, [ev.InstanceLost(start.instance, "no image")])
    assert kinds(effects) == [fx.StopInstance, fx.Answer]
    assert (effects[1].outcome, effects[1].reason) == ("failed", "no image")


def test_client_that_gives_up_is_let_go():
    it = controller()
    (start,) = it.handle(0.0, [arrived()])
    (refuse,) = it.handle(0.1, [ev.Cancelled(0)])
    assert (type(refuse), refuse.outcome) == (fx.Refuse, "cancelled")
    assert it.handle(0.5, [ev.InstanceReady(start.instance)]) == []  # its batch had not begun, and is withdrawn


def test_the_run_of_a_client_that_gives_up_is_discarded():
    it = controller()
    (start,) = it.handle(0.0, [arrived()])
    (run,) = it.handle(0.5, [ev.InstanceReady(start.instance)])
    (refuse,) = it.handle(0.6, [ev.Cancelled(0)])
    assert (type(refuse), refuse.outcome) == (fx.Refuse, "cancelled")
    assert it.handle(1.5, [ev.Finished(run.batch, 1.0)]) == []  # no request is answered


def test_events_of_one_instant_are_applied_in_their_order_whatever_the_list():
    one, other = controller(), controller()
    for it in (one, other):
        it.handle(0.0, [arrived(0)])
        it.handle(0.5, [ev.InstanceReady(0)])
    events = [arrived(1, 1.5), ev.Finished(0, 1.0), ev.Pressure("n0", 0.25)]
    effects = one.handle(1.5, events)
    assert repr(effects) == repr(other.handle(1.5, events[::-1]))
    assert kinds(effects) == [fx.Answer, fx.RunBatch]  # what was freed is used at once


def test_the_limit_of_a_batch_that_ended_wakes_nobody():
    it = Controller(scenario(declared(1.0, run_limit_s=60, keep_alive_s=float("inf"))), Doing())
    (start,) = it.handle(0.0, [arrived()])
    (run,) = it.handle(0.0, [ev.InstanceReady(start.instance)])
    assert it.next_wake == 60.0
    it.handle(1.0, [ev.Finished(run.batch, 1.0)])
    assert it.next_wake == float("inf")


def test_keep_alive_is_its_own_timer():
    it = Controller(scenario(declared(1.0, keep_alive_s=10)), Doing())
    (start,) = it.handle(0.0, [arrived()])
    (run,) = it.handle(0.0, [ev.InstanceReady(start.instance)])
    it.handle(1.0, [ev.Finished(run.batch, 1.0)])
    assert it.timers.next() == 11.0
    (stop,) = it.handle(11.0, [])
    assert (type(stop), stop.instance) == (fx.StopInstance, start.instance)
    assert it.timers.next() == float("inf")


def test_a_run_that_is_not_recorded_keeps_no_row():
    it = controller(recorder := NoRows())
    for second in range(3000):
        (effect,) = it.handle(second, [arrived(second, second)])
        if isinstance(effect, fx.StartInstance):
            (effect,) = it.handle(second, [ev.InstanceReady(effect.instance)])
        it.handle(second + 0.5, [ev.Finished(effect.batch, 0.5)])
    it.finish()
    assert [recorder.requests, recorder.invocations, recorder.instances] == [[], [], []]


def test_a_driver_may_take_batches_as_soon_as_they_are_decided():
    seen = []

    def deed(view):
        for action in start_oldest(view):
            yield action
            seen.append(len(sent))  # the policy goes on after its action was carried out

    def rows(send):
        kept = Rows()
        it = Controller(scenario(declared(1.0)), Doing(deed), recorder=kept, send=send)
        (start,) = it.handle(0.0, [arrived()])
        ready = it.handle(0.5, [ev.InstanceReady(start.instance)])
        busy = it.handle(1.5, [ev.Finished(0, 1.0), arrived(1, 1.5)])
        it.handle(2.5, [ev.Finished(1, 1.0)])
        return kinds(ready), kinds(busy), kept.requests, kept.invocations

    sent = []
    early = rows(sent.append)
    assert [run.batch for run in sent] == [0, 1]
    assert seen == [0, 2]  # the second was there before the policy had ended
    plain = rows(None)
    assert early[:2] == ([], [fx.Answer])
    assert plain[:2] == ([fx.RunBatch], [fx.Answer, fx.RunBatch])
    assert early[2:] == plain[2:]
