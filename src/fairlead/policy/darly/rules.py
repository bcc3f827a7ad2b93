"""Where a group goes if an agent says only that it shall: three rules.

* `custom_node`: to the node whose cores are least busy (thesis, 6.2.2).
* `oracle_node`: by what profiling has shown (thesis, 6.2.4; the rule itself is in the authors' public code). Within the
  objective, to the quickest node; otherwise to the quickest that is at rest, and to the slowest if none is.
* `kubernetes_nodes`: as the default scheduler of Kubernetes would (thesis, 6.2.3), unaware of speed and pressure.

**The scheduler of Kubernetes** adds up scores from 0 to 100, in whole numbers, and draws among the best. We take the
one that tells these nodes apart, as its source has it: `LeastAllocated`, the mean share of CPU and of memory that
nobody has requested. Containers without a request, as in the thesis, count as 0.1 CPUs and 200 MiB there, and
`BalancedAllocation` says nothing of them. The others are alike for all nodes here: images are everywhere, there are no
taints and no affinities, and with one replica of each function there is nothing to spread. What else ran on the
authors' nodes is not known. Every node of a cluster has containers of its own, for the network, the services and the
monitor: `DAEMONS`, ours, is how many of them we count.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

IDLE_ENOUGH = 0.85
"""The idle score, 1 - C0, above which a node counts as at rest."""

_C0 = 4  # of the seven counters


class Room(NamedTuple):
    """What a node has, or a container requests."""

    vcpus: float
    memory_gb: float


UNDECLARED = Room(0.1, 200 / 1024)
DAEMONS = 3
ALLOCATABLE: Mapping[str, float] = {"w03": 16.0}
"""vCPUs that Kubernetes counts of Darly's nodes, where they are not those of the simulated ones: w03 has two threads to
a core, of which the functions gain nothing (thesis, table 4.1)."""


def idle_score(counters: Sequence[float]) -> float:
    """1 - C0: the share of its cores at which a node is at rest."""
    return 1 - counters[_C0]


def custom_node(counters: Mapping[str, Sequence[float]]) -> str:
    """The node with the least C0; of equals, the first."""
    return min(counters, key=lambda node: counters[node][_C0])


def oracle_node(counters: Mapping[str, Sequence[float]], is_within: bool, by_speed: Sequence[str]) -> str:
    """Where a group should be, by what is known of the nodes.

    Args:
        counters: Of each node.
        is_within: Whether the last request was.
        by_speed: The nodes, quickest first.
    """
    if is_within:
        return by_speed[0]
    at_rest = (node for node in by_speed[:-1] if idle_score(counters[node]) > IDLE_ENOUGH)
    return next(at_rest, by_speed[-1])


def kubernetes_nodes(
    group: str,
    placement: Mapping[str, str],
    rooms: Mapping[str, Room],
    pods: Mapping[str, int],
    *,
    daemons: int = 0,
) -> tuple[str, ...]:
    """The nodes that score best for a container of a group; Kubernetes draws one of them.

    The group's own containers leave before they are placed again, all where the first of them goes.

    Args:
        group: Who moves.
        placement: The node of each group that is placed.
        rooms: What each node has.
        pods: Containers of each group.
        daemons: Containers that run on every node, and declare nothing.
    """
    taken = {node: [daemons * UNDECLARED.vcpus, daemons * UNDECLARED.memory_gb] for node in rooms}
    for other, node in placement.items():
        if other != group and node in taken:
            taken[node][0] += pods[other] * UNDECLARED.vcpus
            taken[node][1] += pods[other] * UNDECLARED.memory_gb
    scores = {
        node: _least_allocated(Room(vcpus + UNDECLARED.vcpus, memory_gb + UNDECLARED.memory_gb), rooms[node])
        for node, (vcpus, memory_gb) in taken.items()
    }
    best = max(scores.values())
    return tuple(node for node, score in scores.items() if score == best)


def kubernetes_start(
    groups: Iterable[str],
    rooms: Mapping[str, Room],
    pods: Mapping[str, int],
    draws: Iterable[float],
    *,
    daemons: int = 0,
) -> dict[str, str]:
    """Where groups begin if Kubernetes places one after the other; `draws` in [0, 1) decide among equals."""
    placement: dict[str, str] = {}
    for group, draw in zip(groups, draws, strict=False):
        placement[group] = drawn(kubernetes_nodes(group, placement, rooms, pods, daemons=daemons), draw)
    return placement


def drawn(nodes: Sequence[str], draw: float) -> str:
    """One of these nodes, by a number in [0, 1)."""
    return nodes[min(int(draw * len(nodes)), len(nodes) - 1)]


def _least_allocated(wanted: Room, room: Room) -> int:
    return (_free(wanted.vcpus, room.vcpus) + _free(wanted.memory_gb, room.memory_gb)) // 2


def _free(wanted: float, capacity: float) -> int:
    """The share that is left, from 0 to 100, rounded down."""
    if capacity <= 0 or wanted > capacity:
        return 0
    return int((1 - wanted / capacity) * 100 + 1e-9)
