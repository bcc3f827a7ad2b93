"""Where the next instance goes: the largest batch that the rate fills, then the most rate per room left on a node."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from fairlead.model import Function
from fairlead.planning.feasibility import could_hold, could_run
from fairlead.policy.infless.offers import Offer
from fairlead.policy.kit.capacity import Capacity, Room, milli

Found = tuple[Offer, Room, int | None]  # what to add, and on which node and device

_PER_VCPU, _PER_PERCENT = 64.0, 142.0  # GFLOPS of a thread and of a hundredth of a GPU
_FULL = 0.001  # added to the part of a node that is left, so that a full node does not divide by 0


class Placement:
    """Searches all nodes for the best instance to add. `steps` counts the candidates that were looked at."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self.steps = 0

    def best(self, function: Function, by_kind: Mapping[str, Sequence[Offer]], rate_rps: float = inf) -> Found | None:
        """The instance to add for an unserved rate, its node and device; None if nothing fits.

        From the largest batch on, the first with any offer that fits; of these the best score. The smallest batch is
        used for any rate.
        """
        batches = sorted({offer.configuration.batch for found in by_kind.values() for offer in found})
        for batch in reversed(batches):
            best: Found | None = None
            most = 0.0
            for offer, room in self._candidates(by_kind, batch, inf if batch == batches[0] else rate_rps):
                self.steps += 1
                if offer.configuration.vgpus and max(room.vgpus, default=0) < milli(offer.configuration.vgpus):
                    continue  # as most nodes of a full cluster
                found = score(room, offer)
                if found > most and (devices := room.devices_for(function, offer.configuration)):
                    best, most = (offer, room, fullest(room, devices)), found
            if best is not None:
                return best
        return None

    def oversold(self, function: Function, by_kind: Mapping[str, Sequence[Offer]]) -> Found | None:
        """Where an instance goes although its room is reserved by others: the node and device with most left."""
        best: tuple[float, Found] | None = None
        for room in self._capacity.rooms.values():
            offers = [o for o in by_kind.get(room.node.kind, ()) if could_run(room.node, function, o.configuration)]
            if offers:
                offer = min(offers, key=lambda o: (o.configuration.vgpus, o.configuration.vcpus))
                devices = [i for i in range(len(room.vgpus)) if could_hold(room.node, i, function, offer.configuration)]
                device = max(devices, key=lambda i: room.vgpus[i], default=None)
                left = room.vcpus if device is None else room.vgpus[device]
                if best is None or left > best[0]:
                    best = (left, (offer, room, device))
        return None if best is None else best[1]

    def _candidates(
        self, by_kind: Mapping[str, Sequence[Offer]], batch: int, rate_rps: float
    ) -> Iterator[tuple[Offer, Room]]:
        usable = {
            kind: [offer for offer in found if offer.configuration.batch == batch and offer.low_rps <= rate_rps]
            for kind, found in by_kind.items()
        }
        for room in self._capacity.rooms.values():
            for offer in usable.get(room.node.kind, ()):
                yield offer, room


def fullest(room: Room, devices: Sequence[int | None]) -> int | None:
    """Of these devices of a node, the one with the fewest vGPUs left."""
    return min(devices, key=lambda i: 0 if i is None else room.vgpus[i])


def score(room: Room, offer: Offer) -> float:
    """Rate of an instance over the part of the node that would be left beside it."""
    configuration, devices = offer.configuration, room.node.devices
    gpus = sum(free / (1000 * device.vgpus) for free, device in zip(room.vgpus, devices, strict=True))
    if configuration.vgpus:
        gpus -= configuration.vgpus / max(device.vgpus for device in devices)
    left = _worth(room.vcpus / 1000 - configuration.vcpus, gpus)
    return offer.high_rps / (max(0.0, left) / _worth(room.node.vcpus, len(devices)) + _FULL)


def _worth(vcpus: float, gpus: float) -> float:
    return _PER_VCPU * vcpus + _PER_PERCENT * 100 * gpus
