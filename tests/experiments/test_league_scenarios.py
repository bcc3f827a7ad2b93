"""The scenarios that were written for the league: each has the feature that it is there for and its stated load."""

from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest

from fairlead.engine import simulate
from fairlead.engine.sim.compiled import coverage
from fairlead.model import Configuration, Recording
from fairlead.model.mig import MIG_SIZES
from fairlead.policy import make_policy
from fairlead.workload import ClosedLoop, Scenario, load_scenario
from fairlead.workload.parse.load import expected_runs

NAMES = (
    "map-items",
    "branch-per-item",
    "node-lost",
    "cost-objective",
    "short-memory",
    "wrong-profiles",
    "two-tenants",
    "mixed-speeds",
    "mig-changing-mix",
)


@cache
def shipped(name: str) -> Scenario:
    return load_scenario(name)


def run(name: str, duration_s: float | None = None) -> Recording:
    scenario = shipped(name)
    if duration_s is not None:
        scenario = replace(scenario, duration_s=duration_s, warmup_s=0.0)
    return simulate(scenario, make_policy("fifo"), seed=0)


def offered(scenario: Scenario, resource: str, workflows: tuple[str, ...] = ()) -> float:
    """How many vCPUs or vGPUs the workflows (by default all) keep busy: true times, speed 1, first configurations."""
    total = 0.0
    for process in scenario.arrivals:
        assert not isinstance(process, ClosedLoop)
        if workflows and process.workflow not in workflows:
            continue
        flow = scenario.workflows[process.workflow]
        runs = expected_runs(flow)
        for stage in flow.stages:
            profile = scenario.profiles[stage.function]
            size = profile.configurations[0]
            seconds = min(profile.latency_s(size, kind) for kind in scenario.cluster.kinds) * profile.bias
            held = getattr(size, resource) / size.batch
            total += process.expected(scenario.duration_s) / scenario.duration_s * runs[stage.name] * seconds * held
    return total


@pytest.mark.parametrize("name", NAMES)
def test_it_is_open_loop_and_brings_600_to_1500_requests_in_30_to_120_s(name):
    scenario = shipped(name)
    assert 30 <= scenario.duration_s <= 120
    assert all(not isinstance(process, ClosedLoop) for process in scenario.arrivals)
    assert 600 <= sum(process.expected(scenario.duration_s) for process in scenario.arrivals) <= 1500


@pytest.mark.parametrize("name", NAMES)
def test_its_seed_draws_its_arrivals(name):
    scenario = replace(shipped(name), duration_s=12.0, warmup_s=0.0)
    first, second = (simulate(scenario, make_policy("fifo"), seed=seed).requests["arrival"] for seed in (0, 1))
    assert first.to_list() != second.to_list()


@pytest.mark.parametrize(
    ("name", "resource", "capacity", "load"),
    [
        ("map-items", "vgpus", 8, 0.66),
        ("map-items", "vcpus", 20, 0.39),
        ("branch-per-item", "vcpus", 24, 0.75),
        ("node-lost", "vcpus", 32, 0.64),
        ("node-lost", "vcpus", 24, 0.85),  # while a node is away
        ("wrong-profiles", "vcpus", 32, 0.67),
        ("two-tenants", "vcpus", 8, 1.31),
        ("mixed-speeds", "vcpus", 24 * 0.7 + 24 * 1 + 16 * 1.6, 0.77),
        ("short-memory", "vcpus", 24, 3.5 / 24),  # without cold starts
    ],
)
def test_the_stated_load_is_the_computed_one(name, resource, capacity, load):
    assert offered(shipped(name), resource) / capacity == pytest.approx(load, abs=0.006)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("map-items", "map stage"),
        ("branch-per-item", "map stage"),
        ("node-lost", "nodes are lost"),
        ("mig-changing-mix", "shared by mig"),
        ("cost-objective", None),
        ("short-memory", None),
        ("wrong-profiles", None),
        ("two-tenants", None),
        ("mixed-speeds", None),
    ],
)
def test_the_compiled_engine_covers_it_or_says_why_not(name, reason):
    found = coverage(shipped(name), make_policy("fifo"))
    assert (found is None) if reason is None else (reason in (found or ""))


def test_map_items_inspects_each_of_4_to_12_frames_and_gives_one_verdict():
    done = run("map-items", 15.0).invocations.filter(pl.col("outcome") == "done")
    counts = done.group_by("request").agg(
        *(pl.col("stage").eq(name).sum().alias(name) for name in ("split", "inspect", "verdict"))
    )
    assert set(counts["inspect"]) == set(range(4, 13))
    assert counts["inspect"].mean() == pytest.approx(8, abs=1)
    assert set(counts["split"]) == set(counts["verdict"]) == {1}


def test_branch_per_item_recognises_three_pages_in_ten_and_extracts_the_others():
    done = run("branch-per-item", 20.0).invocations.filter(pl.col("outcome") == "done")
    pages = {
        stage: set(done.filter(pl.col("stage") == stage).select("request", "item").iter_rows())
        for stage in ("layout", "recognise", "extract")
    }
    assert pages["recognise"].isdisjoint(pages["extract"])
    assert pages["recognise"] | pages["extract"] == pages["layout"]
    assert len(pages["recognise"]) / len(pages["layout"]) == pytest.approx(0.3, abs=0.04)


def test_node_lost_runs_nothing_on_the_lost_node_until_it_is_back():
    recording = run("node-lost")
    on_it = recording.invocations.filter(pl.col("node") == "node-2")
    starts = on_it["start"].to_numpy()
    assert np.any(starts < 35)
    assert not np.any((starts > 35) & (starts < 60))
    assert np.any(starts >= 60)
    lost = recording.invocations.filter(pl.col("outcome") == "lost")
    assert set(lost["node"]) == {"node-2"}
    again = recording.requests.filter(pl.col("request").is_in(lost["request"].to_list()))
    assert set(again["outcome"]) == {"completed"}  # what was lost ran again elsewhere


def _chain(scenario: Scenario, sizes: dict[str, Configuration]) -> tuple[float, float]:
    """Seconds and dollars of one request whose stages run in these configurations, one after the other."""
    price = scenario.cluster.price
    seconds = {name: scenario.profiles[name].latency_s(size, "gpu") for name, size in sizes.items()}
    per_hour = {
        name: size.vcpus * price.vcpu_usd_per_hour + size.vgpus * price.vgpu_usd_per_hour
        for name, size in sizes.items()
    }
    usd = sum(seconds[name] * per_hour[name] / size.batch for name, size in sizes.items()) / 3600
    return sum(seconds.values()), usd


@pytest.mark.parametrize(
    ("vgpus", "checking", "seconds", "micro_usd", "previews", "archive"),
    [
        (1, 1, 0.75, 128, (False, True), (True, True)),
        (2, 1, 0.49, 150, (True, True), (True, False)),
        (4, 2, 0.335, 208, (True, False), (True, False)),
    ],
    ids=["cheapest", "middle", "fastest"],
)
def test_cost_objective_is_met_by_neither_the_fastest_nor_the_cheapest_alone(
    vgpus, checking, seconds, micro_usd, previews, archive
):
    scenario = shipped("cost-objective")
    model = Configuration(vcpus=1, vgpus=vgpus)
    latency_s, cost_usd = _chain(scenario, {"embed": model, "describe": model, "check": Configuration(vcpus=checking)})
    assert latency_s == pytest.approx(seconds)
    assert cost_usd * 1e6 == pytest.approx(micro_usd, abs=0.6)
    for name, expected in (("previews", previews), ("archive", archive)):
        slo = scenario.workflows[name].slo
        assert (latency_s <= slo.latency_s, cost_usd <= slo.cost_usd) == expected


def test_cost_objective_fits_the_gpus_in_the_configurations_that_meet_it():
    scenario = shipped("cost-objective")
    rates = {process.workflow: process.rate_rps for process in scenario.arrivals}
    busy = rates["previews"] * 2 * (0.12 + 0.27) + rates["archive"] * (0.20 + 0.45)
    assert busy / 21 == pytest.approx(0.82, abs=0.005)


def test_short_memory_holds_less_than_half_of_the_functions():
    scenario = shipped("short-memory")
    held_gb = sum(node.memory_gb for node in scenario.cluster.nodes)
    assert len(scenario.functions) == 36
    assert held_gb / sum(f.memory_gb for f in scenario.functions.values()) == pytest.approx(36 / 84)
    evicted = run("short-memory", 30.0).instances.filter(pl.col("cause") == "evicted")
    assert evicted.height > 0


def test_short_memory_has_deadlines_below_and_above_a_cold_start():
    scenario = shipped("short-memory")
    waits = {True: 0, False: 0}
    for name, flow in scenario.workflows.items():
        profile = scenario.profiles[name]
        cold_run_s = profile.cold_start_s + profile.latency_s(profile.configurations[0], "node")
        can_wait = flow.slo.latency_s > cold_run_s
        assert can_wait or flow.slo.latency_s < profile.cold_start_s
        waits[can_wait] += 1
    assert waits == {True: 18, False: 18}


def test_wrong_profiles_are_20_to_40_percent_off_in_both_directions():
    biases = [profile.bias for profile in shipped("wrong-profiles").profiles.values()]
    assert all(0.2 - 1e-9 <= abs(bias - 1) <= 0.4 + 1e-9 for bias in biases)
    assert min(biases) < 1 < max(biases)


def test_wrong_profiles_are_slower_on_the_pressed_nodes_while_they_are_pressed():
    runs = (
        run("wrong-profiles")
        .invocations.filter((pl.col("function") == "decode") & (pl.col("outcome") == "done"))
        .with_columns(
            seconds=pl.col("end") - pl.col("start") - pl.col("cold_s") - pl.col("transfer_s"),
            is_pressed=pl.col("node").is_in(["node-1", "node-2"]),
            is_then=pl.col("start").is_between(30, 54),
        )
    )
    means = {key: part["seconds"].mean() for key, part in runs.group_by("is_pressed", "is_then")}
    usual = means[False, False]
    assert 0.13 <= usual <= 0.13 * 1.2  # declared 0.1, true 0.13, and up to a fifth for neighbours
    assert means[True, False] == pytest.approx(usual, rel=0.05)
    assert means[True, True] - means[False, True] == pytest.approx(0.13 * 0.5, rel=0.2)


def test_two_tenants_overload_the_cluster_together_and_not_alone():
    scenario = shipped("two-tenants")
    loads = {name: offered(scenario, "vcpus", (name,)) / 8 for name in scenario.workflows}
    assert sum(loads.values()) == pytest.approx(1.31, abs=0.005)
    assert max(loads.values()) < 0.85
    assert {flow.slo.latency_s for flow in scenario.workflows.values()} == {0.3, 2.0}


def test_mixed_speeds_has_nodes_of_three_speeds_and_pipelines_of_four_and_five_stages():
    scenario = shipped("mixed-speeds")
    assert sorted({node.speed for node in scenario.cluster.nodes}) == [0.7, 1.0, 1.6]
    assert {name: len(flow.stages) for name, flow in scenario.workflows.items()} == {"invoices": 5, "photos": 4}


@pytest.mark.parametrize(("workflow", "seconds"), [("invoices", 1.6), ("photos", 1.15)])
def test_mixed_speeds_leaves_no_slack_on_the_slow_nodes(workflow, seconds):
    scenario = shipped("mixed-speeds")
    flow = scenario.workflows[workflow]
    alone_s = {
        kind: sum(
            profile.latency_s(profile.configurations[0], kind, node.speed)
            for profile in (scenario.profiles[stage.function] for stage in flow.stages)
        )
        for kind, node in scenario.cluster.kinds.items()
    }
    assert alone_s["usual"] == pytest.approx(seconds)
    assert alone_s["old"] == pytest.approx(flow.slo.latency_s, rel=0.03)
    assert alone_s["new"] < 0.5 * flow.slo.latency_s


def test_mig_mix_changes_every_half_minute():
    scenario = shipped("mig-changing-mix")
    times = {
        name: np.concatenate(
            [
                process.times(np.random.default_rng([seed, i]), scenario.duration_s)
                for seed in range(40)
                for i, process in enumerate(scenario.arrivals)
                if process.workflow == name
            ]
        )
        for name in scenario.workflows
    }
    rates = {name: np.histogram(at, bins=[0, 30, 60, 90, 120])[0] / 30 / 40 for name, at in times.items()}
    assert rates["small"] == pytest.approx([10, 3, 10, 3], rel=0.1)
    assert rates["medium"] == pytest.approx([1, 1, 1, 1], rel=0.15)
    assert rates["large"] == pytest.approx([1, 2.5, 1, 2.5], rel=0.15)


def test_mig_mix_wants_slices_of_different_sizes_whose_load_is_as_stated():
    scenario = shipped("mig-changing-mix")
    sizes = {name: [c.vgpus for c in profile.configurations] for name, profile in scenario.profiles.items()}
    assert sizes == {"small": [1, 2], "medium": [2, 3], "large": [3, 4, 7]}
    assert all(size in MIG_SIZES for some in sizes.values() for size in some)
    memory_slices = {1: 1, 2: 2, 3: 4}
    cost = {
        name: profile.latency_s(profile.configurations[0], "a100") * memory_slices[sizes[name][0]]
        for name, profile in scenario.profiles.items()
    }
    for rates, load in (((10, 1, 1), 0.65), ((3, 1, 2.5), 0.81)):
        busy = sum(rate * cost[name] for rate, name in zip(rates, ("small", "medium", "large"), strict=True))
        assert busy / 16 == pytest.approx(load, abs=0.006)
