"""The calendar: who runs where and when, on every node, and which warm instance will be there for it.

A *booking* is one run, planned or under way; its time is taken on its node's timeline. A *seat* is an instance that
will be warm: what is booked on it next needs no cold start, and takes the room of the idle instance from the moment
that the seat is free, so that nobody else is promised that room in between.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from operator import itemgetter

import numpy as np
from sortedcontainers import SortedList

from fairlead.model import Cluster, Instance, Node
from fairlead.policy.dag_admission.bookings import Booking, Place, Promise, Seat, Slot, Stretch, just_after
from fairlead.policy.dag_admission.tasks import Pool, Way, pool_of

_WIDTH = 4  # how many nodes that a request does not use yet are looked at for one run
_SEATS = 3  # how many warm instances
_OPEN_BATCHES = 4  # how many batches that are still to start
_OVERRUN = 0.1  # how much longer, as a share of its time, a run is given that should have ended


class Calendar:
    """All nodes by kind, all bookings, and where something may be able to start."""

    def __init__(self, cluster: Cluster) -> None:
        self.pressure = np.zeros(
            2 * len(cluster.kinds)
        )  # per kind: seconds ahead of all its vCPUs, and of all its vGPUs
        self._columns = {kind: 2 * i for i, kind in enumerate(cluster.kinds)}
        self.places: dict[str, Place] = {}
        self.touched: set[Place] = set()  # where room was given back, or something became ready
        self.delayed: set[Promise] = set()  # of which something was moved to a later time
        self.due: list[tuple[float, int, Booking]] = []  # planned bookings by start; some have moved since
        self._ends: list[tuple[float, int, Booking]] = []  # running ones by end; some have ended since
        self._by_index: list[Place] = []
        self._ranked: dict[str, SortedList] = {}  # by kind: places that are up, the least busy first
        self._seats: dict[tuple[object, ...], dict[Seat, None]] = {}
        self._batches: dict[tuple[object, ...], list[Booking]] = {}
        self._mb_per_s = cluster.bandwidth_gbps * 125
        self._next_id = 0
        for node in cluster.nodes:
            self.open(node)

    # --- nodes ---------------------------------------------------------------------------------------------------

    def open(self, node: Node) -> None:
        """A node is up."""
        place = self.places.get(node.name)
        if place is None:
            place = self.places[node.name] = Place(len(self.places), node)
            self._by_index.append(place)
        if not place.is_up:
            place.is_up = True
            self._ranked.setdefault(node.kind, SortedList()).add(place.rank)

    def close(self, place: Place, now: float) -> list[Booking]:
        """A node is down; gives what was planned or ran there, removed."""
        place.is_up = False
        self._ranked[place.kind].discard(place.rank)
        running = [booking for _, _, booking in self._ends if booking.place is place and not booking.is_done]
        gone = [*place.planned, *running]
        for booking in gone:
            self.remove(booking, now)
            self.unsettle(booking)
            booking.is_done = True
        for seat in place.seats:
            self._seats[seat.way.seat_key].pop(seat, None)
        place.seats.clear()
        return gone

    # --- finding a slot ------------------------------------------------------------------------------------------

    def slot(
        self,
        way: Way,
        run_s: float,
        ready: float,
        now: float,
        inputs: Sequence[tuple[Place, float]] = (),
        used: Sequence[Place] = (),
        only: Place | None = None,
    ) -> Slot | None:
        """The slot in which a run would end first; of equals, the first looked at. None if no node can have it."""
        best: Slot | None = None
        if way.has_seats:
            best = self._on_seats(way, run_s, ready, now, inputs, only)
            if best is not None and best.end <= ready + way.cold_s + run_s:
                return best  # no new instance could be sooner
        for place in (only,) if only is not None else self._candidates(way.kind, inputs, used):
            transfer_s = self.transfer_s(place, inputs)
            total_s = way.cold_s + transfer_s + run_s
            if best is not None and best.end <= ready + total_s:
                continue  # even if it were all free
            for device in range(place.devices) if way.needs_device else (None,):
                start = place.timeline.earliest(ready, total_s, way.demand(device))
                if best is None or start + total_s < best.end:
                    best = Slot(way, place, device, start, way.cold_s, transfer_s, run_s)
                    if start <= ready:
                        break
        return best if best is not None and best.end < inf else None

    def transfer_s(self, place: Place, inputs: Sequence[tuple[Place, float]]) -> float:
        """How long the input takes to a node."""
        if not inputs or self._mb_per_s == inf:
            return 0.0
        return sum(megabytes for where, megabytes in inputs if where is not place) / self._mb_per_s

    def _candidates(self, kind: str, inputs: Sequence[tuple[Place, float]], used: Sequence[Place]) -> Iterator[Place]:
        """Nodes worth a look: where the input lies, the least busy, and those that the request uses already."""
        first = [place for place, _ in inputs if place.kind == kind and place.is_up]
        yield from dict.fromkeys(first)
        fresh = 0
        for _, index in self._ranked.get(kind, ()):
            place = self._by_index[index]
            if place not in used and place not in first:
                yield place
                fresh += 1
                if fresh == _WIDTH:
                    break
        for place in dict.fromkeys(used):
            if place.kind == kind and place.is_up and place not in first:
                yield place

    def _on_seats(
        self,
        way: Way,
        run_s: float,
        ready: float,
        now: float,
        inputs: Sequence[tuple[Place, float]],
        only: Place | None,
    ) -> Slot | None:
        """The best slot on a warm instance, among those that are free first."""
        best: Slot | None = None
        seats: Iterable[Seat] = self._seats.get(way.seat_key) or ()
        if only is not None:
            seats = [seat for seat in seats if seat.place is only]
        least, idle = inf, None
        for seat in seats:
            backlog_s = seat.place.backlog_s
            if backlog_s < least and (seat.chain[-1].end if seat.chain else seat.free_at) <= ready:
                least, idle = backlog_s, seat
        if idle is not None:  # mostly, the one on the least busy node will do
            best = self._on_seat(idle, way, run_s, ready, now, inputs, None)
            if best is not None and not best.transfer_s:
                return best
        free = [(seat.chain[-1].end if seat.chain else seat.free_at, seat) for seat in seats]
        free.sort(key=itemgetter(0))
        for tried, (available, seat) in enumerate(free):
            if tried == _SEATS or (best is not None and max(available, ready) + run_s >= best.end):
                break
            best = self._on_seat(seat, way, run_s, ready, now, inputs, best)
        return best

    def _on_seat(
        self,
        seat: Seat,
        way: Way,
        run_s: float,
        ready: float,
        now: float,
        inputs: Sequence[tuple[Place, float]],
        best: Slot | None,
    ) -> Slot | None:
        """The slot on a warm instance, if it can be had and ends before the best so far; else that."""
        available = seat.available
        start = available if available > ready else ready
        if (best is not None and start + run_s >= best.end) or not _is_warm_at(seat, start, now):
            return best
        slot = Slot(way, seat.place, seat.device, start, 0.0, self.transfer_s(seat.place, inputs), run_s)
        slot.seat = seat
        slot.since = min(start, max(now, available))
        if (best is None or slot.end < best.end) and seat.place.timeline.fits(
            slot.since, slot.end, way.demand(seat.device)
        ):
            return slot
        return best

    def batch(
        self,
        way: Way,
        run_s: Sequence[float],
        ready: float,
        inputs: Sequence[tuple[Place, float]],
        owner: str | None,
    ) -> Slot | None:
        """The batch that one more run could join without moving anything else; the one that would end first.

        Args:
            way: How the run would be made alone.
            run_s: The safe durations of `way` and of `way.larger`.
            ready: When its input will be there, `inputs` from where.
            owner: The workflow whose batches count; None for all that use the function.
        """
        best: Slot | None = None
        for booking in reversed(self._batches.get((*way.seat_key, owner), [])[-_OPEN_BATCHES:]):
            if booking.is_running or booking.is_done or booking.start < ready:
                continue
            needed = len(booking.members) + 1
            now_s = inf
            for larger, seconds in zip((way, *way.larger), run_s, strict=True):
                if larger is booking.way:
                    now_s = seconds
                if larger.configuration.batch >= needed:
                    transfer_s = booking.transfer_s + self.transfer_s(booking.place, inputs)
                    paid_s = booking.transfer_s + now_s
                    costs_more = (transfer_s + seconds) * len(booking.members) > paid_s * needed
                    if costs_more and any(promise.counts_cost for promise, _ in booking.members):
                        break
                    slot = self._in_batch(booking, larger, max(seconds, booking.run_s), transfer_s)
                    if slot is not None and (best is None or slot.end < best.end):
                        best = slot
                    break
        return best

    def _in_batch(self, booking: Booking, larger: Way, run_s: float, transfer_s: float) -> Slot | None:
        slot = Slot(larger, booking.place, booking.device, booking.start, booking.cold_s, transfer_s, run_s)
        if slot.end > booking.end:
            room = larger.demand(booking.device)
            if not booking.place.timeline.fits(booking.end, slot.end, room):
                return None
            seat = booking.seat
            if seat is not None and seat.chain[-1] is not booking:
                return None
            for promise, task in booking.members:
                if not promise.dag.tasks[task].then and slot.end > promise.deadline:
                    return None
                for following in promise.dag.tasks[task].then:
                    after = promise.bookings[following]
                    if after is not None and after.start < slot.end:
                        return None
        slot.joins = booking
        return slot

    # --- booking -------------------------------------------------------------------------------------------------

    def book(self, slot: Slot, promise: Promise, task: int) -> Booking:
        """Take a slot for a task."""
        booking = slot.joins
        if booking is None:
            self._next_id += 1
            booking = Booking(self._next_id, slot, (promise, task))
            self.put(booking, slot.seat)
        else:
            self._stretch(booking, slot.way, slot.run_s, slot.transfer_s, slot.end)
            booking.members.append((promise, task))
        promise.bookings[task] = booking
        return booking

    def unbook(self, promise: Promise, task: int, before: "Stretch | None", now: float) -> None:
        """Undo `book`; `before` is how a joined batch was."""
        booking = promise.bookings[task]
        assert booking is not None
        promise.bookings[task] = None
        if before is None:
            self.remove(booking, now)
            booking.is_done = True
        else:
            booking.members.pop()
            self._stretch(booking, *before)

    def _stretch(self, booking: Booking, way: Way, run_s: float, transfer_s: float, end: float) -> None:
        demand = booking.way.demand(booking.device)
        if end > booking.end:
            booking.place.timeline.take(booking.end, end, demand)
        else:
            booking.place.timeline.give(end, booking.end, demand)
        booking.way, booking.run_s, booking.transfer_s, booking.end = way, run_s, transfer_s, end

    def put(self, booking: Booking, seat: Seat | None) -> None:
        """Take the room of a booking that has its times."""
        place = booking.place
        place.timeline.take(booking.since, booking.end, booking.way.demand(booking.device))
        booking.seat = seat
        if seat is not None:
            insort(seat.chain, booking)
        insort(place.planned, booking)
        if booking.members[0][0].id >= 0:  # nobody starts what is only expected
            heappush(self.due, (booking.start, booking.id, booking))

    def remove(self, booking: Booking, now: float) -> None:
        """Give back the room that a booking has not used yet."""
        place = booking.place
        since = max(now, booking.since) if booking.is_running else booking.since
        place.timeline.give(since, booking.end, booking.way.demand(booking.device))
        self.touched.add(place)
        if booking.is_running:
            return
        place.planned.remove(booking)
        seat = booking.seat
        if seat is not None:
            position = seat.chain.index(booking)
            del seat.chain[position]
            self._keep_seat(seat, booking.since, position)
            booking.seat = None

    def _keep_seat(self, seat: Seat, since: float, position: int = 0) -> None:
        """Let the next in the chain of a seat keep it from an instant on, if it does not already."""
        if position < len(seat.chain) and seat.chain[position].since > since:
            following = seat.chain[position]
            seat.place.timeline.take(since, following.since, following.way.demand(following.device))
            following.since = since

    def settle(self, booking: Booking, owner: str | None) -> None:
        """Note a new or stretched booking for good: in the backlogs, and as a batch that others may join."""
        booking.owner = owner
        self._count(booking, booking.cold_s + booking.run_s)
        if booking.way.larger or len(booking.members) > 1:
            batches = self._batches.setdefault((*booking.way.seat_key, owner), [])
            if booking not in batches[-_OPEN_BATCHES:]:
                batches.append(booking)
                if len(batches) > 16 * _OPEN_BATCHES:
                    del batches[: -4 * _OPEN_BATCHES]

    def unsettle(self, booking: Booking) -> None:
        """Let a booking count no longer."""
        self._count(booking, 0.0)

    def _count(self, booking: Booking, seconds: float) -> None:
        way, place = booking.way, booking.place
        more_s, booking.load_s = seconds - booking.load_s, seconds
        column = self._columns[way.kind]
        self.pressure[column] += more_s * way.share[0]
        self.pressure[column + 1] += more_s * way.share[1]
        place.backlog_s += more_s * way.node_share
        rank = (round(place.backlog_s, 9), place.index)
        if place.is_up:
            ranked = self._ranked[place.kind]
            ranked.discard(place.rank)
            ranked.add(rank)
        place.rank = rank

    # --- as time goes by -----------------------------------------------------------------------------------------

    def take_due(self, now: float) -> list[Booking]:
        """The planned bookings whose time has come."""
        found = []
        while self.due and self.due[0][0] <= now:
            at, _, booking = heappop(self.due)
            if booking.start == at and not (booking.is_running or booking.is_done):
                found.append(booking)
        return found

    def next_due(self, now: float) -> float | None:
        """When the next planned booking that waits for nothing else is to start."""
        while self.due:
            at, _, booking = self.due[0]
            if booking.start == at and not (booking.is_running or booking.is_done) and at > now:
                return at
            heappop(self.due)
        return None

    def can_begin(self, booking: Booking, now: float) -> bool:
        """Whether a booking is due, or may start sooner without being in anybody's way."""
        seat = booking.seat
        if booking.start <= just_after(now):
            # Its instance may be late, be it by rounding only: worth waiting for unless a cold start is sooner.
            if seat is None or (seat.free_at <= now and not seat.is_busy):
                return True
            return seat.free_at - now > booking.way.cold_s
        if seat is not None and (seat.chain[0] is not booking or seat.free_at > now):
            return False
        timeline, demand = booking.place.timeline, booking.way.demand(booking.device)
        timeline.give(booking.since, booking.end, demand)
        until = now + booking.cold_s + booking.transfer_s + booking.run_s
        if seat is not None and len(seat.chain) > 1:
            until = booking.end  # who comes next then keeps the seat until its own time
        can = timeline.fits(now, until, demand)
        timeline.take(booking.since, booking.end, demand)
        return can

    def begin(self, booking: Booking, now: float, is_warm: bool, run_s: float) -> bool:
        """A booking starts now, on a warm instance or not; tells whether it will end later than planned."""
        place = booking.place
        demand = booking.way.demand(booking.device)
        place.planned.remove(booking)
        cold_s = 0.0 if is_warm else booking.way.cold_s
        booking.run_s = min(booking.run_s, run_s)  # room that was kept for a larger batch is not needed any more
        end = now + cold_s + booking.transfer_s + booking.run_s
        place.timeline.give(booking.since, booking.end, demand)
        place.timeline.take(now, end, demand)
        moved_later = end > just_after(booking.end)
        booking.start, booking.since, booking.end, booking.cold_s = now, now, end, cold_s
        booking.is_running = True
        seat = booking.seat
        if seat is None and booking.way.has_seats:
            seat = self.idle_seat(booking, now) if is_warm else None
            if seat is None:
                seat = self._add_seat(booking.way, place, booking.device)
            booking.seat = seat
        elif seat is not None:
            seat.chain.remove(booking)
        if seat is not None:
            if is_warm:  # it has the last used instance of the pool, and another seat the one that was meant
                idle = [s for s in place.seats if s.pool == seat.pool and not s.is_busy and s.free_at <= now]
                last = max(idle, key=lambda other: other.free_at, default=seat)
                last.free_at = seat.free_at
                self._resize(last, seat.way)
            self._resize(seat, booking.way)
            seat.free_at, seat.is_busy = end, True
            self._keep_seat(seat, end)
        heappush(self._ends, (end, booking.id, booking))
        return moved_later

    def _resize(self, seat: Seat, way: Way) -> None:
        """Let a seat be found by those who need instances of another size."""
        if seat.way.seat_key != way.seat_key:
            del self._seats[seat.way.seat_key][seat]
            self._seats.setdefault(way.seat_key, {})[seat] = None
        seat.way = way

    def idle_seat(self, booking: Booking, now: float) -> Seat | None:
        """A seat that is idle, claimed by nobody, and would do."""
        pool = booking.way.pool(booking.device)
        seats = [seat for seat in booking.place.seats if seat.pool == pool and not seat.is_busy and seat.free_at <= now]
        idle = [seat for seat in seats if not seat.chain and seat.free_at + seat.way.keep_alive_s > now]
        last = max(idle, key=lambda seat: seat.free_at, default=None)
        if last is None:
            return None
        # Whoever counts on another seat may be left with the instance of this one.
        for claim in (seat.chain[-1] for seat in seats if seat.chain):
            if claim.start >= last.free_at + last.way.keep_alive_s or _differ(last.way, claim.way):
                return None
        return last

    def claimed(self, place: Place, now: float) -> list[Seat]:
        """The seats of a node that do not run but that somebody counts on, or that are just being started."""
        return [seat for seat in place.seats if not seat.is_busy and (seat.chain or seat.free_at > now)]

    def end(self, booking: Booking, now: float, is_stopped: bool = False) -> None:
        """A run is over, sooner or later than planned.

        One that was stopped because another copy was faster leaves its instance, which may still be starting.
        """
        booking.is_done = True
        place = booking.place
        free_at = max(now, booking.start + booking.cold_s) if is_stopped else now
        if booking.end > free_at:
            place.timeline.give(free_at, booking.end, booking.way.demand(booking.device))
        booking.end = now
        seat = booking.seat
        if seat is not None:
            seat.free_at, seat.is_busy = free_at, False
            self._keep_seat(seat, free_at)
        self.unsettle(booking)
        self.touched.add(place)
        if len(place.timeline.times) > 64:
            place.timeline.forget(now)

    def warm_up(self, way: Way, place: Place, device: int | None, now: float) -> bool:
        """Note an instance that is started ahead of need; False if there is no room for it, or one is there already."""
        if any(seat.way.seat_key == way.seat_key for seat in place.seats):
            return False
        ready, demand = now + way.cold_s, way.demand(device)
        if not place.timeline.fits(now, ready, demand):
            return False
        place.timeline.take(now, ready, demand)
        self._add_seat(way, place, device).free_at = ready
        return True

    def _add_seat(self, way: Way, place: Place, device: int | None) -> Seat:
        seat = Seat(way, place, device)
        place.seats.append(seat)
        self._seats.setdefault(way.seat_key, {})[seat] = None
        return seat

    def recount(self, place: Place, idle: Iterable[Instance], now: float) -> None:
        """Forget seats whose instance made way for another; `idle` are the instances that are left."""
        left = Counter(map(pool_of, idle))
        pools: dict[Pool, list[Seat]] = {}
        for seat in place.seats:
            if not (seat.is_busy or seat.way.is_weightless) and seat.free_at <= now:
                pools.setdefault(seat.pool, []).append(seat)
        for pool, seats in pools.items():
            gone = len(seats) - left[pool]
            if gone > 0:  # the least recently used, which is nobody's that can be told
                seats.sort(key=lambda seat: seat.free_at, reverse=True)
                instants = [seat.free_at for seat in seats]
                seats.sort(key=lambda seat: not seat.chain)
                for seat, free_at in zip(seats, instants, strict=True):
                    seat.free_at = free_at
                for seat in [seat for seat in seats[-gone:] if not seat.chain]:
                    self._drop_seat(seat)

    def _drop_seat(self, seat: Seat) -> None:
        seat.place.seats.remove(seat)
        del self._seats[seat.way.seat_key][seat]

    def drop_seats(self, now: float) -> None:
        """Forget seats whose instance has expired."""
        for place in self.touched:
            for seat in list(place.seats):
                if not (seat.chain or seat.is_busy) and seat.free_at + seat.way.keep_alive_s <= now:
                    self._drop_seat(seat)

    def overruns(self, now: float) -> Iterator[Booking]:
        """Give runs that should have ended a little more time; yields each."""
        while self._ends and just_after(self._ends[0][0]) < now:
            end, _, booking = heappop(self._ends)
            if booking.is_done or booking.end != end:
                continue
            more = now + _OVERRUN * (booking.cold_s + booking.transfer_s + booking.run_s)
            booking.place.timeline.take(booking.end, more, booking.way.demand(booking.device))
            booking.end = more
            if booking.seat is not None:
                booking.seat.free_at = more
            heappush(self._ends, (more, booking.id, booking))
            yield booking


def _is_warm_at(seat: Seat, start: float, now: float) -> bool:
    """Whether a run on a seat will find a warm instance, however soon what runs ends.

    Where others count on seats of the same pool, each may be left with the instance that was used least recently.
    """
    keep_alive_s = seat.way.keep_alive_s
    # A run may end sooner than planned or not be needed at all, and its instance expire sooner.
    is_used = seat.is_busy or any(booking.is_sure for booking in seat.chain)
    if start >= (now if is_used else seat.free_at) + keep_alive_s:
        return False
    oldest, latest, has_rivals = inf, start, False
    for other in seat.place.seats:
        if other.pool == seat.pool and (other.chain or other.is_busy or other.free_at + keep_alive_s > now):
            oldest = min(oldest, now if other.is_busy else other.free_at)
            if other.chain and other is not seat:
                if _differ(seat.way, other.chain[-1].way):
                    return False
                latest, has_rivals = max(latest, other.chain[-1].start), True
    return not has_rivals or latest < oldest + keep_alive_s


def _differ(one: Way, other: Way) -> bool:
    """Whether an idle instance of one size would keep more or less than is booked for one of the other."""
    return one.keeps_slice and one.seat_key != other.seat_key
