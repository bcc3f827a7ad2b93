"""Nodes that a gateway reaches over a link: what the way there costs, and on whose cores their instances run."""

from math import inf

import msgspec

from fairlead.model import Node

_TIMES = ("way_s", "cpu_s", "mb_s")


class Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The way from a gateway to the instances of a node that an agent runs, beyond the way to a child process.

    Args:
        way_s: What a message takes longer, elapsed, in each direction.
        cpu_s: CPU time of the gateway for a batch, beyond `Host.send_s` and `Host.end_s`; half of it in each direction.
        mb_s: What a batch takes longer, elapsed, for each MB of its values that come from elsewhere or go elsewhere.
        machine: Whose cores the instances use: a name that nodes of one machine have in common; empty for the machine
            of the gateway.
        cores: Of that machine; 0 for the machine of the gateway.
    """

    way_s: float = 0.0
    cpu_s: float = 0.0
    mb_s: float = 0.0
    machine: str = ""
    cores: int = 0

    def __post_init__(self) -> None:
        for name in _TIMES:
            value = getattr(self, name)
            if not 0 <= value < inf:
                raise ValueError(f"{name} must be finite and not negative; got {value}.")
        if (self.cores > 0) != bool(self.machine) or self.cores < 0:
            raise ValueError(f"cores must be positive with a machine and 0 without; got {self.cores}.")


HERE = Link()
"""The way to an instance that is a child process of the gateway."""


class LinkedNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A node of a cluster that an app was served on, and the link to it; without `memory_gb`, memory is no limit."""

    name: str
    kind: str
    vcpus: float
    memory_gb: float | None = None
    speed: float = 1.0
    link: Link = HERE

    def node(self) -> Node:
        """As the controller knows it."""
        memory_gb = inf if self.memory_gb is None else self.memory_gb
        return Node(name=self.name, kind=self.kind, vcpus=self.vcpus, memory_gb=memory_gb, speed=self.speed)


def linked(node: Node, link: Link) -> LinkedNode:
    """A node without its devices, which a host does not cover, with the link to it."""
    memory_gb = None if node.memory_gb == inf else node.memory_gb
    return LinkedNode(
        name=node.name, kind=node.kind, vcpus=node.vcpus, memory_gb=memory_gb, speed=node.speed, link=link
    )
