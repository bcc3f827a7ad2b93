"""The `cluster` part of a scenario file: groups of nodes, the network, prices; and why a node cannot hold something."""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any, get_args

from msgspec import structs

from fairlead.model import MIG_SIZES, Cluster, Configuration, Device, Function, Node, Price, Sharing
from fairlead.workload.parse.reader import (
    Check,
    Section,
    a_name,
    choice,
    integer,
    number,
    number_or_inf,
    sequence,
    truth,
)

MAX_NODES = 100_000
MAX_DEVICES = 1_024


def _sizes(value: object) -> tuple[int, ...]:
    return tuple(integer(size) for size in sequence(value))


_NODE: dict[str, Check] = {"vcpus": number, "memory_gb": number_or_inf, "speed": number, "overcommit": number}
_DEVICE: dict[str, Check] = {
    "device_memory_gb": number_or_inf,
    "device_reserve_gb": number,
    "gpu_sharing": choice(*get_args(Sharing)),
    "load_gb_per_s": number_or_inf,
    "allocation_s": number,
    "executor_start_s": number,
    "partition": _sizes,
    "repartition_s": number,
    "slice_overhead": number,
}
_PRICE: dict[str, Check] = {
    "vcpu_usd_per_hour": number,
    "vgpu_usd_per_hour": number,
    "bill_cold_start": truth,
    "bill_idle": truth,
}


def parse_cluster(section: Section) -> Cluster | None:
    """The cluster; None where a fault leaves none to speak of."""
    price_section = section.section("price")
    price = price_section.build(Price, price_section.read(_PRICE))
    price_section.finish()
    settings = section.read({"bandwidth_gbps": number_or_inf})
    nodes: list[Node] = []
    before = len(section.faults)
    if section.require("nodes"):
        groups = section.sections("nodes")
        if not groups and len(section.faults) == before:
            section.fault("nodes", "a cluster needs at least one node.")
        for group in groups:
            nodes += _parse_group(group, nodes)
    section.finish()
    if len(section.faults) > before:
        return None
    return section.build(Cluster, settings, {"nodes": tuple(nodes), "price": price or Price()})


def _parse_group(group: Section, others: Sequence[Node]) -> list[Node]:
    before = len(group.faults)
    kind = group.get("kind", a_name, "")
    name = group.get("name", a_name, kind or "node")
    count = group.get("count", _between(1, MAX_NODES), 1)
    devices = _parse_devices(group)
    settings = group.read(_NODE)
    group.finish()
    if len(group.faults) > before:
        return []
    make = partial(Node, kind=kind or name, devices=devices)
    node = group.build(make, settings, {"name": name, "vcpus": 0.0})
    if node is None:
        return []
    taken = {other.name for other in others}
    names = [name] if count == 1 else [f"{name}-{i + 1}" for i in range(count)]
    twice = next((n for n in names if n in taken), None)
    if twice is not None:
        group.fault("name", f"two nodes are named {twice!r}; give each group a name of its own.")
    if any(other.kind == node.kind and other.speed != node.speed for other in others):
        group.fault("speed", f"nodes of kind {node.kind!r} have different speeds; give them kinds of their own.")
    return [structs.replace(node, name=n) for n in names]


def _parse_devices(group: Section) -> tuple[Device, ...]:
    vgpus = group.get("vgpus", number, 0.0)
    settings = group.read(_DEVICE)
    count = group.get("devices", _between(1, MAX_DEVICES), 1)
    if vgpus == 0:
        for key in ("devices", *_DEVICE):
            if key in group:
                group.fault(key, "means nothing without vgpus.")
        return ()
    device = group.build(_device, {"vgpus": vgpus, **settings}, {"vgpus": 7.0})
    return () if device is None else (device,) * count


def _device(
    vgpus: float,
    device_memory_gb: float = inf,
    device_reserve_gb: float = 0.0,
    gpu_sharing: Sharing = "mps",
    partition: tuple[int, ...] = (),
    **others: Any,  # numbers, by the names that they have there
) -> Device:
    return Device(
        vgpus=vgpus,
        memory_gb=device_memory_gb,
        reserve_gb=device_reserve_gb,
        sharing=gpu_sharing,
        partition=partition,
        **others,
    )


def _between(low: int, high: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        found = integer(value)
        if not low <= found <= high:
            raise ValueError(f"must be from {low} to {high:,}; got {found}.")
        return found

    return check


def why_not(nodes: Sequence[Node], function: Function, configuration: Configuration) -> str:
    """The reason why none of these nodes holds one instance of this size."""
    memory_gb = configuration.memory_gb or function.memory_gb
    devices = [device for node in nodes for device in node.devices]
    vcpus = max(node.capacity_vcpus for node in nodes)
    if configuration.vcpus > vcpus:
        return f"it needs {configuration.vcpus:g} vCPU, and the largest node has {vcpus:g}"
    if memory_gb > (most_gb := max(node.memory_gb for node in nodes)):
        return f"it needs {memory_gb:g} GB of memory, and the largest node has {most_gb:g}"
    if configuration.vgpus and not devices:
        return f"it needs {configuration.vgpus:g} vGPU, and no node has a device"
    if configuration.vgpus > (vgpus := max((d.vgpus for d in devices), default=0.0)):
        return f"it needs {configuration.vgpus:g} vGPU of one device, and the largest device has {vgpus:g}"
    if configuration.vgpus and function.footprint_gb > (most_gb := max(d.usable_gb for d in devices)):
        return f"it needs {function.footprint_gb:g} GB of device memory, and the largest device has {most_gb:g}"
    if configuration.vgpus and configuration.vgpus not in MIG_SIZES and all(d.sharing == "mig" for d in devices):
        return f"it needs {configuration.vgpus:g} vGPU, and a MIG slice has {', '.join(map(str, MIG_SIZES))}"
    return f"it needs {configuration} on one node, and no node has enough of everything"
