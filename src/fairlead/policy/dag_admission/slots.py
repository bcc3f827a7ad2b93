"""Finding slots: where and when a run would end first, on a warm instance, on a new one, or in a batch."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import nsmallest
from math import inf

from fairlead.policy.dag_admission.bookings import Booking, Place, Seat, Stretch
from fairlead.policy.dag_admission.calendar import OPEN_BATCHES, Calendar
from fairlead.policy.dag_admission.seats import is_warm_at
from fairlead.policy.dag_admission.tasks import Way

_WIDTH = 4  # how many nodes that a request does not use yet are looked at for one run
_SEATS = 3  # how many warm instances

Inputs = Sequence[tuple[Place, float]]  # where the input of a run lies, and how many megabytes


class Slots:
    """Searches a calendar. `mb_per_s` is what comes from one node to another."""

    def __init__(self, calendar: Calendar, mb_per_s: float) -> None:
        self._calendar = calendar
        self._mb_per_s = mb_per_s

    def first(
        self,
        way: Way,
        run_s: float,
        ready: float,
        now: float,
        inputs: Inputs = (),
        used: Collection[Place] = (),
        only: Place | None = None,
    ) -> Booking | None:
        """The slot in which a run would end first; of equals, the first looked at. None if no node can have it."""
        best: Booking | None = None
        is_growing = self._calendar.is_growing and way.has_seats
        cold_s = 0.0 if is_growing else way.cold_s
        if way.has_seats:
            best = self._on_seats(way, run_s, ready, now, inputs, only)
            if best is not None and best.end <= ready + cold_s + run_s:
                return best  # no new instance could be sooner
            if best is not None and is_growing and best.start <= ready:
                return best  # one more is not needed
        for place in (only,) if only is not None else self._candidates(way.kind, inputs, used):
            transfer_s = self._transfer_s(place, inputs)
            total_s = cold_s + transfer_s + run_s
            if best is not None and best.end <= ready + total_s:
                continue  # even if it were all free
            for device in range(place.devices) if way.needs_device else (None,):
                start = place.timeline.earliest(ready, total_s, way.demand(device))
                if best is not None and start + total_s >= best.end:
                    continue
                slot = Booking(way, place, device, start, cold_s, transfer_s, run_s)
                if is_growing:
                    slot.since = now  # it would be idle until then
                    if start > now and not place.timeline.fits(now, start, way.held(device)):
                        continue
                best = slot
                if start <= ready:
                    break
        return best if best is not None and best.end < inf else None

    def _transfer_s(self, place: Place, inputs: Inputs) -> float:
        """How long the input takes to a node."""
        if not inputs or self._mb_per_s == inf:
            return 0.0
        return sum(megabytes for where, megabytes in inputs if where is not place) / self._mb_per_s

    def _candidates(self, kind: str, inputs: Inputs, used: Collection[Place]) -> Iterator[Place]:
        """Nodes worth a look: where the input lies, the least busy, and those that the request uses already."""
        first = dict.fromkeys(place for place, _ in inputs if place.kind == kind and place.is_up)
        yield from first
        fresh = 0
        for _, index in self._calendar.ranked.get(kind, ()):
            place = self._calendar.by_index[index]
            if place not in used and place not in first:
                yield place
                fresh += 1
                if fresh == _WIDTH:
                    break
        for place in used:
            if place.kind == kind and place.is_up and place not in first:
                yield place

    def _on_seats(
        self, way: Way, run_s: float, ready: float, now: float, inputs: Inputs, only: Place | None
    ) -> Booking | None:
        """The best slot on a warm instance, among those that are free first."""
        best: Booking | None = None
        seats: Iterable[Seat] = self._calendar.seats.alike(way)
        if only is not None:
            seats = [seat for seat in seats if seat.place is only]
        # The first that are free; of those that are free in time, the ones on the least busy nodes.
        free = [(max(ready, self._available(seat, now)), seat.place.backlog_s, i, seat) for i, seat in enumerate(seats)]
        for start, _, _, seat in nsmallest(_SEATS, free):
            if best is not None and start + run_s >= best.end:
                break
            best = self._on_seat(seat, way, run_s, ready, now, inputs, best)
        return best

    def _available(self, seat: Seat, now: float) -> float:
        """When a seat is free for one booking more."""
        if self._calendar.is_rehearsing and seat.is_starting(now):
            return seat.rehearsed_until
        return seat.chain[-1].end if seat.chain else seat.free_at

    def _on_seat(
        self, seat: Seat, way: Way, run_s: float, ready: float, now: float, inputs: Inputs, best: Booking | None
    ) -> Booking | None:
        """The slot on a warm instance, if it can be had and ends before the best so far; else that."""
        available = self._available(seat, now)
        start = available if available > ready else ready
        if best is not None and start + run_s >= best.end:
            return best
        place, device = seat.place, seat.device
        transfer_s = self._transfer_s(place, inputs)
        start = place.timeline.earliest(start, transfer_s + run_s, way.demand(device))
        if not is_warm_at(seat, start, now):
            return best
        slot = Booking(way, place, device, start, 0.0, transfer_s, run_s, seat)
        slot.since = min(start, max(now, available))
        if best is not None and slot.end >= best.end:
            return best
        is_kept = slot.since == start or place.timeline.fits(slot.since, start, way.held(device))
        return slot if is_kept else best

    def batch(
        self, way: Way, run_s: Sequence[float], ready: float, inputs: Inputs, owner: str | None
    ) -> tuple[Booking, Stretch] | None:
        """The batch that one more run could join without moving anything else; the one that would end first.

        Args:
            way: How the run would be made alone.
            run_s: The safe durations of `way` and of `way.larger`.
            ready: When its input will be there, `inputs` from where.
            owner: The workflow whose batches count; None for all that use the function.
        """
        best: tuple[Booking, Stretch] | None = None
        ways = (way, *way.larger)
        for booking in reversed(self._calendar.batches.get((*way.size, owner), [])[-OPEN_BATCHES:]):
            larger = way.holding(len(booking.members) + 1)
            if larger is None or booking.is_running or booking.is_done or booking.start < ready:
                continue
            seconds = run_s[ways.index(larger)]
            transfer_s = booking.transfer_s + self._transfer_s(booking.place, inputs)
            if any(promise.counts_cost for promise, _ in booking.members):
                members = len(booking.members)
                now_s = run_s[ways.index(booking.way)] if booking.way in ways[: ways.index(larger) + 1] else inf
                if (transfer_s + seconds) * members > (booking.transfer_s + now_s) * (members + 1):
                    continue  # each member would pay more
            seconds = max(seconds, booking.run_s)
            end = booking.start + booking.cold_s + transfer_s + seconds
            stretch = Stretch(larger, seconds, transfer_s, end)
            if (best is None or end < best[1].end) and _can_stretch(booking, stretch):
                best = booking, stretch
        return best


def _can_stretch(booking: Booking, to: Stretch) -> bool:
    """Whether a batch may end later: there is room, and neither a seat's next run nor what follows is delayed."""
    if to.end <= booking.end:
        return True
    if not booking.place.timeline.fits(booking.end, to.end, to.way.demand(booking.device)):
        return False
    seat = booking.seat
    if seat is not None and seat.chain[-1] is not booking:
        return False
    for promise, task in booking.members:
        if not promise.dag.tasks[task].then and to.end > promise.deadline:
            return False
        for following in promise.dag.tasks[task].then:
            after = promise.bookings[following]
            if after is not None and after.start < to.end:
                return False
    return True
