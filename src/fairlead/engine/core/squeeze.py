"""Which replicas give their place when a node has shrunk below what they take together.

Replicas hold their capacity while they rest. On a cluster that became too small for one of each function they would
wait for each other for ever, so the functions whose work has waited longest take turns with what there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fairlead.engine.core.capacity import InstanceState, NodeState

if TYPE_CHECKING:
    from fairlead.engine.core.endings import Endings
    from fairlead.engine.core.queues import Waiting
    from fairlead.engine.core.scaling import ReplicaSet

RESTED_S = 1.0
"""How long a function's last replica has rested before it may go: one that has just started is used first."""

_NEVER = (float("inf"), 0)


def surplus(
    node: NodeState, sets: Iterable[ReplicaSet], endings: Endings | None, waiting: Waiting, now: float
) -> list[InstanceState]:
    """Replicas that must go from a node on which more is in use than it has, as far as there are any that can.

    The function with the most replicas gives first, its youngest, and those without a batch before those with one. The
    last replica of a function goes only if it has rested for a while and no work waits for it.
    """
    leaving = [] if endings is None else endings.on(node)
    leaving += [i for found in sets for i in found.instances if i.is_draining and i.node is node]
    vcpus = -node.free - sum(i.vcpus for i in leaving)
    memory = -node.memory_free - sum(i.flavour.memory for i in leaving)
    short = {device.index: -device.free for device in node.devices}
    for instance in leaving:
        if instance.device is not None:
            short[instance.device.index] -= instance.flavour.vgpus
    left = {found.function: len(found.living()) for found in sets}
    there = [(found.function, i) for found in sets for i in found.living() if i.node is node]
    chosen: list[InstanceState] = []
    while vcpus > 0 or memory > 0 or any(each > 0 for each in short.values()):
        holding = [
            (name, i)
            for name, i in there
            if vcpus > 0 or memory > 0 or (i.device is not None and short[i.device.index] > 0)
        ]
        giving = [(left[name], i.batch < 0, i.id, name, i) for name, i in holding if left[name] > 1]
        if not giving:
            oldest = _oldest(waiting)
            giving = [(0, True, i.id, name, i) for name, i in holding if _has_rested(i, now) and name not in oldest]
        if not giving:
            return chosen
        *_, name, instance = max(giving, key=lambda each: each[:3])
        there.remove((name, instance))
        left[name] -= 1
        vcpus -= instance.vcpus
        memory -= instance.flavour.memory
        if instance.device is not None:
            short[instance.device.index] -= instance.flavour.vgpus
        chosen.append(instance)
    return chosen


def displaced(
    sets: Iterable[ReplicaSet], endings: Endings | None, waiting: Waiting, now: float
) -> InstanceState | None:
    """A replica at rest that makes way for a function that has none, and whose work has waited longer; None for none.

    Nothing is given up while something is on its way out anyway.
    """
    found = list(sets)
    if any(i.is_draining for each in found for i in each.instances) or (endings is not None and not endings.is_empty):
        return None
    oldest = _oldest(waiting)
    needy = [oldest[each.function] for each in found if each.target and not each.instances and each.function in oldest]
    resting = [
        (oldest.get(each.function, _NEVER), len(each.living()) > 1, -i.id, i)
        for each in found
        for i in each.resting()
        if _has_rested(i, now)
    ]
    if not needy or not resting:
        return None
    since, *_, instance = max(resting, key=lambda each: each[:3])
    return instance if since > min(needy) else None


def neediest_first(sets: Iterable[ReplicaSet], waiting: Waiting) -> list[ReplicaSet]:
    """Sets in the order in which they get room that has come up: by how long their work has waited."""
    oldest = _oldest(waiting)
    return sorted(sets, key=lambda each: oldest.get(each.function, _NEVER))


def _has_rested(instance: InstanceState, now: float) -> bool:
    if instance.ready is None or not instance.is_idle:
        return False
    return now - max(instance.ready, instance.start) >= RESTED_S


def _oldest(waiting: Waiting) -> dict[str, tuple[float, int]]:
    """By function with waiting work: since when the oldest is ready, and its number."""
    found: dict[str, tuple[float, int]] = {}
    for (_, function), line in waiting.lines().items():
        first = line.oldest(waiting.tasks) if line.size else None
        if first is not None:
            found[function] = min(found.get(function, _NEVER), (first.ready, first.id))
    return found
