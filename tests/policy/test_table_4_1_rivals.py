"""The rivals of Table 4.1: the printed figures, and the rules behind them."""

import pytest

from fairlead import simulate
from fairlead.model import SLO, Configuration, Stage, Workflow
from fairlead.policy import Reject, Start
from fairlead.policy.clockwork_naive import ClockworkNaive
from fairlead.policy.fifo_types import FifoTypes
from fairlead.policy.kit.remaining import critical_path_s, longest_after
from fairlead.policy.kit.resource_types import types_of
from fairlead.profile import Row, Table
from fairlead.report import summarise
from fairlead.report.counted import counted_requests
from fairlead.testing import Waits, cluster, decisions, declared, scenario, site_of
from fairlead.workload import Burst, NodeFault, load_scenario, scenario_points

CPU, GPU = Configuration(vcpus=1), Configuration(vcpus=0, vgpus=1)
MIXED = cluster(1, vcpus=0, vgpus=1, kind="gpu", beside=cluster(1, vcpus=1, kind="cpu"))  # n0 a CPU, n1 a GPU


def on_both(cpu_s: float, gpu_s: float, **settings):
    rows = (Row(kind="cpu", seconds=cpu_s), Row(kind="gpu", vcpus=0, vgpus=1, seconds=gpu_s))
    return declared(Table(rows), **settings)


def hits_and_makespans(policy):
    summaries = [summarise(simulate(one, policy)) for _, one in scenario_points("table-4.1")]
    return [round(s.slo_attainment * s.requests) for s in summaries], {f"{s.makespan_s:.3f}" for s in summaries}


class TestTable:
    def test_fifo_has_the_printed_hits_and_makespan(self):
        assert hits_and_makespans("fifo-types") == ([3, 7, 12, 16], {"6.002"})

    def test_clockwork_has_the_printed_hits_and_makespan(self):
        assert hits_and_makespans("clockwork-naive") == ([1, 3, 5, 6], {"14.400"})

    @pytest.mark.parametrize(("policy", "each"), [("fifo-types", 50), ("clockwork-naive", 45)])
    def test_every_answer_is_within_its_budget(self, policy, each):
        rows = simulate(load_scenario("table-4.1"), policy).requests
        assert rows["cost_usd"].to_list() == pytest.approx([each] * 1200)

    def test_fifo_latency_of_the_kth_of_the_burst(self):
        rows = counted_requests(simulate(load_scenario("table-4.1"), "fifo-types")).sort("request")
        expected = [(5 * k + 7 - k // 5) / 1000 for k in range(600)]
        assert rows["latency_s"].to_list()[:600] == pytest.approx(expected)

    def test_every_run_loads_its_function(self):
        summary = summarise(simulate(load_scenario("table-4.1"), "fifo-types"))
        assert (summary.cold_starts, summary.invocations) == (3600, 3600)

    def test_five_requests_of_the_burst_share_a_millisecond(self):
        arrivals = simulate(load_scenario("table-4.1"), "fifo-types").requests["arrival"].sort().to_list()
        assert arrivals[:600] == pytest.approx([k // 5 / 1000 for k in range(600)])
        assert min(arrivals[600:]) == pytest.approx(0.12)


class TestBurstInSteps:
    def test_each_arrives_at_the_beginning_of_its_step(self):
        assert Burst("w", 8, step_s=5.0).times(None, 100.0).tolist() == [0, 0, 5, 5, 10, 30, 55, 75]

    def test_without_a_step_nothing_is_rounded(self):
        assert Burst("w", 8).times(None, 100.0).tolist() == [0.0, 2.5, 5.0, 7.5, 10.0, 32.5, 55.0, 77.5]

    def test_an_instant_on_a_step_stays_there(self):
        # 0.0006 / 0.0002 is a little below 3 in floating point.
        assert Burst("w", 10, step_s=0.0002).times(None, 0.01)[3] == pytest.approx(0.0006)

    def test_a_faster_burst_keeps_its_step(self):
        assert Burst("w", 2, step_s=0.5).scaled(2) == Burst("w", 4, step_s=0.5)

    def test_step_must_not_be_negative(self):
        with pytest.raises(ValueError, match="step_s"):
            Burst("w", 1, step_s=-1.0)


class TestTypes:
    def test_quickest_kind_comes_first_and_counts_its_cold_start(self):
        site = site_of(scenario({"f": on_both(3, 2, cold_start_by_kind={"cpu": 0.5, "gpu": 2})}, on=MIXED))
        found = types_of(site.functions["f"], site.profiles["f"], site.cluster)
        assert [(t.kind, t.configuration, t.seconds) for t in found] == [("cpu", CPU, 3.5), ("gpu", GPU, 4.0)]

    def test_a_kind_offers_its_quickest_small_batch(self):
        rows = (Row(vcpus=1, seconds=4), Row(vcpus=2, seconds=3), Row(vcpus=2, batch=4, seconds=1))
        site = site_of(scenario({"f": declared(Table(rows))}))
        (only,) = types_of(site.functions["f"], site.profiles["f"], site.cluster)
        assert (only.configuration, only.seconds) == (Configuration(vcpus=2), 3)

    def test_a_kind_that_could_never_hold_it_is_no_type(self):
        site = site_of(scenario({"f": declared(1.0)}, on=MIXED))  # takes a vCPU, which the GPU's node has not
        assert [t.kind for t in types_of(site.functions["f"], site.profiles["f"], site.cluster)] == ["cpu"]


class TestFifoTypes:
    def test_each_function_waits_for_its_own_type(self):
        both = scenario({"a": on_both(1, 2), "b": on_both(2, 1)}, on=MIXED, workflows={"main": ("a",), "other": ("b",)})
        actions = decisions(FifoTypes(), Waits(), Waits(), Waits(workflow="other"), scenario=both)
        assert [(a.batch[0].request, a.node) for a in actions] == [(0, "n0"), (2, "n1")]

    def test_oldest_request_goes_before_what_became_ready_first(self):
        chain = scenario({"a": 1.0, "b": 1.0}, arrivals=(0.0, 0.5), on=cluster(vcpus=1))
        starts = simulate(chain, FifoTypes()).invocations.sort("start")
        assert list(zip(starts["request"], starts["function"], strict=True)) == [
            (0, "a"),
            (0, "b"),
            (1, "a"),
            (1, "b"),
        ]

    def test_nothing_is_ever_rejected(self):
        assert all(isinstance(a, Start) for a in decisions(FifoTypes(), *[0.1] * 9))

    def test_when_its_kind_is_down_the_next_one_serves(self):
        faults = (NodeFault(node="n1", at_s=0.5),)
        one = scenario({"f": on_both(2, 1)}, on=MIXED, arrivals=(1.0,), node_faults=faults)
        assert simulate(one, FifoTypes()).invocations["node"].to_list() == ["n0"]

    def test_of_nodes_with_one_configuration_only_the_right_kind_is_used(self):
        on = cluster(1, vcpus=1, kind="fast", speed=2.0, beside=cluster(1, vcpus=4, kind="slow"))
        actions = decisions(FifoTypes(), 9.0, 9.0, scenario=scenario(1.0, on=on))
        assert [(a.batch[0].request, a.node) for a in actions] == [(0, "n1")]  # the second waits for the fast one


class TestClockworkNaive:
    @pytest.mark.parametrize(
        ("latency_s", "cost_usd", "node"),
        [(11.0, 120, "n1"), (12.0, 119, "n0"), (12.0, 45, "n0"), (11.5, 119, None), (12.0, 44, None)],
        ids=["gpu-when-both-hold", "too-dear-so-cpu", "cpu-at-its-limits", "cpu-too-slow", "cpu-too-dear"],
    )
    def test_quickest_kind_that_meets_both_objectives(self, latency_s, cost_usd, node):
        price = MIXED.price.__class__(vcpu_usd_per_hour=5 * 3600, vgpu_usd_per_hour=15 * 3600)
        on = cluster(1, vcpus=0, vgpus=1, kind="gpu", beside=cluster(1, vcpus=1, kind="cpu"), price=price)
        loads = {"cold_start_s": 1, "keep_alive_s": 0}  # with every run
        functions = {"a": on_both(3, 2, **loads), "b": on_both(5, 1, **loads)}
        functions["c"] = on_both(1, 5, **loads)
        flow = Workflow.chain("main", *functions, slo=SLO(latency_s=latency_s, cost_usd=cost_usd))
        (action,) = decisions(ClockworkNaive(), 99.0, scenario=scenario(functions, workflows={"main": flow}, on=on))
        assert action.node == node if node else isinstance(action, Reject)

    def test_a_workflow_that_no_kind_holds_is_rejected(self):
        only_cpu, only_gpu = (
            declared(1.0),
            declared(Table((Row(kind="gpu", vcpus=0, vgpus=1, seconds=1),))),
        )
        (action,) = decisions(ClockworkNaive(), 99.0, scenario=scenario({"a": only_cpu, "b": only_gpu}, on=MIXED))
        assert isinstance(action, Reject)

    @pytest.mark.parametrize(("keep_alive_s", "is_admitted"), [(0, False), (600, True)])
    def test_a_cold_start_counts_only_where_every_run_has_one(self, keep_alive_s, is_admitted):
        # The run of 1 s is within the objective of 2 s, a cold start of 5 s is not.
        slow = declared(1.0, cold_start_s=5.0, keep_alive_s=keep_alive_s)
        flow = Workflow(name="main", stages=(Stage(name="a", function="a"),), slo=SLO(latency_s=2.0))
        one = scenario({"a": slow}, workflows={"main": flow}, on=cluster())
        (action,) = decisions(ClockworkNaive(), 2.0, scenario=one)
        assert isinstance(action, Start) == is_admitted

    def test_items_of_a_map_are_paid_for(self):
        stages = (
            Stage(name="a", function="a"),
            Stage(name="b", function="b", after=("a",), map=(1, 4)),
        )

        def first_action(cost_usd):
            flow = Workflow(name="main", stages=stages, slo=SLO(cost_usd=cost_usd))
            price = cluster().price.__class__(vcpu_usd_per_hour=3600)
            one = scenario({"a": 1.0, "b": 1.0}, workflows={"main": flow}, on=cluster(price=price))
            return decisions(ClockworkNaive(), 99.0, scenario=one)[0]

        assert isinstance(first_action(4.9), Reject)
        assert isinstance(first_action(5.0), Start)  # one and, at the most, four


def test_the_longest_path_is_the_longest():
    stages = (
        Stage(name="a", function="a"),
        Stage(name="b", function="b", after=("a",)),
        Stage(name="c", function="c", after=("a",)),
        Stage(name="d", function="a", after=("b", "c")),
    )
    flow = Workflow(name="w", stages=stages)
    seconds = {"a": 1.0, "b": 5.0, "c": 2.0}
    assert longest_after(flow, seconds) == {"a": 6.0, "b": 1.0, "c": 1.0, "d": 0.0}
    assert critical_path_s(flow, seconds) == 7.0
