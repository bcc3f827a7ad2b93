"""StaticReplicas: the same number for all, in one size, evenly where there is not enough room."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine import simulate
from fairlead.model import Configuration
from fairlead.policy.static_replicas import StaticReplicas
from fairlead.testing import SCENARIOS, check_accounts, check_scaler, cluster, declared, scenario
from fairlead.workload import Deterministic

SIZES = tuple(Configuration(vcpus=vcpus) for vcpus in (0.5, 1, 2))


def replicas(where, scaler) -> dict[str, list[tuple[float, float]]]:
    """By function, vCPUs and memory of the replicas there are when a run ends."""
    recording = simulate(where, "least-loaded", scaler=scaler)
    check_accounts(recording)
    assert not recording.refusals
    rows = recording.instances.filter(recording.instances["stopped"].is_null() & ~recording.instances["on_demand"])
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in where.functions}
    for row in rows.iter_rows(named=True):
        found[row["function"]].append((row["vcpus"], row["memory_gb"]))
    return found


def world(functions, *, vcpus=64.0, memory_gb=64.0, arrivals=(0.0, 30.0)):
    on = cluster(vcpus=vcpus, memory_gb=memory_gb)
    return scenario(functions, arrivals=arrivals, on=on, control_period_s=2.0, duration_s=100.0)


def test_eight_of_each_with_one_vcpu_and_the_memory_that_it_needs():
    function = declared(1.0, configurations=SIZES, memory_gb=0.25)
    assert replicas(world({"a": function, "b": function}), "static-replicas") == {
        "a": [(1.0, 0.25)] * 8,
        "b": [(1.0, 0.25)] * 8,
    }


@pytest.mark.parametrize(
    ("vcpus", "memory_gb", "expected"),
    [(2.0, 0.5, (2.0, 0.5)), (0.5, 0.125, (0.5, 0.25)), (7.0, 0.0, (1.0, 0.25))],
    ids=["as-asked", "not-below-its-need", "no-such-size"],
)
def test_size_is_the_one_asked_for_if_the_function_can_have_it(vcpus, memory_gb, expected):
    where = world({"f": declared(1.0, configurations=SIZES, memory_gb=0.25)})
    assert replicas(where, StaticReplicas(replicas=3, vcpus=vcpus, memory_gb=memory_gb)) == {"f": [expected] * 3}


def test_the_number_does_not_follow_the_load():
    many = [Deterministic("main", 0.01)]
    assert len(replicas(world({"f": 1.0}, arrivals=many), StaticReplicas(replicas=2))["f"]) == 2


def test_too_little_room_is_shared_evenly():
    # 7 vCPUs for three functions that want 8 each: 3, 2 and 2.
    found = replicas(world({"a": 1.0, "b": 1.0, "c": 1.0}, vcpus=7.0), StaticReplicas())
    assert {name: len(own) for name, own in found.items()} == {"a": 3, "b": 2, "c": 2}


def test_a_large_one_does_not_hold_up_the_small():
    # After one of each, 3 vCPUs are left: too few for the large one.
    large = declared(1.0, configurations=(Configuration(vcpus=4),))
    found = replicas(world({"large": large, "small": 1.0}, vcpus=8.0), StaticReplicas())
    assert {name: len(own) for name, own in found.items()} == {"large": 1, "small": 4}


def test_room_that_comes_up_later_is_used():
    # At 2 s a run of the dispatcher still takes one of two vCPUs, until 5 s.
    found = replicas(world({"f": 5.0}, vcpus=2.0), StaticReplicas())
    assert len(found["f"]) == 2


def test_nobody_gets_a_second_before_all_have_a_first():
    # At 2 s both vCPUs are taken by runs of a; b, which comes after, must not be starved by it.
    where = world({"a": 3.0, "b": 1.0}, vcpus=2.0, arrivals=(0.0, 0.0, 0.0, 0.0, 30.0))
    assert {name: len(own) for name, own in replicas(where, StaticReplicas()).items()} == {"a": 1, "b": 1}


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(4, 20))
def test_all_that_fit_are_there_and_numbers_differ_by_one_at_most(functions, wanted, vcpus):
    where = world({f"f{i}": 1.0 for i in range(functions)}, vcpus=float(vcpus))
    counts = [len(own) for own in replicas(where, StaticReplicas(replicas=wanted)).values()]
    assert sum(counts) == min(vcpus, functions * wanted)
    assert max(counts) - min(counts) <= 1


def test_it_conforms_with_other_parameters():
    some = {name: SCENARIOS[name] for name in ("chain", "tight-memory", "gpu-mps")}
    check_scaler(lambda: StaticReplicas(replicas=2, vcpus=2.0, memory_gb=1.0), some)


@pytest.mark.parametrize("given_", [{"replicas": 0}, {"vcpus": -1.0}, {"memory_gb": float("inf")}])
def test_parameters_out_of_range_are_refused_by_name(given_):
    with pytest.raises(ValueError, match=rf"^{next(iter(given_))} must be"):
        StaticReplicas(**given_)
