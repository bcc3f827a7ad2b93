"""Fairlead over seconds: overload, tenants, instances ahead of need, slow and lost nodes, slices that change."""

from dataclasses import replace

import polars as pl
import pytest

from fairlead.engine import simulate
from fairlead.league.load import at_load
from fairlead.model import SLO, Price, Stage, Workflow
from fairlead.policy.fairlead.policy import Fairlead
from fairlead.profile import Host, Row, Table
from fairlead.testing import check_accounts, check_capacity, cluster, declared, scenario
from fairlead.workload import Deterministic, Listed, NodeFault, Poisson, PressureChange, load_scenario

ONE = cluster(1, vcpus=1)


def run(where, **settings):
    """One run of the policy; no action may be refused."""
    recording = simulate(where, Fairlead(), **settings)
    assert not recording.refusals, recording.refusals[0]
    return recording


def in_time(requests, workflow=None, since=0.0, until=float("inf")):
    """The share of the requests of a workflow that arrived in an interval and were answered in time."""
    chosen = requests.filter(pl.col("arrival").is_between(since, until, closed="left"))
    if workflow is not None:
        chosen = chosen.filter(pl.col("workflow") == workflow)
    assert chosen.height
    return ((chosen["outcome"] == "completed") & (chosen["end"] <= chosen["deadline"] + 1e-9)).mean()


def by_node(recording, since, until=float("inf")):
    """How many runs started on each node in an interval."""
    runs = recording.invocations.filter(pl.col("start").is_between(since, until, closed="left"))
    return dict(runs["node"].value_counts().rows())


@pytest.fixture(scope="module")
def overload():
    """Four vCPUs: 40 requests per second of 0.1 s, and 120 that arrive."""
    return run(scenario(declared(0.1), slo_s=0.5, arrivals=(Poisson("main", 120.0),), duration_s=15.0))


class TestOverload:
    def test_a_third_is_answered_in_time_at_three_times_the_load(self, overload):
        assert in_time(overload.requests) >= 0.3
        assert in_time(overload.requests) * overload.requests.height / 15.0 >= 0.9 * 40

    def test_what_is_admitted_is_answered_in_time(self, overload):
        admitted = overload.requests.filter(pl.col("outcome") != "rejected")
        assert in_time(admitted) >= 0.93

    def test_no_answer_is_late(self, overload):
        answered = overload.requests.filter(pl.col("outcome") == "completed")
        assert in_time(answered) == 1.0

    def test_a_refusal_says_why_and_when_to_try_again(self, overload):
        refused = overload.requests.filter(pl.col("outcome") == "rejected")
        assert refused.height > 800
        assert (refused["end"] == refused["arrival"]).all()
        assert refused["retry_after_s"].null_count() == 0
        assert (refused["retry_after_s"] > 0).all()
        assert refused["reason"].str.contains("admitted before it|all is busy").all()

    def test_no_work_is_spent_on_what_is_refused(self, overload):
        """A drop before the first run costs nothing either."""
        unanswered = overload.requests.filter(pl.col("outcome") != "completed")
        assert unanswered["cost_usd"].sum() == 0

    def test_the_later_stages_of_a_chain_do_not_waste_what_the_first_did(self):
        """Two stages of 0.1 s: 20 requests per second, and 60 that arrive."""
        where = scenario({"a": 0.1, "b": 0.1}, slo_s=1.0, arrivals=(Poisson("main", 60.0),), duration_s=15.0)
        recording = run(where)
        assert in_time(recording.requests) * recording.requests.height / 15.0 >= 0.9 * 20
        lost = recording.requests.filter(pl.col("outcome") != "completed")
        assert lost["cost_usd"].sum() <= 0.05 * recording.requests["cost_usd"].sum()

    def test_batches_fill_under_load(self):
        """A vCPU does 10 requests per second one by one, and 20 four by four; 18 arrive."""
        rows = (Row(batch=1, seconds=0.1), Row(batch=4, seconds=0.2))
        where = scenario(
            declared(Table(rows)), slo_s=1.5, arrivals=(Deterministic("main", 1 / 18),), on=ONE, duration_s=15
        )
        recording = run(where)
        assert in_time(recording.requests, since=3.0) >= 0.95

    @pytest.mark.parametrize("seed", [0, 1])
    def test_batches_stay_full_where_few_requests_may_wait_for_the_next_one(self, seed):
        """A batch of n takes 8 + 2n ms; with 48.5 ms, what comes just after one has begun is too late for a full one.

        Such requests count neither as a batch ahead of others, nor as work that leaves no room for those.
        """
        rows = tuple(Row(batch=size, seconds=0.008 + 0.002 * size) for size in range(1, 9))
        capacity_rps = 8 / 0.024
        arrivals = (Poisson("main", 1.3 * capacity_rps),)
        where = scenario(declared(Table(rows)), slo_s=0.0485, arrivals=arrivals, on=ONE, duration_s=12.0)
        requests = run(where, seed=seed).requests.filter(pl.col("arrival") >= 2.0)
        assert in_time(requests) * requests.height / 10.0 >= 0.963 * capacity_rps

    @pytest.mark.parametrize("load", [3.0, 10.0])
    def test_batches_are_full_beside_nodes_on_which_the_function_has_no_room(self, load):
        """The same batches need 2 vCPUs, which one of three nodes has; what the others have left is no place to start.

        A refusal is then by the instant at which that node is free, and requests that join the next batch are taken.
        """
        rows = tuple(Row(batch=size, vcpus=2, seconds=0.008 + 0.002 * size) for size in range(1, 9))
        capacity_rps = 8 / 0.024
        on = cluster(1, vcpus=2, kind="large", beside=cluster(2, vcpus=1))
        arrivals = (Poisson("main", load * capacity_rps),)
        where = scenario(declared(Table(rows)), slo_s=0.0485, arrivals=arrivals, on=on, duration_s=4.0)
        requests = run(where).requests.filter(pl.col("arrival") >= 2.0)
        assert in_time(requests) * requests.height / 2.0 >= 0.99 * capacity_rps


class TestTenants:
    def test_each_of_two_workflows_gets_at_least_half_of_an_equal_share_in_overload(self):
        """60 per second of 0.05 s and of 0.2 s need 15 vCPUs of 4: an equal share is 4/15 of each."""
        where = scenario(
            {"cheap": 0.05, "costly": 0.2},
            workflows={"cheap": ("cheap",), "costly": ("costly",)},
            slo_s=1.0,
            arrivals=(Poisson("cheap", 60.0), Poisson("costly", 60.0)),
            duration_s=15.0,
        )
        requests = run(where).requests
        shares = {name: in_time(requests, name, since=2.0) for name in ("cheap", "costly")}
        assert min(shares.values()) >= 0.5 * 4 / 15
        assert shares["cheap"] > shares["costly"]  # beyond the floor, what needs least per answer

    def test_with_room_for_all_no_workflow_is_limited(self):
        where = scenario(
            {"cheap": 0.05, "costly": 0.2},
            workflows={"cheap": ("cheap",), "costly": ("costly",)},
            slo_s=2.0,
            arrivals=(Deterministic("cheap", 0.1), Deterministic("costly", 0.1)),
            duration_s=10.0,
        )
        assert in_time(run(where).requests) == 1.0

    def test_a_backlog_without_a_deadline_keeps_no_deadline_from_being_met(self):
        """A minute of work that may wait; one request of a second is due within 5 s every 3 s, behind at most a run."""
        flows = {"due": Workflow.chain("due", "f", slo=SLO(latency_s=5.0)), "idle": Workflow.chain("idle", "f")}
        arrivals = [Listed("idle", tuple([0.0] * 60)), Deterministic("due", 3.0, 0.5)]
        requests = run(scenario({"f": 1.0}, workflows=flows, arrivals=arrivals, on=ONE, duration_s=30.0)).requests
        assert in_time(requests, "due") == 1.0
        assert (requests.filter(pl.col("workflow") == "idle")["outcome"] == "completed").all()


class TestInstances:
    @pytest.mark.parametrize("idle_holds", ["slice", "memory"])
    def test_instances_are_started_ahead_where_a_cold_start_is_longer_than_the_objective(self, idle_holds):
        """Two are busy on average. The first are ready after 2 s, and everything is in time soon after."""
        where = scenario(
            declared(0.1, cold_start_s=2.0, idle_holds=idle_holds),
            slo_s=0.5,
            arrivals=(Deterministic("main", 0.05),),
            on=cluster(1, vcpus=8),
            duration_s=15.0,
        )
        recording = run(where)
        assert in_time(recording.requests, since=4.0) == 1.0
        assert recording.instances.height <= 8
        assert not recording.invocations.filter(pl.col("start") > 4)["is_cold"].any()

    def test_later_stages_are_warm_before_the_first_request_reaches_them(self):
        """Each stage takes a cold start of 1 s, and 2 s are allowed: only the first requests pay for both."""
        part = declared(0.1, cold_start_s=1.0)
        where = scenario(
            {"a": part, "b": part},
            slo_s=2.0,
            arrivals=(Deterministic("main", 0.2),),
            on=cluster(1, vcpus=8),
            duration_s=10.0,
        )
        assert in_time(run(where).requests, since=2.0) == 1.0

    def test_an_instance_is_not_started_where_the_only_one_of_a_function_needs_the_gpu(self):
        """Two models on four GPUs; a start takes a whole one for 2 s, in which no warm instance on it can run."""
        where = at_load(load_scenario("pipeline-ensemble"), 3)
        requests = run(replace(where, duration_s=7.0, warmup_s=0.0)).requests
        assert in_time(requests, since=3.0, until=6.5) > 0.97

    def test_an_instance_that_is_worth_more_drives_out_what_is_worth_less(self):
        """Memory for two of three: the rare one is started for its requests and makes way again."""
        functions = {
            name: declared(0.05, cold_start_s=1.0, memory_gb=4, idle_holds="memory") for name in ("x", "y", "rare")
        }
        where = scenario(
            functions,
            workflows={name: (name,) for name in functions},
            slo_s=0.5,
            arrivals=(Deterministic("x", 0.2), Deterministic("y", 0.2), Deterministic("rare", 9.0, 8.0)),
            on=cluster(1, vcpus=8, memory_gb=8),
            duration_s=30.0,
        )
        requests = run(where).requests
        assert in_time(requests, "x", since=6.0) >= 0.9
        assert in_time(requests, "y", since=6.0) >= 0.9


class TestNodes:
    def test_a_node_under_pressure_from_outside_gets_less_work_after_some_seconds(self):
        """From 5 s on, runs on `n0` take twice as long. Before that, 2 of the 8 vCPUs are busy on average."""
        where = scenario(
            declared(0.2, sensitivity=1.0, pressure=0.0),
            slo_s=2.0,
            arrivals=(Poisson("main", 10.0),),
            on=cluster(2, vcpus=4),
            pressures=(PressureChange(node="n0", at_s=5.0, pressure=1.0),),
            duration_s=20.0,
        )
        recording = run(where)
        before, after = by_node(recording, 0.0, 5.0), by_node(recording, 8.0)
        assert before["n0"] >= 0.4 * sum(before.values())
        assert after["n0"] <= 0.35 * sum(after.values())
        assert in_time(recording.requests) == 1.0

    def test_the_work_of_a_lost_node_goes_elsewhere_and_comes_back_with_it(self):
        where = scenario(
            declared(0.2),
            slo_s=2.0,
            arrivals=(Poisson("main", 10.0),),
            on=cluster(2, vcpus=4),
            node_faults=(NodeFault(node="n0", at_s=5.0, back_s=5.0),),
            duration_s=15.0,
        )
        recording = run(where)
        assert set(by_node(recording, 0.0, 5.0)) == {"n0", "n1"}
        assert set(by_node(recording, 5.0, 10.0)) == {"n1"}
        assert set(by_node(recording, 10.0)) == {"n0", "n1"}
        assert in_time(recording.requests) >= 0.98

    def test_an_outage_of_the_whole_cluster_is_forgotten_when_it_is_back(self):
        """2.8 of 4 vCPUs are busy on average. No node is there from 5 to 20 s."""
        where = scenario(
            declared(0.4),
            slo_s=0.6,
            arrivals=(Poisson("main", 7.0),),
            node_faults=(NodeFault(node="n0", at_s=5.0, back_s=15.0),),
            duration_s=40.0,
        )
        requests = run(where).requests
        without = run(scenario(declared(0.4), slo_s=0.6, arrivals=(Poisson("main", 7.0),), duration_s=40.0)).requests
        assert in_time(requests, since=25.0) >= in_time(without, since=25.0) - 0.1

    def test_the_faster_of_two_kinds_is_used_where_only_it_is_in_time(self):
        """0.5 s on `n1`, and 1 s on `n0`; 0.8 s are allowed."""
        on = cluster(1, vcpus=4, kind="fast", speed=2.0, beside=cluster(1, vcpus=4, kind="slow"))
        recording = run(scenario(1.0, slo_s=0.8, arrivals=(Deterministic("main", 0.25),), on=on, duration_s=5.0))
        assert set(by_node(recording, 0.0)) == {"n1"}
        assert in_time(recording.requests) == 1.0


@pytest.fixture(scope="module")
def slices():
    """Two MIG GPUs. 50 small requests per second need 10 slices of one seventh; from 10 s on
    there are 5 per second.

    From then on 2 large ones per second come. They take 0.4 s in a slice of four sevenths and 1.6 s in one of one,
    and are due in 1 s.
    """
    functions = {
        "small": declared(Table((Row(vgpus=1, seconds=0.2),)), cold_start_s=0.5, keep_alive_s=600),
        "large": declared(
            Table((Row(vgpus=1, seconds=1.6), Row(vgpus=4, seconds=0.4))), cold_start_s=0.5, keep_alive_s=600
        ),
    }
    arrivals = (
        Listed("small", tuple(i / 50 for i in range(500))),
        Listed("small", tuple(10 + i / 5 for i in range(100))),
        Listed("large", tuple(10 + i / 2 for i in range(40))),
    )
    on = cluster(1, vcpus=32, vgpus=7, devices=2, sharing="mig", device_memory_gb=40)
    flows = {name: (name,) for name in functions}
    where = scenario(functions, workflows=flows, arrivals=arrivals, slo_s=1.0, on=on, duration_s=30.0)
    recording = run(where)
    check_capacity(recording, where)
    check_accounts(recording)
    return recording


class TestSlices:
    def test_small_slices_serve_the_first_mix(self, slices):
        assert in_time(slices.requests, "small", 2.0, 10.0) == 1.0
        first = slices.instances.filter(pl.col("started") < 10.0)
        assert set(first["vgpus"]) == {1.0}
        assert first.height >= 10

    def test_larger_slices_are_cut_when_they_are_needed(self, slices):
        large = slices.instances.filter(pl.col("function") == "large")
        assert set(large["vgpus"]) == {4.0}
        assert large["started"].min() < 11.0
        assert in_time(slices.requests, "large", since=13.0) >= 0.9

    def test_small_requests_are_still_in_time_beside_large_slices(self, slices):
        assert in_time(slices.requests, "small", since=10.0) >= 0.98


def test_all_requests_of_a_budget_stay_within_it_under_load():
    """USD 1 per vCPU-second. In time are 2 vCPUs (USD 2.4) and 4 vCPUs (USD 3.2); USD 2.6 are allowed."""
    rows = (Row(vcpus=1, seconds=2.0), Row(vcpus=2, seconds=1.2), Row(vcpus=4, seconds=0.8))
    flow = Workflow.chain("main", "f", slo=SLO(latency_s=1.6, cost_usd=2.6))
    where = scenario(
        {"f": declared(Table(rows))},
        workflows={"main": flow},
        arrivals=(Poisson("main", 3.0),),
        on=cluster(1, vcpus=8, price=Price(vcpu_usd_per_hour=3600)),
        duration_s=30.0,
    )
    recording = run(where)
    assert set(recording.invocations["vcpus"]) == {2.0}
    assert (recording.requests["cost_usd"] <= 2.6).all()
    assert in_time(recording.requests) >= 0.7


@pytest.mark.parametrize("declared_share", [0.1, 0.5, 1.0])
def test_an_arm_that_every_request_takes_is_answered_whatever_the_workflow_declares(declared_share):
    """Read in 1 ms, then 10 ms on the arm that all take, or 1 ms on the other: one vCPU answers 90 of 300 per second.

    Where the long arm was declared for every tenth request, a new request was taken to cost 2.9 ms, and none that was
    on its way to the long arm was worth its 10 ms: nothing was answered.
    """
    stages = (
        Stage(name="read", function="read"),
        Stage(name="long", function="long", after=("read",), when=declared_share),
        Stage(name="short", function="short", after=("read",), when=1 - declared_share),
    )
    functions = {
        name: declared(seconds, idle_holds="memory", warm=1)
        for name, seconds in (("read", 0.001), ("long", 0.010), ("short", 0.001))
    }
    where = scenario(
        functions,
        workflows={"main": Workflow(name="main", stages=stages, slo=SLO(latency_s=0.2))},
        arrivals=[n / 300 for n in range(1500)],
        on=ONE,
        duration_s=5.0,
    )
    where = replace(where, host=Host(cores=9, arms={"main": {"long": 1.0, "short": 0.0}}))
    requests = run(where).requests
    assert in_time(requests, since=1.0) * 300 > 0.85 * 90


def test_a_function_that_fits_only_on_the_larger_nodes_of_a_kind_is_served():
    """The first node of the kind has one vCPU, the second two; the function needs two."""
    both = cluster(1, vcpus=2, beside=cluster(1, vcpus=1))
    where = scenario(declared(Table((Row(vcpus=2, seconds=0.1),))), arrivals=[0.0], slo_s=9.0, on=both)
    assert in_time(run(where).requests) == 1.0
