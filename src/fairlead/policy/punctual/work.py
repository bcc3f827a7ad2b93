"""A function as this policy sees it: the ways to run it, how many run at once, and what waits for it."""

from collections.abc import Iterable, Sequence
from math import inf

from sortedcontainers import SortedList

from fairlead.model import Configuration, Function, Invocation, Node
from fairlead.model.slots import slots
from fairlead.policy.base import Site, View
from fairlead.policy.punctual.pace import Pace
from fairlead.policy.punctual.room import Room
from fairlead.profile import Estimate

_RATE_MEMORY = 0.05  # weight of the newest gap between invocations
_STALE = 256  # how many that have left a queue may be forgotten there


class Ladder:
    """One share of a node (vCPUs, vGPUs, memory) that an instance may get, and its batch sizes, ascending."""

    __slots__ = ("capacity", "configurations", "pace", "paces", "rate", "rung_of", "sizes", "slots", "top")

    def __init__(self, configurations: Sequence[Configuration], paces: dict[str, Pace], rate: float) -> None:
        self.configurations = tuple(configurations)
        self.sizes = [configuration.batch for configuration in configurations]
        self.rate = rate  # what a second costs
        self.paces = paces  # by kind of node, where it can run
        self.pace = next(iter(paces.values()))  # on the kind that holds most
        self.slots = dict.fromkeys(paces, 0)  # by kind, how many run at once if nothing else does
        self.capacity = 0  # on all kinds together
        self.top = len(self.sizes) - 1  # the batch size that does most per second
        self.rung_of: list[
            int
        ] = []  # by number of invocations: the smallest batch size that holds them, or the largest
        rung = 0
        for count in range(self.sizes[-1] + 1):
            rung += count > self.sizes[rung]
            self.rung_of.append(rung)

    def rung(self, count: int) -> int:
        """The place of the smallest batch size that holds so many; of the largest, if none does."""
        return self.rung_of[count] if count < len(self.rung_of) else len(self.sizes) - 1

    def survey(self, nodes: Iterable[Node], function: Function) -> None:
        """Count how many instances these nodes hold."""
        self.slots = dict.fromkeys(self.paces, 0)
        for node in nodes:
            if node.kind in self.slots:
                self.slots[node.kind] += slots(node, function, self.configurations[0])
        self.capacity = sum(self.slots.values())
        self.pace = self.paces[max(self.slots, key=self.slots.__getitem__)]

    def per_s(self) -> float:
        """How many invocations the cluster does per second in this way, in full batches, if it does nothing else."""
        return sum(count * self._most(self.paces[kind]) for kind, count in self.slots.items() if count)

    def _most(self, pace: Pace) -> float:
        return self.sizes[self.top] / pace.mean_s(self.top)

    def review(self) -> None:
        """Find the batch size that does most per second, as far as is known by now.

        It changes only for a clear gain, or for as much in much less time: stages that each prefer another size by
        chance would tear batches apart.
        """
        if len(self.sizes) == 1:
            return
        times_s = [self.pace.mean_s(rung) for rung in range(len(self.sizes))]
        rates = [size / seconds for size, seconds in zip(self.sizes, times_s, strict=True)]
        best = max(rates)
        least = next(rung for rung, rate in enumerate(rates) if rate >= 0.95 * best)
        if rates[self.top] < 0.93 * best or times_s[least] < 0.75 * times_s[self.top]:
            self.top = least


class Queue:
    """What waits for one function in one workflow, with a deadline (the earliest first) or without (the oldest).

    Those who have left may be there until they come up.
    """

    __slots__ = ("_limit", "is_urgent", "items", "key", "work", "workflow")

    def __init__(self, workflow: str, is_urgent: bool, work: "Work") -> None:
        self.workflow = workflow
        self.is_urgent = is_urgent
        self.key = (workflow, is_urgent)
        self.work = work
        self.items: SortedList[tuple[float, int, Invocation]] = SortedList()
        self._limit = _STALE

    def add(self, invocation: Invocation, view: View) -> list[Invocation]:
        """Let one wait; gives those that turn out to have left."""
        self.items.add((invocation.deadline, invocation.id, invocation))
        if len(self.items) <= self._limit:
            return []
        gone = [invocation for _, _, invocation in self.items if not view.is_waiting(invocation)]
        self.items = SortedList(item for item in self.items if view.is_waiting(item[2]))
        self._limit = 2 * len(self.items) + _STALE
        return gone

    def before(self, deadline: float) -> int:
        """How many are more urgent, or as urgent and there already."""
        return int(self.items.bisect_right((deadline, inf)))


class Work:
    """A function: its ladders, its room, what waits, what runs, and how often it is called."""

    __slots__ = (
        "_newest",
        "cold_s",
        "fastest_s",
        "function",
        "gap_s",
        "instances",
        "is_awaited",
        "ladders",
        "last_start",
        "main",
        "name",
        "queues",
        "quickest",
        "room",
        "running",
        "standby",
        "starts_until",
        "unit_s",
        "warms",
    )

    def __init__(self, function: Function, site: Site, percentile: float, room: Room) -> None:
        self.name = function.name
        self.function = function
        self.room = room
        self.queues: dict[tuple[str, bool], Queue] = {}  # by key; only those in which something waits
        self.standby: SortedList[tuple[float, int, Invocation]] = SortedList()  # who goes along if a seat stays empty
        self.running = 0  # batches
        self.instances = 0  # as last counted
        self.starts_until = -inf  # an instance that was started ahead of need is expected by then
        self.is_awaited = False  # requests are refused for want of an instance
        self.last_start = 0.0
        self.gap_s = inf  # smoothed time between two requests that begin with it and have a deadline
        self._newest = -inf
        profile = site.profiles[function.name]
        self.cold_s = {kind: profile.cold_start_s(kind) for kind in site.cluster.kinds}
        # What stays warm only while it runs, or has no process of its own, is not worth starting ahead of need.
        self.warms = function.keep_alive_s > 0 and not function.buffers
        self.ladders = _ladders(profile, site, percentile)
        self.main = self.quickest = self.ladders[0]  # that which does most for its price, and the fastest
        self.unit_s = inf  # how long one invocation keeps all nodes busy, in full batches
        self.fastest_s = inf  # the least mean time of one invocation
        self.survey(site.cluster.nodes)

    @property
    def waiting(self) -> int:
        """How many wait, about."""
        return sum([len(queue.items) for queue in self.queues.values()])

    @property
    def seats(self) -> int:
        """How many go in a full batch."""
        return self.main.sizes[self.main.top]

    def survey(self, nodes: Sequence[Node]) -> None:
        """Count what the nodes that are up can hold."""
        for ladder in self.ladders:
            ladder.survey(nodes, self.function)
        self.review()

    def review(self) -> None:
        """Choose the main ladder, and work out again what depends on how long runs take."""
        for ladder in self.ladders:
            ladder.review()
        able = [ladder for ladder in self.ladders if ladder.capacity]
        self.fastest_s = min(pace.mean_s(0) for ladder in self.ladders for pace in ladder.paces.values())
        if len(able) > 1:
            self.main = max(able, key=lambda ladder: ladder.per_s() / (ladder.rate * ladder.capacity))
        elif able:
            self.main = able[0]
        if len(self.ladders) > 1:
            self.quickest = min(able or self.ladders, key=lambda ladder: ladder.pace.mean_s(0))
        self.unit_s = 1 / self.main.per_s() if able else inf

    def called(self, now: float) -> None:
        """Note that a request with a deadline begins here."""
        gap_s = min(now - self._newest, 1.0)
        self._newest = now
        self.gap_s = gap_s if self.gap_s == inf else self.gap_s + _RATE_MEMORY * (gap_s - self.gap_s)

    def slots_now(self) -> int:
        """How many could run at once now, if nothing else did: what needs a cold start does not count."""
        capacity = self.main.capacity
        if self.instances >= capacity or not self.warms:
            return capacity
        if max(self.cold_s.values()) <= self.main.pace.mean_s(0) / 4:
            return capacity
        return min(capacity, max(1, self.instances))


def _ladders(profile: Estimate, site: Site, percentile: float) -> list[Ladder]:
    """The ladders of a function, one per share of a node that it may get and the kinds of node that can give it."""
    kinds = tuple(site.cluster.kinds)
    alike: dict[tuple[float, float, float, tuple[str, ...]], list[Configuration]] = {}
    for configuration in sorted(profile.configurations):
        able = tuple(kind for kind in kinds if profile.latency_s(configuration, kind) < inf)
        share = (configuration.vcpus, configuration.vgpus, configuration.memory_gb, able)
        alike.setdefault(share, []).append(configuration)
    found = []
    for (vcpus, vgpus, _, able), configurations in alike.items():
        sizes = [configuration.batch for configuration in configurations]
        paces = {kind: Pace(sizes, [profile.latency_s(c, kind) for c in configurations], percentile) for kind in able}
        if paces:  # where nothing costs money, what is taken up counts
            found.append(Ladder(configurations, paces, site.cluster.price.usd_per_s(vcpus, vgpus) or vcpus + vgpus))
    if not found:
        raise ValueError(f"no node can run {profile.configurations[0]}, nor any other configuration of its function.")
    return found
