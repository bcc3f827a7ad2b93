"""DagAdmission: who is promised what, who is refused, and what is offered instead."""

import pytest
from admission_runs import answers, chain, column, run, runs

from fairlead.model import SLO, Price, Stage, Workflow
from fairlead.policy import Plan, Reject
from fairlead.policy.dag_admission.policy import DagAdmission
from fairlead.profile import Row, Table
from fairlead.testing import cluster, decisions, declared, scenario
from fairlead.workload import Listed

ONE = cluster(vcpus=1)
DOLLARS = Price(vcpu_usd_per_hour=3600, vgpu_usd_per_hour=3 * 3600)  # one USD per second of a vCPU, three of a vGPU
MIXED = cluster(1, vcpus=0, vgpus=1, kind="gpu", beside=cluster(1, vcpus=1, kind="cpu"), price=DOLLARS)


def on_both(cpu_s, gpu_s, **settings):
    rows = (Row(kind="cpu", seconds=cpu_s), Row(kind="gpu", vcpus=0, vgpus=1, seconds=gpu_s))
    return declared(Table(rows), **settings)


def test_two_fit_one_after_the_other_and_the_third_is_told_when_to_come_back():
    recording = run(scenario(1.0, arrivals=(0, 0, 0), on=ONE, slo_s=2.5), slack=0)
    assert column(recording, "outcome") == ["completed", "completed", "rejected"]
    assert column(recording, "promised") == [1, 2, None]
    assert column(recording, "end") == [1, 2, 0]
    assert column(recording, "offer_latency_s") == [None, None, 3]
    assert column(recording, "retry_after_s") == [None, None, 0.5]
    assert answers(recording)[2]["reason"].startswith("cannot promise 2.5 s at inf USD; the earliest is 3 s at ")


def test_who_comes_back_when_told_is_admitted():
    recording = run(scenario(1.0, arrivals=(0, 0, 0, 0.5), on=ONE, slo_s=2.5), slack=0)
    assert column(recording, "promised") == [1, 2, None, 3]


def test_a_refused_request_never_runs_and_costs_nothing():
    recording = run(scenario(1.0, arrivals=(0, 0), on=ONE, slo_s=1), slack=0)
    assert runs(recording, "request") == [(0,)]
    assert column(recording, "cost_usd")[1] == 0


def test_slack_is_promised_until_durations_are_known():
    recording = run(scenario(1.0, arrivals=(0, 0), on=ONE, slo_s=3), slack=0.25)
    assert column(recording, "promised") == [1.25, 2.5]
    assert column(recording, "end") == [1, 2]  # the second starts when the first has ended, not when it was booked


def test_a_chain_is_promised_as_a_whole():
    # Two stages of a second each on one vCPU: the second request begins where the first has ended.
    recording = run(scenario({"a": 1.0, "b": 1.0}, arrivals=(0, 0, 0), on=ONE, slo_s=4), slack=0)
    assert column(recording, "promised") == [2, 4, None]
    assert column(recording, "offer_latency_s") == [None, None, 6]


def test_a_later_request_takes_the_gap_between_two_stages():
    # The first has the CPU until 1 and from 5 to 6, and the GPU in between: four more of a second fit on the CPU.
    functions = {"a": on_both(1, 99), "b": on_both(99, 4)}
    stages = ("a", "b", "a")
    first = Workflow(
        name="main",
        stages=tuple(Stage(name=str(i), function=f, after=(str(i - 1),) if i else ()) for i, f in enumerate(stages)),
        slo=SLO(latency_s=6),
    )
    flows = {"main": first, "short": chain("a", latency_s=6, name="short")}
    world = scenario(functions, workflows=flows, arrivals=(0.0, Listed("short", (0.5,) * 6)), on=MIXED)
    assert column(run(world, slack=0), "promised") == [6, 2, 3, 4, 5, None, None]


@pytest.mark.parametrize(
    ("latency_s", "cost_usd", "node"),
    [(2, 12, "n1"), (2, 11, None), (3.9, 11.9, None), (4, 4, "n0"), (4, 3.9, None)],
    ids=["gpu-at-its-limits", "gpu-too-dear", "neither", "cpu-at-its-limits", "cpu-too-dear"],
)
def test_both_objectives_hold_at_once(latency_s, cost_usd, node):
    # 4 s and 4 USD on the CPU, 2 s and 6 USD on the GPU, twice as much for two vGPUs.
    rows = (Row(kind="cpu", seconds=4), Row(kind="gpu", vcpus=0, vgpus=2, seconds=2))
    on = cluster(1, vcpus=0, vgpus=2, kind="gpu", beside=cluster(1, vcpus=1, kind="cpu"), price=DOLLARS)
    flow = chain("f", latency_s=latency_s, cost_usd=cost_usd)
    world = scenario(declared(Table(rows)), workflows={"main": flow}, on=on)
    (row,) = answers(run(world, slack=0))
    assert row["plan"] == (node and f"f@{node}")
    assert (row["outcome"] == "completed") is (node is not None)


def test_what_is_too_dear_is_offered_at_its_price():
    flow = chain("f", latency_s=3, cost_usd=5)
    world = scenario({"f": on_both(4, 2)}, workflows={"main": flow}, on=MIXED)  # 4 USD or 6 USD
    (row,) = answers(run(world, slack=0))
    assert row["outcome"] == "rejected"
    assert (row["offer_latency_s"], row["offer_cost_usd"], row["retry_after_s"]) == (2, 6, None)


def test_a_workflow_that_nothing_can_run_is_refused_without_an_offer():
    world = scenario(declared(Table((Row(vgpus=1, seconds=1),))), arrivals=(0, 5), on=ONE)
    recording = run(world)
    assert column(recording, "reason") == ["no node can run all of its functions"] * 2
    assert column(recording, "offer_latency_s") == [None, None]


def test_an_objective_below_the_fastest_placement_is_offered_that():
    (row,) = answers(run(scenario(1.0, slo_s=0.9, on=ONE), slack=0))
    assert (row["outcome"], row["offer_latency_s"]) == ("rejected", 1)
    assert row["retry_after_s"] == pytest.approx(0.1)


def test_a_request_is_answered_at_the_instant_of_its_arrival():
    actions = decisions(DagAdmission(slack=0), 0.5, 9.0, scenario=scenario(1.0, on=ONE))
    rejects = [a.request for a in actions if isinstance(a, Reject)]
    plans = [a.request for a in actions if isinstance(a, Plan)]
    assert (rejects, plans) == ([0], [1])


def test_two_nodes_admit_twice_as_many():
    # On each node in turn: two at a time end at 1 and at 2.
    recording = run(scenario(1.0, arrivals=[0.0] * 5, on=cluster(2, vcpus=1), slo_s=2), slack=0)
    assert column(recording, "promised") == [1, 1, 2, 2, None]


def test_transfer_to_another_node_is_promised_too():
    # 125 MB at 1 Gbit/s take a second; a and b need kinds of their own.
    a, b = on_both(1, 99, output_mb=125), on_both(99, 1)
    on = cluster(
        1, vcpus=0, vgpus=1, kind="gpu", beside=cluster(1, vcpus=1, kind="cpu"), bandwidth_gbps=1, price=DOLLARS
    )
    recording = run(scenario({"a": a, "b": b}, on=on, slo_s=3), slack=0)
    assert column(recording, "promised") == [3]
    assert column(recording, "end") == [3]


@pytest.mark.parametrize(
    ("field", "value"),
    [("sample", -1), ("slack", -0.1), ("slack", float("inf")), ("percentile", 0), ("percentile", 1.1)],
)
def test_a_parameter_out_of_its_range_is_named(field, value):
    with pytest.raises(ValueError, match=field):
        DagAdmission(**{field: value})
