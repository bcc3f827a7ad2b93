"""The container pool: as many warm containers of each fixed size as are likely to be needed at once."""

from collections import Counter
from collections.abc import Iterator, Mapping
from math import ceil, sqrt

from fairlead.model import Configuration
from fairlead.policy.base import View, Warm

_PERIOD_S = 1.0
_WEIGHT = 0.1  # of the newest second in smoothed means
_MOST_MORE = 2.0  # batches that wait for a container and count: one that starts holds capacity for seconds
_FIRST_REQUESTS = 2.0  # whose containers are kept before anything is known
_NEGLIGIBLE = 0.05  # of a container: no reason for one more

Queue = tuple[str, str]
"""A workflow and a function."""

Size = tuple[str, float]
"""A function and its vGPUs: what makes a container another, as vCPUs are resized freely."""


class _Demand:
    """How many containers of a size were wanted at once, second by second: smoothed mean and variance."""

    __slots__ = ("mean", "variance")

    def __init__(self, mean: float) -> None:
        self.mean = mean
        self.variance = 0.0

    def note(self, wanted: float) -> None:
        gap = wanted - self.mean
        self.mean += _WEIGHT * gap
        self.variance = (1 - _WEIGHT) * (self.variance + _WEIGHT * gap * gap)


class Pool:
    """Keeps the mean number of containers that were wanted at once, and some standard deviations more.

    Wanted is what runs at once and, while no container is idle, a little of what waits. What waits beside an idle
    container lacks room, which one more would only take. Containers are spread over nodes, so that one is warm wherever
    there is room.
    """

    def __init__(
        self,
        planned: Mapping[Queue, Configuration],
        deviations: float,
        items: Mapping[Queue, float],
        *,
        is_crowded: bool = False,
    ) -> None:
        """Before anything is known, two requests at once are expected, with this many `items` in each queue.

        Where functions share vCPUs (`is_crowded`), what is needed on average is kept, and one request is expected.
        """
        first = 1.0 if is_crowded else _FIRST_REQUESTS
        self._most_more = 0.0 if is_crowded else _MOST_MORE
        self._queues: dict[Size, list[Queue]] = {}
        self._planned = planned
        for (workflow, function), configuration in planned.items():
            self._queues.setdefault((function, configuration.vgpus), []).append((workflow, function))
        self._demand = {
            size: _Demand(first * max(max(1.0, items[queue] / planned[queue].batch) for queue in queues))
            for size, queues in self._queues.items()
        }
        self._deviations = 0.0 if is_crowded else deviations
        self._due = 0.0

    def wanted(self, size: Size) -> int:
        """How many containers of a size to keep."""
        demand = self._demand[size]
        many = demand.mean + self._deviations * sqrt(demand.variance)
        return ceil(many - _NEGLIGIBLE)

    def ahead(self, view: View) -> Iterator[Warm]:
        """Start what is missing, once a second at most; the first time at once."""
        if view.now < self._due:
            return
        is_first = self._due == 0.0
        self._due = view.now + _PERIOD_S
        nodes = [node.name for node in view.nodes]
        for size, queues in self._queues.items():
            function, vgpus = size
            if not view.profile(function).cold_start_s():
                continue
            there = [instance for instance in view.instances(function) if instance.vgpus == vgpus]
            if not is_first:
                busy = sum(instance.is_ready and not instance.is_idle for instance in there)
                waiting = sum(view.waiting(*queue) / self._planned[queue].batch for queue in queues)
                is_short = not any(instance.is_idle for instance in there)
                self._demand[size].note(busy + min(waiting, self._most_more) if is_short else busy)
            held = Counter(instance.node for instance in there)
            open_nodes = set(nodes) - {instance.node for instance in there if not instance.is_ready}
            configuration = self._planned[queues[0]]
            for _ in range(self.wanted(size) - len(there)):
                free = [node for node in nodes if node in open_nodes and _has_room(view, function, configuration, node)]
                if not free:
                    break
                node = min(free, key=lambda node: (held[node], view.load(node)))
                open_nodes.remove(node)
                yield Warm(function, configuration, node)


def _has_room(view: View, function: str, configuration: Configuration, node: str) -> bool:
    """Whether one more container fits beside all that are there: the pool of one function drives out no other's."""
    return view.fits(function, configuration, node, evicts=False, is_fresh=True)
