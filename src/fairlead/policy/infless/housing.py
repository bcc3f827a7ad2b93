"""Room for functions that have work and no instance, where the reservations of others leave none.

The authors take a cluster to be large enough. Where it is not, reservations would keep such a function waiting for
ever. Here other functions close instances for it, so that the function that has waited longest gets its turn.
"""

from collections.abc import Iterator
from math import inf

from fairlead.policy.base import Action, View
from fairlead.policy.infless.fleet import Fleet
from fairlead.policy.infless.service import Booking, Service
from fairlead.policy.kit.capacity import Room

Ages = dict[Service, tuple[float, int]]  # since when the oldest of a queue waits, and its id; infinity if none does

_PERIOD_S = 1.0


class Housing:
    """Closes instances of other functions, on one node for each function that has none."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._awaited: dict[Service, str] = {}  # by function without an instance: the node where others close
        self._seen: tuple[set[Service], int] = (set(), -1)  # functions without one, and the version of the capacity
        self._again = 0.0  # when to look again even if neither has changed

    def find(self, view: View) -> Iterator[Action]:
        """Find room for every function that has work and no instance, the one that has waited longest first."""
        fleet = self._fleet
        services = fleet.services
        homeless = [services[queue] for queue in view.queues() if not services[queue].bookings]
        if not homeless and not self._awaited:
            return
        if self._seen == (set(homeless), fleet.capacity.version) and view.now < self._again and not view.freed:
            return
        self._again = view.now + _PERIOD_S
        for service in services.values():
            for booking in [b for b in service.bookings if b.is_closing]:
                if booking.running < 0 and (booking.is_ready or booking.ready_by == inf):
                    yield from fleet.delete(view, service, booking)
        ages: Ages = {}
        for service in services.values():
            head = view.oldest(*service.queue)
            ages[service] = (inf, 0) if head is None else (head.ready, head.id)
        homeless.sort(key=ages.__getitem__)
        for service in homeless:
            yield from fleet.add_first(view, service)
        homeless = [service for service in homeless if not service.bookings]
        self._reopen(homeless)
        for service in homeless:
            if service not in self._awaited:
                self._close_others(service, ages)
        self._seen = (set(homeless), fleet.capacity.version)

    def _reopen(self, homeless: list[Service]) -> None:
        """Keep instances open that no function waits for any more; a function for which none closes may ask again."""
        bookings = [booking for service in self._fleet.services.values() for booking in service.bookings]
        closing = {booking.node for booking in bookings if booking.is_closing}
        self._awaited = {s: node for s, node in self._awaited.items() if s in homeless and node in closing}
        for booking in bookings:
            booking.is_closing &= booking.node in self._awaited.values()

    def _close_others(self, service: Service, ages: Ages) -> None:
        """Close as few instances as possible, all on one node, so that the smallest instance of `service` will fit."""
        ways = [self._in_the_way(service, ages, room) for room in self._fleet.capacity.rooms.values()]
        for booking in min((way for way in ways if way is not None), key=len, default=()):
            booking.is_closing = True
            self._awaited[service] = booking.node

    def _in_the_way(self, service: Service, ages: Ages, room: Room) -> list[Booking] | None:
        """Which instances must end on a node for one of `service` to fit; None if those that may be closed are too few.

        First those of functions with nothing waiting or several instances, then those whose oldest came later.
        """
        wanted = [offer.configuration for offer in service.offers.get(room.node.kind, ())]
        if not wanted:
            return None
        smallest = min(wanted, key=lambda c: (c.batch, c.vgpus, c.vcpus))
        others: list[tuple[tuple[bool, bool, bool, int], Booking]] = []
        for other in self._fleet.services.values():
            is_needed = ages[other][0] < inf and len(other.bookings) < 2
            if ages[other] > ages[service] or not is_needed:
                there = [b for b in other.bookings if b.node == room.node.name and not b.is_closing]
                others += [((is_needed, b.rate_rps > 0, b.running >= 0, b.id), b) for b in there]
        closed: list[Booking] = []
        for _, booking in sorted(others, key=lambda each: each[0]):
            if room.devices_for(service.function, smallest):
                break
            room.give_back(booking)
            closed.append(booking)
        is_enough = bool(room.devices_for(service.function, smallest))
        for booking in closed:
            room.take(booking)
        return closed if is_enough else None
