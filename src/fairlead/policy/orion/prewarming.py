"""Right pre-warming: containers of the sizes that arriving requests will be given, before their stages need them."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from math import ceil, sqrt

from fairlead.model import Configuration
from fairlead.policy.base import View, Warm

_PERIOD_S = 1.0
_WINDOW_S = 10.0

Run = tuple[str, Configuration, float]
"""A function, its configuration, and for how many seconds a request keeps a container of it."""


class Prewarming:
    """Keeps as many containers of each size as recent arrivals need, with a margin for chance.

    `expected` gives the runs of a request of a workflow, `deviations` the margin in standard deviations.
    """

    def __init__(self, expected: Callable[[str], Iterable[Run]], deviations: float = 2.0) -> None:
        self._deviations = deviations
        self._expected = expected
        self._arrived: deque[tuple[float, str]] = deque()
        self._last = -1
        self._due = _PERIOD_S

    def note(self, view: View) -> None:
        """See who has arrived."""
        for request in view.fresh:
            if request.id > self._last:
                self._last = request.id
                self._arrived.append((request.arrival, request.workflow))

    def ahead(self, view: View) -> Iterator[Warm]:
        """Start what is missing, once a second at most."""
        if view.now < self._due:
            return
        self._due = view.now + _PERIOD_S
        for (function, vgpus), (busy, configuration) in self._needs(view.now).items():
            if not view.profile(function).cold_start_s():
                continue
            there = sum(instance.vgpus == vgpus for instance in view.instances(function))
            for _ in range(ceil(busy + self._deviations * sqrt(busy)) - there):
                node = view.place(function, configuration, "fresh", evicts=False)
                if node is None:
                    break
                yield Warm(function, configuration, node)

    def _needs(self, now: float) -> dict[tuple[str, float], tuple[float, Configuration]]:
        """How many containers of each size are busy on average."""
        while self._arrived and self._arrived[0][0] < now - _WINDOW_S:
            self._arrived.popleft()
        window_s = min(now, _WINDOW_S)
        counts: dict[str, int] = {}
        for _, workflow in self._arrived:
            counts[workflow] = counts.get(workflow, 0) + 1
        needs: dict[tuple[str, float], tuple[float, Configuration]] = {}
        for workflow, count in counts.items():
            for function, configuration, seconds in self._expected(workflow):
                key = (function, configuration.vgpus)
                busy, first = needs.get(key, (0.0, configuration))
                needs[key] = (busy + seconds * count / window_s, first)
        return needs
