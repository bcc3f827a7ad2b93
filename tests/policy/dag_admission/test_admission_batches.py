"""DagAdmission: who shares a batch, and who would rather not.

One vCPU; one run takes 1 s, two together 1.2 s, up to four 1.5 s. The first request runs from 0 to 1, so whoever comes
meanwhile is booked for 1 or later.
"""

import pytest
from admission_runs import chain, column, run, runs

from fairlead.model import SLO, Price, Stage, Workflow
from fairlead.policy.dag_admission.bookings import Booking, Promise
from fairlead.policy.dag_admission.policy import DagAdmission
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, prepared, scenario, view_of
from fairlead.workload import Listed

SIZES = Table((Row(seconds=1), Row(batch=2, seconds=1.2), Row(batch=4, seconds=1.5)))
ONE = cluster(vcpus=1)


def one_workflow(*arrivals, slo_s=9.0):
    return scenario(declared(SIZES), arrivals=arrivals, on=ONE, slo_s=slo_s)


def two_workflows(latency_s):
    """The first and third request are of `main`, the second is of `other`, which has this objective."""
    flows = {"main": chain("f", latency_s=9), "other": chain("f", latency_s=latency_s, name="other")}
    arrivals = (0.0, 0.2, Listed("other", (0.1,)))
    return scenario(declared(SIZES), workflows=flows, arrivals=arrivals, on=ONE)


def test_a_request_joins_a_batch_that_waits():
    recording = run(one_workflow(0, 0.1, 0.2), slack=0)
    assert column(recording, "promised") == [1, 2.2, 2.2]  # the second is told that it takes longer now
    assert runs(recording, "start", "end", "batch_size") == [(0, 1, 1), (1, 2.2, 2), (1, 2.2, 2)]


def test_a_batch_that_is_full_is_not_joined():
    recording = run(one_workflow(0, 0.1, 0.1, 0.2, 0.3, 0.4), slack=0)
    assert column(recording, "promised") == [1, 2.5, 2.5, 2.5, 2.5, 3.5]
    assert [size for (size,) in runs(recording, "batch_size")] == [1, 4, 4, 4, 4, 1]


def test_a_run_that_has_begun_is_not_joined():
    assert column(run(one_workflow(0, 0.5), slack=0), "promised") == [1, 2]


def test_without_batching_everybody_runs_alone():
    recording = run(one_workflow(0, 0.1, 0.2), slack=0, batching=False)
    assert column(recording, "promised") == [1, 2, 3]


@pytest.mark.parametrize(("latency_s", "promised"), [(2.1, [1, 2.2, 2.2]), (2.05, [1, 2, 3])])
def test_a_batch_is_not_joined_if_a_member_would_be_late(latency_s, promised):
    # Alone the second ends at 2, with the third at 2.2. It came at 0.1.
    assert column(run(two_workflows(latency_s), slack=0), "promised") == promised


def test_workflows_share_batches():
    assert column(run(two_workflows(9), slack=0), "promised") == [1, 2.2, 2.2]


def test_a_batch_does_not_grow_into_what_is_booked_behind_it():
    # g is booked from 2 to 3, right behind the second; two together would need the vCPU until 2.2.
    flows = {"main": chain("f", latency_s=9), "other": chain("g", latency_s=3, name="other")}
    arrivals = (0.0, 0.1, 0.3, Listed("other", (0.2,)))
    world = scenario({"f": declared(SIZES), "g": 1.0}, workflows=flows, arrivals=arrivals, on=ONE)
    assert column(run(world, slack=0), "promised") == [1, 2, 3, 4]


def test_batching_admits_more():
    # Four together until 1.5, then the fifth until 2.5; one by one only two would be in time.
    assert column(run(one_workflow(*[0.0] * 5, slo_s=2.6), slack=0), "outcome").count("completed") == 5
    alone = run(one_workflow(*[0.0] * 5, slo_s=2.6), slack=0, batching=False)
    assert column(alone, "outcome").count("completed") == 2


def test_half_of_a_cheap_batch_is_paid_by_each():
    recording = run(one_workflow(0, 0.1, 0.2), slack=0)
    costs = column(recording, "cost_usd")
    assert costs[1] == costs[2] == pytest.approx(0.6 * costs[0])


def test_who_is_left_alone_in_a_batch_runs_alone_and_pays_no_more():
    # `maybe` looks until 1.1 and then never needs f, which was booked from 2 on and which `main` has joined. Two
    # together take 1.2 s; alone it is 1 s, for 1 USD, which is all that `main` has.
    stages = (Stage(name="look", function="look"), Stage(name="f", function="f", after=("look",), when=0.0))
    flows = {
        "maybe": Workflow(name="maybe", stages=stages, slo=SLO(latency_s=9)),
        "main": chain("f", latency_s=9, cost_usd=1),
        "long": chain("long", latency_s=9, name="long"),
    }
    functions = {
        "f": declared(Table((Row(kind="plain", seconds=1), Row(kind="plain", batch=2, seconds=1.2)))),
        "look": declared(Table((Row(kind="aside", seconds=1),))),
        "long": declared(Table((Row(kind="plain", seconds=2),))),
    }
    on = cluster(vcpus=1, beside=cluster(vcpus=1, kind="aside"), price=Price(vcpu_usd_per_hour=3600))
    arrivals = (Listed("long", (0.0,)), Listed("maybe", (0.1,)), Listed("main", (0.2,)))
    recording = run(scenario(functions, workflows=flows, arrivals=arrivals, on=on), slack=0)
    assert column(recording, "promised") == pytest.approx([2, 3.2, 3.2])
    assert column(recording, "end") == pytest.approx([2, 1.1, 3])
    assert column(recording, "cost_usd")[2] == pytest.approx(1)


@pytest.mark.parametrize(("deadline", "merged"), [(2.2, [(1, 2.2)]), (2.1, [(1, 2), (2, 3)])])
def test_planned_neighbours_are_merged_where_each_still_ends_in_time(deadline, merged):
    # The vCPU is taken until 1. Two runs are planned, at 1 and at 2; together they would end at 2.2.
    world = one_workflow()
    policy = prepared(DagAdmission(slack=0), world)
    calendar, dag = policy._calendar, policy._dags["main"]
    place, way = calendar.by_index[0], dag.placement(0)[0]
    place.take(0, 1, way.demand(None))
    promises = [Promise(1, dag, deadline, counts_cost=False), Promise(2, dag, 9, counts_cost=False)]
    for start, promise in zip((1, 2), promises, strict=True):
        calendar.settle(calendar.book(Booking(way, place, None, start, 0, 0, run_s=1), (promise, 0)))
    changed = policy._coalescing.make_room(view_of(scenario=world), [place])
    assert changed == (promises if len(merged) == 1 else [])
    assert [(booking.start, booking.end) for booking in place.planned] == merged
    assert place.timeline.earliest(0, 1, way.demand(None)) == merged[-1][1]
