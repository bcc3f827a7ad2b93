"""What of each node is not reserved: vCPUs, memory, and of each device vGPUs, memory and MIG slices.

For policies that keep room for an instance whether it runs or not; the controller knows nothing of these reservations.
Amounts are whole thousandths of a vCPU or vGPU and whole MiB, so that a release gives back exactly what was reserved.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import isinf

from fairlead.model import Configuration, Function, Instance, Node
from fairlead.planning.feasibility import could_hold
from fairlead.policy.base import NodeChange, View

Place = tuple[str, str, int | None, float]  # function, node, device, vGPUs: instances in one place are interchangeable

_UNLIMITED = 1 << 60


@dataclass(eq=False)
class Reservation:
    """Room for one instance of a function; `device` is None for a configuration without vGPUs."""

    function: Function
    configuration: Configuration
    node: str
    device: int | None

    @property
    def place(self) -> Place:
        """Where its instance is, or will be."""
        return self.function.name, self.node, self.device, self.configuration.vgpus


class Room:
    """One node: what of it is not reserved, in thousandths and MiB, and the slices that are reserved on each device."""

    __slots__ = ("device_memory", "memory", "node", "slices", "vcpus", "vgpus")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.vcpus = milli(node.vcpus)
        self.memory = _mebi(node.memory_gb)
        self.vgpus = [milli(device.vgpus) for device in node.devices]
        self.device_memory = [_mebi(device.usable_gb) for device in node.devices]
        self.slices: list[list[int]] = [[] for _ in node.devices]

    def fits(self, function: Function, configuration: Configuration, device: int | None) -> bool:
        """Whether one more instance can be reserved on this device; None stands for no device."""
        if self.vcpus < milli(configuration.vcpus) or self.memory < _memory(function, configuration):
            return False
        if not could_hold(self.node, device, function, configuration):
            return False
        if device is None:
            return True
        if self.vgpus[device] < milli(configuration.vgpus) or self.device_memory[device] < _mebi(function.footprint_gb):
            return False
        if self.node.devices[device].sharing != "mig":
            return True
        return self.node.devices[device].has_slices([*self.slices[device], round(configuration.vgpus)])

    def devices_for(self, function: Function, configuration: Configuration) -> list[int | None]:
        """The devices on which one more instance can be reserved; [None] for one that needs no device and fits."""
        devices = range(len(self.vgpus)) if configuration.vgpus else (None,)
        return [device for device in devices if self.fits(function, configuration, device)]

    def part(self, device: int | None) -> float:
        """The part of its reservation that an instance can use on average: below 1 where the node is oversold."""
        pairs = [(self.vcpus, self.node.vcpus)]
        if device is not None:
            pairs.append((self.vgpus[device], self.node.devices[device].vgpus))
        return min(1.0, *[milli(total) / (milli(total) - free) for free, total in pairs if free < 0], 1.0)

    def take(self, reservation: Reservation) -> None:
        """Subtract what an instance needs. More than there is may be taken: the node is oversold then."""
        self._change(reservation, -1)
        if reservation.device is not None:
            self.slices[reservation.device].append(round(reservation.configuration.vgpus))

    def give_back(self, reservation: Reservation) -> None:
        """Undo `take`."""
        self._change(reservation, 1)
        if reservation.device is not None:
            self.slices[reservation.device].remove(round(reservation.configuration.vgpus))

    def _change(self, reservation: Reservation, sign: int) -> None:
        function, configuration, device = reservation.function, reservation.configuration, reservation.device
        self.vcpus += sign * milli(configuration.vcpus)
        self.memory += sign * _memory(function, configuration)
        if device is not None:
            self.vgpus[device] += sign * milli(configuration.vgpus)
            self.device_memory[device] += sign * _mebi(function.footprint_gb)


class Capacity:
    """The room of every node that is up, and how many reservations there are in each place.

    `version` grows whenever something may fit that did not before: at a release, and when a node joins.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.rooms = {node.name: Room(node) for node in nodes}
        self.version = 0
        self._reserved: Counter[Place] = Counter()

    def follow(self, changes: Iterable[NodeChange]) -> set[str]:
        """Take in nodes that joined; gives the names of lost ones, whose reservations are gone with them."""
        lost: set[str] = set()
        for change in changes:
            if change.what == "lost":
                self.rooms.pop(change.node.name, None)
                lost.add(change.node.name)
            elif change.what == "joined":
                self.rooms[change.node.name] = Room(change.node)
                self.version += 1
        if lost:
            self._reserved = Counter({place: n for place, n in self._reserved.items() if place[1] not in lost})
        return lost

    def reserve(self, reservation: Reservation) -> None:
        """Reserve room on a node that is up."""
        self.rooms[reservation.node].take(reservation)
        self._reserved[reservation.place] += 1

    def release(self, reservation: Reservation) -> None:
        """Give the room back; the node must be up."""
        self.rooms[reservation.node].give_back(reservation)
        self._reserved[reservation.place] -= 1
        self.version += 1

    def spare(self, view: View, function: str) -> Counter[Place]:
        """By place, how many more instances of a function there are than reservations; negative where some lack one."""
        there = Counter(place_of(instance) for instance in view.instances(function))
        there.subtract({place: count for place, count in self._reserved.items() if place[0] == function})
        return there

    def can_warm(self, view: View, reservation: Reservation) -> bool:
        """Whether a Warm for a reservation would be carried out now.

        `view.fits` also says yes where an instance that could be shared is starting; then there must be room beside it.
        """
        name, at, device, vgpus = reservation.place
        configuration, node = reservation.configuration, self.rooms[at].node
        there = [each for each in view.instances(name) if place_of(each) == reservation.place]
        if all(each.is_ready for each in there):
            return view.fits(name, configuration, at, device)
        if node.vcpus and round((1 - view.load(at)) * milli(node.capacity_vcpus)) < milli(configuration.vcpus):
            return False
        if device is None:
            return True
        if node.devices[device].sharing == "mig":
            return False  # the view does not tell whether a second slice can be cut
        free = next(each.free_vgpus for each in view.devices() if (each.node, each.device) == (at, device))
        return milli(free) >= milli(vgpus)


def place_of(instance: Instance) -> Place:
    """Where an instance is."""
    return instance.function, instance.node, None if instance.device < 0 else instance.device, instance.vgpus


def milli(amount: float) -> int:
    """An amount of vCPUs or vGPUs in whole thousandths."""
    return round(amount * 1000)


def _memory(function: Function, configuration: Configuration) -> int:
    return _mebi(configuration.memory_gb or function.memory_gb)


def _mebi(amount_gb: float) -> int:
    return _UNLIMITED if isinf(amount_gb) else round(amount_gb * 1024)
