"""How long a function takes by batch size, learned from its runs: `Pace` for one size of node share, `Ladder` for use.

Nothing has to be known before the run: declared times only give the first guess. An estimate has three layers, each
weighted by the evidence for it: the declared times with one factor for all batch sizes; a straight line through the
batch sizes that were seen; and the mean of each batch size itself.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import exp, log

from fairlead.model import Configuration, Function, Node
from fairlead.model.slots import slots
from fairlead.profile.spread import FIRST_SPREAD, widened

_PRIOR = 0.25  # weight of the declared times, in observations: the first run counts four times as much
_MEMORY = 30.0  # how many observations of all batch sizes together are remembered
_OWN_MEMORY = 20.0  # and how many of one batch size
_BORROWED = 2.0  # weight of the estimate from other batch sizes, in observations
_LEAST_S = 1e-6  # no time is shorter, which avoids division by zero


class Pace:
    """The run times of one function in one share of a node, on one kind of node, by place in `sizes` (the rung).

    Args:
        sizes: Batch sizes, ascending.
        declared_s: The declared time of each.
        percentile: Share of runs that take no longer than `upper_s`.
    """

    def __init__(self, sizes: Sequence[int], declared_s: Sequence[float], percentile: float) -> None:
        self.spread = FIRST_SPREAD  # `upper_s` over `mean_s`
        self._sizes = tuple(sizes)
        self._declared = [max(_LEAST_S, seconds) for seconds in declared_s]
        self._percentile = percentile
        self._width = max(1.0, (self._sizes[-1] - self._sizes[0]) / 8) ** 2  # variance of sizes that a line needs
        self._factor = 0.0  # mean logarithm of observed over declared time
        self._seen = _PRIOR
        self._sum = (0.0, 0.0, 0.0, 0.0, 0.0)  # weight, size, time, size squared, size times time
        self._times = list(self._declared)
        self._count = [0.0] * len(self._sizes)
        self._tick = [0] * len(self._sizes)  # when each size was last seen
        self._ticks = 0
        self._known: dict[int, float] = {}  # means worked out since the last run

    def learn(self, rung: int, seconds: float) -> None:
        """Take in one run of a batch size."""
        seconds = max(_LEAST_S, seconds)
        self.spread = widened(self.spread, seconds / self.mean_s(rung), self._percentile)
        self._ticks += 1
        self._factor += (log(seconds / self._declared[rung]) - self._factor) / (self._seen + 1)
        self._seen = min(self._seen + 1, _MEMORY)
        keep, size = 1 - 1 / _MEMORY, self._sizes[rung]
        w, n, t, nn, nt = [keep * term for term in self._sum]
        self._sum = (w + 1, n + size, t + seconds, nn + size * size, nt + size * seconds)
        count = self._own(rung)
        self._times[rung] += (seconds - self._times[rung]) / (count + 1)
        self._count[rung] = min(count + 1, _OWN_MEMORY)
        self._tick[rung] = self._ticks
        self._known.clear()

    def mean_s(self, rung: int) -> float:
        """Expected time of a batch size."""
        known = self._known.get(rung)
        if known is None:
            count = self._own(rung)
            known = (self._borrowed(rung) * _BORROWED + self._times[rung] * count) / (_BORROWED + count)
            self._known[rung] = known
        return known

    def upper_s(self, rung: int) -> float:
        """A time that the share `percentile` of runs does not exceed."""
        return self.mean_s(rung) * self.spread

    def _own(self, rung: int) -> float:
        """The weight of a batch size's own mean: it falls with the number of runs of other sizes since."""
        count = self._count[rung]
        return count and count * max(0.0, 1 - (self._ticks - self._tick[rung]) / (4 * _MEMORY))

    def _borrowed(self, rung: int) -> float:
        """The time of a batch size as estimated from all sizes together."""
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


class Ladder:
    """One share of a node (vCPUs, vGPUs, memory) that an instance may get, with its batch sizes as rungs.

    Args:
        configurations: Of this share, by ascending batch size.
        paces: By kind of node, where the share can run.
        rate: What a second costs.
    """

    def __init__(self, configurations: Sequence[Configuration], paces: dict[str, Pace], rate: float) -> None:
        self.configurations = tuple(configurations)
        self.sizes = [configuration.batch for configuration in configurations]
        self.rate = rate
        self.paces = paces
        self.pace = next(iter(paces.values()))  # on the kind of node that holds most instances
        self.slots = dict.fromkeys(paces, 0)  # by kind of node, how many instances fit if nothing else runs
        self.capacity = 0  # the sum of `slots`
        self.top = len(self.sizes) - 1  # the rung with the highest throughput

    @property
    def seats(self) -> int:
        """Invocations in a batch of the highest throughput."""
        return self.sizes[self.top]

    def rung(self, count: int) -> int:
        """The smallest batch size that holds `count` invocations, but not above `top`."""
        return min(bisect_left(self.sizes, count), self.top)

    def survey(self, nodes: Iterable[Node], function: Function) -> None:
        """Count how many instances these nodes hold."""
        self.slots = dict.fromkeys(self.paces, 0)
        for node in nodes:
            if node.kind in self.slots:
                self.slots[node.kind] += slots(node, function, self.configurations[0])
        self.capacity = sum(self.slots.values())
        self.pace = self.paces[max(self.slots, key=self.slots.__getitem__)]

    def per_s(self) -> float:
        """Invocations per second of the whole cluster in full batches, if nothing else runs."""
        return sum(n * (self.seats / self.paces[kind].mean_s(self.top)) for kind, n in self.slots.items() if n)

    def review(self) -> None:
        """Choose `top` again by the times learned since.

        It changes only for a clear gain, or for the same throughput in much less time: if stages preferred different
        sizes by chance, batches would be torn apart between them.
        """
        if len(self.sizes) == 1:
            return
        times_s = [self.pace.mean_s(rung) for rung in range(len(self.sizes))]
        rates = [size / seconds for size, seconds in zip(self.sizes, times_s, strict=True)]
        best = max(rates)
        least = next(rung for rung, rate in enumerate(rates) if rate >= 0.95 * best)
        if rates[self.top] < 0.93 * best or times_s[least] < 0.75 * times_s[self.top]:
            self.top = least
