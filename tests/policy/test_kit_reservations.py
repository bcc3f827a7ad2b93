"""Reservations: what nodes have and what runs and idle instances take of it, by column."""

import pytest

from fairlead.model import Configuration, Device, Function, Node
from fairlead.policy.kit.reservations import capacity_of, held_when_idle, mebi, milli, taken_by_run


def test_a_node_has_vcpus_and_memory_then_vgpus_and_memory_of_each_device():
    devices = (Device(vgpus=7, memory_gb=8), Device(vgpus=1, memory_gb=1))
    node = Node(name="n", kind="n", vcpus=2, memory_gb=4, devices=devices)
    assert capacity_of(node) == (2000, 4096, 7000, 8192, 1000, 1024)


def test_unlimited_memory_is_a_number_too_large_to_use_up():
    assert mebi(float("inf")) > 1e15
    assert milli(0.25) == 250


def test_a_run_takes_its_share_of_the_device_that_it_is_on():
    function = Function(name="f", memory_gb=1, device_memory_gb=2)
    assert taken_by_run(function, Configuration(vcpus=1.5), None) == ((0, 1500), (1, 1024))
    taken = taken_by_run(function, Configuration(vcpus=0, vgpus=3), 1)
    assert taken == ((1, 1024), (4, 3000), (5, 2048))


@pytest.mark.parametrize(
    ("idle_holds", "held"),
    [("slice", ((0, 1000), (1, 1024), (2, 2000), (3, 2048))), ("memory", ((1, 1024), (3, 2048)))],
)
def test_an_idle_instance_keeps_its_slice_or_its_memory_only(idle_holds, held):
    function = Function(name="f", memory_gb=1, device_memory_gb=2, idle_holds=idle_holds)
    assert held_when_idle(function, Configuration(vcpus=1, vgpus=2), 0) == held
