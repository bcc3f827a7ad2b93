"""What the calendar is made of: promises, their bookings, the seats that these count on, and the places they are at."""

from math import inf

from fairlead.model import Invocation, Node
from fairlead.planning.timeline import Timeline
from fairlead.policy.base import Plan
from fairlead.policy.dag_admission.placements import DagPlan
from fairlead.policy.dag_admission.tasks import Pool, Way, columns

_TOLERANCE = 1e-9


def just_after(instant: float) -> float:
    """The instant, and what rounding may add to it."""
    return instant + _TOLERANCE * max(1.0, abs(instant))


class Promise:
    """One request: its bookings by task, until it is answered."""

    __slots__ = ("bookings", "counts_cost", "dag", "deadline", "id", "is_resolved", "left", "will_retry")

    def __init__(self, id: int, dag: DagPlan, deadline: float, counts_cost: bool) -> None:
        self.id = id
        self.dag = dag
        self.deadline = deadline
        self.counts_cost = counts_cost  # whether it has a cost objective
        self.bookings: list[Booking | None] = [None] * len(dag.tasks)
        self.is_resolved = [False] * len(dag.tasks)  # done, or known not to be needed
        self.left = len(dag.tasks)
        self.will_retry: set[int] = set()  # tasks that failed or were lost, and may come again

    def ready(self, task: int, now: float) -> float:
        """When the predecessors of a task are planned to be done."""
        at = now
        for before in self.dag.tasks[task].after:
            booking = self.bookings[before]
            if booking is not None and booking.end > at and not self.is_resolved[before]:
                at = booking.end
        return at

    def inputs(self, task: int) -> list[tuple["Place", float]]:
        """Where its input will lie, and how much of it."""
        step = self.dag.tasks[task]
        return [
            (booking.place, megabytes)
            for before, megabytes in zip(step.after, step.inputs_mb, strict=True)
            if megabytes and (booking := self.bookings[before]) is not None
        ]

    def plan(self) -> Plan:
        """Its steps and when it will be answered, to be recorded."""
        booked = [(task, b) for task, b in zip(self.dag.tasks, self.bookings, strict=True) if b is not None]
        steps = tuple([f"{task.key[0]}@{booking.place.name}" for task, booking in booked])
        return Plan(self.id, steps, max(booking.end for _, booking in booked))


class Seat:
    """An instance that is or will be warm, and the bookings that will use it, in order.

    Which one it is nobody can tell: the controller lets a run have the last used of a pool.
    """

    __slots__ = ("chain", "device", "free_at", "is_busy", "place", "pool", "way")

    def __init__(self, way: Way, place: "Place", device: int | None) -> None:
        self.way = way
        self.place = place
        self.device = device
        self.pool: Pool = way.pool(device)
        self.chain: list[Booking] = []
        self.is_busy = False
        self.free_at = -inf  # when its last run ended or is planned to, or its start ahead of need

    @property
    def available(self) -> float:
        """When it is free for one booking more."""
        return self.chain[-1].end if self.chain else self.free_at


class Booking:
    """One run, planned or under way. Its room is taken from `since`, which is before `start` where a seat is kept."""

    __slots__ = (
        "cold_s",
        "device",
        "end",
        "id",
        "is_done",
        "is_running",
        "load_s",
        "members",
        "owner",
        "place",
        "run_s",
        "seat",
        "since",
        "start",
        "transfer_s",
        "waiting",
        "way",
    )

    def __init__(self, id: int, slot: "Slot", member: tuple[Promise, int]) -> None:
        self.id = id
        self.way = slot.way
        self.members = [member]
        self.waiting: list[Invocation] = []  # the members that are ready, as the controller shows them
        self.is_running = self.is_done = False
        self.load_s = 0.0  # what it counts in the backlog of its node and its kind
        self.seat: Seat | None = None
        self.owner: str | None = None  # the workflow that its batch is kept to; None for any that uses the function
        self.move_to(slot)

    def move_to(self, slot: "Slot") -> None:
        """Have the place and the times of a slot."""
        self.place, self.device = slot.place, slot.device
        self.since, self.start, self.end = slot.since, slot.start, slot.end
        self.cold_s, self.transfer_s, self.run_s = slot.cold_s, slot.transfer_s, slot.run_s

    def __lt__(self, other: "Booking") -> bool:
        return (self.start, self.id) < (other.start, other.id)

    @property
    def is_sure(self) -> bool:
        """Whether it will run: it is not only expected, and needed whatever the input."""
        return any(promise.id >= 0 and promise.dag.tasks[task].is_sure for promise, task in self.members)

    @property
    def is_ready(self) -> bool:
        """Whether all its members wait for nothing else."""
        return len(self.waiting) == len(self.members)


class Slot:
    """Where and when a run could be; `joins` names a batch that it would be one more member of."""

    __slots__ = ("cold_s", "device", "end", "joins", "place", "run_s", "seat", "since", "start", "transfer_s", "way")

    def __init__(
        self,
        way: Way,
        place: "Place",
        device: int | None,
        start: float,
        cold_s: float,
        transfer_s: float,
        run_s: float,
    ) -> None:
        self.way = way
        self.place, self.device = place, device
        self.since = self.start = start
        self.cold_s, self.transfer_s, self.run_s = cold_s, transfer_s, run_s
        self.end = start + cold_s + transfer_s + run_s  # in the order in which time passes
        self.seat: Seat | None = None
        self.joins: Booking | None = None


Stretch = tuple[Way, float, float, float]  # what changes when a batch is joined: way, duration, transfer, end


class Place:
    """One node: its timeline, what is planned there by start, and its seats."""

    __slots__ = ("backlog_s", "devices", "index", "is_up", "kind", "name", "planned", "rank", "seats", "timeline")

    def __init__(self, index: int, node: Node) -> None:
        self.index = index
        self.name = node.name
        self.kind = node.kind
        self.devices = len(node.devices)
        self.timeline = Timeline(columns(node))
        self.is_up = False
        self.backlog_s = 0.0  # booked time x share of the node
        self.rank = (0.0, index)
        self.planned: list[Booking] = []
        self.seats: list[Seat] = []
