"""A simulation in somebody's hands: orders, pressure and requests from outside, between two instants."""

from dataclasses import replace
from math import inf

import pytest

from fairlead.engine import simulate
from fairlead.engine.sim.stepped import Stepped
from fairlead.learn.darly.cluster import Setting
from fairlead.learn.darly.cluster import scenario as darly
from fairlead.model import Stage, Workflow
from fairlead.policy.base import Move, Scale
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Listed, PolicyChoice

CURVE = ((0.5, 1.6),)


def world(seconds=10.0, *, nodes=2, **settings):
    function = declared(seconds, pressure_curves={"plain": CURVE}, keep_alive_s=inf, **settings)
    return scenario({"f": function}, on=cluster(nodes), arrivals=(0.0, 1.0, 2.0))


def test_a_request_takes_what_its_function_takes():
    run = Stepped(world())
    request = run.send("main", at=5.0)
    assert run.wait(request) == 15.0
    assert run.now == 15.0


def test_the_arrivals_of_the_scenario_do_not_come():
    run = Stepped(world())
    run.advance(100.0)
    assert run.view.waiting() == 0
    assert run.wait(run.send("main", at=100.0)) == 110.0


def test_nothing_is_lost_when_nobody_comes_for_long():
    run = Stepped(world(cold_start_s=5.0))
    run.order(Scale("f", 2))
    run.advance(1e6)
    assert run.now == 1e6
    assert [instance.is_ready for instance in run.view.instances("f")] == [True, True]
    assert run.wait(run.send("main", at=1e6)) == 1e6 + 10


def test_an_order_is_carried_out_at_once_and_takes_its_time():
    run = Stepped(world(cold_start_s=5.0))
    run.advance(3.0)
    run.order(Scale("f", 1), Move("f", "n1"))
    run.advance(7.5)
    assert not any(instance.is_ready for instance in run.view.instances("f"))
    run.advance(8.0)
    assert [(i.node, i.is_ready) for i in run.view.instances("f")] == [("n1", True)]


def test_an_order_that_cannot_be_carried_out_is_refused_with_its_reason():
    run = Stepped(world())
    run.order(Move("f", "n1"))
    assert len(run.refusals) == 1
    assert run.refusals[0].reason


def test_pressure_counts_from_when_it_is_set():
    run = Stepped(world(nodes=1))
    request = run.send("main", at=0.0)
    run.advance(4.0)
    run.press("n0", 0.5)
    assert run.view.pressure("n0") == 0.5
    assert run.wait(request) == pytest.approx(4 + 6 * 1.6)
    run.press("n0", 0.0)
    assert run.wait(run.send("main", at=run.now)) == pytest.approx(13.6 + 10)


def test_waiting_ends_with_the_patience_and_can_go_on():
    run = Stepped(world())
    request = run.send("main", at=0.0)
    assert run.wait(request, most_s=4.0) is None
    assert run.now == 4.0
    assert run.wait(request) == 10.0


def test_waiting_for_what_never_comes_ends():
    run = Stepped(world())
    assert run.wait(123, most_s=50.0) is None
    assert run.now == 50.0
    assert run.wait(123) is None


def test_an_end_is_told_once_even_if_it_came_while_waiting_for_another():
    run = Stepped(world())
    first, second = run.send("main", at=0.0), run.send("main", at=2.0)
    assert run.wait(second) == 12.0
    assert run.wait(first) == 10.0
    assert run.wait(first, most_s=1.0) is None


def test_a_request_may_have_an_objective_of_its_own():
    run = Stepped(world())
    run.send("main", at=0.0, slo_s=7.0)
    run.send("main", at=0.0)
    run.advance(1.0)
    assert sorted(request.deadline for request in map(run.view.request, (0, 1))) == [7.0, inf]


def test_the_past_takes_no_requests():
    run = Stepped(world())
    run.advance(5.0)
    with pytest.raises(ValueError, match=r"at must not be before now, 5\.0; got 4\.0"):
        run.send("main", at=4.0)


def test_a_workflow_that_begins_with_a_map_gets_its_items():
    flow = Workflow(name="main", stages=(Stage(name="each", function="each", map=(3, 3)),))
    where = scenario(
        {"each": 2.0},
        workflows={"main": flow},
        on=cluster(vcpus=8),
        policy=PolicyChoice(name="queue-workers", parameters={"workers": 1}),
    )
    run = Stepped(where)
    assert run.wait(run.send("main", at=0.0)) == pytest.approx(6)


def test_latencies_are_those_of_a_whole_run_of_the_same_scenario():
    at = (0.0, 90.0, 180.0)
    where = replace(darly(Setting(curves="logs"), duration_s=200.0), arrivals=(Listed("video", at),))
    found = simulate(where, seed=3).requests.sort("arrival")
    run = Stepped(where, seed=3)
    ends = []
    for instant in at:
        ends.append(run.wait(run.send("video", at=instant)))
    assert ends == pytest.approx(found["end"].to_list(), abs=1e-9)
    assert len(set(found["end"] - found["arrival"])) == 3  # noise: no two alike


def test_another_seed_brings_other_latencies():
    where = darly(Setting())
    ends = [run.wait(run.send("video", at=0.0)) for run in (Stepped(where, seed=s) for s in (0, 0, 1))]
    assert ends[0] == ends[1] != ends[2]
