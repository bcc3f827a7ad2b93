"""Drafts: a request fitted into the calendar along one placement, to be kept or taken back whole.

Every run takes the slot in which it would end first: on a warm instance, on a new one, or in a batch still to start.
"""

from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappop
from math import inf, sqrt

from fairlead.model import Request
from fairlead.policy.base import View
from fairlead.policy.dag_admission.bookings import Booking, Place, Promise, Seat, Stretch, just_after
from fairlead.policy.dag_admission.calendar import OPEN_BATCHES, Calendar
from fairlead.policy.dag_admission.estimates import Durations
from fairlead.policy.dag_admission.placements import DagPlan
from fairlead.policy.dag_admission.seats import is_warm_at
from fairlead.policy.dag_admission.tasks import Way

_TOLERANCE = 5e-10  # half of what the report forgives
_WIDTH = 4  # how many nodes that a request does not use yet are looked at for one run

Inputs = Sequence[tuple[Place, float]]  # where the input of a run lies, and how many megabytes
_Times = tuple[list[float], list[float], list[float]]


class Draft:
    """One placement of one request in the calendar. `is_whole` tells whether every task has its booking."""

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.joined: list[Stretch | None] = []  # per task booked: how the batch was that it joined
        self.finish = -inf
        self.cost_usd = 0.0  # on average
        self.variance = 0.0  # of the cost
        self.is_whole = False
        self.steps = 0  # tasks for which a slot was looked for and found

    def is_in_time(self, request: Request) -> bool:
        """Whether it keeps the latency objective of the request."""
        return self.is_whole and self.finish <= request.deadline * (1 + _TOLERANCE)

    def is_affordable(self, request: Request, sigmas: float) -> bool:
        """Whether it keeps the cost objective, with this number of standard deviations to spare."""
        return self.cost_usd + sigmas * sqrt(self.variance) <= request.budget_usd * (1 + _TOLERANCE)

    @property
    def bookings(self) -> list[Booking]:
        """Its bookings, in the order of its tasks."""
        return [booking for booking in self.promise.bookings if booking is not None]


class Offer:
    """The soonest answer among drafts that were not kept: what could be promised instead."""

    def __init__(self) -> None:
        self.finish = self.cost_usd = inf
        self.full: list[Place] = []  # where its runs that could be in batches would be
        self.steps = 0

    def note(self, draft: Draft) -> None:
        """Look at one more draft."""
        self.steps += draft.steps
        if draft.is_whole and draft.finish < self.finish:
            self.finish, self.cost_usd = draft.finish, draft.cost_usd
            self.full = [booking.place for booking in draft.bookings if booking.way.larger]


class Drafting:
    """Fits requests into a calendar. `mb_per_s` is the bandwidth between two nodes."""

    def __init__(
        self, calendar: Calendar, durations: Durations, mb_per_s: float, *, batches: bool, bills_cold: bool
    ) -> None:
        self._calendar = calendar
        self._durations = durations
        self._mb_per_s = mb_per_s
        self._batches = batches
        self._bills_cold = bills_cold
        self._times: dict[tuple[DagPlan, tuple[Way, ...], bool], _Times] = {}
        self._times_of: tuple[int, object] = (-1, None)  # the durations and the seats for which these hold

    def draft(
        self,
        view: View,
        request: Request,
        dag: DagPlan,
        ways: tuple[Way, ...],
        *,
        leeway: float = 1.0,
        is_hasty: bool = False,
        is_probe: bool = False,
    ) -> Draft:
        """Book every task of a request as early as it can be.

        With `leeway` (the objective divided by the latency of the placement), a run that opens a batch takes room for
        as large a batch as half of its share of the objective allows. A hasty draft stops as soon as the runs that are
        left cannot be in time, even if nothing were in their way; its cost is counted only for requests with a cost
        objective. A probe takes the believed mean of durations that are not learned yet.
        """
        calendar, durations, now = self._calendar, self._durations, view.now
        promise = Promise(request.id, dag, request.deadline, request.budget_usd < inf)
        draft = Draft(promise)
        used: dict[Place, None] = {}
        trusted = [durations.is_unknown(way) for way in ways] if is_probe else [False] * len(ways)
        seconds, least_s, rest_s = self._times_s(view, dag, ways, trusted)
        limit = request.deadline * (1 + _TOLERANCE) if is_hasty else inf
        counts_steps = not (is_probe or calendar.is_rehearsing)
        counts_cost = promise.counts_cost or not is_hasty
        for index, task in enumerate(dag.tasks):
            way, run_s, after_s = ways[task.stage], seconds[task.stage], rest_s[task.stage]
            ready, inputs = promise.ready(index, now), promise.inputs(index)
            if ready + least_s[task.stage] + after_s > limit:
                return draft
            larger_s: list[float] = []
            room_s = run_s
            if self._batches and way.larger and not trusted[task.stage]:
                larger_s = durations.ladder_s(view, way)
                room_s = max([run_s, *[each for each in larger_s if each <= run_s * leeway / 2]])
            latest = just_after(limit - after_s) if is_hasty else inf
            slot = self.first_slot(way, room_s, ready, now, inputs, used, latest=latest)
            joined = self._batch(way, larger_s, ready, inputs) if larger_s else None
            if slot is not None and joined is not None and slot.end < joined[1].end:
                joined = None
            found = slot if joined is None else joined[1]
            if found is None:
                if limit < inf and counts_steps:  # there may be slots, all of them too late
                    draft.steps += self._has_slot(way, room_s, ready, now, inputs, used)
                return draft
            draft.steps += 1
            if found.end + after_s > limit:
                return draft
            if joined is not None:
                booking, stretch = joined
                draft.joined.append(booking.stretch)
                calendar.join(booking, stretch, (promise, index))
            else:
                assert slot is not None
                draft.joined.append(None)
                booking = calendar.book(slot, (promise, index))
            used[booking.place] = None
            if counts_cost:
                self._pay(view, draft, booking, way)
            draft.finish = max(draft.finish, booking.end)
        draft.is_whole = True
        return draft

    def _times_s(self, view: View, dag: DagPlan, ways: tuple[Way, ...], trusted: Sequence[bool]) -> _Times:
        """How long each stage runs, how long it takes at least, and how long what follows it takes at least.

        Unless some durations are `trusted`, they are remembered until durations or seats change.
        """
        calendar, durations = self._calendar, self._durations
        is_usual = not any(trusted)
        key = (dag, ways, calendar.is_growing)
        if is_usual:
            times_of = (durations.version, calendar.seats.sizes)
            if self._times_of[0] != times_of[0] or self._times_of[1] is not times_of[1]:
                self._times.clear()
                self._times_of = times_of
            known = self._times.get(key)
            if known is not None:
                return known
        each = zip(trusted, ways, strict=True)
        seconds = [durations.believed_s(view, way) if one else durations.run_s(view, way) for one, way in each]
        least_s = [run_s + calendar.least_cold_s(way) for way, run_s in zip(ways, seconds, strict=True)]
        times = seconds, least_s, dag.rest_s(least_s)
        if is_usual:
            self._times[key] = times
        return times

    def _pay(self, view: View, draft: Draft, booking: Booking, way: Way) -> None:
        """Add what one member of a booking pays at most, should the members leave that may not be needed."""
        sure = sum([promise.dag.tasks[task].is_sure for promise, task in booking.members])
        worst = (0.0, 0.0)
        for members in range(max(1, sure), len(booking.members) + 1):
            mean_s, deviation_s = self._durations.spread_s(view, way.holding(members) or booking.way)
            mean_s += booking.transfer_s + (booking.cold_s if self._bills_cold else 0.0)
            usd_per_s = booking.way.usd_per_s / members
            worst = max(worst, (mean_s * usd_per_s, deviation_s * usd_per_s))
        draft.cost_usd += worst[0]
        draft.variance += worst[1] ** 2

    def keep(self, draft: Draft) -> Promise:
        """Make a draft count."""
        for booking in draft.bookings:
            self._calendar.settle(booking)
        return draft.promise

    def undo(self, draft: Draft) -> None:
        """Take a draft back, the last booking first."""
        for index in range(len(draft.joined) - 1, -1, -1):
            self._calendar.unbook((draft.promise, index), draft.joined[index])

    # --- slots ---------------------------------------------------------------------------------------------------

    def first_slot(
        self,
        way: Way,
        run_s: float,
        ready: float,
        now: float,
        inputs: Inputs = (),
        used: Collection[Place] = (),
        only: Place | None = None,
        latest: float = inf,
    ) -> Booking | None:
        """The slot in which a run would end first; of equals, the first looked at. None if no node can have it.

        With `only`, no other node is looked at. Slots that end after `latest` may be left out.
        """
        best: Booking | None = None
        is_growing = self._calendar.is_growing and way.has_seats
        cold_s = 0.0 if is_growing else way.cold_s
        if way.has_seats and not way.may_be_evicted:
            # While it grows, whether one more is needed depends on slots that are too late as well.
            best = self._on_seats(way, run_s, ready, now, inputs, only, inf if is_growing else latest)
            if best is not None and best.end <= ready + cold_s + run_s:
                return best  # no new instance could be sooner
            if best is not None and is_growing and best.start <= ready:
                return best  # one more is not needed
        for place in (only,) if only is not None else self._candidates(way.kind, inputs, used):
            transfer_s = self._transfer_s(place, inputs)
            total_s = cold_s + transfer_s + run_s
            if ready + total_s > latest or (best is not None and best.end <= ready + total_s):
                continue  # even if it were all free
            timeline = self._calendar.timeline(place)
            for device in range(place.devices) if way.needs_device else (None,):
                start = timeline.earliest(ready, total_s, way.demand(device))
                if best is not None and start + total_s >= best.end:
                    continue
                slot = Booking(way, place, device, start, cold_s, transfer_s, run_s)
                if is_growing:
                    slot.since = now  # it would be idle until then
                    if start > now and not timeline.fits(now, start, way.held(device)):
                        continue
                best = slot
                if start <= ready:
                    break
        return best if best is not None and best.end < inf else None

    def _has_slot(
        self, way: Way, run_s: float, ready: float, now: float, inputs: Inputs, used: Collection[Place]
    ) -> bool:
        """Whether `first_slot` finds any, however late: mostly told from what is free in the end."""
        for place in self._candidates(way.kind, inputs, used):
            free = self._calendar.timeline(place).free[-1]
            for device in range(place.devices) if way.needs_device else (None,):
                if all(free[column] >= amount for column, amount in way.demand(device)):
                    return True
        return self.first_slot(way, run_s, ready, now, inputs, used) is not None

    def _transfer_s(self, place: Place, inputs: Inputs) -> float:
        """How long the input takes to a node."""
        if not inputs or self._mb_per_s == inf:
            return 0.0
        total_mb = 0.0
        for where, megabytes in inputs:
            if where is not place:
                total_mb += megabytes
        return total_mb / self._mb_per_s

    def _candidates(self, kind: str, inputs: Inputs, used: Collection[Place]) -> Iterator[Place]:
        """Nodes to look at: where the input lies, the least busy, and those that the request uses already."""
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
        self, way: Way, run_s: float, ready: float, now: float, inputs: Inputs, only: Place | None, latest: float
    ) -> Booking | None:
        """The best slot on a warm instance: where it ends first, unless it cannot end before `latest`."""
        best: Booking | None = None
        is_rehearsing = self._calendar.is_rehearsing
        latest_start = latest - run_s
        # The first that are free; of those that are free in time, the ones on the least busy nodes.
        free: list[tuple[float, float, int, float, Seat]] = []
        for i, seat in enumerate(self._calendar.seats.alike(way)):
            place, chain = seat.place, seat.chain
            if only is not None and place is not only:
                continue
            if is_rehearsing and seat.free_at > now and not seat.is_busy:  # it starts
                at = seat.rehearsed_until
            else:
                at = chain[-1].end if chain else seat.free_at
            if at <= latest_start:
                free.append((at if at > ready else ready, place.backlog_s, i, at, seat))
        looked: set[tuple[Place, int | None]] = set()
        heapify(free)
        while free:
            start, _, _, free_at, seat = heappop(free)
            if best is not None and start + run_s >= best.end:
                break
            place, device = seat.place, seat.device
            if (place, device) in looked:
                continue
            timeline, transfer_s = self._calendar.timeline(place), self._transfer_s(place, inputs)
            at = timeline.earliest(start, transfer_s + run_s, way.demand(device))
            if not is_warm_at(seat, at, now):
                continue
            looked.add((place, device))  # an instance that is free later runs no sooner there
            if best is not None and at + transfer_s + run_s >= best.end:
                continue
            slot = Booking(way, place, device, at, 0.0, transfer_s, run_s, seat)
            slot.since = min(at, max(now, free_at))
            if slot.since == at or timeline.fits(slot.since, at, way.held(device)):
                best = slot
        return best

    def _batch(self, way: Way, run_s: Sequence[float], ready: float, inputs: Inputs) -> tuple[Booking, Stretch] | None:
        """The batch that one more run could join without moving anything else; the one that would end first.

        `run_s` has the safe durations of `way` and of `way.larger`.
        """
        best: tuple[Booking, Stretch] | None = None
        ways = (way, *way.larger)
        for booking in reversed(self._calendar.batches.get(way.size, [])[-OPEN_BATCHES:]):
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
    if booking.seat is not None and booking.seat.chain[-1] is not booking:
        return False
    for promise, task in booking.members:
        then = promise.dag.tasks[task].then
        starts = [after.start for each in then if (after := promise.bookings[each]) is not None]
        if to.end > (min(starts, default=inf) if then else promise.deadline):
            return False
    return True
