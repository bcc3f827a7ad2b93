"""Larger batches when the calendar is full: what is planned on one node is planned again, with neighbours merged.

Runs that were booked alone because nothing else waited may end up in a long line of small batches. Merging them makes
room without breaking a promise: everything still ends before its deadline, and before what follows it begins.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from math import inf

from fairlead.policy.base import View
from fairlead.policy.dag_admission.bookings import Booking, Place, Promise, just_after
from fairlead.policy.dag_admission.calendar import Calendar
from fairlead.policy.dag_admission.drafts import Drafting
from fairlead.policy.dag_admission.estimates import Durations

Group = list[Booking]  # to be run as one batch


class Coalescing:
    """Plans nodes again. A node where nothing was booked since is not looked at twice."""

    def __init__(self, calendar: Calendar, drafting: Drafting, durations: Durations) -> None:
        self._calendar = calendar
        self._drafting = drafting
        self._durations = durations
        self._seen: dict[Place, int] = {}  # by place: the newest booking when it was last looked at

    def make_room(self, view: View, places: Sequence[Place]) -> list[Promise]:
        """Merge what can be merged on these nodes, if that makes room; gives the promises that changed, in order."""
        changed: set[Promise] = set()
        for place in dict.fromkeys(places):
            newest = max((booking.id for booking in place.planned), default=0)
            if self._seen.get(place) == newest:
                continue
            self._seen[place] = newest
            planned = [b for b in place.planned if b.start > view.now]
            promises = [promise for booking in planned for promise, _ in booking.members]
            if len(planned) > 1 and self._replan(view, place, planned):
                changed.update(promises)
        return sorted(changed, key=lambda promise: promise.id)

    def _replan(self, view: View, place: Place, planned: Group) -> bool:
        """Book again with larger batches; if that makes no room, leave everything as it was."""
        calendar = self._calendar
        before = [copy(booking) for booking in planned]
        last = max(booking.end for booking in planned)
        limits = {booking: _limit(booking) for booking in planned}
        for booking in reversed(planned):
            calendar.lift(booking)
        groups: list[Group] = []
        left = list(planned)
        while left:
            found = self._next(view, place, left, limits)
            if found is None:
                break
            group, slot = found
            left = [booking for booking in left if booking not in group]
            group[0].move_to(slot)
            calendar.put(group[0], slot.seat)
            groups.append(group)
        if not left and len(groups) < len(planned) and max(group[0].end for group in groups) < last:
            for group in groups:
                calendar.merge(*group)
            return True
        for group in reversed(groups):
            calendar.lift(group[0])
        for booking, old in zip(planned, before, strict=True):
            booking.move_to(old)
            calendar.put(booking, old.seat)
        return False

    def _next(
        self, view: View, place: Place, left: Group, limits: Mapping[Booking, float]
    ) -> tuple[Group, Booking] | None:
        """The next batch: the first that is left, and as many others as keep their limits with it."""
        first = left[0]
        alike = [other for other in left if _are_alike(first, other)]
        for way in reversed((first.way, *first.way.larger)):
            group = list(_fill(alike, way.configuration.batch, first.start, view.now))
            size = sum(len(booking.members) for booking in group)
            if len(group) > 1 and first.way.holding(size) is not way:
                continue  # a smaller batch would do
            slot = self._slot(view, place, group, size)
            if slot is None or slot.end > min(limits[booking] for booking in group):
                continue
            if not any(self._costs_more(view, booking, slot, size) for booking in group):
                return group, slot
        return None

    def _costs_more(self, view: View, booking: Booking, slot: Booking, size: int) -> bool:
        """Whether members with a cost objective would pay more in a batch of `size` members, or fewer if some leave."""
        if not any(promise.counts_cost for promise, _ in booking.members):
            return False
        own = len(booking.members)
        paid_s = self._durations.run_s(view, booking.way) + booking.transfer_s
        more_s = max(0.0, slot.cold_s - booking.cold_s)
        for members in range(own, size + 1):
            way = booking.way.holding(members) or slot.way
            seconds = self._durations.run_s(view, way) + slot.transfer_s + more_s
            if seconds * own > just_after(paid_s * members):
                return True
        return False

    def _slot(self, view: View, place: Place, group: Group, size: int) -> Booking | None:
        way = group[0].way.holding(size)
        if way is None:
            return None
        ready = max(booking.ready(view.now) for booking in group)
        inputs = [each for booking in group for each in booking.inputs()]
        run_s = group[0].run_s if len(group) == 1 else self._durations.run_s(view, way)
        return self._drafting.first_slot(way, run_s, ready, view.now, inputs, only=place)


def _fill(alike: Group, most: int, start: float, now: float) -> Iterator[Booking]:
    """The first booking, and others that together with it fill a batch, if they are ready when it starts."""
    size = 0
    for booking in alike:
        if size == 0 or (size + len(booking.members) <= most and booking.ready(now) <= start):
            size += len(booking.members)
            yield booking


def _are_alike(one: Booking, other: Booking) -> bool:
    return one.way.size == other.way.size and one.device == other.device


def _limit(booking: Booking) -> float:
    """When a booking must have ended: its members' deadlines, and when what follows it begins."""
    limit = inf
    for promise, task in booking.members:
        then = promise.dag.tasks[task].then
        starts = [after.start for each in then if (after := promise.bookings[each]) is not None]
        limit = min([limit, promise.deadline, *starts])
    return just_after(limit)
