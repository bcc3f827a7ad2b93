"""Devices: what can hold what, in which configuration, and which is free first."""

from math import inf

import pytest
from kaas_runs import kaas, run, starts

from fairlead.model import Cluster, Configuration, Device, Function, Node
from fairlead.policy.kaas.balance import Balance
from fairlead.policy.kaas.devices import Spot, single_configuration, spots
from fairlead.profile import Estimate, Profile, Row, Table

CPU = Node(name="cpu", kind="cpu", vcpus=4, memory_gb=8)
GPU = Node(name="gpu", kind="gpu", vcpus=2, devices=(Device(vgpus=1), Device(vgpus=7, sharing="mig", memory_gb=40)))
CLUSTER = Cluster(nodes=(CPU, GPU))


def choice(rows, node, device, **needs):
    profile = Profile(law=Table(tuple(Row(**row) for row in rows)))
    return single_configuration(Function(name="f", **needs), Estimate(profile, CLUSTER), node, device)


def test_a_node_has_its_accelerators_and_its_vcpus():
    assert spots(GPU) == (Spot("gpu", 0), Spot("gpu", 1), Spot("gpu", None))
    assert spots(Node(name="n", kind="n", vcpus=0, devices=(Device(vgpus=1),))) == (Spot("n", 0),)


def test_the_cheapest_configuration_for_one_invocation_is_used():
    rows = [
        {"batch": 4, "vgpus": 1, "seconds": 0.1},
        {"vgpus": 1, "seconds": 2},
        {"vgpus": 0.5, "seconds": 3},
        {"vcpus": 2, "seconds": 1},
    ]
    assert choice(rows, GPU, 0) == Configuration(vgpus=0.5)
    assert choice(rows, CPU, None) == Configuration(vcpus=2)


def test_without_a_configuration_for_one_the_smallest_batch_is_used():
    rows = [{"batch": 8, "vgpus": 1, "seconds": 1}, {"batch": 2, "vgpus": 1, "seconds": 5}]
    assert choice(rows, GPU, 0) == Configuration(batch=2, vgpus=1)


@pytest.mark.parametrize(
    ("row", "device", "needs"),
    [
        ({"vgpus": 2}, 0, {}),
        ({"vgpus": 5}, 1, {}),
        ({"vgpus": 1}, 1, {"device_memory_gb": 41}),
        ({"vgpus": 1}, None, {}),
        ({"vcpus": 1}, 0, {}),
        ({"vcpus": 3}, None, {}),
        ({"vcpus": 1, "kind": "cpu"}, None, {}),
    ],
    ids=["too-large", "no-mig-size", "memory", "needs-a-gpu", "needs-none", "too-few-vcpus", "unknown-on-this-kind"],
)
def test_what_a_device_can_never_hold(row, device, needs):
    assert choice([{"seconds": 1, **row}], GPU, device, **needs) is None


def test_memory_of_the_node_counts():
    assert choice([{"seconds": 1}], CPU, None, memory_gb=9) is None
    assert choice([{"seconds": 1}], CPU, None, memory_gb=8) == Configuration()


def test_the_device_released_first_is_used_first():
    # GPU1 is busy 0 to 6, GPU2 1 to 7; GPU3 is fresh, so it comes before both.
    scenario = kaas({"short": [0, 1, 8, 9, 10]}, gpus=3)
    assert [gpu for *_, gpu in starts(run(scenario, Balance()))] == [1, 2, 3, 1, 2]


def test_of_devices_released_together_the_one_that_started_first_is_used():
    # GPU1 runs "long" from 0 to 18, GPU2 is cold from 1 to 7, then warm from 16 to 18.
    scenario = kaas({"long": [0], "short": [1, 16, 18]}, models={"short": (2, 4), "long": (12, 6)})
    assert starts(run(scenario, Balance()))[-1] == ("short", 18, 18, 1)


def test_vcpus_count_as_a_device():
    scenario = kaas(
        {"f": [0, 0, 0]},
        cluster={"nodes": [{"name": "n", "count": 2, "vcpus": 1}]},
        functions={"f": {"latency": {"constant_s": 1}, "keep_alive_s": inf}},
    )
    assert [start for _, _, start, _ in starts(run(scenario, Balance()))] == [0, 0, 1]
