"""Pods and the room they have: the policy's own books, which the controller does not know.

A pod is a place that one queue has for itself: a rectangle of a GPU (a quota of its time, a share of its space), vCPUs
and memory of the node. It is reserved from the day the pod is opened until it is closed, whether it runs or not.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from math import inf

from fairlead.model import Configuration, Function, Node
from fairlead.model.mig import mig_layout
from fairlead.planning.feasibility import could_hold
from fairlead.policy.fast_gshare.packing import Packing, Rectangle
from fairlead.profile import Estimate

Queue = tuple[str, str]
Spot = tuple[str, int | None]  # node and device; None for what needs no accelerator

_WHOLE = 1000  # of a GPU's time; vCPUs and vGPUs are counted in thousandths, so that sums are exact
_CLOSE_GB = 1e-6


@dataclass(eq=False)
class Pod:
    """One place of a queue. `batches` are the configurations of its size by batch, up to its own, smallest first."""

    queue: Queue
    configuration: Configuration
    spot: Spot
    kind: str
    batches: tuple[Configuration, ...]
    rps: float = 0.0
    rpr: float = 0.0
    quota: float = 1.0
    rectangle: Rectangle | None = None
    is_busy: bool = False
    is_closing: bool = False
    has_run: bool = False
    last_used: float = 0.0

    @property
    def key(self) -> tuple[str, float, Spot]:
        """Instances with the same key can stand in for each other."""
        return self.queue[1], self.configuration.vgpus, self.spot

    def holding(self, count: int) -> Configuration:
        """The smallest batch that holds so many."""
        return next(each for each in self.batches if each.batch >= count)


@dataclass
class _Room:
    """What of one node no pod has."""

    node: Node
    vcpus: int
    memory_gb: float
    devices: list[Packing]
    device_memory_gb: list[float]
    slices: list[list[int]] = field(default_factory=list)  # by device: the sizes of pods on it, for MIG


class Fleet:
    """The pods of all queues, and where there is room for more."""

    def __init__(self, functions: Mapping[str, Function], nodes: Iterable[Node]) -> None:
        self._functions = functions
        self._rooms: dict[str, _Room] = {}
        self.pods: dict[Queue, list[Pod]] = {}
        for node in nodes:
            self._join(node)

    def meet(self, up: Iterable[Node]) -> list[Pod]:
        """Take in nodes that joined and forget those that left; gives the pods that went with them."""
        nodes = {node.name: node for node in up}
        for name in [name for name in self._rooms if name not in nodes]:
            del self._rooms[name]
        for name, node in nodes.items():
            if name not in self._rooms:
                self._join(node)
        lost = [pod for pods in self.pods.values() for pod in pods if pod.spot[0] not in self._rooms]
        for pod in lost:
            self.pods[pod.queue].remove(pod)
        return lost

    def find(
        self, function: str, configuration: Configuration, estimate: Estimate, warm: Set[Spot], quota: float = 1.0
    ) -> Spot | None:
        """Where a pod would go: where an instance waits for one, then where it is fastest, then by best area fit."""
        kinds = {room.node.kind for room in self._rooms.values()}
        seconds = {kind: estimate.latency_s(configuration, kind) for kind in kinds}
        found: tuple[tuple[bool, float, float], Spot] | None = None
        for room in self._rooms.values():
            latency_s = seconds[room.node.kind]
            if latency_s == inf:
                continue
            for device in range(len(room.node.devices)) if configuration.vgpus else (None,):
                left = self._left(room, device, function, configuration, quota)
                if left is not None:
                    spot = (room.node.name, device)
                    rank = (spot not in warm, latency_s, left)
                    if found is None or rank < found[0]:
                        found = (rank, spot)
        return None if found is None else found[1]

    def node(self, spot: Spot) -> Node:
        """The node of a spot; it must be up."""
        return self._rooms[spot[0]].node

    def count_pods(self, function: str, vgpus: float) -> Counter[Spot]:
        """How many pods use instances of this size, by spot."""
        return Counter(
            pod.spot
            for (_, name), pods in self.pods.items()
            if name == function
            for pod in pods
            if pod.configuration.vgpus == vgpus
        )

    def open(self, pod: Pod) -> None:
        """Give a pod its place."""
        room, configuration = self._rooms[pod.spot[0]], pod.configuration
        function, device = self._functions[pod.queue[1]], pod.spot[1]
        room.vcpus -= _milli(configuration.vcpus)
        room.memory_gb -= configuration.memory_gb or function.memory_gb
        if device is not None:
            pod.rectangle = room.devices[device].take(_quota(pod.quota), _milli(configuration.vgpus))
            room.device_memory_gb[device] -= function.footprint_gb
            room.slices[device].append(round(configuration.vgpus))
        self.pods.setdefault(pod.queue, []).append(pod)

    def close(self, pod: Pod) -> None:
        """Take a pod's place back; its node must be up."""
        room, configuration = self._rooms[pod.spot[0]], pod.configuration
        function, device = self._functions[pod.queue[1]], pod.spot[1]
        room.vcpus += _milli(configuration.vcpus)
        room.memory_gb += configuration.memory_gb or function.memory_gb
        if device is not None and pod.rectangle is not None:
            room.devices[device].give_back(pod.rectangle)
            room.device_memory_gb[device] += function.footprint_gb
            room.slices[device].remove(round(configuration.vgpus))
        self.pods[pod.queue].remove(pod)

    def _join(self, node: Node) -> None:
        self._rooms[node.name] = _Room(
            node=node,
            vcpus=_milli(node.vcpus),
            memory_gb=node.memory_gb,
            devices=[Packing(_WHOLE, _milli(device.vgpus)) for device in node.devices],
            device_memory_gb=[device.usable_gb for device in node.devices],
            slices=[[] for _ in node.devices],
        )

    def _left(
        self, room: _Room, device: int | None, function: str, configuration: Configuration, quota: float
    ) -> float | None:
        """What a pod would leave of the place it takes, best if least; None if it does not fit there."""
        declared = self._functions[function]
        vcpus = _milli(configuration.vcpus)
        memory_gb = configuration.memory_gb or declared.memory_gb
        if room.vcpus < vcpus or room.memory_gb + _CLOSE_GB < memory_gb:
            return None
        if not could_hold(room.node, device, declared, configuration):
            return None
        if device is None:
            return float(room.vcpus - vcpus)
        width, height = _quota(quota), _milli(configuration.vgpus)
        place = room.devices[device].best(width, height)
        if place is None or room.device_memory_gb[device] + _CLOSE_GB < declared.footprint_gb:
            return None
        is_mig = room.node.devices[device].sharing == "mig"
        if is_mig and mig_layout([*room.slices[device], round(configuration.vgpus)]) is None:
            return None
        return float(place.area - width * height)


def _milli(amount: float) -> int:
    return round(amount * 1000)


def _quota(quota: float) -> int:
    return round(quota * _WHOLE)
