"""Room for functions that have work and no instance, where what others have reserved leaves none.

The authors take a cluster to be large enough. Where it is not, reserved room would keep such a function waiting for
ever; here others close instances for it, so that whatever has waited longest gets its turn.
"""

from collections.abc import Iterator
from math import inf

from fairlead.policy.base import Action, View
from fairlead.policy.infless.fleet import Fleet
from fairlead.policy.infless.room import Spot
from fairlead.policy.infless.service import Booking, Service

Ages = dict[Service, tuple[float, int]]

_PERIOD_S = 1.0


class Housing:
    """Closes instances of others, on one node for each function that has none."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._awaited: dict[Service, str] = {}  # by function without an instance: the node where others close
        self._seen: tuple[set[Service], int] = (set(), -1)  # who had none, and what version the room had
        self._again = 0.0  # when to look again even if nothing has changed

    def find(self, view: View) -> Iterator[Action]:
        """Find room for whatever waits and has no instance, the oldest first."""
        services = self._fleet.services
        homeless = [services[queue] for queue in view.queues() if not services[queue].bookings]
        if not homeless and not self._awaited:
            return
        if self._seen == (set(homeless), self._fleet.room.version) and view.now < self._again and not view.freed:
            return
        self._again = view.now + _PERIOD_S
        for service in services.values():
            for booking in [b for b in service.bookings if b.is_closing]:
                if booking.running < 0 and (booking.is_ready or booking.ready_by == inf):
                    yield from self._fleet.delete(view, service, booking)
        ages = {service: _age(view, service) for service in services.values()}
        homeless = sorted(homeless, key=ages.__getitem__)
        for service in homeless:
            yield from self._fleet.add_first(view, service)
        self._reopen([service for service in homeless if not service.bookings])
        for service in homeless:
            if not service.bookings and service not in self._awaited:
                self._close_others(service, ages)
        self._seen = ({service for service in homeless if not service.bookings}, self._fleet.room.version)

    def _reopen(self, homeless: list[Service]) -> None:
        """Let what closes for nobody any more go on; who has no instance and waits for nothing has to ask again."""
        bookings = [booking for service in self._fleet.services.values() for booking in service.bookings]
        closing = {booking.node for booking in bookings if booking.is_closing}
        self._awaited = {s: node for s, node in self._awaited.items() if s in homeless and node in closing}
        for booking in bookings:
            booking.is_closing &= booking.node in self._awaited.values()

    def _close_others(self, service: Service, ages: Ages) -> None:
        """Close as few as possible, all on one node, so that the smallest instance of this function will fit there."""
        best: list[Booking] | None = None
        for spot in self._fleet.room.spots.values():
            found = self._in_the_way(service, ages, spot)
            if found is not None and (best is None or len(found) < len(best)):
                best = found
        for booking in best or ():
            booking.is_closing = True
            self._awaited[service] = booking.node

    def _in_the_way(self, service: Service, ages: Ages, spot: Spot) -> list[Booking] | None:
        """What must end on a node for an instance to fit; None if even all that may be closed would not do.

        Who has nothing waiting or more than one instance goes first, then whose oldest came later.
        """
        wanted = service.offers.get(spot.node.kind, ())
        if not wanted:
            return None
        offer = min(wanted, key=lambda o: (o.configuration.batch, o.configuration.vgpus, o.configuration.vcpus))
        others: list[tuple[bool, bool, bool, int, Service, Booking]] = []
        for other in self._fleet.services.values():
            is_needed = ages[other][0] < inf and len(other.bookings) < 2
            if other.bookings and (ages[other] > ages[service] or not is_needed):
                there = [b for b in other.bookings if b.node == spot.node.name and not b.is_closing]
                others += [(is_needed, b.rate_rps > 0, b.running >= 0, b.id, other, b) for b in there]
        closed: list[tuple[Service, Booking]] = []
        for *_, other, booking in sorted(others, key=lambda each: each[:4]):
            if spot.device_for(service.function, offer) is not None:
                break
            spot.release(other.function, booking.offer, booking.device)
            closed.append((other, booking))
        is_enough = spot.device_for(service.function, offer) is not None
        for other, booking in closed:
            spot.reserve(other.function, booking.offer, booking.device)
        return [booking for _, booking in closed] if is_enough else None


def _age(view: View, service: Service) -> tuple[float, int]:
    """Since when the oldest of a queue waits; infinity if none does."""
    head = view.oldest(*service.queue)
    return (inf, 0) if head is None else (head.ready, head.id)
