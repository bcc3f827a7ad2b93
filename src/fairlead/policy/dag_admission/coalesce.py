"""Larger batches when the calendar is full: what is planned on one node is planned again, with neighbours merged.

Whoever is booked alone because nothing waited may end up in a long line of small batches. Merging them makes room
without breaking a promise: everything still ends before its deadline, and before what follows it begins.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from fairlead.policy.base import View
from fairlead.policy.dag_admission.bookings import Booking, Place, Promise, Slot, just_after
from fairlead.policy.dag_admission.calendar import Calendar
from fairlead.policy.dag_admission.estimates import Durations
from fairlead.policy.dag_admission.ledger import Ledger
from fairlead.policy.dag_admission.tasks import Way

Group = list[Booking]  # to be run as one batch


class Coalescing:
    """Plans nodes again. A node where nothing was booked since is not looked at twice."""

    def __init__(self, calendar: Calendar, durations: Durations, ledger: Ledger) -> None:
        self._calendar = calendar
        self._durations = durations
        self._ledger = ledger
        self._seen: dict[Place, int] = {}  # by place: the newest booking when it was last looked at

    def make_room(self, view: View, places: Sequence[Place]) -> list[Promise]:
        """Merge what can be merged on these nodes, if that makes room; gives whose plans have changed, in order."""
        changed = [promise for place in dict.fromkeys(places) for promise in self._coalesce(view, place)]
        return sorted(dict.fromkeys(changed), key=lambda promise: promise.id)

    def _coalesce(self, view: View, place: Place) -> list[Promise]:
        newest = max((booking.id for booking in place.planned), default=0)
        if self._seen.get(place) == newest:
            return []
        self._seen[place] = newest
        planned = [
            booking
            for booking in place.planned
            if booking.start > view.now and booking.members and booking.members[0][0].id >= 0  # not only expected
        ]
        members = [promise for booking in planned for promise, _ in booking.members]
        return members if len(planned) > 1 and self._replan(view, place, planned) else []

    def _replan(self, view: View, place: Place, planned: Group) -> bool:
        """Book again with larger batches; if that makes no room, leave everything as it was."""
        calendar, now = self._calendar, view.now
        before = [(b, b.seat, b.since, b.start, b.end, b.cold_s, b.transfer_s, b.run_s, b.way) for b in planned]
        last = max(booking.end for booking in planned)
        limits = {booking.id: _limit(booking) for booking in planned}
        for booking in reversed(planned):
            calendar.remove(booking, now)
        groups: list[Group] = []
        left = list(planned)
        while left:
            found = self._next(view, place, left, limits)
            if found is None:
                break
            group, slot = found
            left = [booking for booking in left if booking not in group]
            group[0].way = slot.way
            group[0].move_to(slot)
            calendar.put(group[0], slot.seat)
            groups.append(group)
        if not left and len(groups) < len(planned) and max(group[0].end for group in groups) < last:
            for group in groups:
                for other in group[1:]:
                    self._ledger.merge(group[0], other)
                calendar.settle(group[0], group[0].owner)
            return True
        for group in reversed(groups):
            calendar.remove(group[0], now)
        for booking, seat, since, start, end, cold_s, transfer_s, run_s, way in before:
            booking.since, booking.start, booking.end, booking.way = since, start, end, way
            booking.cold_s, booking.transfer_s, booking.run_s = cold_s, transfer_s, run_s
            calendar.put(booking, seat)
        return False

    def _next(self, view: View, place: Place, left: Group, limits: Mapping[int, float]) -> tuple[Group, Slot] | None:
        """The next batch: the first that is left, and as many others as keep their limits with it."""
        first = left[0]
        alike = [other for other in left if _are_alike(first, other)]
        for way in reversed((first.way, *first.way.larger)):
            group = list(_fill(alike, way.configuration.batch, first.start, view.now))
            size = sum(len(booking.members) for booking in group)
            if len(group) > 1 and _way(first.way, size) is not way:
                continue  # a smaller batch would do
            slot = self._slot(view, place, group)
            if slot is None or slot.end > min(limits[booking.id] for booking in group):
                continue
            if not any(self._is_dearer(view, booking, slot, size) for booking in group):
                return group, slot
        return None

    def _is_dearer(self, view: View, booking: Booking, slot: Slot, size: int) -> bool:
        """Whether who counts the cost would pay more in a batch of so many, or of fewer should others leave."""
        if not any(promise.counts_cost for promise, _ in booking.members):
            return False
        own = len(booking.members)
        paid_s = self._durations.run_s(view, booking.way) + booking.transfer_s
        more_s = max(0.0, slot.cold_s - booking.cold_s)
        for members in range(own, size + 1):
            way = _way(booking.way, members) or slot.way
            seconds = self._durations.run_s(view, way) + slot.transfer_s + more_s
            if seconds * own > just_after(paid_s * members):
                return True
        return False

    def _slot(self, view: View, place: Place, group: Group) -> Slot | None:
        members = [member for booking in group for member in booking.members]
        way = _way(group[0].way, len(members))
        if way is None:
            return None
        ready = max(promise.ready(task, view.now) for promise, task in members)
        inputs = [each for promise, task in members for each in promise.inputs(task)]
        run_s = group[0].run_s if len(group) == 1 else self._durations.run_s(view, way)
        return self._calendar.slot(way, run_s, ready, view.now, inputs, only=place)


def _fill(alike: Group, most: int, start: float, now: float) -> Iterator[Booking]:
    """The first booking, and others that together with it fill a batch, if they are ready when it starts."""
    size = 0
    for booking in alike:
        is_first = size == 0
        if is_first or (
            size + len(booking.members) <= most
            and all(promise.ready(task, now) <= start for promise, task in booking.members)
        ):
            size += len(booking.members)
            yield booking


def _are_alike(one: Booking, other: Booking) -> bool:
    return one.way.seat_key == other.way.seat_key and one.device == other.device and one.owner == other.owner


def _way(way: Way, size: int) -> Way | None:
    """The smallest batch that holds so many, with the share of this one."""
    return next((each for each in (way, *way.larger) if each.configuration.batch >= size), None)


def _limit(booking: Booking) -> float:
    """When a booking must have ended: its members' deadlines, and when what follows it begins."""
    limit = inf
    for promise, task in booking.members:
        then = promise.dag.tasks[task].then
        starts = [after.start for each in then if (after := promise.bookings[each]) is not None]
        limit = min([limit, promise.deadline, *starts])
    return just_after(limit)
