"""DAG admission control over CPUs and GPUs, with latency and cost objectives.

A. Ramkumar, "Making the Most of Serverless Accelerators" (UCB/EECS-2022-88, 2022), chapter 4.

Before the run, every placement of a workflow's functions on resource types that no other beats in both latency and
cost is kept. On each request, those that could meet both objectives are tried against what is already promised, a
feasible one is booked, and the request is refused at once if there is none.

**Differs from the paper:**

* A resource type is a configuration on a kind of node, so vCPUs and vGPUs are chosen too, and batches are formed.
* The candidates are those that meet the latency *and* the cost objective; the text says union and means this.
* As published, placements whose instances exist are tried before new ones. Within a placement each run takes the warm
  instance, the waiting batch or the new instance with which it ends first. Instances and batches are those of a
  function, whichever workflow uses it.
* Room is booked in time, not only in memory: several requests are promised one after the other on one node. A run
  starts sooner than booked if the one before it ends sooner and no other is delayed.
* The published choice among feasible placements is `random`. `balanced` spreads work over resources: it also tries
  placements that are off the front but spare a resource, and while requests are refused for want of room it takes
  nothing but the placement that relieves the busiest resource most.
* Packing looks at the least busy nodes of a type, not at all nodes by free memory, and undoes what does not fit.
* Durations are percentiles of what was observed, after a safe start (`estimates`). Where being safe would admit
  nothing, one request at a time is admitted on declared durations, to learn from. Costs are means with a margin for
  their spread; until enough was observed, declared means without one.
* What is planned behind a run that is late waits for it; a request that cannot be in time any more is dropped.
* Where the constants of all kernels exceed a device's memory, every run of a kernel is booked with its load. One that
  finds its constants there ends sooner, and what follows is moved up.
* Placements that are too slow by safe durations are left out before the sample is taken, unless all are.
* A refused request is rehearsed as if instances started at once; those with which it would have been in time are
  started for the requests that follow. The report loads a placement when a request needs it.
* `shared_map` has the defect that explains the published table: one placement per workflow, drawn anew on each
  arrival and shared by all its requests, and no request is refused.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import ClassVar

import numpy as np

from fairlead.model import Request
from fairlead.planning.timeline import Demand
from fairlead.policy.base import Action, Policy, Reject, Retire, Searched, Site, Start, View, Wake, Warm
from fairlead.policy.dag_admission.bookings import Booking, Place
from fairlead.policy.dag_admission.calendar import Calendar
from fairlead.policy.dag_admission.coalesce import Coalescing
from fairlead.policy.dag_admission.drafts import Draft, Drafting, Offer
from fairlead.policy.dag_admission.estimates import Durations, Source
from fairlead.policy.dag_admission.ledger import Ledger
from fairlead.policy.dag_admission.placements import DagPlan, Selection, candidates
from fairlead.policy.dag_admission.seats import claimed, counted_on, idle_seat
from fairlead.policy.dag_admission.shared_map import SharedMap
from fairlead.policy.dag_admission.tasks import Way, ways_of
from fairlead.policy.kit.reservations import held_by

_LOOKS = 10  # how often per latency objective it is checked whether there is still no room for refused requests


@dataclass
class DagAdmission(Policy):
    """Promise each request an answer within its latency and cost objectives, or refuse it at once.

    Args:
        selection: Which of the feasible placements is taken.
        sample: How many placements are tried per request (s in the paper); 0 tries all.
        batching: Whether a run may join a batch that has not started.
        estimates: Whether durations are `learned` from what was observed or stay as `declared`.
        slack: What is added to a declared duration, as a share of it. Absorbs noise until enough was observed.
        percentile: Which percentile of the observed durations is planned with, in (0, 1].
        shared_map: Reproduce the defect behind the published table; all else but `sample` is then ignored.
    """

    paper: ClassVar[str] = "Serverless accelerators (UCB 2022), 4"

    selection: Selection = "balanced"
    sample: int = 4
    batching: bool = True
    estimates: Source = "learned"
    slack: float = 0.25
    percentile: float = 0.99
    shared_map: bool = False

    def __post_init__(self) -> None:
        if self.sample < 0:
            raise ValueError(f"sample must not be negative; got {self.sample}.")
        if not 0 <= self.slack < inf:
            raise ValueError(f"slack must be finite and not negative; got {self.slack}.")
        if not 0 < self.percentile <= 1:
            raise ValueError(f"percentile must be in (0, 1]; got {self.percentile}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._rng = rng
        self._functions = site.functions
        ways = {name: ways_of(function, site) for name, function in site.functions.items()}
        self._dags = {name: DagPlan(workflow, ways, site) for name, workflow in site.workflows.items()}
        self._map = SharedMap(site, self._dags, rng) if self.shared_map else None
        self._calendar = Calendar(site.cluster)
        self._durations = Durations(self.estimates, self.slack, self.percentile)
        self._drafting = Drafting(
            self._calendar,
            self._durations,
            site.cluster.bandwidth_gbps * 125,
            batches=self.batching,
            bills_cold=site.cluster.price.bill_cold_start,
        )
        self._coalescing = Coalescing(self._calendar, self._drafting, self._durations)
        self._ledger = Ledger(self._calendar, self._drafting, self._durations, ways)
        self._refused_at = self._full_at = -inf
        self._wake_at = -inf
        self._is_new = True
        self._probes: dict[str, int] = {}  # by workflow: the last request that was admitted to learn from

    def decide(self, view: View) -> Iterator[Action]:
        if self._map is not None:
            yield from self._map.decide(view)
            return
        if self._is_new:
            self._is_new = False
            self._ledger.adopt(view)
        self._ledger.follow(view)
        for request in view.fresh:
            yield from self._answer(view, request)
        for promise in self._ledger.hopeless(view):
            yield Reject(promise.id, "it fell behind and cannot be in time any more")
        yield from self._start(view)
        yield from self._wake(view.now)

    # --- admission -----------------------------------------------------------------------------------------------

    def _answer(self, view: View, request: Request) -> Iterator[Action]:
        """Promise or refuse."""
        now = view.now
        dag = self._dags[request.workflow]
        tried = candidates(
            dag,
            request.deadline - now,
            request.budget_usd,
            self.selection,
            self.sample,
            self._calendar.pressure,
            self._rng,
            dag.missing(self._calendar.seats.sizes),
            dag.safe_latency_s([self._durations.table_s(view, ways) for ways in dag.ways]),
        )
        offer = Offer()
        best = self._best(view, request, dag, tried, offer)
        if best is None and self.batching:
            changed = self._coalescing.make_room(view, offer.full)
            if changed:
                best = self._best(view, request, dag, tried, offer)
            for other in changed:
                if other.id in self._ledger.promises:
                    yield other.plan()
        if best is None:
            best = self._probe(view, request, dag, tried)
        yield Searched(offer.steps)
        if best is None:
            yield from self._refuse(view, request, dag, offer)
            self._refused_at = now
            is_full = now - self._full_at < (request.deadline - request.arrival) / _LOOKS
            if not is_full and not (yield from self._start_ahead(view, request, dag, tried)):
                self._full_at = now  # it was refused for want of room, not of warm instances
            return
        stretched = [best.promise.bookings[task] for task, before in enumerate(best.joined) if before is not None]
        others = {other for batch in stretched if batch is not None for other, _ in batch.members}
        promise = self._drafting.keep(best)
        yield promise.plan()
        for other in sorted(others - {promise}, key=lambda other: other.id):
            yield other.plan()  # it shares a batch that takes longer now
        self._ledger.admit(view, promise)

    def _best(self, view: View, request: Request, dag: DagPlan, tried: Sequence[int], offer: Offer) -> Draft | None:
        """The draft to keep, still in the calendar; what could be offered instead is noted on the way.

        While requests are being refused, batches are booked with room for others to join. While that is for want of
        room, `balanced` takes nothing but what relieves the bottleneck.
        """
        objective_s = request.deadline - request.arrival
        is_crowded = view.now - self._refused_at < objective_s
        is_strict = view.now - self._full_at < objective_s and self.selection == "balanced"
        takes_first = self.selection in ("cheapest", "balanced")
        feasible: list[tuple[float, int, float]] = []
        for position, index in enumerate(tried):
            if self.selection == "fastest" and feasible and view.now + dag.latency_s[index] >= min(feasible)[0]:
                break  # it would end later even with nothing in the way
            is_hasty = position > 0 and not is_strict
            fastest_s = float(dag.latency_s[index])
            leeway = objective_s / fastest_s if is_crowded and fastest_s > 0 else 1.0
            draft = self._drafting.draft(view, request, dag, dag.placement(index), leeway=leeway, is_hasty=is_hasty)
            is_affordable = draft.is_affordable(request, self._durations.sigmas)
            is_feasible = is_affordable and draft.is_in_time(request)
            if is_feasible and takes_first:
                return draft
            if is_feasible:
                feasible.append((draft.finish, index, leeway))
            offer.note(draft)
            self._drafting.undo(draft)
            if is_strict and is_affordable:
                break
        if not feasible:
            return None
        chosen = min(feasible) if self.selection == "fastest" else feasible[self._rng.integers(len(feasible))]
        _, index, leeway = chosen
        return self._drafting.draft(view, request, dag, dag.placement(index), leeway=leeway)

    def _probe(self, view: View, request: Request, dag: DagPlan, tried: Sequence[int]) -> Draft | None:
        """Admit one request at a time on declared durations, where being safe about unknown ones would admit none."""
        if self._probes.get(request.workflow) in self._ledger.promises:
            return None
        for index in tried:
            ways = dag.placement(index)
            if any(self._durations.is_unknown(way) for way in ways):
                draft = self._drafting.draft(view, request, dag, ways, is_hasty=True, is_probe=True)
                if draft.is_in_time(request) and draft.is_affordable(request, self._durations.sigmas):
                    self._probes[request.workflow] = request.id
                    return draft
                self._drafting.undo(draft)
        return None

    def _refuse(self, view: View, request: Request, dag: DagPlan, offer: Offer) -> Iterator[Action]:
        """Say why not, and what could be promised."""
        if not len(dag.front):
            yield Reject(request.id, "no node can run all of its functions")
            return
        if offer.finish == inf:  # nothing was tried whole: even an idle cluster could not
            draft = self._drafting.draft(view, request, dag, dag.placement(0))
            offer.note(draft)
            self._drafting.undo(draft)
        latency_s = offer.finish - request.arrival
        reason = (
            f"cannot promise {request.deadline - request.arrival:.6g} s at {request.budget_usd:.6g} USD; "
            f"the earliest is {latency_s:.6g} s at {offer.cost_usd:.6g} USD"
        )
        retry_after_s = max(0.0, offer.finish - request.deadline)
        has_offer = offer.finish < inf
        yield Reject(
            request.id,
            reason,
            retry_after_s if has_offer and retry_after_s > 0 else None,
            latency_s if has_offer else None,
            offer.cost_usd if has_offer else None,
        )

    def _start_ahead(
        self, view: View, request: Request, dag: DagPlan, tried: Sequence[int]
    ) -> Generator[Action, None, bool]:
        """Start the instances with which a refused request could have been in time; tells whether it could.

        What starts already counts as ready, and as used by the requests refused meanwhile: so there are as many
        instances as the demand needs, however long they take to start. Where safe durations are too long, those of a
        probe are started, once: probes are admitted one at a time.
        """
        now, could_be, calendar = view.now, False, self._calendar
        passes = [(False, False), (True, False)] if calendar.starts_until > now else [(True, False)]
        if self._probes.get(request.workflow) not in self._ledger.promises:
            passes.append((True, True))
        for (is_growing, is_probe), index in product(passes, tried):
            ways = dag.placement(index)
            if not any(way.has_seats for way in ways):
                continue
            if is_probe and (could_be or not any(self._durations.is_unknown(way) for way in ways)):
                continue
            calendar.is_rehearsing, calendar.is_growing = True, is_growing
            draft = self._drafting.draft(view, request, dag, ways, is_hasty=True, is_probe=is_probe)
            is_good = draft.is_in_time(request) and draft.is_affordable(request, self._durations.sigmas)
            runs = [(booking.way, booking.seat, booking.end) for booking in draft.bookings]
            self._drafting.undo(draft)
            calendar.is_rehearsing = calendar.is_growing = False
            could_be |= is_good
            lacks_room = False
            for way, seat, end in runs if is_good else ():
                if seat is None and way.has_seats:
                    seat = calendar.start_ahead(way, view)
                    lacks_room |= seat is None
                    if seat is not None:
                        yield from self._make_room(view, seat.place)
                        yield Warm(way.function, way.configuration, seat.place.name, seat.device)
                        calendar.seats.recount(seat.place, view.idle(seat.place.name), now)
                if seat is not None and seat.is_starting(now) and not is_probe:
                    seat.rehearsed_until = end
            if is_good and not lacks_room:
                break
        return could_be

    # --- keeping promises ----------------------------------------------------------------------------------------

    def _start(self, view: View) -> Iterator[Action]:
        """Start what is due, and what can go sooner without delaying another."""
        calendar, now = self._calendar, view.now
        for booking in calendar.take_due(now):
            calendar.touched.add(booking.place)
        for place in calendar.touched:
            calendar.seats.expire(place, now)
        stuck: set[Place] = set()
        while calendar.touched:
            place = min(calendar.touched, key=lambda place: place.index)
            calendar.touched.discard(place)
            for booking in place.startable(now):
                waiting = booking.waiting
                if not waiting or not booking.is_planned:
                    continue
                is_due = booking.start <= now
                if is_due and len(waiting) < len(booking.members):
                    self._ledger.split(view, booking)
                if len(waiting) == len(booking.members) and calendar.can_begin(booking, now):
                    yield from self._begin(view, booking)
                    (calendar.touched if booking.is_running else stuck).add(place)
                elif is_due:
                    stuck.add(place)
        calendar.touched |= stuck

    def _begin(self, view: View, booking: Booking) -> Iterator[Action]:
        """Start one booking, if the controller has room for it."""
        way, place, now = booking.way, booking.place, view.now
        if not view.fits(way.function, way.configuration, place.name, booking.device):
            return
        is_warm = is_fresh = False
        calendar = self._calendar
        if way.has_seats:
            seat = booking.seat or idle_seat(booking, now)
            claims = claimed(place, now)
            is_fresh = seat is None and any(other.way.function == way.function for other in claims)
            if is_fresh and booking.start > now and any(other.free_at > now for other in claims):
                return  # what is said to fit may be the instance that still starts, which is not for this run
            if is_fresh and not view.fits(way.function, way.configuration, place.name, booking.device, is_fresh=True):
                return
            is_warm = not is_fresh and view.is_warm(way.function, way.configuration, place.name, booking.device)
        # A run on an instance that has kept its slice takes nothing more, so no other has to make way.
        may_evict = bool(place.seats) and not (is_warm and way.keeps_slice and _are_alike(place, way))
        if may_evict:
            yield from self._make_room(view, place, booking)
        batch = booking.waiting
        yield Start(batch, way.configuration, place.name, booking.device, is_fresh)
        if not view.is_waiting(batch[0]):
            self._ledger.started(booking)
            calendar.begin(booking, now, is_warm, self._durations.run_s(view, way))
            if may_evict:
                calendar.seats.recount(place, view.idle(place.name), now)

    def _make_room(self, view: View, place: Place, booking: Booking | None = None) -> Iterator[Action]:
        """Stop idle instances that no booking counts on, where they hold what the calendar has given to others.

        The controller would evict the least recently used, which may be one that a booking counts on.
        """
        now = view.now
        kept = [seat for seat in claimed(place, now) if seat.free_at <= now]
        if not kept:
            return  # whichever is evicted, no booking counts on it
        room = list(place.timeline.free_at(now))
        if booking is not None:
            if booking.start > now:  # what it holds until then is taken from the timeline already
                _take(room, booking.way.demand(booking.device))
                for column, amount in booking.way.held(booking.device) if booking.since <= now else ():
                    room[column] += amount
            own = booking.seat or (idle_seat(booking, now) if booking.way.has_seats else None)
            if own is not None and own not in kept:
                kept.append(own)
        idle = view.idle(place.name)[::-1]  # a run takes the most recently used
        needed = counted_on(idle, kept)
        for instance in idle:
            held = held_by(instance, self._functions[instance.function])
            if instance.id in needed:
                continue
            if all(room[column] >= amount for column, amount in held):
                _take(room, held)
            else:
                yield Retire(instance.id)

    def _wake(self, now: float) -> Iterator[Action]:
        """Ask to be called when the next booking is due."""
        at = self._calendar.next_due(now)
        if at is not None and (self._wake_at <= now or at < self._wake_at):
            self._wake_at = at
            yield Wake(at)


def _are_alike(place: Place, way: Way) -> bool:
    """Whether all instances of a function on a node have the same size."""
    return all(seat.way.seat_key == way.seat_key for seat in place.seats if seat.way.function == way.function)


def _take(room: list[int], demand: Demand) -> None:
    for column, amount in demand:
        room[column] -= amount
