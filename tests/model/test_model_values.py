"""The vocabulary: what is allowed, what is not, and what is said about it."""

from math import inf

import msgspec
import pytest

from fairlead.model import SLO, Cluster, Configuration, Device, Function, Node, Price, Request


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Configuration(batch=0), "batch must be at least 1; got 0"),
        (lambda: Configuration(vcpus=-1), "not negative; got -1"),
        (lambda: Configuration(vcpus=inf), "finite"),
        (lambda: Configuration(vcpus=0), "needs vcpus or vgpus"),
        (lambda: Configuration(memory_gb=-1), "memory_gb"),
        (lambda: Function(name="f", memory_gb=-1), "memory_gb"),
        (lambda: Function(name="f", output_mb=inf), "output_mb"),
        (lambda: Function(name="f", keep_alive_s=-1), "keep_alive_s"),
        (lambda: Function(name="f", keep_alive_s=float("nan")), "keep_alive_s"),
        (lambda: Function(name="f", retries=-1), "retries"),
        (lambda: Function(name="f", run_limit_s=0), "run_limit_s"),
        (lambda: Function(name="f", idle_holds="nothing"), "idle_holds must be 'slice' or 'memory'; got 'nothing'"),
        (lambda: SLO(latency_s=0), "latency_s must be positive"),
        (lambda: SLO(cost_usd=-1), "cost_usd"),
        (lambda: Price(vcpu_usd_per_hour=-1), "vcpu_usd_per_hour"),
        (lambda: Device(vgpus=0), "vgpus of a device"),
        (lambda: Device(vgpus=1, memory_gb=0), "device_memory_gb"),
        (lambda: Device(vgpus=7, sharing="turns"), "gpu_sharing must be one of mps, mig, time; got 'turns'"),
        (lambda: Device(vgpus=6, sharing="mig"), "a MIG device has 7 vGPUs; got 6"),
        (lambda: Node(name="n", kind="k", vcpus=-1), "vcpus"),
        (lambda: Node(name="n", kind="k", vcpus=0), "needs vcpus or vgpus"),
        (lambda: Node(name="n", kind="k", vcpus=1, memory_gb=0), "memory_gb"),
        (lambda: Node(name="n", kind="k", vcpus=1, speed=0), "speed"),
        (lambda: Node(name="n", kind="k", vcpus=1, overcommit=0.5), "overcommit must be at least 1"),
        (lambda: Node(name="n", kind="k", vcpus=0, devices=(Device(vgpus=1),), overcommit=2), "without vcpus"),
        (lambda: Cluster(nodes=()), "at least one node"),
        (lambda: Cluster(nodes=(Node(name="n", kind="k", vcpus=1),), bandwidth_gbps=0), "bandwidth_gbps"),
    ],
)
def test_bad_values_are_refused_with_what_was_given(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()


def test_node_names_are_unique():
    node = Node(name="n", kind="k", vcpus=1)
    with pytest.raises(ValueError, match="two nodes are named 'n'"):
        Cluster(nodes=(node, node))


def test_a_kind_has_one_speed():
    nodes = (Node(name="a", kind="k", vcpus=1), Node(name="b", kind="k", vcpus=1, speed=2))
    with pytest.raises(ValueError, match="different speeds"):
        Cluster(nodes=nodes)


def test_kinds_are_the_first_nodes_of_each_in_order_if_all_are_equal():
    nodes = tuple(Node(name=name, kind=kind, vcpus=1) for name, kind in [("a", "x"), ("b", "y"), ("c", "x")])
    assert {kind: node.name for kind, node in Cluster(nodes=nodes).kinds.items()} == {"x": "a", "y": "b"}


def test_the_largest_node_stands_for_its_kind():
    sizes = {"a": (1, 8.0), "b": (2, 8.0), "c": (2, 1.0)}
    nodes = tuple(Node(name=name, kind="x", vcpus=vcpus, memory_gb=gb) for name, (vcpus, gb) in sizes.items())
    assert [node.name for node in Cluster(nodes=nodes).kinds.values()] == ["b"]


def test_price_of_a_second():
    price = Price(vcpu_usd_per_hour=0.36, vgpu_usd_per_hour=3.6)
    assert price.usd_per_s(2, 0.5) == pytest.approx(0.0002 + 0.0005)


def test_configuration_reads_as_a_person_would_say_it():
    assert str(Configuration(batch=4, vcpus=2)) == "4x 2 vCPU"
    assert str(Configuration(vgpus=0.5, memory_gb=3)) == "1x 1 vCPU 0.5 vGPU 3 GB"


def test_configurations_are_ordered_and_equal_by_value():
    assert Configuration() == Configuration(batch=1, vcpus=1.0)
    assert sorted([Configuration(batch=2), Configuration(vcpus=2), Configuration()])[0] == Configuration()
    assert len({Configuration(), Configuration()}) == 1


@pytest.mark.parametrize(
    "value",
    [Configuration(), Function(name="f"), SLO(), Price(), Device(vgpus=1), Node(name="n", kind="k", vcpus=1)],
    ids=lambda value: type(value).__name__,
)
def test_values_are_frozen(value):
    with pytest.raises(AttributeError):
        setattr(value, value.__struct_fields__[0], None)


def test_values_survive_a_round_trip():
    node = Node(name="n", kind="k", vcpus=4, devices=(Device(vgpus=7, memory_gb=40, sharing="mig"),), memory_gb=64)
    assert msgspec.convert(msgspec.to_builtins(node), Node) == node


def test_a_request_asks_for_nothing_unless_told():
    request = Request(0, "main", 1.5)
    assert (request.deadline, request.budget_usd) == (inf, inf)
