"""Every path, one after the other, compiled: the truth. Memory for the k cheapest only."""

from math import prod

import numpy as np

from fairlead.planning.search.compiled import compiled, insert
from fairlead.planning.search.stages import Mask, Result, Stages, Table, limited

_PATHS_MOST = 2_000_000_000  # a few seconds of work that cannot be interrupted


class BruteForce:
    """Every path of these stages."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages

    def find(self, budget_s: float, k: int, allowed: Mask) -> Result:
        """At most k paths; of equally cheap ones those with the smallest indices, the first stage's first."""
        stages = self._stages
        options = limited((stages.latency_s, stages.cost_usd, stages.option, stages.start), allowed)
        count = prod(np.diff(options[3]).tolist())
        if count > _PATHS_MOST:
            raise ValueError(
                f"brute force looks at {_PATHS_MOST:,} paths at most; got {count:,}. "
                "Take 'frontier': it finds the same."
            )
        if not count:
            return np.empty((0, len(stages)), np.int64), np.empty(0), np.empty(0), 0, 0, 0
        return _search(budget_s, k, options)


@compiled
def _search(budget: float, k: int, options: Table) -> Result:
    """Each stage has an option at least."""
    latency, cost, option, start = options
    stages = len(start) - 1
    last, end = start[stages - 1], start[stages]
    chosen = start[:-1].copy()  # the last stage's is not used
    times, prices = np.zeros(stages), np.zeros(stages)  # before each stage
    for stage in range(1, stages):
        times[stage] = times[stage - 1] + latency[chosen[stage - 1]]
        prices[stage] = prices[stage - 1] + cost[chosen[stage - 1]]
    cheapest, numbers, found = np.full(k, np.inf), np.zeros((k, 2), np.int64), 0
    number, cut_by_time = 0, 0
    while True:
        time, price = times[stages - 1], prices[stages - 1]
        for i in range(last, end):
            if time + latency[i] > budget:
                cut_by_time += 1
            elif price + cost[i] < cheapest[k - 1]:
                found = insert(cheapest, numbers, found, price + cost[i], number + i - last, 0)
        number += end - last
        turning = stages - 2  # the last stage but one moves fastest, like an odometer
        while turning >= 0 and chosen[turning] + 1 == start[turning + 1]:
            chosen[turning] = start[turning]
            turning -= 1
        if turning < 0:
            break
        chosen[turning] += 1
        for stage in range(turning + 1, stages):
            times[stage] = times[stage - 1] + latency[chosen[stage - 1]]
            prices[stage] = prices[stage - 1] + cost[chosen[stage - 1]]

    choices, latencies = np.empty((found, stages), np.int64), np.zeros(found)
    for row in range(found):
        left = numbers[row, 0]
        for stage in range(stages - 1, -1, -1):
            size = start[stage + 1] - start[stage]
            choices[row, stage] = start[stage] + left % size
            left //= size
        for stage in range(stages):
            latencies[row] += latency[choices[row, stage]]
            choices[row, stage] = option[choices[row, stage]]
    return choices, latencies, cheapest[:found], number, cut_by_time, 0
