"""Groups of functions on nodes as they stand, and the actions that change that. Used by every scaler of Darly."""

from collections.abc import Iterator, Mapping, Sequence

from fairlead.policy.base import Action, Move, Scale, View
from fairlead.policy.darly import arranging
from fairlead.policy.darly.arranging import Need
from fairlead.policy.darly.groups import Group


class Deployed:
    """Where each group is, how many instances make a replica, and how many replicas the last group has.

    Args:
        groups: The last one is scaled.
        needs: Of every function.
        slots: Instances that make a replica, where they fit.
    """

    def __init__(self, groups: Sequence[Group], needs: Mapping[str, Need], slots: int) -> None:
        self.groups = tuple(groups)
        self.members = {group.name: group for group in groups}
        self.places: dict[str, str] = {}
        self.replicas = 1
        self.slots = slots
        self._needs = needs
        self._most_slots = slots

    def is_whole(self, view: View) -> bool:
        """Whether every function is scaled by us, on a node that is up."""
        is_ours = all(view.scaled(name) is not None for group in self.groups for name in group.moved)
        return is_ours and bool(self.places) and {node.name for node in view.nodes}.issuperset(self.places.values())

    def arrange(self, view: View, wanted: Mapping[str, str]) -> Iterator[Action]:
        """Put every group on a node, where it is wanted if there is room; what fits nowhere is not scaled."""
        by_name = {node.name: node for node in view.nodes}
        nodes = [by_name[name] for name in arranging.by_speed(view.nodes, self._needs)]
        before, most = self.places, self._most_slots
        found = arranging.arrange(self.groups, nodes, self._needs, wanted, slots=most, replicas=self.replicas)
        if found is None:
            self.replicas = 1
            found = arranging.arrange(self.groups, nodes, self._needs, wanted, slots=most)
        self.slots, self.places = found or (most, {})
        counts = arranging.instances(self.groups, self.slots, self.replicas)
        for group in self.groups:
            for name in group.moved:
                scaled = view.scaled(name)
                if found is None:
                    if scaled is not None:
                        yield Scale(name, None)
                elif scaled is None:
                    yield Scale(name, 0, self._needs[name].configuration)  # none starts before its node is known
                    yield Move(name, found.placement[group.name])
                    yield Scale(name, counts[name])
                else:
                    if scaled.instances != counts[name]:
                        yield Scale(name, counts[name])
                    if before.get(group.name) != found.placement[group.name]:
                        yield Move(name, found.placement[group.name])

    def holds(self, view: View, places: Mapping[str, str], group: str, replicas: int) -> bool:
        """Whether the node of a group is up and holds all that would be placed there."""
        node = next((node for node in view.nodes if node.name == places[group]), None)
        counts = arranging.instances(self.groups, self.slots, replicas)
        return node is not None and arranging.holds(self.groups, places, node, counts, self._needs)

    def move(self, view: View, group: str, node: str) -> list[Action] | None:
        """What brings a group to a node; None if it does not fit there."""
        if self.places[group] == node:
            return []
        places = {**self.places, group: node}
        if not self.holds(view, places, group, self.replicas):
            return None
        self.places = places
        return [Move(name, node) for name in self.members[group].moved]

    def scale(self, view: View, replicas: int) -> list[Action] | None:
        """What gives the last group so many replicas; None if they do not fit."""
        group = self.groups[-1]
        if not self.holds(view, self.places, group.name, replicas):
            return None
        self.replicas = replicas
        return [Scale(name, self.slots * replicas) for name in group.functions]
