"""DagAdmission: which placement is tried, and which is taken.

In Table 4.1 three placements are worth trying. GPU, GPU, CPU takes 7 ms and costs 50; CPU, GPU, CPU takes 8 ms and
costs 35; CPU alone takes 12 ms and costs 45, which is beaten in both, but it spares the GPU.
"""

from dataclasses import replace

import numpy as np
import pytest
from admission_runs import column, run

from fairlead.policy.dag_admission.placements import candidates
from fairlead.policy.dag_admission.policy import DagAdmission
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, prepared, scenario
from fairlead.workload import Listed, load_scenario

FAST, CHEAP, SPARING = 0, 1, 2
PLANS = ["first@gpu -> second@gpu -> third@cpu", "first@cpu -> second@gpu -> third@cpu"]
IDLE = np.zeros(4)  # seconds ahead of the CPU node's vCPUs and vGPUs, then of the GPU node's


@pytest.fixture(scope="module")
def table():
    return load_scenario("table-4.1")


@pytest.fixture(scope="module")
def dag(table):
    return prepared(DagAdmission(), table)._dags["linear"]


def chosen(dag, selection, *, sample=0, latency_s=0.02, cost_usd=60, pressure=IDLE, seed=0, **known):
    return candidates(dag, latency_s, cost_usd, selection, sample, pressure, np.random.default_rng(seed), **known)


def test_placements_whose_instances_are_there_come_first(dag):
    assert chosen(dag, "fastest") == [FAST, CHEAP]
    assert chosen(dag, "fastest", missing=np.array([1, 0, 0])) == [CHEAP, FAST]
    missing = np.array([0, 2, 1])
    assert chosen(dag, "balanced", missing=missing, sample=1) == [FAST, SPARING]  # and the one that misses fewest


def test_placements_that_are_too_slow_by_safe_durations_are_left_out_unless_all_are(dag):
    assert chosen(dag, "fastest", safe_latency_s=np.array([0.021, 0.019, 0.03])) == [CHEAP]
    assert chosen(dag, "fastest", safe_latency_s=np.array([0.03, 0.03, 0.03])) == [FAST, CHEAP]


def test_a_safe_latency_follows_the_durations_that_it_is_given(dag):
    # A chain of three, each with a cold start of 1 ms as no instance stays; GPU runs are taken as 1 ms, others as 2.
    safe_s = dag.safe_latency_s(
        [np.array([0.001 if way.kind == "gpu" else 0.002 for way in ways]) for ways in dag.ways]
    )
    assert safe_s.tolist() == pytest.approx([0.007, 0.008, 0.009])


def test_the_three_placements_are_known(dag):
    kinds = [[way.kind for way in dag.placement(i)] for i in range(len(dag.choices))]
    assert kinds == [["gpu", "gpu", "cpu"], ["cpu", "gpu", "cpu"], ["cpu", "cpu", "cpu"]]
    assert dag.latency_s.tolist() == pytest.approx([0.007, 0.008, 0.012])
    assert dag.cost_usd.tolist() == pytest.approx([50, 35, 45])


def test_fastest_and_cheapest_go_through_the_front_from_either_end(dag):
    assert chosen(dag, "fastest") == [FAST, CHEAP]
    assert chosen(dag, "cheapest") == [CHEAP, FAST]


def test_random_draws_each_member_of_the_front_as_often(dag):
    firsts = [chosen(dag, "random", sample=1, seed=seed)[0] for seed in range(400)]
    assert set(firsts) == {FAST, CHEAP}
    assert 150 < firsts.count(FAST) < 250


@pytest.mark.parametrize("selection", ["random", "cheapest", "fastest", "balanced"])
def test_no_more_are_tried_than_sampled_and_none_twice(dag, selection):
    assert [len(set(chosen(dag, selection, sample=sample))) for sample in (1, 2)] == [1, 2]
    everything = chosen(dag, selection)
    assert sorted(everything) == ([FAST, CHEAP, SPARING] if selection == "balanced" else [FAST, CHEAP])
    assert sorted(chosen(dag, selection, sample=9)) == sorted(everything)


@pytest.mark.parametrize("selection", ["random", "cheapest", "fastest", "balanced"])
@pytest.mark.parametrize(
    ("latency_s", "cost_usd", "possible"),
    [
        (0.0075, 60, {FAST}),
        (0.0085, 49, {CHEAP}),
        (0.02, 40, {CHEAP}),
        (0.0069, 60, set()),
        (0.0075, 49, set()),
        (0.02, 34, set()),
    ],
)
def test_both_objectives_decide_who_is_tried(dag, selection, latency_s, cost_usd, possible):
    assert set(chosen(dag, selection, latency_s=latency_s, cost_usd=cost_usd)) == possible


@pytest.mark.parametrize(
    ("cpu_s", "gpu_s", "order"),
    [
        (0, 0, [FAST, CHEAP, SPARING]),  # 5, 6 and 12 ms ahead of the busier node
        (0.01, 0, [FAST, CHEAP, SPARING]),  # 12, 16 and 22 ms
        (0, 0.008, [CHEAP, SPARING, FAST]),  # 10, 12 and 13 ms
        (0, 0.02, [SPARING, CHEAP, FAST]),  # 20, 22 and 25 ms
    ],
)
def test_balanced_begins_with_what_leaves_least_ahead_of_the_busiest(dag, cpu_s, gpu_s, order):
    assert chosen(dag, "balanced", pressure=np.array([cpu_s, 0, 0, gpu_s])) == order


@pytest.mark.parametrize(("selection", "plan"), [("fastest", PLANS[FAST]), ("cheapest", PLANS[CHEAP])])
def test_the_first_of_all_gets_what_its_selection_says(table, selection, plan):
    alone = replace(table, arrivals=(Listed("linear", (0.0,)),))
    assert column(run(alone, slack=0, selection=selection), "plan") == [plan]


def test_random_takes_both_in_the_end(table):
    apart = replace(table, arrivals=(Listed("linear", tuple(i * 0.1 for i in range(12))),))
    assert set(column(run(apart, slack=0, selection="random"), "plan")) == set(PLANS)


def test_the_fastest_of_those_that_fit_counts_what_is_in_the_way(table):
    # The first has the GPU until 5 ms. The second would end at 5 + 5 + 2 ms on it, but at 4 + 1 + 2 + 2 ms beginning on
    # the CPU, where it waits for the GPU from 4 to 5 ms.
    two = replace(table, arrivals=(Listed("linear", (0.0, 0.0)),))
    recording = run(two, slack=0, selection="fastest")
    assert column(recording, "plan") == PLANS
    assert column(recording, "promised") == pytest.approx([0.007, 0.009])


TWO_KINDS = cluster(1, vcpus=0, vgpus=1, kind="gpu", beside=cluster(1, vcpus=1, kind="cpu"))


def alternatives(cpu_s, gpu_s):
    rows = (Row(kind="cpu", seconds=cpu_s), Row(kind="gpu", vcpus=0, vgpus=1, seconds=gpu_s))
    return declared(Table(rows), keep_alive_s=0.0)


def test_balanced_uses_both_nodes_and_cheapest_only_one():
    # A second on either. The CPU is cheaper, so the cheapest of two is taken until it does not fit.
    world = scenario(alternatives(1, 1), arrivals=[0.0] * 4, on=TWO_KINDS, slo_s=2)
    assert column(run(world, slack=0, selection="balanced"), "promised") == [1, 1, 2, 2]
    assert column(run(world, slack=0, selection="cheapest", sample=1), "promised") == [1, 2, None, None]


def test_while_refusing_balanced_takes_only_what_relieves_the_busiest():
    # 2 s on one of four vCPUs, or 1.1 s on the GPU. Six requests at 0 fill the vCPUs until 2 and the GPU until 2.2. At
    # 1.05 one more would leave 2.5 s of work ahead of the CPU, or 3.3 s ahead of the GPU, where alone it is in time.
    def promised(at_once):
        on = cluster(1, vcpus=0, vgpus=1, kind="gpu", beside=cluster(1, vcpus=4, kind="cpu"))
        world = scenario(alternatives(2, 1.1), arrivals=[0.0] * at_once + [1.05], on=on, slo_s=2.3)
        return column(run(world, estimates="declared", slack=0), "promised")

    assert promised(6) == pytest.approx([2, 2, 1.1, 2, 2, 2.2, 3.3])
    assert promised(7)[6:] == [None, None]  # the seventh does not fit, and from then on the eighth may not


def test_who_refused_long_ago_is_lenient_again():
    on = cluster(1, vcpus=0, vgpus=1, kind="gpu", beside=cluster(1, vcpus=4, kind="cpu"))
    world = scenario(alternatives(2, 1.1), arrivals=[0.0] * 7 + [2.35] * 6 + [3.4], on=on, slo_s=2.3)
    assert column(run(world, estimates="declared", slack=0), "promised")[-1] == pytest.approx(5.65)
