"""The batch sizes in which a function can run on a worker, and how long each is expected to take.

Every batch size of a function has the same share of the worker, so that one loaded instance serves them all. An
estimate is the greatest of the last measurements; the declared time stands for the first of them. A function that once
took so long that all its requests look late would never run, and never be measured, again. So the least of the last
measurements is tried where a worker idles, and what has not been measured for a while is forgotten but for the least.
"""

from collections import deque
from dataclasses import dataclass
from math import inf

from fairlead.model import Configuration, Function, Node
from fairlead.planning.feasibility import could_hold
from fairlead.profile import Estimate


class Window:
    """The greatest of the last `remember` measurements, of which a declared time is the first."""

    __slots__ = ("_declared_s", "_last", "_measured", "seconds")

    def __init__(self, declared_s: float, remember: int) -> None:
        self._declared_s = declared_s
        self._last = deque([declared_s], maxlen=remember)
        self._measured = inf  # when it last was, until it is forgotten
        self.seconds = declared_s

    def learn(self, measured_s: float, now: float) -> None:
        """Take in one measurement, and forget the oldest if there are too many."""
        self._last.append(measured_s)
        self._measured = now
        self.seconds = max(self._last)

    @property
    def least_s(self) -> float:
        """The least of what is remembered."""
        return min(self._last)

    def try_least(self) -> None:
        """Expect the least of what is remembered until the next measurement."""
        self.seconds = self.least_s

    def forget(self, before: float) -> None:
        """If nothing was measured since this instant, expect the least of what is remembered or declared."""
        if self._measured + self._declared_s < before:  # long runs are measured less often
            self.seconds = min(self._declared_s, *self._last)
            self._last.clear()
            self._last.append(self.seconds)
            self._measured = inf


@dataclass(slots=True, eq=False)
class Rung:
    """One batch size: its configuration and its estimate."""

    configuration: Configuration
    run: Window

    @property
    def batch(self) -> int:
        """The largest number of invocations in a batch."""
        return self.configuration.batch


@dataclass(slots=True, eq=False)
class Ladder:
    """The batch sizes of a function on one kind of worker, smallest first, and the time to load it."""

    function: str
    rungs: tuple[Rung, ...]
    load: Window

    @property
    def least(self) -> Rung:
        """The smallest batch."""
        return self.rungs[0]

    def holding(self, invocations: int) -> Rung:
        """The smallest batch that holds this number; the largest there is if none does."""
        return next((rung for rung in self.rungs if rung.batch >= invocations), self.rungs[-1])

    def allowed(self, max_run_s: float) -> list[Rung]:
        """The batch sizes that are expected to take no longer than this, largest first; always the smallest."""
        longer = [rung for rung in self.rungs[:0:-1] if rung.run.seconds <= max_run_s]
        return [*longer, self.rungs[0]]


def make_ladder(
    function: Function, profile: Estimate, node: Node, device: int | None, max_batch: int, remember: int
) -> Ladder | None:
    """The ladder of a function on a device of a node (its vCPUs if None); None if it can never run there.

    A device runs one batch at a time, so a function gets the share in which it is fastest. A vCPU slot is one of
    many, so there it gets the cheapest.
    """
    kind = node.kind
    possible = [
        c for c in profile.configurations if profile.latency_s(c, kind) < inf and could_hold(node, device, function, c)
    ]
    if not possible:
        return None
    smallest = min(c.batch for c in possible)

    def merit(c: Configuration) -> tuple[float, float]:
        best = (profile.latency_s(c, kind), profile.cost_usd(c, kind))
        return best if device is not None else best[::-1]

    share = _share(min((c for c in possible if c.batch == smallest), key=merit))
    alike = {c.batch: c for c in possible if _share(c) == share and (c.batch <= max_batch or c.batch == smallest)}
    rungs = tuple([Rung(c, Window(profile.latency_s(c, kind), remember)) for c in sorted(alike.values())])
    return Ladder(function.name, rungs, Window(profile.cold_start_s(kind), remember))


def _share(configuration: Configuration) -> tuple[float, float, float]:
    return configuration.vcpus, configuration.vgpus, configuration.memory_gb
