"""DagAdmission: what becomes of its promises when runs take longer than booked, and when nodes go."""

import pytest
from admission_runs import answers, chain, column, run, runs

from fairlead.engine.sim.physics import Physics
from fairlead.profile import Row, Table
from fairlead.testing import check_accounts, check_capacity, check_order, cluster, declared, scenario
from fairlead.workload import Listed, NodeFault

ONE = cluster(vcpus=1)


class Slow(Physics):
    """The runs of some requests take so many times as long."""

    def __init__(self, world, factors):
        super().__init__(world, 0)
        self.factors = factors

    def work_s(self, effect):
        return super().work_s(effect) * self.factors.get(effect.invocations[0].request, 1)


def slowed(world, factors, **parameters):
    return run(world, physics=Slow(world, factors), slack=0, **parameters)


def test_what_is_behind_a_late_run_moves_with_it():
    # The first takes 1.5 s instead of 1: the second, promised for 2, ends at 2.5, within its objective.
    world = scenario(1.0, arrivals=(0, 0), on=ONE, slo_s=3)
    recording = slowed(world, {0: 1.5})
    assert column(recording, "promised") == [1, 2]
    assert column(recording, "end") == [1.5, 2.5]


def test_the_successor_of_a_late_run_moves_too():
    # a is late, so b, booked for 1, begins at 1.5; it is late as well.
    world = scenario({"a": 1.0, "b": 1.0}, arrivals=(0,), on=ONE, slo_s=3)
    recording = slowed(world, {0: 1.5})
    assert runs(recording, "function", "start", "end") == [("a", 0, 1.5), ("b", 1.5, 3)]


def test_who_comes_after_an_overrun_is_promised_what_is_left():
    # At 1.2 the first should have ended at 1. It is given a tenth of its time more, until 1.3, and again.
    world = scenario(1.0, arrivals=(0, 1.2), on=ONE, slo_s=3)
    recording = slowed(world, {0: 1.5})
    assert column(recording, "promised") == [1, pytest.approx(2.3)]
    assert column(recording, "end") == [1.5, 2.5]


def test_a_request_that_cannot_be_in_time_any_more_is_dropped():
    # The first takes 2 s. The second was promised for 2 and has until 2.2; at 1.3 it is clear that it will not be.
    world = scenario(1.0, arrivals=(0, 0, 1.3), on=ONE, slo_s=2.2)
    rows = answers(slowed(world, {0: 2.0}))
    assert [row["outcome"] for row in rows] == ["completed", "dropped", "completed"]
    assert rows[1]["reason"] == "it fell behind and cannot be in time any more"
    assert rows[1]["end"] == 1.3
    assert rows[2]["end"] == 3  # it has what the dropped one would have used


def test_a_late_request_is_not_dropped_while_it_can_still_be_in_time():
    world = scenario(1.0, arrivals=(0, 0, 1.3), on=ONE, slo_s=3)
    assert column(slowed(world, {0: 1.5}), "outcome") == ["completed"] * 3


def test_a_run_that_ends_sooner_lets_the_next_begin_sooner():
    world = scenario(1.0, arrivals=(0, 0), on=ONE, slo_s=3)
    assert column(slowed(world, {0: 0.5}), "end") == [0.5, 1.5]


def test_nobody_begins_sooner_at_the_expense_of_another():
    # Two vCPUs. wide needs both from 1 to 2, and the last narrow is booked for 2. At 0.5 one vCPU is free, but narrow
    # would still have it at 1.
    functions = {"narrow": declared(1.0), "wide": declared(Table((Row(vcpus=2, seconds=1),)))}
    flows = {"main": chain("narrow", latency_s=9), "wide": chain("wide", latency_s=2, name="wide")}
    arrivals = (0.0, 0.0, Listed("wide", (0.1,)), Listed("main", (0.2,)))
    world = scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(vcpus=2))
    recording = slowed(world, {0: 0.5})
    assert column(recording, "end") == [0.5, 1, 2, 3]


LOSS = (NodeFault(node="n0", at_s=1.5, back_s=4),)


def test_what_ran_on_a_lost_node_runs_again_elsewhere():
    world = scenario(1.0, arrivals=(1.0,), on=cluster(2, vcpus=1), slo_s=9, node_faults=LOSS)
    recording = run(world, slack=0)
    assert runs(recording, "node", "start", "end", "outcome") == [("n0", 1, 1.5, "lost"), ("n1", 1.5, 2.5, "done")]


def test_what_was_booked_on_a_lost_node_moves_to_another():
    # Four of 1 s on two nodes of one vCPU: two run when n0 is lost, of which one is lost with it. n1 does the rest.
    world = scenario(1.0, arrivals=[1.0] * 4, on=cluster(2, vcpus=1), slo_s=9, node_faults=LOSS)
    recording = run(world, slack=0)
    assert column(recording, "promised") == [2, 2, 3, 3]
    assert column(recording, "outcome") == ["completed"] * 4
    assert sorted(column(recording, "end")) == [2, 3, 4, 5]
    assert {node for node, start in runs(recording, "node", "start") if start > 1} == {"n1"}


def test_with_no_node_left_everything_waits_for_its_return():
    world = scenario(1.0, arrivals=[1.0] * 3, on=ONE, slo_s=9, node_faults=LOSS)
    recording = run(world, slack=0)
    assert column(recording, "outcome") == ["completed"] * 3
    assert sorted(column(recording, "end")) == [6.5, 7.5, 8.5]


def test_while_a_node_is_down_nothing_is_promised_on_it():
    world = scenario(1.0, arrivals=(2.0, 2.0, 5.6, 5.6), on=cluster(2, vcpus=1), slo_s=1.5, node_faults=LOSS)
    recording = run(world, slack=0)
    assert column(recording, "plan") == ["f@n1", None, "f@n0", "f@n1"]


def test_a_batch_that_waited_on_a_lost_node_is_not_joined():
    rows = Table((Row(seconds=1), Row(batch=4, seconds=1.5)))
    world = scenario(declared(rows), arrivals=(1, 1, 1.2, 1.3, 1.6), on=cluster(2, vcpus=1), slo_s=9, node_faults=LOSS)
    recording = run(world, slack=0)
    assert column(recording, "outcome") == ["completed"] * 5
    assert "n0" not in column(recording, "plan")[4]


@pytest.mark.parametrize("selection", ["random", "cheapest", "fastest", "balanced"])
@pytest.mark.parametrize("keep_alive_s", [0, 0.4, 600])
def test_under_many_losses_everything_admitted_ends(selection, keep_alive_s):
    faults = tuple(
        NodeFault(node=f"n{i}", at_s=at + 0.37 * i, back_s=back) for i in range(3) for at, back in ((1, 0.8), (4, 2.1))
    )
    functions = {
        "a": declared(0.3, cold_start_s=0.2, keep_alive_s=keep_alive_s),
        "b": declared(Table((Row(seconds=0.4), Row(batch=4, seconds=0.8))), keep_alive_s=keep_alive_s),
    }
    world = scenario(
        functions,
        arrivals=[i * 0.1 for i in range(80)],
        on=cluster(3, vcpus=2),
        slo_s=3,
        node_faults=faults,
        max_attempts=9,
    )
    recording = run(world, selection=selection)
    outcomes = column(recording, "outcome")
    assert set(outcomes) <= {"completed", "rejected", "dropped"}
    assert outcomes.count("completed") > 20
    check_capacity(recording, world)
    check_order(recording, world)
    check_accounts(recording)
