"""What follows when a run ends later than planned: bookings make way in planned order, and so do their successors."""

from heapq import heappop, heappush

from fairlead.policy.dag_admission.bookings import Booking, just_after
from fairlead.policy.dag_admission.calendar import Calendar
from fairlead.policy.dag_admission.slots import Slots

_MOVES = 3  # how often one booking may make others move before it must take what is free

Line = list[tuple[float, int, Booking]]  # what is to be moved, by planned start


def push(calendar: Calendar, slots: Slots, booking: Booking, now: float) -> None:
    """Move what is in the way of a booking that ends later than planned, and all that follows from that.

    Everything stays on its node. What is planned there later waits for what is planned sooner, as before.
    """
    line: Line = []
    moves: dict[Booking, int] = {}
    _line_up(booking, line)
    while line:
        _, _, late = heappop(line)
        if not late.is_planned:
            continue
        moves[late] = moves.get(late, 0) + 1
        _move(calendar, slots, late, now, line, moves)
        if moves[late] <= _MOVES:
            _line_up(late, line)


def _line_up(booking: Booking, line: Line) -> None:
    """What has no room beside a booking on its node, and its successors that begin too early."""
    place = booking.place
    if place.timeline.is_overdrawn(booking.since, booking.end):
        for other in place.planned:
            if other is not booking and other.since < booking.end:
                heappush(line, (other.start, other.id, other))
    for promise, task in booking.members:
        for following in promise.dag.tasks[task].then:
            after = promise.bookings[following]
            if after is not None and after.start < booking.end:
                heappush(line, (after.start, after.id, after))


def _move(
    calendar: Calendar, slots: Slots, booking: Booking, now: float, line: Line, moves: dict[Booking, int]
) -> None:
    """Find a booking its next time on its node; what is planned there later and was not moved yet makes way."""
    place, old_start = booking.place, booking.start
    calendar.remove(booking, now)
    ready, inputs = booking.ready(now), booking.inputs()
    slot = slots.first(booking.way, booking.run_s, ready, now, inputs, only=place)
    if slot is None or slot.start > just_after(max(old_start, ready)):
        for other in [o for o in place.planned if o.start >= old_start and o not in moves and o.end > o.start]:
            calendar.remove(other, now)
            other.since = other.end = other.start
            place.add(other)  # it has no room for now, and is next in line
            heappush(line, (other.start, other.id, other))
        slot = slots.first(booking.way, booking.run_s, ready, now, inputs, only=place)
    assert slot is not None, "a node that once had room has room again some day"
    booking.move_to(slot)
    calendar.put(booking, slot.seat)
    if booking.start > old_start:
        calendar.delayed.update(promise for promise, _ in booking.members)
