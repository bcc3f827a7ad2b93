"""Where groups of functions fit. A replica of Darly is a container that answers several calls at a time; an instance
answers one, so a replica is so many instances, here *slots*."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from fairlead.model import Configuration, Node
from fairlead.policy.base import Site
from fairlead.policy.darly.groups import Group

_ROUNDING = 1e-9


class Need(NamedTuple):
    """What an instance of a function holds, and what a run takes on each kind of node; infinity where it cannot be."""

    configuration: Configuration
    vcpus: float
    memory_gb: float
    seconds: Mapping[str, float]


class Arrangement(NamedTuple):
    """How many instances make a replica, and the node of each group."""

    slots: int
    placement: dict[str, str]


def needs_of(site: Site) -> dict[str, Need] | None:
    """What each function needs, in its cheapest size; None if one needs a GPU, which this does not move."""
    found = {}
    for name, function in site.functions.items():
        profile = site.profiles[name]
        size = profile.cheapest()
        if size.vgpus or profile.configurations[0].vgpus:
            return None
        seconds = {kind: profile.latency_s(size, kind) for kind in site.cluster.kinds}
        found[name] = Need(size, size.vcpus, size.memory_gb or function.memory_gb, seconds)
    return found


def by_speed(nodes: Sequence[Node], needs: Mapping[str, Need]) -> tuple[str, ...]:
    """Nodes, quickest first, by the time that a run of each function takes there, added up; equals in their order."""
    return tuple(
        node.name for node in sorted(nodes, key=lambda n: sum(need.seconds[n.kind] for need in needs.values()))
    )


def instances(groups: Sequence[Group], slots: int, replicas: int) -> dict[str, int]:
    """How many instances each function has, with so many replicas of the last group."""
    many = {name: slots for group in groups for name in group.moved}
    many.update(dict.fromkeys(groups[-1].functions, slots * replicas))
    return many


def fits(node: Node, counts: Mapping[str, int], needs: Mapping[str, Need]) -> bool:
    """Whether a node that is otherwise empty holds so many instances of each function."""
    if any(needs[name].seconds.get(node.kind, inf) == inf for name in counts):
        return False
    vcpus = sum(many * needs[name].vcpus for name, many in counts.items())
    memory_gb = sum(many * needs[name].memory_gb for name, many in counts.items())
    return vcpus <= node.capacity_vcpus + _ROUNDING and memory_gb <= node.memory_gb + _ROUNDING


def holds(
    groups: Sequence[Group],
    placement: Mapping[str, str],
    node: Node,
    counts: Mapping[str, int],
    needs: Mapping[str, Need],
) -> bool:
    """Whether a node holds all that is placed on it."""
    there = [name for group in groups if placement.get(group.name) == node.name for name in group.moved]
    return fits(node, {name: counts[name] for name in there}, needs)


def arrange(
    groups: Sequence[Group],
    nodes: Sequence[Node],
    needs: Mapping[str, Need],
    wanted: Mapping[str, str],
    *,
    slots: int,
    replicas: int = 1,
) -> Arrangement | None:
    """Each group where it is wanted, or on the first of these nodes with room; with fewer slots if need be.

    None if a slot each does not fit.
    """
    by_name = {node.name: node for node in nodes}
    for fewer in range(slots, 0, -1):
        counts, placement = instances(groups, fewer, replicas), dict[str, str]()
        for group in groups:
            first = [by_name[wanted[group.name]]] if wanted.get(group.name) in by_name else []
            for node in (*first, *nodes):
                if holds(groups, {**placement, group.name: node.name}, node, counts, needs):
                    placement[group.name] = node.name
                    break
        if len(placement) == len(groups):
            return Arrangement(fewer, placement)
    return None
