"""Instances that were told to stop and have not ended yet, and instances whose start waits for such an end.

In a simulation an instance ends at once. A real process takes a while, and what it used is not free before. A
*terminating* instance keeps what it used until `InstanceGone`. The exception is an idle instance that is evicted: the
accounts give its room to its successor at once, and the successor is started when the evicted instance is gone.
"""

from collections.abc import Iterator
from enum import Enum

from fairlead.engine.core.capacity import DeviceState, InstanceState, NodeState


class Keeps(Enum):
    """What a terminating instance keeps in the accounts of its node."""

    ALL = "all"  # it ran, started, or was a replica
    HELD = "held"  # it was idle: its memory, and its slice where its function keeps one
    NOTHING = "nothing"  # it was evicted: a successor has it


class Endings:
    """The terminating instances, and the starts that they hold back.

    A start is held back by the instances that were evicted from its node before it, and not by later ones. So it
    cannot wait for ever, and what exists at a time never needs more memory than what the accounts once held together.
    """

    __slots__ = ("_all", "_evicted", "_waiting")

    def __init__(self) -> None:
        self._all: dict[int, tuple[InstanceState, Keeps]] = {}
        self._evicted: dict[int, dict[int, InstanceState]] = {}  # by node index
        self._waiting: dict[int, tuple[InstanceState, set[int]]] = {}  # starts, with the evicted ones they wait for

    @property
    def is_empty(self) -> bool:
        """Whether no instance is terminating."""
        return not self._all

    def add(self, instance: InstanceState, keeps: Keeps) -> None:
        """Note that an instance was told to stop."""
        self._all[instance.id] = instance, keeps
        if keeps is Keeps.NOTHING:
            self._evicted.setdefault(instance.node.index, {})[instance.id] = instance

    def find(self, id: int) -> tuple[InstanceState, Keeps] | None:
        """A terminating instance and what it keeps; None if there is none of this number."""
        return self._all.get(id)

    def end(self, id: int) -> tuple[InstanceState, Keeps] | None:
        """Forget an instance that has ended, and return what `find` would."""
        found = self._all.pop(id, None)
        if found is not None and found[1] is Keeps.NOTHING:
            index = found[0].node.index
            del self._evicted[index][id]
            if not self._evicted[index]:
                del self._evicted[index]
            for _, awaited in self._waiting.values():
                awaited.discard(id)
        return found

    def on(self, node: NodeState) -> list[InstanceState]:
        """The terminating instances of a node. A full listing."""
        return [instance for instance, _ in self._all.values() if instance.node is node]

    def evicted_on(self, node: NodeState) -> int:
        """Memory of the evicted instances of a node that still exist, in MiB."""
        return sum(instance.flavour.memory for instance in self._evicted.get(node.index, {}).values())

    def evicted_from(self, device: DeviceState) -> int:
        """Memory on a device of the evicted instances there that still exist, in MiB."""
        evicted = (instance for found in self._evicted.values() for instance in found.values())
        return sum(instance.flavour.device_memory for instance in evicted if instance.device is device)

    def slices_from(self, device: DeviceState) -> int:
        """What the evicted instances of a device that still exist have of it, in thousandths of vGPUs."""
        evicted = (instance for found in self._evicted.values() for instance in found.values())
        return sum(i.flavour.vgpus for i in evicted if i.device is device and i.flavour.keeps_slice)

    def hold_back(self, instance: InstanceState) -> bool:
        """Let a start wait for the instances that were evicted from its node; False if there are none."""
        evicted = self._evicted.get(instance.node.index)
        if not evicted:
            return False
        instance.is_held_back = True
        self._waiting[instance.id] = instance, set(evicted)
        return True

    def held_back_on(self, node: NodeState) -> list[InstanceState]:
        """The instances of a node whose start is held back, youngest first."""
        return [instance for instance, _ in reversed(self._waiting.values()) if instance.node is node]

    def withdraw(self, instance: InstanceState) -> None:
        """Forget a start that was held back."""
        self._waiting.pop(instance.id, None)

    def startable(self) -> Iterator[InstanceState]:
        """The instances that nothing holds back any more, in the order in which they were created."""
        for instance in [instance for instance, awaited in self._waiting.values() if not awaited]:
            del self._waiting[instance.id]
            instance.is_held_back = False
            yield instance

    def forget_node(self, node: NodeState) -> None:
        """Forget everything of a lost node."""
        for id in [id for id, (instance, _) in self._all.items() if instance.node is node]:
            del self._all[id]
        for id in [id for id, (instance, _) in self._waiting.items() if instance.node is node]:
            del self._waiting[id]
        self._evicted.pop(node.index, None)
