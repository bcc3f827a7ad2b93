"""static-placement: everything stays where it was put."""

import numpy as np
import polars as pl
import pytest

from fairlead import simulate
from fairlead.errors import ConfigError
from fairlead.policy import make_policy
from fairlead.testing import cluster, declared, scenario, site_of
from fairlead.workload import PressureChange


def world(**settings):
    functions = {name: declared(1.0, cold_start_s=0.5) for name in ("cut", "look", "tell")}
    arrivals = [float(at) for at in range(1, 40, 4)]
    return scenario(functions, arrivals=arrivals, on=cluster(3, vcpus=4), control_period_s=2.0, **settings)


def run(where=None, **parameters):
    return simulate(where or world(), "least-loaded", scaler=make_policy("static-placement", parameters))


def nodes_of(recording, function: str, since_s: float = 6.0) -> set[str]:
    """Where a function ran once its replicas were there."""
    rows = recording.invocations.filter((pl.col("function") == function) & (pl.col("start") > since_s))
    return set(rows["node"])


def test_each_function_is_where_it_was_put_and_a_star_stands_for_the_others():
    recording = run(placement="look=n2, *=n1")
    assert nodes_of(recording, "look") == {"n2"}
    assert nodes_of(recording, "cut") == nodes_of(recording, "tell") == {"n1"}
    assert not recording.refusals


def test_pressure_moves_nothing():
    recording = run(world(pressures=(PressureChange(node="n1", at_s=10.0, pressure=0.9),)), placement="*=n1")
    assert nodes_of(recording, "cut") == {"n1"}


def test_there_are_as_many_replicas_as_were_asked_for():
    recording = run(placement="*=n0", replicas=1)
    replicas = recording.instances.filter(~pl.col("on_demand") & pl.col("stopped").is_null())
    assert replicas["function"].value_counts()["count"].to_list() == [1, 1, 1]
    assert set(replicas["node"]) == {"n0"}


def test_without_a_placement_functions_go_where_there_is_most_room():
    recording = run()
    replicas = recording.instances.filter(~pl.col("on_demand"))
    assert set(replicas["node"]) == {"n0", "n1", "n2"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"placement": "look"}, "placement must be function=node"),
        ({"placement": "look=n1=n2"}, "placement must be function=node"),
        ({"placement": "=n1"}, "placement must be function=node"),
        ({"placement": "look=n1,look=n2"}, "each function once"),
        ({"replicas": 0}, "replicas must be at least 1"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters, message):
    with pytest.raises(ConfigError, match=message):
        make_policy("static-placement", parameters)


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ("loook=n1", "the function 'loook'; there are cut, look, tell"),
        ("look=n9", "the node 'n9'; there are n0, n1, n2"),
    ],
)
def test_names_that_are_not_there_are_refused_before_the_run(placement, message):
    scaler = make_policy("static-placement", {"placement": placement})
    with pytest.raises(ValueError, match=message):
        scaler.prepare(site_of(world()), np.random.default_rng(0))
