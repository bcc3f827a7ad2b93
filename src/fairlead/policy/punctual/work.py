"""A function as this policy sees it (`Work`), and the part of the cluster that functions compete for (`Room`)."""

from bisect import insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter

from sortedcontainers import SortedDict

from fairlead.model import Configuration, Function, Invocation, Node
from fairlead.policy.base import Site
from fairlead.policy.punctual.pace import Ladder, Pace
from fairlead.profile import Estimate

_GAP_MEMORY = 0.05  # weight of the newest gap between two requests


class Gap:
    """The smoothed time between two calls, none counted as longer than a second; infinite before the second call."""

    def __init__(self, weight: float = _GAP_MEMORY) -> None:
        self.seconds = inf
        self.newest = -inf  # when the last call was
        self._weight = weight

    def called(self, now: float) -> None:
        """Note a call."""
        gap_s = min(now - self.newest, 1.0)
        self.newest = now
        self.seconds = gap_s if self.seconds == inf else self.seconds + self._weight * (gap_s - self.seconds)


class Queue:
    """Invocations of one function that wait, by deadline, then by id."""

    def __init__(self, work: "Work", workflow: str, is_urgent: bool) -> None:
        self.work = work
        self.workflow = workflow
        self.is_urgent = is_urgent  # whether they have deadlines
        self.items: SortedDict[tuple[float, int], Invocation] = SortedDict()

    def __len__(self) -> int:
        return len(self.items)

    def at(self, place: int) -> Invocation:
        """The invocation at this place."""
        found: Invocation = self.items.peekitem(place)[1]
        return found

    def add(self, invocation: Invocation) -> None:
        """Let an invocation wait here."""
        self.items[invocation.deadline, invocation.id] = invocation

    def remove(self, invocation: Invocation) -> None:
        """Let an invocation go, if it waits here; an empty queue is dropped by its function."""
        gone = self.items.pop((invocation.deadline, invocation.id), None)
        if gone is not None and not self.items:
            self.work.queues.pop((self.workflow, self.is_urgent), None)

    def before(self, deadline: float) -> int:
        """How many have this deadline or an earlier one."""
        return int(self.items.bisect_right((deadline, inf)))


@dataclass(slots=True, eq=False)
class Run:
    """A batch that runs: when it is expected to end, by how much it may be later, and its share of the room."""

    work: "Work"
    pace: Pace
    rung: int
    end: float
    deviation_s: float
    share: float
    is_over: bool = False
    is_learnt: bool = False


class Room:
    """The nodes for which a set of functions competes.

    Workflows take turns by virtual time: that of a workflow is the time that it was served, and the smallest goes
    first. A workflow that had nothing to run starts at the room's own virtual time, so turns cannot be saved up.
    """

    def __init__(self) -> None:
        self.runs: list[Run] = []  # by expected end
        self.used = 0.0  # share of the room that is in use
        self.pending: dict[tuple[str, Work], float] = {}  # invocations admitted and not started, where there are any
        self.callers = 1  # workflows with deadlines that were called within the last second
        self.credit_s = 0.0  # time that is owed to invocations without a deadline
        self.turns: defaultdict[str, float] = defaultdict(float)  # virtual time by workflow; the smallest goes first
        self._clock = 0.0

    def begin(self, run: Run) -> None:
        """Note that a batch runs."""
        insort(self.runs, run, key=attrgetter("end"))
        self.used += run.share
        run.work.running += 1

    def end(self, run: Run) -> None:
        """Note that a batch is over."""
        run.is_over = True
        self.runs.remove(run)
        self.used = self.used - run.share if self.runs else 0.0
        run.work.running -= 1

    def book(self, workflow: str, work: "Work", count: float) -> None:
        """Add to the invocations that were admitted and have not started; a negative `count` takes them off."""
        key = (workflow, work)
        left = self.pending.get(key, 0.0) + count
        if left > 1e-6:
            self.pending[key] = left
        else:
            self.pending.pop(key, None)

    def welcome(self, workflow: str) -> None:
        """Note that a workflow has something to run again."""
        self.turns[workflow] = max(self._clock, self.turns[workflow])

    def serve(self, workflow: str, seconds: float) -> None:
        """Count the time that a workflow was given."""
        self._clock = max(self._clock, self.turns[workflow])
        self.turns[workflow] += seconds


class Work:
    """A function: its ladders, its room, its queues, its instances, and how often requests begin with it."""

    def __init__(self, function: Function, site: Site, percentile: float, room: Room) -> None:
        self.name = function.name
        self.function = function
        self.room = room
        self.queues: dict[tuple[str, bool], Queue] = {}  # by workflow and urgency, without the empty ones
        self.standby = Queue(self, "", True)  # requests that go along if seats in a batch stay empty
        self.running = 0  # batches
        self.instances = 0  # ready ones, as last counted
        self.starts_until = -inf  # when an instance that was started ahead of need is expected
        self.is_awaited = False  # whether requests are refused for want of an instance
        self.last_start = 0.0
        self.gap = Gap()  # between requests with a deadline that begin here
        profile = site.profiles[function.name]
        self.cold_s = {kind: profile.cold_start_s(kind) for kind in site.cluster.kinds}
        # An instance that is warm only while it runs, or has no process of its own, is not worth starting early.
        self.warms = function.keep_alive_s > 0 and not function.buffers
        self.ladders = _ladders(profile, site, percentile)
        self.main = self.quickest = self.ladders[0]  # the highest throughput for its price, and the shortest run
        self.unit_s = inf  # how long one invocation keeps all nodes busy, in full batches
        self.fastest_s = inf  # the shortest mean time of one invocation
        self.survey(site.cluster.nodes)

    @property
    def waiting(self) -> int:
        """Invocations in all queues; those on standby do not count."""
        return sum([len(queue) for queue in self.queues.values()])

    def queue_of(self, invocation: Invocation) -> Queue:
        """The queue for an invocation; one that is new takes its turn from now on."""
        key = (invocation.workflow, invocation.deadline < inf)
        if key not in self.queues:
            self.queues[key] = Queue(self, *key)
            self.room.welcome(invocation.workflow)
        return self.queues[key]

    def survey(self, nodes: Sequence[Node]) -> None:
        """Count the instances that fit on the nodes that are up."""
        for ladder in self.ladders:
            ladder.survey(nodes, self.function)
        self.review()

    def review(self) -> None:
        """Choose the main ladder, and work out again what depends on run times."""
        for ladder in self.ladders:
            ladder.review()
        able = [ladder for ladder in self.ladders if ladder.capacity]
        self.fastest_s = min(pace.mean_s(0) for ladder in self.ladders for pace in ladder.paces.values())
        if len(able) > 1:
            self.main = max(able, key=lambda ladder: ladder.per_s() / (ladder.rate * ladder.capacity))
        elif able:
            self.main = able[0]
        self.quickest = min(able or self.ladders, key=lambda ladder: ladder.pace.mean_s(0))
        self.unit_s = 1 / self.main.per_s() if able else inf

    def slots_now(self) -> int:
        """How many batches could run at once now, if nothing else did and none waited for a cold start."""
        capacity = self.main.capacity
        if self.instances >= capacity or not self.warms:
            return capacity
        if max(self.cold_s.values()) <= self.main.pace.mean_s(0) / 4:
            return capacity
        return min(capacity, max(1, self.instances))


def make_works(site: Site, percentile: float) -> dict[str, Work]:
    """Every function; those that compete for vCPUs, or for vGPUs, of the same kind of node share a room."""
    rooms: dict[str, Room] = {}
    taken: dict[tuple[str, bool], Room] = {}  # by kind of node, and whether accelerators are meant
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
    return {name: Work(function, site, percentile, rooms[name]) for name, function in site.functions.items()}


def _ladders(profile: Estimate, site: Site, percentile: float) -> list[Ladder]:
    """One ladder per share of a node that a function may get and the kinds of node that can give it."""
    alike: dict[tuple[float, float, float, tuple[str, ...]], list[Configuration]] = {}
    for configuration in sorted(profile.configurations):
        able = tuple(kind for kind in site.cluster.kinds if profile.latency_s(configuration, kind) < inf)
        share = (configuration.vcpus, configuration.vgpus, configuration.memory_gb, able)
        alike.setdefault(share, []).append(configuration)
    found = []
    for (vcpus, vgpus, _, able), configurations in alike.items():
        sizes = [configuration.batch for configuration in configurations]
        paces = {kind: Pace(sizes, [profile.latency_s(c, kind) for c in configurations], percentile) for kind in able}
        if paces:  # where nothing costs money, the resources count
            found.append(Ladder(configurations, paces, site.cluster.price.usd_per_s(vcpus, vgpus) or vcpus + vgpus))
    if not found:
        raise ValueError(f"no node can run {profile.configurations[0]}, nor any other configuration of its function.")
    return found
