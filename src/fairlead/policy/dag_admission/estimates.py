"""How long a run will take, to be on the safe side: a high percentile of what was observed, with a safe start."""

from collections import deque
from collections.abc import Sequence
from math import ceil, sqrt
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.base import View
from fairlead.policy.dag_admission.tasks import Way

Floats = NDArray[np.float64]
Source = Literal["learned", "declared"]

_WINDOW = 100
_ENOUGH = 32
_MOST_SIGMAS = 4.0


class Observed(NamedTuple):
    """What the last runs of one way came to, in seconds."""

    safe_s: float
    mean_s: float
    deviation_s: float


class Durations:
    """Durations per function, configuration and kind.

    Until enough runs were seen (and always with the source `declared`), a safe duration is the believed mean and
    `slack` on top; afterwards it is the given percentile of the last runs, so that what is predictable is planned
    tightly.
    """

    def __init__(self, source: Source, slack: float, percentile: float) -> None:
        self._is_learning = source == "learned"
        self._slack = slack
        self._percentile = percentile
        # How many standard deviations the percentile is above the mean of a sum of many runs.
        self.sigmas = _MOST_SIGMAS if percentile == 1 else min(_MOST_SIGMAS, NormalDist().inv_cdf(percentile))
        self._runs: dict[Way, deque[float]] = {}
        self._observed: dict[Way, Observed] = {}
        self._news: set[Way] = set()  # ways that ran since they were last looked at
        self.version = 0  # grows whenever an answer may change
        # By function, until a run of the way ends, or (ladders and tables) any run of the function:
        self._believed_s: dict[str, dict[Way, float]] = {}
        self._safe_s: dict[str, dict[Way, float]] = {}
        self._ladders: dict[str, dict[Way, list[float]]] = {}
        self._tables: dict[str, Floats] = {}

    def run_s(self, view: View, way: Way) -> float:
        """How long a warm run takes at most, nearly always."""
        known = self._safe_s.setdefault(way.function, {})
        seconds = known.get(way)
        if seconds is None:
            observed = self._look(way)
            seconds = self.believed_s(view, way) * (1 + self._slack) if observed is None else observed.safe_s
            known[way] = seconds
        return seconds

    def ladder_s(self, view: View, way: Way) -> list[float]:
        """The same for a way and for `way.larger`."""
        known = self._ladders.setdefault(way.function, {})
        found = known.get(way)
        if found is None:
            found = known[way] = [self.run_s(view, each) for each in (way, *way.larger)]
        return found

    def table_s(self, view: View, ways: Sequence[Way]) -> Floats:
        """The same for all ways of one function."""
        found = self._tables.get(ways[0].function) if ways else np.zeros(0)
        if found is None:
            found = self._tables[ways[0].function] = np.array([self.run_s(view, way) for way in ways])
        return found

    def renew(self, function: str, way: Way | None = None) -> None:
        """Look again at what is believed of a function, as a run of it has ended: this way's, or an unknown one's."""
        self.version += 1
        for known in (self._believed_s, self._safe_s):
            if way is None:
                known.pop(function, None)
            elif function in known:
                known[function].pop(way, None)
        self._ladders.pop(function, None)
        self._tables.pop(function, None)

    def is_unknown(self, way: Way) -> bool:
        """Whether too little was seen of a way to know how much it varies."""
        return self._is_learning and self._look(way) is None

    def believed_s(self, view: View, way: Way) -> float:
        """How long a warm run takes on average, as the controller believes."""
        known = self._believed_s.setdefault(way.function, {})
        seconds = known.get(way)
        if seconds is None:
            seconds = known[way] = view.profile(way.function).latency_s(way.configuration, way.kind)
        return seconds

    def spread_s(self, view: View, way: Way) -> tuple[float, float]:
        """Mean and standard deviation of a warm run, to add up what a request costs.

        Until enough was observed the deviation is 0: a request that costs too much delays no other, so it is a way to
        learn. With the source `declared`, which learns nothing, `slack` stands for the deviation.
        """
        observed = self._look(way)
        if observed is None:
            mean_s = self.believed_s(view, way)
            return mean_s, 0.0 if self._is_learning else mean_s * self._slack / max(1.0, self.sigmas)
        return observed.mean_s, observed.deviation_s

    def observe(self, way: Way, seconds: float) -> None:
        """Take in one finished run."""
        if self._is_learning:
            runs = self._runs.get(way)
            if runs is None:
                runs = self._runs[way] = deque(maxlen=_WINDOW)
            runs.append(seconds)
            self._news.add(way)
            self.renew(way.function, way)

    def _look(self, way: Way) -> Observed | None:
        """What was observed of a way, summed up when it is asked for; None while that is too little."""
        if way in self._news:
            self._news.discard(way)
            runs = self._runs[way]
            if len(runs) >= _ENOUGH:
                mean_s = sum(runs) / len(runs)
                deviation_s = sqrt(sum((s - mean_s) ** 2 for s in runs) / len(runs))
                safe_s = sorted(runs)[ceil(self._percentile * len(runs)) - 1]
                self._observed[way] = Observed(safe_s, mean_s, deviation_s)
        return self._observed.get(way)
