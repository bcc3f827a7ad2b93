"""Pods and where they go.

A pod is a place that one queue has for itself: a rectangle of a GPU (a quota of its time, a share of its space), vCPUs
and memory of the node. It is reserved from when the pod is opened until it is closed, whether it runs or not.
"""

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass
from math import inf

from fairlead.model import Configuration, Function, Node
from fairlead.policy.base import NodeChange
from fairlead.policy.fast_gshare.packing import Packing, Rectangle
from fairlead.policy.kit.capacity import Capacity, Place, Reservation, milli
from fairlead.policy.kit.objectives import Queue
from fairlead.profile import Estimate

Spot = tuple[str, int | None]  # node and device; None for what needs no accelerator

_WHOLE = 1000  # all of a GPU's time
_AS_FAST = 1.1  # times up to this factor above the shortest count as equal: observed times differ by chance


@dataclass(eq=False)
class Pod(Reservation):
    """One place of a queue. `batches` are the configurations of its size by batch, up to its own, smallest first."""

    queue: Queue
    batches: tuple[Configuration, ...]
    rps: float = 0.0
    rpr: float = 0.0
    rectangle: Rectangle | None = None
    is_busy: bool = False
    is_closing: bool = False
    has_run: bool = False
    last_used: float = 0.0

    def holding(self, count: int) -> Configuration:
        """The smallest batch that holds `count` invocations."""
        return next(each for each in self.batches if each.batch >= count)


class Fleet:
    """The pods of all queues, how many there are in each place, and where there is room for more."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.capacity = Capacity(nodes)
        self.pods: dict[Queue, list[Pod]] = {}
        self.placed: Counter[Place] = Counter()
        self._packings: dict[Spot, Packing] = {}

    def follow(self, changes: Iterable[NodeChange]) -> list[Pod]:
        """Take in nodes that joined and forget lost ones; gives the pods that were lost with them."""
        lost = self.capacity.follow(changes)
        if not lost:
            return []
        self._packings = {spot: each for spot, each in self._packings.items() if spot[0] not in lost}
        gone = [pod for pods in self.pods.values() for pod in pods if pod.node in lost]
        for pod in gone:
            self._forget(pod)
        return gone

    def find(
        self, function: Function, configuration: Configuration, estimate: Estimate, warm: Set[Spot]
    ) -> Spot | None:
        """Where a pod would go: to an instance that no pod uses, then where it is fastest, then by best area fit.

        A pod without a GPU goes to a node that has none if it is about as fast there: on a node with GPUs it would take
        vCPUs without which these cannot be used.
        """
        rooms, vcpus, height = self.capacity.rooms.values(), milli(configuration.vcpus), milli(configuration.vgpus)
        seconds = {kind: estimate.latency_s(configuration, kind) for kind in {room.node.kind for room in rooms}}
        slow_s = _AS_FAST * min(seconds.values(), default=inf)
        found: tuple[tuple[bool, bool, bool, float, float], Spot] | None = None
        for room in rooms:
            latency_s = seconds[room.node.kind]
            if latency_s == inf or room.vcpus < vcpus:
                continue
            blocks = not height and bool(room.node.devices)
            for device in range(len(room.vgpus)) if height else (None,):
                spot = (room.node.name, device)
                if device is None:
                    left = room.vcpus - vcpus
                elif room.vgpus[device] < height:
                    continue
                else:
                    free = (self._packings.get(spot) or self._packing(spot)).best(_WHOLE, height)
                    if free is None:
                        continue
                    left = free.width * free.height
                rank = (spot not in warm, latency_s > slow_s, blocks, latency_s, left)
                if (found is None or rank < found[0]) and room.fits(function, configuration, device):
                    found = (rank, spot)
        return None if found is None else found[1]

    def open(self, pod: Pod) -> None:
        """Give a pod its place."""
        self.capacity.reserve(pod)
        if pod.device is not None:
            pod.rectangle = self._packing((pod.node, pod.device)).take(_WHOLE, milli(pod.configuration.vgpus))
        self.pods.setdefault(pod.queue, []).append(pod)
        self.placed[pod.place] += 1

    def close(self, pod: Pod) -> None:
        """Take a pod's place back; its node must be up."""
        self.capacity.release(pod)
        if pod.rectangle is not None:
            self._packing((pod.node, pod.device)).give_back(pod.rectangle)
        self._forget(pod)

    def _forget(self, pod: Pod) -> None:
        self.pods[pod.queue].remove(pod)
        self.placed[pod.place] -= 1

    def _packing(self, spot: Spot) -> Packing:
        node, device = spot
        if spot not in self._packings and device is not None:
            self._packings[spot] = Packing(_WHOLE, milli(self.capacity.rooms[node].node.devices[device].vgpus))
        return self._packings[spot]
