"""The ledger: what was promised, kept in step with what the view says has changed.

It is told which runs have ended, which invocations wait for their booking, which requests are gone, and which nodes
came and went, and concludes which tasks turned out not to be needed.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf

from fairlead.model import Invocation, Record
from fairlead.policy.base import NodeChange, View
from fairlead.policy.dag_admission.bookings import Booking, Member, Promise, just_after
from fairlead.policy.dag_admission.calendar import Calendar
from fairlead.policy.dag_admission.drafts import Drafting
from fairlead.policy.dag_admission.estimates import Durations
from fairlead.policy.dag_admission.seats import pool_of
from fairlead.policy.dag_admission.tasks import Way


class Ledger:
    """Every promise that is still to be kept."""

    def __init__(self, calendar: Calendar, drafting: Drafting, durations: Durations, ways: dict[str, tuple[Way, ...]]):
        self.promises: dict[int, Promise] = {}
        self._calendar = calendar
        self._drafting = drafting
        self._durations = durations
        self._ways = ways
        self._running: dict[int, tuple[Booking, Member]] = {}  # by invocation
        self._homeless: list[Promise] = []  # with a task for which no node is up
        self._doubts: list[tuple[float, int]] = []  # until when a request can be in time if it makes no progress

    def adopt(self, view: View) -> None:
        """Know the instances that are warm before the first decision: a server keeps some of every function."""
        for function, ways in self._ways.items():
            if view.scaled(function) is not None:
                continue
            for instance in view.instances(function):
                place = self._calendar.places.get(instance.node)
                device = None if instance.device < 0 else instance.device
                alike = [way for way in ways if place is not None and way.kind == place.kind and way.has_seats]
                alike = [way for way in alike if way.needs_device == (device is not None)]
                alike = [way for way in alike if way.pool(device) == pool_of(instance)]
                if instance.is_idle and alike and place is not None:
                    nearest = min(alike, key=lambda way: abs(way.configuration.vcpus - instance.vcpus))
                    self._calendar.seats.add(nearest, place, device).free_at = view.now

    def follow(self, view: View) -> None:
        """Bring promises and calendar to the present."""
        now, changes = view.now, view.changes
        for node in {stopped.instance.node for stopped in changes.stopped} & self._calendar.places.keys():
            self._calendar.seats.expire(self._calendar.places[node], now)
        looked_at: dict[int, set[int]] = {}  # by request: tasks that may turn out not to be needed
        for record in changes.ended:
            looked_at.setdefault(record.request, set()).update(self._end(record))
        if changes.nodes:
            self._follow_nodes(view, changes.nodes)
        self._calendar.extend_overruns(now)
        for closed in changes.closed:
            looked_at.setdefault(closed.request.id, set())
        ready: dict[int, list[Invocation]] = {}
        for invocation in changes.ready:
            ready.setdefault(invocation.request, []).append(invocation)
        for request in [*looked_at, *(request for request in ready if request not in looked_at)]:
            promise = self.promises.get(request)
            if promise is None:
                continue
            if view.is_open(request):
                waiting = [invocation for invocation in ready.get(request, ()) if view.is_waiting(invocation)]
                self._bind(view, promise, waiting, looked_at.get(request, ()))
            else:
                self.release(promise, now)

    def admit(self, view: View, promise: Promise) -> None:
        """Take in a new promise."""
        self.promises[promise.id] = promise
        self._doubt(view, promise)
        roots = [index for index, task in enumerate(promise.dag.tasks) if not task.after]
        self._bind(view, promise, view.waiting_of(promise.id), roots)

    def hopeless(self, view: View) -> Iterator[Promise]:
        """Give up promises that cannot be kept any more, before they use what others need; yields each."""
        while self._doubts and self._doubts[0][0] < view.now:
            promise = self.promises.get(heappop(self._doubts)[1])
            if promise is not None and not self._doubt(view, promise):
                self.release(promise, view.now)
                yield promise

    def _doubt(self, view: View, promise: Promise) -> bool:
        """Note when a request must be looked at again; False if it cannot be in time even if nothing is in its way."""
        ends: list[float] = []
        is_begun = True
        for index, task in enumerate(promise.dag.tasks):
            at = max([view.now, *(ends[before] for before in task.after)])
            booking = promise.bookings[index]
            if not promise.is_resolved[index] and booking is not None:
                mean_s = self._durations.believed_s(view, booking.way)
                at = max(at, booking.start + mean_s) if booking.is_running else at + mean_s
                is_begun &= booking.is_running
            ends.append(at)
        spare_s = promise.deadline - max(ends)
        if spare_s < 0 and not is_begun:
            return False
        if not is_begun and promise.deadline < inf:
            heappush(self._doubts, (just_after(view.now + spare_s), promise.id))
        return True

    def started(self, booking: Booking) -> None:
        """A booking has begun."""
        for member, invocation in booking.members.items():
            if invocation is not None:
                self._running[invocation.id] = (booking, member)
                booking.members[member] = None

    def split(self, view: View, booking: Booking) -> None:
        """Let a batch that is due go without the members that are late; they are booked anew."""
        late = [member for member, invocation in booking.members.items() if invocation is None]
        for member in late:
            del booking.members[member]
        self._shrink(booking)
        for promise, task in late:
            promise.bookings[task] = None
            self._book_anew(view, promise, task)

    def release(self, promise: Promise, now: float) -> None:
        """A request is over: give back what is still booked for it."""
        self.promises.pop(promise.id, None)
        for task in range(len(promise.bookings)):
            self._withdraw(promise, task, now)

    def _bind(self, view: View, promise: Promise, waiting: Sequence[Invocation], tasks: Iterable[int]) -> None:
        """Bring waiting invocations to their bookings, and settle those of these tasks that will never wait."""
        ready = {promise.dag.index[_key(invocation)]: invocation for invocation in waiting}
        line = sorted({*ready, *tasks})
        while line:
            task = heappop(line)
            if promise.is_resolved[task]:
                continue
            if task in ready:
                promise.unbooked[task] = ready.pop(task)
                self._give_booking(view, promise, task)
            elif self._is_skipped(promise, task):
                for other in self._resolve(promise, task):
                    heappush(line, other)
                self._withdraw(promise, task, view.now)

    def _give_booking(self, view: View, promise: Promise, task: int) -> None:
        """Bring a waiting invocation to its booking, a new one if there is none."""
        booking = promise.bookings[task]
        if booking is None or booking.is_running:
            booking = self._book_anew(view, promise, task)
        if booking is None:
            self._homeless.append(promise)
            return
        booking.members.pop((promise, task), None)  # members that wait are in the order in which they began to
        booking.members[promise, task] = promise.unbooked.pop(task)
        booking.place.note_waiting(booking)
        self._calendar.touched.add(booking.place)

    def _is_skipped(self, promise: Promise, task: int) -> bool:
        """Whether a task that does not begin to wait now will never run."""
        step, booking = promise.dag.tasks[task], promise.bookings[task]
        is_running = booking is not None and booking.is_running and not booking.is_done
        if promise.awaits[task]:
            return False
        if any(promise.is_resolved[rival] for rival in step.rivals):
            return True  # another copy of a competing stage was first; what runs of this one is discarded
        if is_running:
            return False
        is_waiting = booking is not None and booking.members.get((promise, task)) is not None
        return not is_waiting and task not in promise.unbooked

    def _end(self, record: Record) -> Iterable[int]:
        """A run has ended; gives the tasks that may turn out not to be needed by that."""
        booking, member = self._running.pop(record.invocation, (None, None))
        self._durations.renew(record.function, None if booking is None else booking.way)
        if booking is None or member is None:
            return ()
        promise, task = member
        is_done = record.outcome == "done"
        if not booking.is_done:
            self._calendar.end(booking, record.end, is_stopped=record.outcome in ("preempted", "discarded"))
            if is_done:
                self._durations.observe(booking.way, record.end - record.start - record.cold_s - record.transfer_s)
        if promise.id not in self.promises or promise.is_resolved[task]:
            return ()
        if is_done:
            return self._resolve(promise, task)
        promise.bookings[task] = None
        promise.unbooked[task] = None
        return (task,)

    def _resolve(self, promise: Promise, task: int) -> tuple[int, ...]:
        """A task is settled; gives the tasks that may turn out not to be needed by that."""
        promise.is_resolved[task] = True
        promise.left -= 1
        if promise.left == 0:
            self.promises.pop(promise.id, None)
        step = promise.dag.tasks[task]
        for after in step.then:
            promise.awaits[after] -= 1
        return step.then + step.rivals

    def _withdraw(self, promise: Promise, task: int, now: float) -> None:
        """A task will not run after all: give its room back, or leave its batch."""
        booking = promise.bookings[task]
        if booking is None or booking.is_running or booking.is_done:
            return
        promise.bookings[task] = None
        del booking.members[promise, task]
        self._shrink(booking)
        if not booking.members:
            self._calendar.discard(booking, now)

    def _shrink(self, booking: Booking) -> None:
        """Run what is left of a batch no larger than it is: the members that are left pay for it."""
        if booking.members:
            own = next(way for way in self._ways[booking.way.function] if way.size == booking.way.size)
            booking.way = own.holding(len(booking.members)) or booking.way

    def _book_anew(self, view: View, promise: Promise, task: int) -> Booking | None:
        """Find a task another slot, on whatever way ends first; None while no node can have it."""
        now = view.now
        ready, inputs = promise.ready(task, now), promise.inputs(task)
        slots = [
            slot
            for way in self._ways[promise.dag.tasks[task].function]
            if (slot := self._drafting.first_slot(way, self._durations.run_s(view, way), ready, now, inputs))
            is not None
        ]
        if not slots:
            return None
        booking = self._calendar.book(min(slots, key=lambda slot: slot.end), (promise, task))
        self._calendar.settle(booking)
        return booking

    def _follow_nodes(self, view: View, changes: Iterable[NodeChange]) -> None:
        """Move what was planned on lost nodes to others, and book what found no node before."""
        moved: list[Member] = []
        for change in changes:
            if change.what == "joined":
                self._calendar.open(change.node)
            elif change.what == "lost" and self._calendar.places[change.node.name].is_up:
                for booking in self._calendar.close(self._calendar.places[change.node.name], view.now):
                    for (promise, task), invocation in booking.members.items():
                        promise.bookings[task] = None
                        if invocation is not None:
                            promise.unbooked[task] = invocation
                        moved.append((promise, task))
        homeless, self._homeless = self._homeless, []
        moved += [(promise, task) for promise in dict.fromkeys(homeless) for task in sorted(promise.unbooked)]
        for promise, task in dict.fromkeys(moved):
            if promise.id not in self.promises or promise.is_resolved[task]:
                continue
            if promise.unbooked.get(task) is not None:
                self._give_booking(view, promise, task)
            elif task not in promise.unbooked:
                self._book_anew(view, promise, task)


def _key(invocation: Invocation) -> tuple[str, int, int]:
    return invocation.stage, invocation.item, invocation.copy
