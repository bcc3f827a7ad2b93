"""Requests without a deadline wait as long as they must in Clockwork, and run as soon as there is a place for them."""

import pytest

from fairlead.engine import simulate
from fairlead.model import Configuration
from fairlead.policy.base import Policy, Scale
from fairlead.policy.clockwork.policy import Clockwork
from fairlead.policy.static_placement import StaticPlacement
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Listed, NodeFault


def runs(where, scaler=None):
    """(function, node, start, end) of every run that was done, in order of start."""
    recording = simulate(where, Clockwork(), scaler=scaler)
    assert not recording.refusals, recording.refusals[0]
    rows = recording.invocations.sort("start", "batch").iter_rows(named=True)
    return [
        (row["function"], row["node"], round(row["start"] + row["cold_s"], 6), round(row["end"], 6))
        for row in rows
        if row["outcome"] == "done"
    ]


@pytest.mark.parametrize("keep_alive_s", [600.0, 0.0], ids=["stays-loaded", "is-loaded-by-every-run"])
def test_a_scaled_function_runs_on_the_replica_wherever_that_is(keep_alive_s):
    function = declared(1.0, cold_start_s=2.0, keep_alive_s=keep_alive_s)
    where = scenario(function, arrivals=[10.0, 20.0], on=cluster(2), control_period_s=1.0, duration_s=60.0)
    assert runs(where, StaticPlacement("f=n1")) == [("f", "n1", 10, 11), ("f", "n1", 20, 21)]


class NoneOfA(Policy):
    """A scaler that leaves `a` without a replica."""

    def adjust(self, view):
        if view.scaled("a") is None:
            yield Scale("a", 0)


def test_a_scaled_function_without_a_replica_keeps_no_other_from_being_loaded():
    functions = {name: declared(1.0, cold_start_s=2.0) for name in "ab"}
    arrivals = [Listed("a", (10.0, 10.0)), Listed("b", (11.0,))]
    where = scenario(
        functions,
        workflows={"a": ["a"], "b": ["b"]},
        arrivals=arrivals,
        on=cluster(vcpus=1),
        control_period_s=1.0,
        duration_s=60.0,
    )
    assert runs(where, NoneOfA()) == [("b", "n0", 13, 14)]


def test_a_load_that_is_lost_with_its_node_begins_again_elsewhere():
    # Loaded on "n0" from 0 on, which is lost at 1; on "n1" from 1 to 3.
    where = scenario(
        declared(1.0, cold_start_s=2.0), on=cluster(2), node_faults=(NodeFault(node="n0", at_s=1.0),), duration_s=60.0
    )
    assert runs(where) == [("f", "n1", 3, 4)]


def test_a_node_that_is_full_is_not_waited_for_while_another_is_free():
    # "wide" takes both vCPUs of "n0", so the second slot there has nothing to do and no room either.
    functions = {
        "wide": declared(50.0, configurations=(Configuration(vcpus=2),)),
        "thin": declared(1.0, configurations=(Configuration(vcpus=1),), cold_start_s=2.0),
    }
    where = scenario(
        functions,
        workflows={"wide": ["wide"], "thin": ["thin"]},
        arrivals=[Listed("wide", (0.0,)), Listed("thin", (5.0,))],
        on=cluster(2, vcpus=2),
        duration_s=60.0,
    )
    assert runs(where) == [("wide", "n0", 0, 50), ("thin", "n1", 7, 8)]
