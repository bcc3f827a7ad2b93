"""What is reserved on each node, and where the next instance should go: the policy's own books."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

from fairlead.model import Function, Node
from fairlead.model.mig import mig_layout
from fairlead.planning.feasibility import could_hold, could_run
from fairlead.policy.infless.offers import Offer

_PER_VCPU, _PER_PERCENT = 64.0, 142.0  # what a thread and a hundredth of a GPU can do, in GFLOPS
_EPS = 1e-9
_FULL = 0.001  # a node that is filled to the last has still so much left: a division needs it


class Spot:
    """One node: what nobody has reserved."""

    __slots__ = ("capacity", "device_memory_gb", "free_vcpus", "free_vgpus", "memory_gb", "node", "sizes")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.free_vcpus = node.vcpus
        self.memory_gb = node.memory_gb
        self.free_vgpus = [device.vgpus for device in node.devices]
        self.device_memory_gb = [device.usable_gb for device in node.devices]
        self.sizes: list[list[float]] = [[] for _ in node.devices]  # of what is reserved on each, in vGPUs
        self.capacity = _worth(node.vcpus, len(node.devices))

    def device_for(self, function: Function, offer: Offer) -> int | None:
        """The fullest device with room for an instance, -1 where it needs none; None if there is no room."""
        configuration = offer.configuration
        if self.free_vcpus + _EPS < configuration.vcpus:
            return None
        if self.memory_gb + _EPS < (configuration.memory_gb or function.memory_gb):
            return None
        if not configuration.vgpus:
            return -1 if could_run(self.node, function, configuration) else None
        free = [i for i in range(len(self.free_vgpus)) if self._has_room(i, function, offer)]
        return min(free, key=lambda i: self.free_vgpus[i], default=None)

    def _has_room(self, device: int, function: Function, offer: Offer) -> bool:
        configuration = offer.configuration
        if self.free_vgpus[device] + _EPS < configuration.vgpus:
            return False
        if self.device_memory_gb[device] + _EPS < function.device_memory_gb:
            return False
        if not could_hold(self.node, device, function, configuration):
            return False
        if self.node.devices[device].sharing != "mig":
            return True
        return mig_layout([int(size) for size in (*self.sizes[device], configuration.vgpus)]) is not None

    def reserve(self, function: Function, offer: Offer, device: int) -> None:
        """Take what an instance needs out of the books."""
        self._change(function, offer, device, -1)
        if device >= 0:
            self.sizes[device].append(offer.configuration.vgpus)

    def release(self, function: Function, offer: Offer, device: int) -> None:
        """Put back what an instance needed."""
        self._change(function, offer, device, 1)
        if device >= 0:
            self.sizes[device].remove(offer.configuration.vgpus)

    def _change(self, function: Function, offer: Offer, device: int, sign: int) -> None:
        configuration = offer.configuration
        self.free_vcpus += sign * configuration.vcpus
        self.memory_gb += sign * (configuration.memory_gb or function.memory_gb)
        if device >= 0:
            self.free_vgpus[device] += sign * configuration.vgpus
            self.device_memory_gb[device] += sign * function.device_memory_gb

    def score(self, offer: Offer) -> float:
        """Rate of an instance over the part of the node that would be left beside it."""
        left = self.free_vcpus - offer.configuration.vcpus
        devices = self.node.devices
        whole = [free / device.vgpus for free, device in zip(self.free_vgpus, devices, strict=True)]
        gpus = sum(whole)
        if offer.configuration.vgpus:
            gpus -= offer.configuration.vgpus / max(device.vgpus for device in devices)
        return offer.high_rps / (max(0.0, _worth(left, gpus)) / self.capacity + _FULL)


def _worth(vcpus: float, gpus: float) -> float:
    return _PER_VCPU * vcpus + _PER_PERCENT * 100 * gpus


class Room:
    """All nodes that are up. `version` grows whenever something may fit that did not; `steps` counts what was tried."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.spots = {node.name: Spot(node) for node in nodes}
        self.version = 0
        self.steps = 0

    def renew(self, nodes: Sequence[Node]) -> set[str]:
        """Take in nodes that joined; gives the names of those that were lost, with all that was reserved there."""
        names = {node.name for node in nodes}
        lost = self.spots.keys() - names
        for name in lost:
            del self.spots[name]
        for node in nodes:
            if node.name not in self.spots:
                self.spots[node.name] = Spot(node)
                self.version += 1
        return lost

    def best(
        self, function: Function, by_kind: Mapping[str, Sequence[Offer]], rate_rps: float = inf
    ) -> tuple[Offer, Spot, int] | None:
        """The instance to add for a rate that nobody serves, its node and device.

        From the largest batch on, the first with anything that fits; of these the best score. The smallest batch will
        do for any rate.
        """
        batches = sorted({offer.configuration.batch for found in by_kind.values() for offer in found})
        for batch in reversed(batches):
            best: tuple[Offer, Spot, int] | None = None
            most = 0.0
            for offer, spot in self._candidates(by_kind, batch, inf if batch == batches[0] else rate_rps):
                self.steps += 1
                device = spot.device_for(function, offer)
                if device is not None:
                    score = spot.score(offer)
                    if score > most:
                        best, most = (offer, spot, device), score
            if best is not None:
                return best
        return None

    def _candidates(
        self, by_kind: Mapping[str, Sequence[Offer]], batch: int, rate_rps: float
    ) -> Iterator[tuple[Offer, Spot]]:
        usable = {
            kind: [offer for offer in found if offer.configuration.batch == batch and offer.low_rps <= rate_rps]
            for kind, found in by_kind.items()
        }
        for spot in self.spots.values():
            for offer in usable.get(spot.node.kind, ()):
                yield offer, spot
