"""What the calendar is made of: promises, their bookings, the seats that these count on, and the places they are at."""

from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import NamedTuple

from sortedcontainers import SortedList

from fairlead.model import Invocation, Node
from fairlead.planning.timeline import Demand
from fairlead.policy.base import Plan
from fairlead.policy.dag_admission.backlog import BacklogTimeline
from fairlead.policy.dag_admission.placements import DagPlan
from fairlead.policy.dag_admission.tasks import Pool, Way
from fairlead.policy.kit.reservations import capacity_of

_TOLERANCE = 1e-9
_STARTS = 16  # how many bookings of one demand are looked at, at once, for one that can start before it is due

Member = tuple["Promise", int]  # a promise and one of its tasks


def just_after(instant: float) -> float:
    """The instant, and what rounding may add to it."""
    return instant + _TOLERANCE * max(1.0, abs(instant))


class Promise:
    """One request: its bookings by task, until it is answered."""

    def __init__(self, id: int, dag: DagPlan, deadline: float, counts_cost: bool) -> None:
        self.id = id
        self.dag = dag
        self.deadline = deadline
        self.counts_cost = counts_cost  # whether it has a cost objective
        self.bookings: list[Booking | None] = [None] * len(dag.tasks)
        self.is_resolved = [False] * len(dag.tasks)  # done, or known not to be needed
        self.left = len(dag.tasks)
        self.awaits = [len(task.after) for task in dag.tasks]  # how many predecessors are not resolved yet
        self.unbooked: dict[int, Invocation | None] = {}  # tasks to book anew, once they wait and a node can have them

    def ready(self, task: int, now: float) -> float:
        """When the predecessors of a task are planned to be done."""
        at = now
        for before in self.dag.tasks[task].after:
            booking = self.bookings[before]
            if booking is not None and booking.end > at and not self.is_resolved[before]:
                at = booking.end
        return at

    def inputs(self, task: int) -> list[tuple["Place", float]]:
        """Where the input of a task will lie, and how many megabytes of it."""
        step = self.dag.tasks[task]
        if not step.has_inputs:
            return []
        return [
            (booking.place, megabytes)
            for before, megabytes in zip(step.after, step.inputs_mb, strict=True)
            if megabytes and (booking := self.bookings[before]) is not None
        ]

    def plan(self) -> Plan:
        """The steps of the request and when it will be answered, to be recorded."""
        booked = [(task, b) for task, b in zip(self.dag.tasks, self.bookings, strict=True) if b is not None]
        steps = tuple([f"{task.key[0]}@{booking.place.name}" for task, booking in booked])
        return Plan(self.id, steps, max(booking.end for _, booking in booked))


class Seat:
    """An instance that is or will be warm, and the bookings that will use it, in order.

    It stands for any instance of its pool: the controller lets a run have the last used one.
    """

    def __init__(self, way: Way, place: "Place", device: int | None) -> None:
        self.way = way
        self.place = place
        self.device = device
        self.pool: Pool = way.pool(device)
        self.chain: list[Booking] = []
        self.is_busy = False
        self.free_at = -inf  # when its last run ended or is planned to, or its start ahead of need
        self.rehearsed_until = -inf  # while it starts: how long refused requests would have used it until now

    def is_starting(self, now: float) -> bool:
        """Whether it is being started ahead of need."""
        return self.free_at > now and not self.is_busy


class Stretch(NamedTuple):
    """What changes when a batch is joined."""

    way: Way
    run_s: float
    transfer_s: float
    end: float


@dataclass(slots=True, eq=False)
class Booking:
    """One run, found possible, planned or under way.

    Its room is taken from `start`; from `since` to `start`, what its idle instance holds. `members` maps each member to
    its invocation, None until that waits for nothing else.
    """

    way: Way
    place: "Place"
    device: int | None
    start: float
    cold_s: float
    transfer_s: float
    run_s: float
    seat: Seat | None = None
    since: float = field(init=False)
    end: float = field(init=False)
    id: int = 0
    members: dict[Member, Invocation | None] = field(default_factory=dict)
    load_s: float = 0.0  # what it counts in the backlog of its node and its kind
    is_planned: bool = False
    is_running: bool = False
    is_done: bool = False

    def __post_init__(self) -> None:
        self.since = self.start
        self.end = self.start + self.cold_s + self.transfer_s + self.run_s  # in the order in which time passes

    def __lt__(self, other: "Booking") -> bool:
        return (self.start, self.id) < (other.start, other.id)

    def move_to(self, slot: "Booking") -> None:
        """Have the way, the place and the times of another."""
        self.way, self.place, self.device = slot.way, slot.place, slot.device
        self.since, self.start, self.end = slot.since, slot.start, slot.end
        self.cold_s, self.transfer_s, self.run_s = slot.cold_s, slot.transfer_s, slot.run_s

    @property
    def stretch(self) -> Stretch:
        """What joining it would change."""
        return Stretch(self.way, self.run_s, self.transfer_s, self.end)

    @property
    def is_sure(self) -> bool:
        """Whether it will run whatever the input: at least one of its members is needed in any case."""
        return any(promise.dag.tasks[task].is_sure for promise, task in self.members)

    @property
    def waiting(self) -> tuple[Invocation, ...]:
        """The invocations of the members that wait for nothing else."""
        return tuple([invocation for invocation in self.members.values() if invocation is not None])

    def ready(self, now: float) -> float:
        """When all its members are planned to wait for nothing else."""
        return max([promise.ready(task, now) for promise, task in self.members])

    def inputs(self) -> list[tuple["Place", float]]:
        """Where the inputs of its members will lie, and how many megabytes of each."""
        return [each for promise, task in self.members for each in promise.inputs(task)]


class Place:
    """One node: its timeline, what is planned there by start, and its seats."""

    def __init__(self, index: int, node: Node) -> None:
        self.index = index
        self.name = node.name
        self.kind = node.kind
        self.devices = len(node.devices)
        self.timeline = BacklogTimeline(capacity_of(node))
        self.bare: BacklogTimeline | None = None  # the same without what instances take that start ahead of need
        self.starts_until = -inf  # when the last of these is ready
        self.is_up = False
        self.backlog_s = 0.0  # booked time x share of the node
        self.rank = (0.0, index)
        self.planned: SortedList[Booking] = SortedList()
        self.seats: list[Seat] = []
        self.pools: dict[Pool, list[Seat]] = {}  # the same by pool
        self.settled: float | None = None  # the share that its seats would use, unless they have changed
        self._loose: dict[Demand, SortedList[Booking]] = {}  # planned bookings that wait and have no seat, by demand

    def take(self, start: float, end: float, demand: Demand) -> None:
        """Use the demand from `start` to `end`."""
        self.timeline.take(start, end, demand)
        if self.bare is not None:
            self.bare.take(start, end, demand)

    def give(self, start: float, end: float, demand: Demand) -> None:
        """Undo a `take`, or a part of its time."""
        self.timeline.give(start, end, demand)
        if self.bare is not None:
            self.bare.give(start, end, demand)

    def take_for_start(self, now: float, ready: float, demand: Demand) -> None:
        """Use the demand for an instance that is started ahead of need."""
        if self.bare is None:
            self.bare = self.timeline.copy()
        self.timeline.take(now, ready, demand)
        self.starts_until = max(self.starts_until, ready)

    def forget(self, now: float) -> None:
        """Let go of the past."""
        if self.starts_until <= now:
            self.bare = None
        for timeline in (self.timeline, self.bare):
            if timeline is not None and len(timeline.times) > 64 and timeline.times[32] <= now:
                timeline.forget(now)

    def add(self, booking: "Booking") -> None:
        """Plan a booking here."""
        booking.is_planned = True
        self.planned.add(booking)
        self.note_waiting(booking)

    def remove(self, booking: "Booking") -> None:
        """Let a booking be planned here no longer."""
        booking.is_planned = False
        self.planned.remove(booking)
        loose = self._loose.get(booking.way.demand(booking.device))
        if loose is not None:
            loose.discard(booking)

    def note_waiting(self, booking: "Booking") -> None:
        """Let a booking that has no seat be found when there is room, if one of its invocations waits."""
        if booking.is_planned and booking.seat is None and booking.waiting:
            loose = self._loose.setdefault(booking.way.demand(booking.device), SortedList())
            if booking not in loose:
                loose.add(booking)

    def startable(self, now: float) -> list["Booking"]:
        """Planned bookings that may be able to start, by planned start: at most a few of those that are not due.

        They are due, or next on an idle seat, or have no seat and their demand is free now.
        """
        due_by = just_after(now)
        found = dict.fromkeys(takewhile(lambda booking: booking.start <= due_by, self.planned))
        for seat in self.seats:
            if seat.chain and not seat.is_busy and seat.free_at <= now:
                found[seat.chain[0]] = None
        free = self.timeline.free_at(now)
        for demand, loose in self._loose.items():
            if all(free[column] >= amount for column, amount in demand):
                found.update(dict.fromkeys(loose[:_STARTS]))
        return sorted(found)

    def settled_share(self) -> float:
        """Which share of the node its instances would use if all of them ran at once; may exceed 1."""
        if self.settled is None:
            self.settled = sum([seat.way.node_share for seat in self.seats])
        return self.settled
