"""Drafts: a request fitted into the calendar along one placement, to be kept or taken back whole."""

from math import inf, sqrt

from fairlead.model import Request
from fairlead.policy.base import View
from fairlead.policy.dag_admission.bookings import Booking, Place, Promise, Stretch
from fairlead.policy.dag_admission.calendar import Calendar
from fairlead.policy.dag_admission.estimates import Durations
from fairlead.policy.dag_admission.placements import DagPlan
from fairlead.policy.dag_admission.slots import Slots
from fairlead.policy.dag_admission.tasks import Way

_TOLERANCE = 5e-10  # half of what the report forgives


class Draft:
    """One placement of one request in the calendar. `is_whole` tells whether every task has its booking."""

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.joined: list[Stretch | None] = []  # per task booked: how the batch was that it joined
        self.finish = -inf
        self.cost_usd = 0.0  # on average
        self.variance = 0.0  # of the cost
        self.is_whole = False
        self.tried = 0  # how many tasks a slot was looked for

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
        self.finish = inf
        self.cost_usd = inf
        self.full: list[Place] = []  # where its runs that could be in batches would be
        self.steps = 0

    def note(self, draft: Draft) -> None:
        """Look at one more draft."""
        self.steps += draft.tried
        if draft.is_whole and draft.finish < self.finish:
            self.finish, self.cost_usd = draft.finish, draft.cost_usd
            self.full = [b.place for b in draft.bookings if b.way.larger]


class Drafting:
    """Fits requests into a calendar."""

    def __init__(
        self,
        calendar: Calendar,
        slots: Slots,
        durations: Durations,
        *,
        batches: bool,
        per_dag: bool,
        bills_cold: bool,
    ) -> None:
        self._calendar = calendar
        self._slots = slots
        self._durations = durations
        self._batches = batches
        self._per_dag = per_dag
        self._bills_cold = bills_cold

    def draft(
        self,
        view: View,
        request: Request,
        dag: DagPlan,
        ways: tuple[Way, ...],
        start: float,
        *,
        leeway: float = 1.0,
        is_hasty: bool = False,
        is_probe: bool = False,
    ) -> Draft:
        """Book every task of a request as early as it can be, from `start` on.

        With `leeway` (how many times the fastest answer the objective allows), a run that opens a batch takes room
        for as large a batch as half of its share of the objective allows. A hasty draft stops once it is late. A
        probe trusts the believed mean of what is still unknown.
        """
        calendar, slots, durations = self._calendar, self._slots, self._durations
        promise = Promise(request.id, dag, request.deadline, request.budget_usd < inf)
        draft = Draft(promise)
        used: dict[Place, None] = {}
        owner = self._owner(dag)
        for index, task in enumerate(dag.tasks):
            way = ways[task.stage]
            ready, inputs = promise.ready(index, start), promise.inputs(index)
            is_trusted = is_probe and durations.is_unknown(way)
            run_s = durations.believed_s(view, way) if is_trusted else durations.run_s(view, way)
            seconds: list[float] = []
            if self._batches and way.larger and not is_trusted and request.id >= 0:
                seconds = [run_s, *(durations.run_s(view, larger) for larger in way.larger)]
            room_s = max((each for each in seconds if each <= run_s * leeway / 2), default=run_s)
            slot = slots.first(way, max(run_s, room_s), ready, view.now, inputs, used)
            draft.tried += 1
            joined = slots.batch(way, seconds, ready, inputs, owner) if seconds else None
            if joined is not None and (slot is None or joined[1].end <= slot.end):
                booking, stretch = joined
                draft.joined.append(booking.stretch)
                calendar.join(booking, stretch, (promise, index))
            elif slot is not None:
                draft.joined.append(None)
                booking = calendar.book(slot, (promise, index))
            else:
                return draft
            used[booking.place] = None
            self._pay(view, draft, booking, way, is_trusted)
            draft.finish = max(draft.finish, booking.end)
            if is_hasty and booking.end > request.deadline * (1 + _TOLERANCE):
                return draft
        draft.is_whole = True
        return draft

    def _owner(self, dag: DagPlan) -> str | None:
        """Which workflow may share its batches: itself only, or all that use the function (None)."""
        return dag.workflow.name if self._per_dag else None

    def _pay(self, view: View, draft: Draft, booking: Booking, way: Way, is_trusted: bool) -> None:
        """Count what one member of a booking pays, should those leave that may turn out not to be needed."""
        sure = sum(promise.dag.tasks[task].is_sure for promise, task in booking.members)
        worst = (0.0, 0.0)
        for members in range(max(1, sure), len(booking.members) + 1):
            mean_s, deviation_s = self._durations.spread_s(view, way.holding(members) or booking.way)
            mean_s += booking.transfer_s + (booking.cold_s if self._bills_cold else 0.0)
            usd_per_s = booking.way.usd_per_s / members
            worst = max(worst, (mean_s * usd_per_s, 0.0 if is_trusted else deviation_s * usd_per_s))
        draft.cost_usd += worst[0]
        draft.variance += worst[1] ** 2

    def keep(self, draft: Draft, owner: str | None = None) -> Promise:
        """Make a draft count. An `owner` of its own keeps others out of its batches."""
        owner = owner or self._owner(draft.promise.dag)
        for booking in draft.bookings:
            self._calendar.settle(booking, owner)
        return draft.promise

    def undo(self, draft: Draft, now: float) -> None:
        """Take a draft back, the last booking first."""
        for index in range(len(draft.joined) - 1, -1, -1):
            self._calendar.unbook((draft.promise, index), draft.joined[index], now)
