"""Nodes that an operator drains: their instances are started elsewhere, then they take no more work and empty."""

from functools import partial
from typing import TYPE_CHECKING

from fairlead.engine.core import events as ev
from fairlead.engine.core.capacity import InstanceState, NodeState

if TYPE_CHECKING:
    from fairlead.engine.core.controller import Controller


class Drains:
    """Carries out `NodeDraining`, and knows how far it is."""

    __slots__ = ("_controller", "_standing_in")

    def __init__(self, controller: "Controller") -> None:
        self._controller = controller
        self._standing_in: dict[str, list[InstanceState]] = {}  # by node: instances that were started for those there

    def apply(self, event: ev.NodeDraining) -> None:
        """Move instances away from a node, close it, or open it again."""
        node = self._controller.nodes.get(event.node)
        is_known = node is not None and (node.is_up or (event.stage == "open" and node.is_draining))
        if node is None or not is_known or node.is_draining is not (event.stage == "open"):
            self._controller.stale_events += 1
        elif event.stage == "move":
            self._move(node)
        elif event.stage == "close":
            self._controller.replicas.close_node(node)
        else:
            self._open(node)

    def is_moving(self, name: str) -> bool:
        """Whether an instance that was started for one of a node is not ready yet."""
        alive = self._controller.pool.instances
        return any(new.id in alive and not new.is_ready for new in self._standing_in.get(name, ()))

    def has_left(self, name: str) -> bool:
        """Whether a node has been emptied, with all instances there gone."""
        node, endings = self._controller.nodes.get(name), self._controller.pool.endings
        return node is None or (not node.is_up and (endings is None or not endings.on(node)))

    def _move(self, node: NodeState) -> None:
        """Start an instance elsewhere for each one of a node, where there is room without evicting another.

        Idle instances elsewhere that are alike count as well. Replicas end when the one in their place is ready.
        """
        controller = self._controller
        node.is_open = False  # while looking for room
        controller.placement.version += 1
        started = controller.replicas.stand_in(node)
        spare: dict[int, int] = {}  # by flavour: idle ones elsewhere
        for instance in list(controller.pool.instances.values()):
            flavour = instance.flavour
            if instance.node is not node or instance.is_replica or not instance.is_ready or flavour.kernel is not None:
                continue
            idle = sum([len(found) for index, found in flavour.idle.items() if index != node.index])
            if spare.setdefault(id(flavour), idle) > 0:
                spare[id(flavour)] -= 1
            elif (new := self._copy(instance)) is not None:
                started.append(new)
        node.is_open = True
        controller.placement.version += 1
        self._standing_in[node.name] = started

    def _copy(self, instance: InstanceState) -> InstanceState | None:
        controller, shape = self._controller, instance.shape
        fits = partial(controller.pool.fits_beside, is_fresh=True)
        place = controller.placement.find_beside(shape, "fresh", fits)
        if place is None:
            return None
        device = shape.device_for(place, None) if shape.vgpus else None
        new = controller.pool.create(shape, place, device, controller.now, on_demand=False)
        shape.flavour.starting.setdefault(place.index, []).append(new)
        controller.start_instance(new)
        return new

    def _open(self, node: NodeState) -> None:
        controller = self._controller
        if not node.is_up:
            controller.roster.join(node.node, controller.now, is_new=False)
            controller.changes.node(node.node, "joined")
        else:
            controller.changes.node(node.node, "changed")
        node.is_up = node.is_open = True
        node.is_draining = False
        controller.placement.version += 1
        if node.name not in controller.freed:
            controller.freed.append(node.name)
