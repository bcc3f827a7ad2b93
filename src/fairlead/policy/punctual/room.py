"""Functions that compete for the same nodes: what runs there, what has been promised, and whose turn it is."""

from bisect import insort
from math import inf
from typing import TYPE_CHECKING

from fairlead.policy.base import Site

if TYPE_CHECKING:
    from fairlead.policy.punctual.pace import Pace
    from fairlead.policy.punctual.work import Work


class Run:
    """One batch that runs; `end` is when it is expected to be over, `deviation_s` by how much it may be later."""

    __slots__ = ("deviation_s", "end", "is_learnt", "is_over", "order", "pace", "rung", "share", "work")

    def __init__(
        self, work: "Work", pace: "Pace", rung: int, end: float, deviation_s: float, share: float, order: int
    ) -> None:
        self.work = work
        self.pace = pace
        self.rung = rung
        self.end = end
        self.deviation_s = deviation_s
        self.share = share  # of the room
        self.order = order
        self.is_over = self.is_learnt = False

    def __lt__(self, other: "Run") -> bool:
        return (self.end, self.order) < (other.end, other.order)


class Room:
    """Nodes for which some functions compete.

    Whose turn it is goes by virtual time: each workflow's is the time it was served, and the least goes first. Who
    had nothing to be served starts at the room's own, so that nobody saves up turns.
    """

    __slots__ = ("_clock", "_served", "callers", "credit_s", "pending", "runs", "used")

    def __init__(self) -> None:
        self.runs: list[Run] = []  # by end
        self.used = 0.0  # share of the room that runs
        self.pending: dict[tuple[str, Work], float] = {}  # invocations admitted and not started, where there are any
        self.callers = 1  # workflows that were called lately, with deadlines
        self.credit_s = 0.0  # what is owed to those without a deadline
        self._served: dict[str, float] = {}
        self._clock = 0.0

    def begin(self, run: Run) -> None:
        """Note that a batch runs."""
        insort(self.runs, run)
        self.used += run.share

    def end(self, run: Run) -> None:
        """Note that a batch is over."""
        self.runs.remove(run)
        self.used = self.used - run.share if self.runs else 0.0

    def book(self, workflow: str, work: "Work", count: float) -> None:
        """Add to what was admitted and has not started, or take from it."""
        key = (workflow, work)
        left = self.pending.get(key, 0.0) + count
        if left > 1e-6:
            self.pending[key] = left
        else:
            self.pending.pop(key, None)

    def turn(self, workflow: str) -> float:
        """The virtual time of a workflow; the least goes first."""
        return self._served.get(workflow, 0.0)

    def welcome(self, workflow: str) -> None:
        """A workflow has something to be served again."""
        self._served[workflow] = max(self._clock, self._served.get(workflow, 0.0))

    def serve(self, workflow: str, seconds: float) -> None:
        """Count what a workflow was given."""
        before = self._served.get(workflow, 0.0)
        self._clock = max(self._clock, before)
        self._served[workflow] = before + seconds


def make_rooms(site: Site) -> dict[str, Room]:
    """A room for each function, shared by those that compete for vCPUs, or for vGPUs, of the same kind of node."""
    rooms: dict[str, Room] = {}
    taken: dict[tuple[str, bool], Room] = {}  # by kind, and whether accelerators are meant
    for name, profile in site.profiles.items():
        places = {
            (kind, configuration.vgpus > 0)
            for configuration in profile.configurations
            for kind in site.cluster.kinds
            if profile.latency_s(configuration, kind) < inf
        }
        met = {taken[place] for place in places if place in taken}
        room = Room()
        taken = {place: room if other in met else other for place, other in taken.items()}
        rooms = {function: room if other in met else other for function, other in rooms.items()}
        taken.update(dict.fromkeys(places, room))
        rooms[name] = room
    return rooms
