"""An operator's order wins: what a scaler may not change, and what happens when the order is taken back."""

import pytest
from toy_policies import Adjusting, Doing, yielding

from fairlead.engine.core import Controller
from fairlead.engine.core import events as ev
from fairlead.model import Request
from fairlead.policy import Grow, Move, Resize, Scale, Shrink
from fairlead.testing import cluster, declared, scenario


def controller(*deeds, **settings):
    """Two functions on the nodes n0 and n1, and a scaler that does the n-th deed at n seconds."""
    function = declared(1.0, cold_start_s=0.5)
    where = scenario({"f": function, "g": function}, on=cluster(2), control_period_s=1.0)
    return Controller(where, Doing(), Adjusting(deeds), **settings)


def hold(*actions):
    return [ev.Ordered(action, holds=True) for action in actions]


def state(it, function="f"):
    """The number of replicas that a function is to have, and where they must be."""
    found = it.replicas.sets[function]
    return found.target, found.node


def reasons(it):
    return [refusal.reason for refusal in it.refusals]


def test_a_scaler_cannot_undo_an_operators_order_and_its_other_functions_go_on():
    every = yielding(Scale("f", 3), Resize("f", 1.0), Move("f", "n0"), Scale("g", 2))
    it = controller(every, every)
    it.handle(0.0, hold(Scale("f", 1), Move("f", "n1")))
    it.handle(1.0, [])
    assert (state(it), state(it, "g")) == ((1, "n1"), (2, None))
    assert reasons(it) == ["held by an operator"] * 3
    it.handle(2.0, [])
    assert state(it) == (1, "n1")
    assert len(it.refusals) == 6


def test_an_operators_move_holds_the_number_of_replicas_too():
    it = controller(yielding(Scale("f", 2), Move("f", "n0")), yielding(Scale("f", 4)))
    it.handle(1.0, [])
    it.handle(1.5, hold(Move("f", "n1")))
    it.handle(2.0, [])
    assert state(it) == (2, "n1")


def test_what_the_scaler_had_and_wanted_meanwhile_takes_effect_when_the_order_is_taken_back():
    it = controller(yielding(Scale("f", 2), Move("f", "n0")), yielding(Scale("f", 3)))
    it.handle(1.0, [])
    it.handle(1.5, hold(Scale("f", 0), Move("f", "n1")))
    assert it.holds.at_zero() == ["f"]
    it.handle(2.0, [])
    assert state(it) == (0, "n1")
    it.handle(2.5, hold(Scale("f", None)))
    assert state(it) == (3, "n0")
    assert "f" not in it.holds


def test_a_function_that_no_policy_scales_is_the_dispatchers_again():
    it = controller()
    it.handle(0.0, hold(Scale("f", 2)))
    it.handle(0.1, hold(Scale("f", None)))
    assert it.replicas.sets == {}
    assert it.refusals == []


def test_an_order_that_was_refused_holds_nothing_and_what_is_not_held_cannot_be_given_back():
    it = controller()
    it.handle(0.0, hold(Move("f", "n1"), Scale("g", None)))
    assert reasons(it) == ["f is not scaled", "g is not held by an operator"]
    assert len(it.holds) == 0


def test_orders_that_hold_nothing_leave_the_scaler_free():
    it = controller(yielding(Scale("f", 3)))
    it.handle(0.0, [ev.Ordered(Scale("f", 1))])
    it.handle(1.0, [])
    assert state(it) == (3, None)


@pytest.mark.parametrize("action", [Grow("plain"), Shrink("plain")], ids=["grow", "shrink"])
def test_a_cluster_that_the_driver_cannot_change_refuses_and_the_turn_goes_on(action):
    it = controller(yielding(action, Scale("f", 2)), growable=())
    assert [type(effect).__name__ for effect in it.handle(1.0, [])] == ["StartInstance"] * 2
    assert reasons(it) == ["nodes of kind 'plain' cannot be added or removed here"]
    assert state(it) == (2, None)


def test_an_expired_request_is_dropped_with_its_reason():
    it = controller()
    it.handle(0.0, hold(Scale("f", 0)))
    it.handle(0.1, [ev.Arrived(Request(7, "main", 0.1, 0.5))])
    (refuse,) = it.handle(0.5, [ev.Expired(7, "f is held at 0")])
    assert (refuse.request, refuse.outcome, refuse.reason) == (7, "dropped", "f is held at 0")
    it.handle(0.6, [ev.Expired(7, "f is held at 0")])
    assert it.stale_events == 1
