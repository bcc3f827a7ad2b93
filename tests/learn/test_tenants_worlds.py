"""The worlds of many functions: who is in them, what they bring, and that files and builders agree."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.learn.functions.files import shipped, text_of
from fairlead.learn.functions.kinds import kinds
from fairlead.learn.functions.tenants import alone, chains_scenario, offered_vcpus, tenants_scenario
from fairlead.model import Configuration
from fairlead.report import summarise
from fairlead.workload import load_scenario, parse_scenario

REMAKE = "python -m fairlead.learn.functions.files src/fairlead/experiments/scenarios"


def offered(scenario):
    """vCPUs of work per second that all arrivals bring, at one vCPU each."""
    rates = {process.workflow: process.rate_rps for process in scenario.arrivals}
    return sum(
        rates[name] * sum(scenario.profiles[stage.function].law.t1_s for stage in workflow.stages)
        for name, workflow in scenario.workflows.items()
    )


# --- tenants


def test_twelve_tenants_are_the_twelve_functions():
    scenario = tenants_scenario()
    assert list(scenario.functions) == list(scenario.workflows) == list(kinds())
    assert scenario.control_period_s == 10


def test_more_than_twelve_begin_again_with_a_number():
    names = list(tenants_scenario(26).functions)
    assert names[11:14] == ["dna-visualisation", "base64-2", "primes-2"]
    assert names[24:] == ["base64-3", "primes-3"]


def test_twelve_fill_two_nodes_to_sixty_per_cent():
    scenario = tenants_scenario(12, load=0.6)
    assert len(scenario.cluster.nodes) == 2
    assert {(node.vcpus, node.memory_gb, node.overcommit) for node in scenario.cluster.nodes} == {(8.0, 32.0, 4.0)}
    assert offered(scenario) / 16 == pytest.approx(0.6, abs=0.01)


@given(functions=st.integers(1, 200), load=st.floats(0.1, 1.0))
@settings(max_examples=60, deadline=None)
def test_there_are_just_enough_nodes_for_the_load(functions, load):
    scenario = tenants_scenario(functions, load=load)
    nodes, vcpus = len(scenario.cluster.nodes), offered(scenario)
    assert vcpus / (8 * nodes) <= load * 1.001  # rates are rounded
    assert nodes == 1 or vcpus / (8 * (nodes - 1)) > load * 0.999


@pytest.mark.parametrize("seed", range(5))
def test_every_dozen_brings_the_same_in_another_order(seed):
    loads = offered_vcpus(36, seed)
    dozens = [sorted(loads[i : i + 12].tolist()) for i in (0, 12, 24)]
    assert dozens[0] == dozens[1] == dozens[2]
    assert loads.tolist() != offered_vcpus(36, seed + 1).tolist()
    assert 0.2 < loads.min() < 0.3
    assert 1.5 < loads.max() < 2.0
    assert loads.mean() == pytest.approx(0.8, abs=0.01)
    assert sum(loads < 0.8) > sum(loads > 0.8)  # little more often than much


def test_who_is_added_changes_nothing_for_those_that_are_there():
    few, more = tenants_scenario(20), tenants_scenario(21)
    assert more.arrivals[:20] == few.arrivals
    assert all(more.profiles[name] == few.profiles[name] for name in few.functions)


def test_the_slo_is_a_multiple_of_the_time_on_one_vcpu():
    scenario = tenants_scenario(3, slo_factor=5)
    for name, workflow in scenario.workflows.items():
        assert workflow.slo.latency_s == pytest.approx(5 * kinds()[name].law.t1_s, abs=6e-4)


def test_a_replica_begins_with_about_one_vcpu_and_has_sixteen_sizes():
    sizes = [c.vcpus for c in tenants_scenario(1).profiles["base64"].configurations]
    assert sizes[0] == 1.024
    assert sorted(sizes) == pytest.approx([0.128 * i for i in range(1, 17)])


def test_a_quarter_of_a_vcpu_takes_four_times_the_cpu_time_and_two_gain_nothing():
    for name, profile in tenants_scenario().profiles.items():
        kind = kinds()[name]
        one, more = (profile.latency_s(Configuration(vcpus=v), "n") for v in (1.024, 2.048))
        assert one == more == pytest.approx(kind.law.t1_s)
        fixed_s = kind.law.fixed * one
        quarter_s = profile.latency_s(Configuration(vcpus=0.256), "n")
        assert quarter_s - fixed_s == pytest.approx((one - fixed_s) / 0.256)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"functions": 0}, "functions must be at least 1; got 0."),
        ({"load": 0.0}, r"load must be in \(0, 1\]; got 0.0."),
        ({"load": 1.5}, r"load must be in \(0, 1\]; got 1.5."),
        ({"nodes": 0}, "a cluster needs at least one node."),
    ],
)
def test_worlds_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        tenants_scenario(**settings)


# --- chains


def test_chains_use_every_function_once_or_twice():
    scenario = chains_scenario()
    used = [stage.function for workflow in scenario.workflows.values() for stage in workflow.stages]
    assert {used.count(name) for name in kinds()} == {1, 2}
    assert set(used) == set(kinds())
    assert sorted(len(workflow.stages) for workflow in scenario.workflows.values()) == [3, 3, 4, 4]


@pytest.mark.parametrize(("load", "nodes"), [(0.6, 2), (0.3, 5)])
def test_chains_fill_the_nodes_as_asked(load, nodes):
    scenario = chains_scenario(load=load, nodes=nodes)
    assert offered(scenario) == pytest.approx(load * 8 * nodes, rel=0.001)


def test_the_slo_of_a_diamond_is_of_its_longer_arm():
    seconds = {name: kind.law.t1_s for name, kind in kinds().items()}
    longest_s = seconds["http-endpoint"] + max(seconds["graph-pagerank"], seconds["primes"]) + seconds["dynamic-html"]
    slo_s = chains_scenario(slo_factor=2).workflows["rank"].slo.latency_s
    assert slo_s == pytest.approx(2 * longest_s, abs=6e-4)


# --- one alone


def test_alone_is_the_same_cluster_with_one_function():
    scenario = tenants_scenario(14)
    one = alone(scenario, "base64-2")
    assert one.cluster == scenario.cluster
    assert list(one.functions) == list(one.profiles) == list(one.workflows) == ["base64-2"]
    assert one.arrivals == (scenario.arrivals[12],)
    assert one.profiles["base64-2"] == scenario.profiles["base64-2"]


def test_nobody_is_alone_who_is_not_there_or_needs_others():
    with pytest.raises(ValueError, match="no function is called 'z'"):
        alone(tenants_scenario(2), "z")
    with pytest.raises(ValueError, match="no workflow uses primes alone"):
        alone(chains_scenario(), "primes")


# --- files


@pytest.mark.parametrize("name", ["simppo-12", "simppo-chains"])
def test_a_file_and_its_builder_agree(name):
    found, built = load_scenario(name), shipped()[name]
    assert found == built, f"the functions were measured again; write the files again: {REMAKE}"


def test_other_worlds_can_be_written_too():
    scenario = replace(tenants_scenario(15, nodes=3, cv=0.2, seed=4), name="more", description="more of them")
    assert parse_scenario(text_of(scenario), "more") == scenario


@pytest.mark.parametrize("world", [tenants_scenario(3), chains_scenario()], ids=["tenants", "chains"])
def test_a_world_runs_under_a_scaler(world):
    summary = summarise(simulate(replace(world, duration_s=60.0), scaler="hpa", seed=1))
    assert summary.completed == summary.requests > 60
