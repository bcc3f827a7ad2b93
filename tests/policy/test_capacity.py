"""Reservations on nodes: what is left, what fits, and which instances no reservation claims."""

from dataclasses import dataclass

import pytest

from fairlead.engine import simulate
from fairlead.model import Configuration, Device, Function, Node
from fairlead.policy.base import NodeChange, Policy, Warm
from fairlead.policy.kit.capacity import Capacity, Reservation
from fairlead.testing import cluster, declared, scenario

F = Function(name="f")


def capacity(*, vcpus=4, memory_gb=8, device=None):
    return Capacity([Node(name="n", kind="a", vcpus=vcpus, memory_gb=memory_gb, devices=(device,) if device else ())])


def put(capacity, function=F, *, vcpus=1.0, vgpus=0.0):
    held = Reservation(function, Configuration(vcpus=vcpus, vgpus=vgpus), "n", 0 if vgpus else None)
    capacity.reserve(held)
    return held


def fits(capacity, function=F, *, vcpus=1.0, vgpus=0.0):
    return bool(capacity.rooms["n"].devices_for(function, Configuration(vcpus=vcpus, vgpus=vgpus)))


def test_vcpus_are_counted_exactly():
    node = capacity(vcpus=1)
    for _ in range(10):
        assert fits(node, vcpus=0.1)
        put(node, vcpus=0.1)
    assert not fits(node, vcpus=0.1)


def test_memory_of_the_function_or_of_the_configuration_is_reserved():
    node, large = capacity(memory_gb=4), Function(name="g", memory_gb=3)
    put(node, large)
    assert fits(node)
    assert not fits(node, large)
    assert node.rooms["n"].devices_for(large, Configuration(memory_gb=1))


def test_device_memory_is_reserved():
    node, model = capacity(device=Device(vgpus=7, memory_gb=16)), Function(name="g", device_memory_gb=9)
    put(node, model, vgpus=1)
    assert fits(node, vgpus=6)
    assert not fits(node, model, vgpus=1)


@pytest.mark.parametrize(("sharing", "expected"), [("mps", True), ("mig", False)])
def test_slices_of_a_mig_device_need_places(sharing, expected):
    node = capacity(device=Device(vgpus=7, sharing=sharing))
    for _ in range(2):
        put(node, vgpus=3)
    assert fits(node, vgpus=1) == expected


def test_a_release_gives_back_exactly_what_was_reserved_and_may_make_something_fit():
    node = capacity(vcpus=1, device=Device(vgpus=7, sharing="mig"))
    held = put(node, vgpus=7)
    before = node.version
    node.release(held)
    assert fits(node, vgpus=7)
    assert node.version > before


def test_reservations_on_a_lost_node_are_gone_and_it_is_empty_when_it_is_back():
    where = capacity()
    put(where, vcpus=4)
    node = where.rooms["n"].node
    assert where.follow([NodeChange(node, "lost")]) == {"n"}
    assert not where.rooms
    assert where.follow([NodeChange(node, "joined")]) == set()
    assert fits(where, vcpus=4)


def test_outside_pressure_on_a_node_changes_no_reservation():
    where = capacity()
    put(where, vcpus=4)
    assert where.follow([NodeChange(where.rooms["n"].node, "changed")]) == set()
    assert not fits(where)


@dataclass
class Looking(Policy):
    """Warms two instances of f and notes how many are spare before each of four reservations."""

    def prepare(self, site, rng):
        self.seen = []

    def decide(self, view):
        if self.seen:
            return
        yield Warm("f", Configuration(), "n0")
        yield Warm("f", Configuration(), "n0")
        where = Capacity(view.nodes)
        held = Reservation(F, Configuration(), "n0", None)
        for _ in range(4):
            self.seen.append(where.spare(view, "f")[held.place])
            where.reserve(held)


def test_spare_instances_are_those_that_no_reservation_claims():
    policy = Looking()
    simulate(scenario({"f": declared(1.0, cold_start_s=1)}, on=cluster(vcpus=4)), policy)
    assert policy.seen == [2, 1, 0, -1]
