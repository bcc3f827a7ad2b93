"""Runs whose answers are not needed any more: when they go on to their end, and when their instance is ended."""

import pytest
from test_competing_stages import check_all, flow, run, stage
from toy_policies import Doing

from fairlead.engine import simulate
from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.engine.core.books import Rows
from fairlead.engine.core.controller import Controller
from fairlead.model import Request, Workflow
from fairlead.policy.base import Scale
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Listed

OTHER = {"other": Workflow.chain("other", "g")}


def race(run_s, start_s, others_at, g=1.0):
    """Two copies of `f` on two vCPUs; then requests for `g`, which needs one of these vCPUs."""
    functions = {"f": declared(run_s, cold_start_s=start_s), "g": g}
    arrivals = [0, Listed("other", others_at)]
    return flow(functions, stage("f", compete=2), others=OTHER, arrivals=arrivals, vcpus=2)


def of(recording, function):
    return recording.invocations.filter(function=function).select("start", "end", "outcome").sort("end", "start").rows()


class TestRoomForOthers:
    def test_a_rest_that_is_longer_than_a_start_makes_way_for_what_fits_nowhere(self):
        # Both copies start to work at 0.5, and one is done at 1.5. The other one is believed to take until 10.5. At 2
        # one `g` takes the free vCPU, and the next that of the loser.
        recording = run(race(10.0, 0.5, (2.0, 2.0)), {0: 1.0, 1: 9.0})
        assert of(recording, "f") == [(0, 1.5, "done"), (0, 2, "discarded")]
        assert [start for start, _, _ in of(recording, "g")] == [2, 2]
        assert sorted(recording.instances.filter(function="f")["cause"]) == ["evicted", "preempted"]

    def test_where_there_is_room_it_runs_on(self):
        recording = run(race(10.0, 0.5, (2.0,)), {0: 1.0, 1: 9.0})
        assert of(recording, "f") == [(0, 1.5, "done"), (0, 9.5, "discarded")]
        assert [start for start, _, _ in of(recording, "g")] == [2]

    def test_a_rest_that_is_shorter_than_a_start_is_waited_for(self):
        recording = run(race(3.0, 20, (22.0, 22.0)), {0: 1.0, 1: 4.0})
        assert of(recording, "f") == [(0, 21, "done"), (0, 24, "discarded")]
        assert [start for start, _, _ in of(recording, "g")] == [22, 23]  # the second one after the first

    def test_a_run_that_is_overdue_by_a_start_makes_way(self):
        # Both work from 2 on, and one is done at 3. The other one was to end at 3 too; at 5 it is overdue by a start.
        recording = run(race(1.0, 2, (3.5, 3.5)), {0: 1.0, (1, 0): 40.0, (2, 0): 40.0, (0, 1): 50.0})
        assert of(recording, "f") == [(0, 3, "done"), (0, 5, "discarded")]
        assert [start for start, _, _ in of(recording, "g")] == [3.5, 5]

    def test_a_replica_is_started_again_for_what_waits_for_one(self):
        where = flow({"f": declared(10.0, cold_start_s=1)}, stage("f", compete=2), arrivals=[5, 8], vcpus=2)
        recording = simulate(where, Doing(), physics=None, given=[(0.0, ev.Ordered(Scale("f", 2)))])
        check_all(recording, where)
        # The copies of both requests take 10 s each, two at a time; losers end together with their winners.
        assert recording.requests["end"].to_list() == [15, 25]


class TestRequestsThatEndEarly:
    """A client that gives up and a deadline that has passed leave runs behind, as a lost race does."""

    ENDS = pytest.mark.parametrize("end", [ev.Cancelled(0), ev.Expired(0, "late")], ids=["cancelled", "expired"])

    def made(self):
        functions = {"f": declared(10.0, cold_start_s=1), "g": 1.0}
        where = scenario(functions, workflows={"long": Workflow.chain("long", "f"), **OTHER}, on=cluster(vcpus=1))
        self.rows = Rows()
        return Controller(where, Doing(), recorder=self.rows, awaits_end=True)

    def begun(self):
        """`f` works from 1 to 11 on the only vCPU."""
        it = self.made()
        (start,) = told(it.handle(0.0, [asked(0, "long", 0.0)]), fx.StartInstance)
        assert told(it.handle(1.0, [ev.InstanceReady(start.instance)]), fx.RunBatch)
        return it

    @ENDS
    def test_the_process_goes_on_while_nothing_needs_its_place(self, end):
        it = self.begun()
        assert not told(it.handle(2.0, [end]), fx.StopInstance)
        it.handle(11.0, [ev.Finished(0, 10.0)])
        assert it.stale_events == 0
        assert ["discarded" in row for row in self.rows.invocations] == [True]

    @ENDS
    def test_the_process_ends_when_the_next_request_fits_nowhere_else(self, end):
        it = self.begun()
        it.handle(2.0, [end])
        stops = told(it.handle(3.0, [asked(1, "other", 3.0)]), fx.StopInstance)
        assert [(stop.instance, stop.batch) for stop in stops] == [(0, 0)]
        assert told(it.handle(3.2, [ev.InstanceGone(0)]), fx.StartInstance)

    def test_shortly_before_its_end_it_is_waited_for(self):
        it = self.begun()
        it.handle(2.0, [ev.Cancelled(0)])
        assert not told(it.handle(10.5, [asked(1, "other", 10.5)]), fx.StopInstance)
        (stop,) = told(it.handle(11.0, [ev.Finished(0, 10.0)]), fx.StopInstance)
        assert stop.batch == -1  # it is idle by then, and evicted

    def test_an_instance_that_still_starts_is_kept_for_the_next(self):
        it = self.made()
        it.handle(0.0, [asked(0, "long", 0.0)])
        assert not told(it.handle(0.5, [ev.Cancelled(0)]), fx.StopInstance)
        (begun,) = told(it.handle(1.0, [ev.InstanceReady(0), asked(1, "long", 1.0)]), fx.RunBatch)
        assert [invocation.request for invocation in begun.invocations] == [1]


def asked(id, workflow, at):
    return ev.Arrived(Request(id, workflow, at, at + 99))


def told(effects, kind):
    return [effect for effect in effects if type(effect) is kind]
