"""Keep-alive rules for a fleet of functions: how long an idle instance stays, and who goes when memory is short.

`Fixed` and `LeastRecentlyUsed` are what every run has. The other two are rules of papers:

`HybridHistogram`: M. Shahrad et al., "Serverless in the Wild", USENIX ATC 2020, section 4. Its numbers are recalled,
not checked against the text. **Differs from the paper:**

* By function, not by application. An idle time begins when no instance of the function is at work any more, and ends
  when a run of it starts (not when it is called, should it have to wait).
* Where most idle times lie beyond the histogram, the paper predicts the next one by ARIMA. Here it is the mean of those
  seen so far, with the paper's margin of 15 %.
* The paper says that a histogram needs enough samples; that `least_samples` are enough is ours.
* A function may have several instances. Where pre-warming applies, each goes as soon as it is idle, and one comes back.
* Pre-warming takes the emptiest node, evicts idle instances there if it must, and fails silently where nothing fits.
* Histograms do not forget; the paper keeps one per day and drops old ones.

`GreedyDual`: A. Fuerst, P. Sharma, "FaasCache", ASPLOS 2021, section 4: recalled as well. **Differs from the paper:**

* It is about one server; here every node has its own clock, and a function's frequency counts over all nodes.
* The cost is the declared cold-start time of the function on that kind of node; the size is memory alone.
* What is evicted makes room for one instance, not for a batch of them ahead of need.

In all of them a request never waits for an instance that is being pre-warmed: it starts its own, cold.
"""

from dataclasses import dataclass, replace
from math import inf

import msgspec
import numpy as np

from fairlead.engine.sim.compiled import keeping
from fairlead.engine.sim.compiled import layout as at
from fairlead.engine.sim.compiled.memory import Memory
from fairlead.errors import UnknownNameError
from fairlead.workload import Scenario


@dataclass(frozen=True, kw_only=True)
class KeepAlive:
    """How long idle instances stay. This one: until their memory is needed."""

    def keep_alive_s(self) -> float:
        """The time that every function is given, infinite where something else decides."""
        return inf

    def scenario(self, scenario: Scenario) -> Scenario:
        """The scenario, with the time of this rule instead of the functions' own."""
        seconds = self.keep_alive_s()
        functions = {n: msgspec.structs.replace(f, keep_alive_s=seconds) for n, f in scenario.functions.items()}
        return replace(scenario, functions=functions)

    def prepare(self, memory: Memory) -> None:
        """Lay out what the rule remembers."""


@dataclass(frozen=True, kw_only=True)
class Fixed(KeepAlive):
    """An idle instance stays for a fixed time, the same for every function; as clouds commonly do.

    Args:
        seconds: How long, at least 0; infinite is for ever.
    """

    seconds: float = 600.0

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ValueError(f"seconds must be at least 0; got {self.seconds}.")

    def keep_alive_s(self) -> float:
        """As given."""
        return self.seconds


@dataclass(frozen=True, kw_only=True)
class LeastRecentlyUsed(KeepAlive):
    """An idle instance stays until its memory is needed; the least recently used one of a node goes first."""


@dataclass(frozen=True, kw_only=True)
class HybridHistogram(KeepAlive):
    """Unload after a run, load again shortly before the next is likely, by a histogram of the function's idle times.

    After a run, the instance goes; one comes back after the `head` of the idle times seen so far and stays until their
    `tail`. A head in the first bin means that it does not go at all. Where the histogram says little, the instance
    stays for the histogram's whole range.

    Args:
        bins: Of the histogram, at least 1.
        bin_s: Width of each in seconds; the range is `bins` times that.
        head: Quantile before which no instance is kept, in [0, 1]; rounded down to the beginning of its bin.
        tail: Quantile until which one is kept, in [head, 1]; rounded up to the end of its bin.
        margin: By which both are moved outwards, as a share, in [0, 1).
        least_samples: Idle times that must have been seen, at least 1.
        least_variation: Coefficient of variation of the bins' counts that makes a histogram representative.
        most_outside: Share of idle times beyond the range above which the mean idle time decides, in [0, 1].
        mean_margin: By which the mean is moved both ways then, as a share, in [0, 1).
    """

    bins: int = 240
    bin_s: float = 60.0
    head: float = 0.05
    tail: float = 0.99
    margin: float = 0.10
    least_samples: int = 5
    least_variation: float = 2.0
    most_outside: float = 0.5
    mean_margin: float = 0.15

    def __post_init__(self) -> None:
        if self.bins < 1 or self.least_samples < 1:
            raise ValueError(f"bins and least_samples must be at least 1; got {self.bins} and {self.least_samples}.")
        if not 0 < self.bin_s < inf:
            raise ValueError(f"bin_s must be above 0 and finite; got {self.bin_s}.")
        if not 0 <= self.head <= self.tail <= 1:
            raise ValueError(f"head and tail must be in [0, 1], head first; got {self.head} and {self.tail}.")
        if not (0 <= self.margin < 1 and 0 <= self.mean_margin < 1):
            raise ValueError(f"margin and mean_margin must be in [0, 1); got {self.margin} and {self.mean_margin}.")
        if not 0 <= self.most_outside <= 1:
            raise ValueError(f"most_outside must be in [0, 1]; got {self.most_outside}.")
        if not 0 <= self.least_variation < inf:
            raise ValueError(f"least_variation must be finite and not negative; got {self.least_variation}.")

    def prepare(self, memory: Memory) -> None:
        """An empty histogram per function."""
        c = memory[at.COUNT]
        functions = int(c[at.FUNCTIONS])
        c[at.KEEP_RULE] = at.BY_HISTOGRAM
        counts = np.zeros((functions, keeping.INT_COLUMNS + self.bins), np.int64)
        memory[at.KEEP_INTS] = np.concatenate([[self.bins, self.least_samples], counts.reshape(-1)])
        times = np.zeros((functions, keeping.REAL_COLUMNS))
        times[:, keeping.ENDED] = -1.0
        times[:, keeping.KEEP_S] = self.bins * self.bin_s
        times[:, keeping.PREWARM_AT] = times[:, keeping.PREWARM_ARMED] = inf
        spread = 1 + self.least_variation * self.least_variation  # of the counts: mean square over squared mean
        settings = [self.bin_s, self.head, self.tail, self.margin, spread, self.most_outside, self.mean_margin]
        memory[at.KEEP_REALS] = np.concatenate([settings, times.reshape(-1)])
        memory.whole(at.PREWARM_NOW, functions)


@dataclass(frozen=True, kw_only=True)
class GreedyDual(KeepAlive):
    """An idle instance stays until its memory is needed; the one of least worth on a node goes first.

    Its worth is the node's clock at its last use, plus how often the function was used, times what a cold start takes,
    over its memory. The clock rises to the worth of whatever is evicted, so that what is not used any more ages. A
    function whose last instance goes begins anew.
    """

    def prepare(self, memory: Memory) -> None:
        """Frequencies by function, clocks by node."""
        c = memory[at.COUNT]
        c[at.KEEP_RULE] = at.BY_WORTH
        memory.whole(at.KEEP_INTS, int(c[at.FUNCTIONS]) * keeping.WORTH_COLUMNS)
        memory.real(at.KEEP_REALS, int(c[at.NODES]))


KEEP_ALIVE_RULES: dict[str, type[KeepAlive]] = {
    "fixed": Fixed,
    "lru": LeastRecentlyUsed,
    "hybrid-histogram": HybridHistogram,
    "greedy-dual": GreedyDual,
}


def make_keep_alive(name: str, **parameters: float) -> KeepAlive:
    """A rule by name.

    Raises:
        UnknownNameError: There is no such rule.
        ValueError: A parameter is out of its range.
    """
    if name not in KEEP_ALIVE_RULES:
        raise UnknownNameError("keep-alive rule", name, KEEP_ALIVE_RULES)
    return KEEP_ALIVE_RULES[name](**parameters)
