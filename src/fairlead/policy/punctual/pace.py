"""How long a function takes in each batch size, learned from what ran, and borrowed between sizes.

Nothing has to be known before: what was declared only gives the first guess, and its shape where nothing else does.
Three layers, each trusted as far as there is evidence: the declared times with one factor for all sizes; a straight
line through the sizes that were seen; and the mean of each size itself.
"""

from collections.abc import Sequence
from math import exp, log

from fairlead.profile.spread import FIRST_SPREAD, widened

_PRIOR = 0.25  # weight of what was declared, in observations: the first run counts four times as much
_MEMORY = 30.0  # how many observations are remembered, of all sizes together
_OWN_MEMORY = 20.0  # and of one size
_BORROWED = 2.0  # weight of what the other sizes say of a size, in observations
_LEAST_S = 1e-6  # so that nothing is divided by zero


class Pace:
    """The times of one function in one share of a node, on one kind of node."""

    __slots__ = (
        "_count",
        "_declared",
        "_factor",
        "_known",
        "_percentile",
        "_seen",
        "_sizes",
        "_sum",
        "_tick",
        "_ticks",
        "_times",
        "_width",
        "spread",
    )

    def __init__(self, sizes: Sequence[int], declared_s: Sequence[float], percentile: float) -> None:
        self._sizes = tuple(sizes)  # batch sizes, ascending
        self._declared = [max(_LEAST_S, seconds) for seconds in declared_s]
        self._width = max(1.0, (self._sizes[-1] - self._sizes[0]) / 8) ** 2  # a variance of sizes that says enough
        self._factor = 0.0  # observed over declared: the mean of its logarithm, since it may be wrong either way
        self._seen = _PRIOR
        self._sum = (0.0, 0.0, 0.0, 0.0, 0.0)  # weight, size, time, size squared, size times time
        self._times = list(self._declared)
        self._count = [0.0] * len(self._sizes)
        self._tick = [0] * len(self._sizes)  # when each size was last seen
        self._ticks = 0
        self._known: dict[int, float] = {}  # means worked out since the last run
        self._percentile = percentile
        self.spread = FIRST_SPREAD  # a time that the percentile of runs keeps, over the mean

    def learn(self, rung: int, seconds: float) -> None:
        """Take in one run of the batch size at this place."""
        seconds = max(_LEAST_S, seconds)
        self.spread = widened(self.spread, seconds / self.mean_s(rung), self._percentile)
        self._ticks += 1
        self._factor += (log(seconds / self._declared[rung]) - self._factor) / (self._seen + 1)
        self._seen = min(self._seen + 1, _MEMORY)
        keep = 1 - 1 / _MEMORY
        size = self._sizes[rung]
        w, n, t, nn, nt = self._sum
        self._sum = (
            keep * w + 1,
            keep * n + size,
            keep * t + seconds,
            keep * nn + size * size,
            keep * nt + size * seconds,
        )
        count = self._own(rung)
        self._times[rung] += (seconds - self._times[rung]) / (count + 1)
        self._count[rung] = min(count + 1, _OWN_MEMORY)
        self._tick[rung] = self._ticks
        self._known.clear()

    def mean_s(self, rung: int) -> float:
        """Expected time of the batch size at this place."""
        known = self._known.get(rung)
        if known is None:
            count = self._own(rung)
            known = (self._borrowed(rung) * _BORROWED + self._times[rung] * count) / (_BORROWED + count)
            self._known[rung] = known
        return known

    def upper_s(self, rung: int) -> float:
        """A time that the percentile of runs keeps."""
        return self.mean_s(rung) * self.spread

    def _own(self, rung: int) -> float:
        """How much the mean of a size counts: less, the more was seen of others since."""
        count = self._count[rung]
        return count and count * max(0.0, 1 - (self._ticks - self._tick[rung]) / (4 * _MEMORY))

    def _borrowed(self, rung: int) -> float:
        """What all sizes together say of one."""
        scaled = exp(self._factor) * self._declared[rung]
        w, n, t, nn, nt = self._sum
        if w <= 1:
            return scaled
        mean_n = n / w
        variance = nn / w - mean_n * mean_n
        if variance < 0.01:
            return scaled
        slope = max(0.0, (nt / w - mean_n * t / w) / variance)
        line = max(t / w + slope * (self._sizes[rung] - mean_n), _LEAST_S)
        trust = variance / (variance + self._width)
        return trust * line + (1 - trust) * scaled
