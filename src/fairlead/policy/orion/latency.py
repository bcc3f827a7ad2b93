"""How long a whole request takes, as a distribution: from those of its stages, in the order of the graph.

Stages in series are convolved, parallel ones end with the latest, copies of a map stage too; all are taken as
independent. Which arm of a branch will be taken is not known when sizes are chosen: all count as if they ran side by
side.
"""

from collections import deque
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fairlead.model import Configuration, Workflow
from fairlead.policy.kit.options import graph_of
from fairlead.policy.orion.distribution import (
    NOW,
    Histogram,
    first_of_equal,
    latest,
    latest_of_equal,
    of_times,
    one_after_the_other,
)
from fairlead.profile import Estimate

State = tuple[int, ...]
"""For each stage of a workflow, the position of its configuration among the options of its function."""

_PRIOR = 20  # points that stand for what was declared; after 200 observations they weigh a tenth
_MEMORY = 200
_LEVELS = [(i + 0.5) / _PRIOR for i in range(_PRIOR)]
_NORMAL = np.array([NormalDist().inv_cdf(level) for level in _LEVELS])
_AT_95 = NormalDist().inv_cdf(0.95)
_LEAST = 0.05  # of the mean: no run is quicker


class Relative:
    """How the runs of a function spread around what is expected of their configuration, as factors."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_MEMORY)

    def see(self, factor: float) -> None:
        """Take in one run: its time over the expected one."""
        self._seen.append(factor)

    def factors(self, spread: float) -> NDArray[np.float64]:
        """Equally likely factors: of a normal distribution whose 95th percentile is the spread, then what was seen."""
        declared = np.maximum(1 + (spread - 1) / _AT_95 * _NORMAL, _LEAST)
        return np.concatenate([declared, np.array(self._seen)])


class Latency:
    """The latency of one workflow under any choice of configurations. Distributions of parts are kept.

    Args:
        workflow: What is asked for.
        times: For each stage, for each of its options, equally likely times in seconds.
        bin_s: The width of a bin.
        bins: How many make the objective. Four times as many are told apart; what takes longer need not be.
    """

    def __init__(self, workflow: Workflow, times: list[list[NDArray[np.float64]]], bin_s: float, bins: int) -> None:
        self._stages = workflow.stages
        self._before = graph_of(workflow)
        after = {name for stage in workflow.stages for name in stage.after}
        self._ends = [i for i, stage in enumerate(workflow.stages) if stage.name not in after]
        self._times = times
        self.bin_s = bin_s
        self._most = 4 * bins
        by_name = {stage.name: stage for stage in workflow.stages}
        maps = [by_name[region] if (region := workflow.regions[s.name]) else None for s in workflow.stages]
        self._copies = [each.map[1] if each is not None and each.map else 1 for each in maps]
        self._ancestors = _ancestors(self._before)
        self._own: dict[tuple[int, int], Histogram] = {}
        self._done: dict[tuple[int, State], Histogram] = {}

    def distribution(self, state: State) -> Histogram:
        """Of the time from the first start to the last end."""
        return latest([self._until(stage, state) for stage in self._ends])

    def _until(self, stage: int, state: State) -> Histogram:
        """Of the time until a stage is done, which depends on the choices for what leads to it only."""
        key = (stage, tuple([state[i] for i in self._ancestors[stage]]))
        found = self._done.get(key)
        if found is None:
            before = self._before[stage]
            ready = latest([self._until(i, state) for i in before]) if before else NOW
            own = self._run(stage, state[stage])
            found = self._done[key] = one_after_the_other(ready, own).up_to(self._most)
        return found

    def _run(self, stage: int, option: int) -> Histogram:
        """Of one stage alone: of a map the slowest of its most items, of competing copies the quickest."""
        key = (stage, option)
        found = self._own.get(key)
        if found is None:
            found = of_times(self._times[stage][option], self.bin_s, self._most)
            if self._stages[stage].compete > 1:
                found = first_of_equal(found, self._stages[stage].compete)
            if self._copies[stage] > 1:
                found = latest_of_equal(found, self._copies[stage])
            self._own[key] = found
        return found


def likely_times(estimate: Estimate, configuration: Configuration, relative: Relative) -> NDArray[np.float64]:
    """Equally likely times of a run: what is expected of the configuration, spread as its function's runs are."""
    mean_s = estimate.latency_s(configuration)
    spread = estimate.upper_s(configuration) / mean_s if mean_s > 0 else 1.0
    return mean_s * relative.factors(spread)


def _ancestors(before: list[list[int]]) -> list[list[int]]:
    """For each stage all that lead to it, itself last."""
    found: list[set[int]] = []
    for stage, direct in enumerate(before):
        found.append({stage}.union(*(found[i] for i in direct)))
    return [sorted(each) for each in found]
