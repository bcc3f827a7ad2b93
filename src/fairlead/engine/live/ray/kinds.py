"""What a node of Ray is to Fairlead: its name, kind, speed, vCPUs, memory and accelerators. Pure functions."""

import re
from collections.abc import Mapping
from math import floor, inf

import msgspec

from fairlead.model import Device, Node

KIND = "fairlead.io/kind"
SPEED = "fairlead.io/speed"
GROUP = "ray.io/node-group"
ACCELERATOR = "ray.io/accelerator-type"

_OWN = frozenset({"CPU", "GPU", "memory", "object_store_memory"})  # resources that every node may have
_LEAST_CPU = 0.001


class Share(msgspec.Struct, frozen=True):
    """What is reserved of every node: at most these amounts by name; a name that is left out means all that is free.

    With `by_instance`, the node's agent reserves nothing, and every instance its own.
    """

    amounts: dict[str, float] = {}
    by_instance: bool = False


class RayNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node as Ray describes it: `total` and `free` are amounts of resources by name."""

    id: str
    host: str
    labels: Mapping[str, str] = {}
    total: Mapping[str, float] = {}
    free: Mapping[str, float] = {}


def reserved(node: RayNode, share: Share) -> dict[str, float]:
    """The bundle to reserve on a node: CPUs, GPUs, memory and custom resources that are free, as far as shared.

    Fractions of a GPU that others share are left to them. Empty where no CPU is free.
    """
    found = {}
    for name in node.total:
        if name.startswith(("node:", "accelerator_type:")) or name == "object_store_memory":
            continue
        amount = min(node.free.get(name, 0.0), share.amounts.get(name, inf))
        if name in ("GPU", "memory"):  # Ray takes whole bytes, and more than one GPU only whole
            amount = floor(amount)
        if amount > 0:
            found[name] = amount
    return found if found.get("CPU", 0.0) >= _LEAST_CPU else {}


def node_of(node: RayNode, bundle: Mapping[str, float], devices: tuple[Device, ...] = ()) -> Node:
    """The node that an agent with this bundle offers. ValueError if a label cannot be used.

    `devices` run kernels, in the place of whole GPUs for functions.
    """
    speed = node.labels.get(SPEED, "1")
    try:
        factor = float(speed)
    except ValueError:
        raise ValueError(f"its label {SPEED} must be a positive number; got {speed!r}") from None
    return Node(
        name=name_of(node),
        kind=kind_of(node),
        vcpus=bundle["CPU"],
        memory_gb=round(bundle["memory"] / 2**30, 2) if bundle.get("memory", 0) >= 2**30 else inf,
        devices=devices or (Device(vgpus=1.0),) * int(bundle.get("GPU", 0)),
        speed=factor,
    )


def name_of(node: RayNode) -> str:
    """A name that says which machine it is and that no other node of the cluster has."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", node.host.partition(".")[0] if not node.host[:1].isdigit() else node.host)
    return f"{host.strip('.-')[:40] or 'node'}-{node.id[-8:]}"


def kind_of(node: RayNode) -> str:
    """Its kind: the label `fairlead.io/kind`, else the autoscaler's group, else its accelerator and custom resources.

    A node without any of these is of the kind `cpu`.
    """
    for label in (KIND, GROUP):
        if found := node.labels.get(label):
            return found
    types = [name.partition(":")[2] for name in sorted(node.total) if name.startswith("accelerator_type:")]
    first = node.labels.get(ACCELERATOR) or (types[0] if types else "gpu" if node.total.get("GPU") else "cpu")
    custom = [name for name in sorted(node.total) if name not in _OWN and ":" not in name]
    return "+".join((first.lower(), *custom))[:100]


def selector_of(node: RayNode) -> dict[str, str]:
    """The labels that another node of the same kind has: what an autoscaler is asked for."""
    for label in (KIND, GROUP, ACCELERATOR):
        if found := node.labels.get(label):
            return {label: found}
    return {}
