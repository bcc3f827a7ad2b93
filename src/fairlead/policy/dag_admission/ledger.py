"""The ledger: what was promised, kept in step with what the controller shows.

It learns which runs have ended, which invocations wait for their booking, which tasks turned out not to be needed,
which requests are gone, and which nodes came and went.
"""

from collections.abc import Iterable

from fairlead.model import Invocation, Node, Record
from fairlead.policy.base import View
from fairlead.policy.dag_admission.bookings import Booking, Promise
from fairlead.policy.dag_admission.calendar import Calendar
from fairlead.policy.dag_admission.cascade import push
from fairlead.policy.dag_admission.estimates import Durations
from fairlead.policy.dag_admission.tasks import Way


class Ledger:
    """Every promise that is still to be kept."""

    def __init__(
        self, calendar: Calendar, durations: Durations, ways: dict[str, tuple[Way, ...]], nodes: tuple[Node, ...]
    ) -> None:
        self.promises: dict[int, Promise] = {}
        self._calendar = calendar
        self._durations = durations
        self._ways = ways
        self._nodes = nodes
        self._running: dict[int, tuple[Booking, Promise, int]] = {}  # by invocation
        self._bound: dict[int, Booking] = {}  # waiting invocations that have a booking
        self._homeless: list[Promise] = []  # with a task for which no node is up

    def catch_up(self, view: View, finished: Iterable[Record]) -> None:
        """Bring promises and calendar to the present."""
        now = view.now
        touched = dict.fromkeys(record.request for record in finished)
        for record in finished:
            self._end(record)
        if view.nodes != self._nodes:
            self._follow_nodes(view)
        for booking in list(self._calendar.overruns(now)):
            push(self._calendar, booking, now)
        touched.update(dict.fromkeys(invocation.request for invocation in view.lost))
        for request in touched:
            self.bind(view, request)
        fresh = sum(len(view.waiting_of(r.id)) for r in view.fresh if r.id not in self.promises)
        if view.waiting() != len(self._bound) + fresh:  # a retry came due, or a client gave up
            self._bind_all(view)

    def admit(self, view: View, promise: Promise) -> None:
        """Take in a new promise."""
        self.promises[promise.id] = promise
        self.bind(view, promise.id)

    def started(self, booking: Booking, batch: Iterable[Invocation]) -> None:
        """A booking has begun with these of its members."""
        for invocation in batch:
            self._bound.pop(invocation.id, None)
            for promise, task in booking.members:
                if promise.id == invocation.request and promise.dag.tasks[task].key == _key(invocation):
                    self._running[invocation.id] = (booking, promise, task)
        booking.waiting = []

    def split(self, view: View, booking: Booking) -> None:
        """Let a batch that is due go without the members that are late; they are booked anew."""
        here = {(invocation.request, _key(invocation)) for invocation in booking.waiting}
        late = [m for m in booking.members if (m[0].id, m[0].dag.tasks[m[1]].key) not in here]
        booking.members = [member for member in booking.members if member not in late]
        self._shrink(booking)
        for promise, task in late:
            promise.bookings[task] = None
            self._book_anew(view, promise, task)

    def merge(self, booking: Booking, other: Booking) -> None:
        """Take the members of another booking, which is gone, into a batch."""
        for promise, task in other.members:
            promise.bookings[task] = booking
        booking.members += other.members
        booking.waiting += other.waiting
        for invocation in other.waiting:
            self._bound[invocation.id] = booking
        other.is_done = True
        self._calendar.unsettle(other)

    def release(self, promise: Promise, now: float) -> None:
        """A request is over: give back what is still booked for it."""
        self.promises.pop(promise.id, None)
        for task, booking in enumerate(promise.bookings):
            if booking is not None and not booking.is_running:
                self._withdraw(promise, task, now)

    def bind(self, view: View, request: int) -> None:
        """Bring the waiting invocations of a request to their bookings, and settle what will never wait."""
        promise = self.promises.get(request)
        if promise is None:
            return
        if not view.is_open(request):
            self.release(promise, view.now)
            return
        waiting = {_key(invocation): invocation for invocation in view.waiting_of(request)}
        for index, task in enumerate(promise.dag.tasks):
            if promise.is_resolved[index]:
                continue
            invocation = waiting.get(task.key)
            if invocation is not None:
                self._bind_one(view, promise, index, invocation)
            elif all(promise.is_resolved[before] for before in task.after) and self._is_skipped(promise, index):
                self._resolve(promise, index)
                self._withdraw(promise, index, view.now)

    def _bind_one(self, view: View, promise: Promise, task: int, invocation: Invocation) -> None:
        promise.will_retry.discard(task)
        booking = promise.bookings[task]
        if booking is None or booking.is_running:
            booking = self._book_anew(view, promise, task)
        if booking is not None and invocation.id not in self._bound:
            self._bound[invocation.id] = booking
            booking.waiting.append(invocation)
            self._calendar.touched.add(booking.place)

    def _bind_all(self, view: View) -> None:
        gone = [promise for promise in self.promises.values() if not view.is_open(promise.id)]
        for promise in gone:
            self.release(promise, view.now)
        fresh = {request.id for request in view.fresh if request.id not in self.promises}
        waiting = {invocation.id: invocation for invocation in view.by_ready()}
        for id in [id for id in self._bound if id not in waiting]:
            booking = self._bound.pop(id)
            booking.waiting = [invocation for invocation in booking.waiting if invocation.id != id]
        for request in dict.fromkeys(invocation.request for invocation in waiting.values()):
            if request not in fresh:
                self.bind(view, request)

    def _is_skipped(self, promise: Promise, task: int) -> bool:
        """Whether a task whose predecessors are settled, and which does not wait, will never run."""
        booking = promise.bookings[task]
        is_under_way = booking is not None and booking.is_running and not booking.is_done
        return not is_under_way and (task not in promise.will_retry or self._is_beaten(promise, task))

    def _is_beaten(self, promise: Promise, task: int) -> bool:
        """Whether another copy of a competing stage was first."""
        stage, item, _ = promise.dag.tasks[task].key
        return any(
            promise.is_resolved[other] and key[:2] == (stage, item)
            for other, key in enumerate(t.key for t in promise.dag.tasks)
            if other != task
        )

    def _end(self, record: Record) -> None:
        booking, promise, task = self._running.pop(record.invocation, (None, None, 0))
        if booking is None or promise is None:
            return
        is_done = record.outcome == "done"
        if not booking.is_done:
            self._calendar.end(booking, record.end, is_stopped=record.outcome in ("preempted", "discarded"))
            if is_done:
                self._durations.observe(booking.way, record.end - record.start - record.cold_s - record.transfer_s)
        if promise.id in self.promises:
            if is_done:
                self._resolve(promise, task)
            else:
                promise.bookings[task] = None
                promise.will_retry.add(task)

    def _resolve(self, promise: Promise, task: int) -> None:
        promise.is_resolved[task] = True
        promise.left -= 1
        if promise.left == 0:
            self.promises.pop(promise.id, None)

    def _withdraw(self, promise: Promise, task: int, now: float) -> None:
        """A task will not run after all: give its room back, or leave its batch."""
        booking, promise.bookings[task] = promise.bookings[task], None
        if booking is None or booking.is_running or booking.is_done:
            return
        booking.members = [member for member in booking.members if member != (promise, task)]
        key = promise.dag.tasks[task].key
        for invocation in [i for i in booking.waiting if i.request == promise.id and _key(i) == key]:
            booking.waiting.remove(invocation)
            self._bound.pop(invocation.id, None)
        self._shrink(booking)
        if not booking.members:
            booking.is_done = True
            self._calendar.remove(booking, now)
            self._calendar.unsettle(booking)

    def _shrink(self, booking: Booking) -> None:
        """Run what is left of a batch no larger than it is: those who are left pay for it."""
        if booking.members:
            own = (way for way in self._ways[booking.way.function] if way.seat_key == booking.way.seat_key)
            booking.way = next(own).holding(len(booking.members))

    def _book_anew(self, view: View, promise: Promise, task: int) -> Booking | None:
        """Find a task another slot, on whatever way ends first; None while no node can have it."""
        now = view.now
        ready, inputs = promise.ready(task, now), promise.inputs(task)
        slots = [
            slot
            for way in self._ways[promise.dag.tasks[task].function]
            if (slot := self._calendar.slot(way, self._durations.run_s(view, way), ready, now, inputs)) is not None
        ]
        if not slots:
            self._homeless.append(promise)
            return None
        booking = self._calendar.book(min(slots, key=lambda slot: slot.end), promise, task)
        self._calendar.settle(booking, None)
        push(self._calendar, booking, now)
        return booking

    def _follow_nodes(self, view: View) -> None:
        up = {node.name for node in view.nodes}
        moved: list[tuple[Promise, int]] = []
        for place in list(self._calendar.places.values()):
            if place.is_up and place.name not in up:
                for booking in self._calendar.close(place, view.now):
                    for invocation in booking.waiting:
                        self._bound.pop(invocation.id, None)
                    moved += booking.members
        for node in view.nodes:
            self._calendar.open(node)
        self._nodes = view.nodes
        homeless, self._homeless = self._homeless, []
        for promise, task in moved:
            promise.bookings[task] = None
        for promise, task in moved:
            if promise.id in self.promises and not promise.is_resolved[task]:
                self._book_anew(view, promise, task)
        for promise in dict.fromkeys([promise for promise, _ in moved] + homeless):
            self.bind(view, promise.id)


def _key(invocation: Invocation) -> tuple[str, int, int]:
    return invocation.stage, invocation.item, invocation.copy
