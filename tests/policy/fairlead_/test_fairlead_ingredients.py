"""Fairlead without one of its mechanisms: the switches of the ablation."""

from dataclasses import replace
from functools import cache

import pytest

from fairlead.engine import simulate
from fairlead.league.load import at_load
from fairlead.policy import policy_faults
from fairlead.policy.fairlead.ingredients import INGREDIENTS
from fairlead.policy.fairlead.policy import Fairlead
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Poisson, PressureChange, load_scenario


def shipped(name, load, seconds):
    """The first seconds of a shipped scenario at this load."""
    return replace(at_load(load_scenario(name), load), duration_s=seconds, warmup_s=0.0)


def pressed():
    """Two nodes that are half busy, one of them with other people's work from 2 s on."""
    functions = {"a": declared(0.2, sensitivity=1.0), "b": declared(0.2)}
    return scenario(
        functions,
        slo_s=1.5,
        arrivals=(Poisson("main", 14.0),),
        on=cluster(2, vcpus=4),
        pressures=(PressureChange(node="n0", at_s=2.0, pressure=1.0),),
        duration_s=8.0,
    )


def shared():
    """Two workflows that run the same function on one vCPU, faster in batches."""
    function = declared(Table((Row(batch=1, seconds=0.1), Row(batch=4, seconds=0.2))))
    arrivals = (Poisson("main", 8.0), Poisson("other", 8.0))
    flows = {"main": ("work",), "other": ("work",)}
    return scenario(
        {"work": function}, workflows=flows, slo_s=1.0, arrivals=arrivals, on=cluster(1, vcpus=1), duration_s=5.0
    )


WORLDS = {
    "tenants": lambda: shipped("two-tenants", 3, 5.0),
    "memory": lambda: shipped("short-memory", 1.5, 5.0),
    "slices": lambda: shipped("mig-changing-mix", 2, 4.0),
    "batches": lambda: shipped("batched-stage", 2, 2.0),
    "calm": lambda: shipped("batched-stage", 0.5, 2.0),
    "pressed": pressed,
    "shared": shared,
}
SHOWS = {
    "filling": "calm",
    "busy": "batches",
    "passing-over": "batches",
    "sharing": "shared",
    "worth": "memory",
    "sizes": "slices",
    "pace": "pressed",
    "waits": "pressed",
    "sensitivity": "pressed",
}


@cache
def records(world, *without):
    recording = simulate(WORLDS[world](), Fairlead(without=without), seed=1)
    assert not recording.refusals, recording.refusals[0]
    return recording.invocations.write_csv(), recording.requests.write_csv()


@pytest.mark.parametrize("name", INGREDIENTS)
def test_an_ingredient_makes_a_difference_where_it_matters(name):
    world = SHOWS.get(name, "tenants")
    assert records(world, name) != records(world)


def test_an_unknown_ingredient_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="Did you mean 'prices'"):
        Fairlead(without=("price",))


def test_a_scenario_sets_it_as_it_sets_the_parameters_of_other_policies():
    found = load_scenario("quickstart", overrides={"policy": {"dispatch": "fairlead", "without": ["prices"]}})
    assert found.policy.parameters == {"without": ["prices"]}
    assert policy_faults("fairlead", found.policy.parameters) == []
    (fault,) = policy_faults("fairlead", {"without": ["price"]})
    assert fault.path == "policy.without"
