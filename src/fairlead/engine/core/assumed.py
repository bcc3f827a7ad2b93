"""Belief in a function that was not measured: the first runs count for more than what was assumed.

A measured time is corrected slowly, since it is worth as much as ten runs. An assumption is worth none: the first run
of a configuration takes its place. What was seen in some configurations is carried over to those not seen yet: between
two batch sizes by the line through them, beyond them in proportion to what was assumed, which is little for each
further invocation. So larger batches are tried, and one run shows what they take; a line through noisy times might
forbid them for good. For the same reason a size in vCPUs that was never seen is believed to divide the time.

Until ten runs were seen, no configuration is believed to take longer than a limit that leaves its requests in time. A
policy that refuses what would be late would otherwise never see a run again after a first one that took long by chance,
or never see one at all.
"""

from math import inf
from typing import TYPE_CHECKING

from fairlead.model import Configuration

if TYPE_CHECKING:
    from fairlead.engine.core.capacity import Belief

_TRIES = 10  # runs before a belief may exceed the limit
_MEMORY = 50  # runs of a configuration that are remembered
_CARRIED = 200  # runs after which nothing is carried over any more, as it costs time with many configurations


class Assumed:
    """The beliefs in one function on one kind of node. `most_s` is the limit for the first runs."""

    __slots__ = ("_beliefs", "_most_s", "_runs", "_seen")

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._beliefs: list[Belief] = []
        self._seen: dict[Configuration, float] = {}  # mean times
        self._runs = 0

    def add(self, belief: "Belief") -> None:
        """Take in one more configuration."""
        self._beliefs.append(belief)
        self._correct(belief)

    def learn(self, belief: "Belief", work_s: float) -> None:
        """Take in one finished batch."""
        self._runs += 1
        belief.observed = min(belief.observed + 1, _MEMORY)
        mean_s = self._seen.get(belief.configuration, 0.0)
        self._seen[belief.configuration] = mean_s + (work_s - mean_s) / belief.observed
        self._correct(belief)
        if self._runs <= _CARRIED:
            for other in self._beliefs:
                if not other.observed or self._runs == _TRIES:
                    self._correct(other)

    def _correct(self, belief: "Belief") -> None:
        seconds = self._seen.get(belief.configuration)
        if seconds is None:
            seconds = self._carried_s(belief.configuration, belief.declared_s)
        if self._runs < _TRIES:
            seconds = min(seconds, max(self._most_s, belief.declared_s))
        belief.correction = seconds * belief.per_s
        belief.moved.add(belief.configuration)

    def _carried_s(self, wanted: Configuration, declared_s: float) -> float:
        """What an unseen configuration takes, by those that were seen; as assumed if none was."""
        if not self._seen:
            return declared_s
        alike = {c.batch: c for c in self._seen if (c.vcpus, c.vgpus) == (wanted.vcpus, wanted.vgpus)}
        below = max((size for size in alike if size < wanted.batch), default=None)
        above = min((size for size in alike if size > wanted.batch), default=None)
        if below is not None and above is not None:
            low_s, high_s = self._seen[alike[below]], self._seen[alike[above]]
            return low_s + (high_s - low_s) * (wanted.batch - below) / (above - below)
        nearest = min(
            alike.values() or self._seen, key=lambda c: (abs(c.batch - wanted.batch), abs(c.vcpus - wanted.vcpus))
        )
        assumed_s = next((b.declared_s for b in self._beliefs if b.configuration == nearest), 0.0)
        carried_s = self._seen[nearest] * (declared_s / assumed_s if 0 < assumed_s < inf else 1.0)
        return carried_s * (nearest.vcpus / wanted.vcpus if nearest.vcpus and wanted.vcpus else 1.0)
