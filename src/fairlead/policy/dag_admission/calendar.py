"""The calendar: what runs where and when, on every node, and which warm instance will be there for it.

A *booking* is one run, planned or under way; its time is taken on its node's timeline. A *seat* is an instance that
will be warm: what is booked on it next needs no cold start, and takes what the idle instance holds (its memory, or
its whole slice) from the moment that the seat is free, so that this is promised to no other run in between.
"""

from bisect import insort
from heapq import heappop, heappush
from math import inf

import numpy as np
from sortedcontainers import SortedList

from fairlead.model import Cluster, Node
from fairlead.planning.timeline import Timeline
from fairlead.policy.base import View
from fairlead.policy.dag_admission.bookings import Booking, Member, Place, Seat, Stretch, just_after
from fairlead.policy.dag_admission.seats import Seats, idle_seat
from fairlead.policy.dag_admission.tasks import Way

_OVERRUN = 0.1  # how much longer, as a share of its time, a run is given that should have ended
OPEN_BATCHES = 4  # how many batches that are still to start are looked at for one run


class Calendar:
    """All nodes by kind, all bookings, and where something may be able to start."""

    def __init__(self, cluster: Cluster) -> None:
        self.pressure = np.zeros(2 * len(cluster.kinds))  # per kind: seconds ahead of all its vCPUs, of all its vGPUs
        self.places: dict[str, Place] = {}
        self.by_index: list[Place] = []
        self.ranked: dict[str, SortedList] = {}  # by kind: places that are up, the least busy first
        self.seats = Seats()
        self.batches: dict[tuple[object, ...], list[Booking]] = {}  # by size
        self.touched: set[Place] = set()  # where room was given back, or something became ready
        self._columns = {kind: 2 * i for i, kind in enumerate(cluster.kinds)}
        self._due: list[tuple[float, int, Booking]] = []  # planned bookings by start; some have moved since
        self._ends: list[tuple[float, int, Booking]] = []  # running ones by end; some have ended since
        self.starts_until = -inf  # when the last instance is ready that is started ahead of need
        # In a rehearsal, instances that start are taken as started; while it is growing, new ones start at once.
        self.is_rehearsing = self.is_growing = False
        self._next_id = 0
        for node in cluster.nodes:
            self.open(node)

    def open(self, node: Node) -> None:
        """A node is up."""
        place = self.places.get(node.name)
        if place is None:
            place = self.places[node.name] = Place(len(self.places), node)
            self.by_index.append(place)
        if not place.is_up:
            place.is_up = True
            self.ranked.setdefault(node.kind, SortedList()).add(place.rank)

    def close(self, place: Place, now: float) -> list[Booking]:
        """A node is down; gives what was planned or ran there, removed."""
        place.is_up, place.bare = False, None
        self.ranked[place.kind].discard(place.rank)
        running = [booking for _, _, booking in self._ends if booking.place is place and not booking.is_done]
        gone = [*place.planned, *running]
        for booking in gone:
            self.discard(booking, now)
        for seat in list(place.seats):
            self.seats.drop(seat)
        return gone

    def timeline(self, place: Place) -> Timeline:
        """What is free on a node; in a rehearsal, as if no instance were being started."""
        return place.bare if self.is_rehearsing and place.bare is not None else place.timeline

    def least_cold_s(self, way: Way) -> float:
        """The shortest cold start that a run can have."""
        if way.has_seats and (self.is_growing or self.seats.alike(way)):
            return 0.0
        return way.cold_s

    # --- booking -------------------------------------------------------------------------------------------------

    def book(self, slot: Booking, member: Member) -> Booking:
        """Take the room of a slot for a task; `settle` makes it count."""
        self._next_id += 1
        slot.id = self._next_id
        slot.members[member] = None
        self._take(slot)
        if slot.seat is not None:
            insort(slot.seat.chain, slot)
        member[0].bookings[member[1]] = slot
        return slot

    def join(self, booking: Booking, stretch: Stretch, member: Member) -> None:
        """Let a task be one more member of a batch."""
        self._stretch(booking, stretch)
        booking.members[member] = None
        member[0].bookings[member[1]] = booking

    def unbook(self, member: Member, before: Stretch | None) -> None:
        """Undo `book`, or `join`: `before` is how the batch was."""
        promise, task = member
        booking, promise.bookings[task] = promise.bookings[task], None
        assert booking is not None
        if before is None:
            self.lift(booking)
            booking.is_done = True
        else:
            del booking.members[member]
            self._stretch(booking, before)

    def _stretch(self, booking: Booking, to: Stretch) -> None:
        demand = booking.way.demand(booking.device)
        if to.end > booking.end:
            booking.place.take(booking.end, to.end, demand)
        else:
            booking.place.give(to.end, booking.end, demand)
        booking.way, booking.run_s, booking.transfer_s, booking.end = to

    def lift(self, booking: Booking) -> None:
        """Give back the room of a booking that has not begun."""
        self._give(booking)
        if booking.is_planned:
            booking.place.remove(booking)
        seat, booking.seat = booking.seat, None
        if seat is not None:
            position = seat.chain.index(booking)
            del seat.chain[position]
            self._keep_seat(seat, booking.since, position)

    def put(self, booking: Booking, seat: Seat | None) -> None:
        """Plan a booking again that was lifted and has its times."""
        self.touched.add(booking.place)
        self._take(booking)
        booking.seat = seat
        if seat is not None:
            insort(seat.chain, booking)
        booking.place.add(booking)
        heappush(self._due, (booking.start, booking.id, booking))

    def merge(self, booking: Booking, *others: Booking) -> None:
        """Take the members of others, which were lifted, into a batch that has room for them."""
        for other in others:
            for promise, task in other.members:
                promise.bookings[task] = booking
            booking.members.update(other.members)
            other.is_done = True
            self._count(other, 0.0)
        booking.place.note_waiting(booking)
        self.settle(booking)

    def discard(self, booking: Booking, now: float) -> None:
        """Remove a booking for good, and give back the room that it has not used yet."""
        booking.is_done = True
        self.touched.add(booking.place)
        if booking.is_running:
            booking.place.give(max(now, booking.since), booking.end, booking.way.demand(booking.device))
        else:
            self.lift(booking)
        self._count(booking, 0.0)

    def _take(self, booking: Booking) -> None:
        place, way = booking.place, booking.way
        if booking.since < booking.start:
            place.take(booking.since, booking.start, way.held(booking.device))
        place.take(booking.start, booking.end, way.demand(booking.device))

    def _give(self, booking: Booking) -> None:
        place, way = booking.place, booking.way
        if booking.since < booking.start:
            place.give(booking.since, booking.start, way.held(booking.device))
        place.give(booking.start, booking.end, way.demand(booking.device))

    def _keep_seat(self, seat: Seat, since: float, position: int = 0) -> None:
        """Let the next in the chain of a seat keep it from an instant on, if it does not already."""
        if not self.is_rehearsing and position < len(seat.chain) and seat.chain[position].since > since:
            following = seat.chain[position]
            seat.place.take(since, following.since, following.way.held(following.device))
            following.since = since

    def settle(self, booking: Booking) -> None:
        """Note a new or stretched booking for good: to be started, in the backlogs, and as a batch to join."""
        if not booking.is_planned:
            booking.place.add(booking)
            heappush(self._due, (booking.start, booking.id, booking))
        self._count(booking, booking.cold_s + booking.run_s)
        if booking.way.larger or len(booking.members) > 1:
            batches = self.batches.setdefault(booking.way.size, [])
            if booking not in batches[-OPEN_BATCHES:]:
                batches.append(booking)
                if len(batches) > 16 * OPEN_BATCHES:
                    del batches[: -4 * OPEN_BATCHES]

    def _count(self, booking: Booking, seconds: float) -> None:
        way, place = booking.way, booking.place
        more_s, booking.load_s = seconds - booking.load_s, seconds
        column = self._columns[way.kind]
        self.pressure[column] += more_s * way.share[0]
        self.pressure[column + 1] += more_s * way.share[1]
        place.backlog_s += more_s * way.node_share
        rank = (round(place.backlog_s, 9), place.index)
        if place.is_up:
            ranked = self.ranked[place.kind]
            ranked.discard(place.rank)
            ranked.add(rank)
        place.rank = rank

    # --- as time goes by -----------------------------------------------------------------------------------------

    def take_due(self, now: float) -> list[Booking]:
        """The planned bookings whose time has come."""
        found = []
        while self._due and self._due[0][0] <= now:
            at, _, booking = heappop(self._due)
            if booking.start == at and not (booking.is_running or booking.is_done):
                found.append(booking)
        return found

    def next_due(self, now: float) -> float | None:
        """When the next planned booking that waits for nothing else is to start."""
        while self._due:
            at, _, booking = self._due[0]
            if booking.start == at and not (booking.is_running or booking.is_done) and at > now:
                return at
            heappop(self._due)
        return None

    def can_begin(self, booking: Booking, now: float) -> bool:
        """Whether a booking is due, or may start sooner without delaying another."""
        seat = booking.seat
        if booking.start <= just_after(now):
            # Its instance may be late, be it by rounding only: worth waiting for unless a cold start is sooner.
            if seat is None or (seat.free_at <= now and not seat.is_busy):
                return True
            return seat.free_at - now > booking.way.cold_s
        if seat is not None and (seat.chain[0] is not booking or seat.free_at > now):
            return False
        until = now + booking.cold_s + booking.transfer_s + booking.run_s
        if seat is not None and len(seat.chain) > 1:
            until = booking.end  # the next in the chain then keeps the seat until its own time
        timeline, demand = booking.place.timeline, booking.way.demand(booking.device)
        if now < booking.since and not timeline.fits(now, min(until, booking.since), demand):
            return False
        if until <= booking.since:
            return True
        self._give(booking)  # what it has itself is not in its way
        can = timeline.fits(now, until, demand)
        self._take(booking)
        return can

    def begin(self, booking: Booking, now: float, is_warm: bool, run_s: float) -> None:
        """A booking starts now, on a warm instance or not."""
        place = booking.place
        place.remove(booking)
        self._give(booking)
        booking.is_running = True
        booking.cold_s = 0.0 if is_warm else booking.way.cold_s
        booking.run_s = min(booking.run_s, run_s)  # room that was kept for a larger batch is not needed any more
        booking.start = booking.since = now
        booking.end = end = now + booking.cold_s + booking.transfer_s + booking.run_s
        self._take(booking)
        seat = booking.seat
        if seat is not None:
            seat.chain.remove(booking)
        elif booking.way.has_seats:
            seat = idle_seat(booking, now) if is_warm else None
            if seat is None:
                seat = self.seats.add(booking.way, place, booking.device)
            booking.seat = seat
        if seat is not None:
            if is_warm:
                self.seats.wake(seat, booking.way, now)
            else:
                self.seats.resize(seat, booking.way)
            seat.free_at, seat.is_busy = end, True
            self._keep_seat(seat, end)
        heappush(self._ends, (end, booking.id, booking))

    def end(self, booking: Booking, now: float, is_stopped: bool) -> None:
        """A run is over, sooner or later than planned.

        One that was stopped because another copy was faster leaves its instance, which may still be starting.
        """
        booking.is_done = True
        place, seat = booking.place, booking.seat
        free_at = max(now, booking.start + booking.cold_s) if is_stopped else now
        if booking.end > free_at:
            place.give(free_at, booking.end, booking.way.demand(booking.device))
        booking.end = now
        if seat is not None:
            seat.free_at, seat.is_busy = free_at, False
            self._keep_seat(seat, free_at)
        self._count(booking, 0.0)
        self.touched.add(place)
        place.forget(now)

    def start_ahead(self, way: Way, view: View) -> Seat | None:
        """Find a place for an instance that is started ahead of need; None if no node has room for its start.

        Of the nodes with room, the one whose instances could use the smallest share of it.
        """
        ready = view.now + way.cold_s
        places = [self.by_index[index] for _, index in self.ranked.get(way.kind, ())]
        for place in sorted(places, key=Place.settled_share):
            for device in range(place.devices) if way.needs_device else (None,):
                demand = way.demand(device)
                if place.timeline.fits(view.now, ready, demand) and view.fits(
                    way.function, way.configuration, place.name, device, is_fresh=True
                ):
                    place.take_for_start(view.now, ready, demand)
                    seat = self.seats.add(way, place, device)
                    seat.free_at = ready
                    self.starts_until = max(self.starts_until, ready)
                    return seat
        return None

    def extend_overruns(self, now: float) -> None:
        """Give runs that should have ended a little more time. What is planned behind them starts when they end."""
        while self._ends and just_after(self._ends[0][0]) < now:
            end, _, booking = heappop(self._ends)
            if booking.is_done or booking.end != end:
                continue
            more = now + _OVERRUN * (booking.cold_s + booking.transfer_s + booking.run_s)
            booking.place.take(booking.end, more, booking.way.demand(booking.device))
            booking.end = more
            if booking.seat is not None:
                booking.seat.free_at = more
            heappush(self._ends, (more, booking.id, booking))
