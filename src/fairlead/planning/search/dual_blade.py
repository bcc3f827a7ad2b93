"""The search of ESG, stage by stage, with a blade for time and one for cost, compiled.

Hui, Xu, Guo and Shen, "ESG: Pipeline-Conscious Efficient Scheduling of DNN Workflows on Serverless Platforms with
Shareable GPUs" (HPDC 2024), as the slides describe ESG_1Q: the configurations of each function sorted by cost; every
path so far extended by every one of them; what can no longer meet the latency limit is cut, and what cannot be as cheap
as what is known to be achievable.

**Differs from the paper:** its full text was not available. That the cost blade compares with the k-th least upper
bound (the rest at its fastest) of the paths *of the same length*, and ends a path's row at the first cut, is our
reading. A path and its own extension can stand for the same completion: bounds of two lengths must not be mixed. Of
options that are too slow, those up to the first that is not are passed over at once; what is kept and what is cut is
the same.
"""

from itertools import pairwise

import numpy as np

from fairlead.planning.search.compiled import compiled, doubled, insert
from fairlead.planning.search.stages import Floats, Indices, Mask, Result, Stages, Table, limited

_PATHS_FIRST = 1 << 17  # room for paths, 32 bytes each, to begin with: enough for three stages of 256 options
_PATHS_MOST = 1 << 22  # and at most


class DualBlade:
    """The published search over these stages."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        count = len(stages)
        self._options = stages.table([stages.by_cost(stage) for stage in range(count)])
        fast = [stages.by_latency(stage)[0] for stage in range(count)]
        self._fastest = stages.latency_s[fast]
        cheapest = [stages.cost_usd[stages.by_cost(stage)[0]] for stage in range(count)]
        rows = (self._fastest, np.array(cheapest), stages.cost_usd[fast])
        self._rest = np.array([[*np.cumsum(row[:0:-1])[::-1], 0.0] for row in rows])
        # Kept from one search to the next: fresh memory costs more time than what is written to it.
        self._kept = np.empty((_PATHS_FIRST, 2)), np.empty((_PATHS_FIRST, 2), dtype=np.int64)

    def find(self, budget_s: float, k: int, allowed: Mask) -> Result:
        """At most k paths.

        Raises:
            ValueError: More paths would have to be kept than there is room for.
        """
        options = limited(self._options, allowed)
        stages = [slice(*pair) for pair in pairwise(options[3].tolist())]
        so_far = np.concatenate([np.minimum.accumulate(options[0][stage]) for stage in stages])
        window = self._stages.window(budget_s)
        result, self._kept = _search(window, k, _PATHS_MOST, options, so_far, self._fastest, self._rest, self._kept)
        if result[3] < 0:
            raise ValueError(
                f"dual-blade keeps {_PATHS_MOST:,} paths at most, and {len(self._stages)} stages of "
                f"{max(self._stages.sizes)} options at this budget need more. Search fewer stages at once, or take "
                "'frontier': it finds the same."
            )
        return result


_Paths = tuple[Floats, Indices]  # latency and cost so far; the path before and the option added


@compiled
def _search(
    window: tuple[float, float, float],
    k: int,
    most: int,
    options: Table,
    so_far: Floats,
    fastest: Floats,
    rest: Floats,
    kept: _Paths,
) -> tuple[Result, _Paths]:
    """Options stand by ascending cost. Steps are -1 if more than `most` paths would have to be kept.

    `so_far` is the least latency of a stage's options up to each; `fastest` that of each stage. `rest` has three rows,
    each over what comes after a stage: the sum of the least latencies, of the least costs, and of the costs of the
    fastest options. `kept` has room for paths; more is made and returned if it does not suffice.
    """
    budget, sure, limit = window
    latency, cost, option, start = options
    stages = len(start) - 1
    steps, cut_by_time, cut_by_cost = 0, 0, 0
    sums, links = kept
    count = 1  # the first is the empty path
    sums[0, 0], sums[0, 1] = 0.0, 0.0
    low, high = 0, 1  # those of the present length
    uppers, who, found = np.empty(k), np.empty((k, 2), np.int64), 0  # the k least upper bounds of the next length
    for stage in range(stages):
        found = 0
        for i in range(k):
            uppers[i] = np.inf
        rest_s, rest_usd, rest_fast_usd = rest[0, stage], rest[1, stage], rest[2, stage]
        for this in range(low, high):
            time, price = sums[this, 0], sums[this, 1]
            i, end = start[stage], start[stage + 1]
            room = end - i if stage < stages - 1 else 0  # made here: made in the loop it takes twice the time
            if count + room > most:
                nothing = np.empty((0, stages), np.int64), np.empty(0), np.empty(0), -1, 0, 0
                return nothing, (sums, links)
            while count + room > len(sums):
                sums, links = doubled(sums), doubled(links)
            while i < end:
                steps += 1
                total, finish = price + cost[i], time + latency[i]
                if total + rest_usd > uppers[k - 1]:
                    cut_by_cost += end - i
                    break
                if finish + rest_s > sure and (finish + rest_s > limit or _end(finish, fastest, stage + 1) > budget):
                    following = i + 1
                    if time + so_far[i] + rest_s > limit:  # nor was any before it in time
                        following = _first_in_time(so_far, following, end, time, rest_s, limit)
                    cut_by_time += following - i
                    i = following
                    continue
                if total + rest_fast_usd < uppers[k - 1]:
                    found = insert(uppers, who, found, total + rest_fast_usd, this, i)
                if stage < stages - 1:
                    sums[count, 0], sums[count, 1] = finish, total
                    links[count, 0], links[count, 1] = this, i
                    count += 1
                i += 1
        low, high = high, count

    choices, latencies = np.empty((found, stages), np.int64), np.empty(found)
    for row in range(found):  # of complete paths the upper bounds are the costs
        before, added = who[row, 0], who[row, 1]
        latencies[row] = sums[before, 0] + latency[added]
        for stage in range(stages - 1, -1, -1):
            choices[row, stage] = option[added]
            before, added = links[before, 0], links[before, 1]
    return (choices, latencies, uppers[:found], steps, cut_by_time, cut_by_cost), (sums, links)


@compiled
def _end(time: float, fastest: Floats, stage: int) -> float:
    """When the last stage ends if all from this on are at their fastest, added up in order: no other order is exact."""
    for i in range(stage, len(fastest)):
        time += fastest[i]
    return time


@compiled
def _first_in_time(so_far: Floats, low: int, high: int, time: float, rest: float, limit: float) -> int:
    """The first option that may be in time; `high` if none is."""
    left = high - low
    while left > 0:  # halves without a branch: where it turns is as good as random, and would be guessed wrongly
        half = (left + 1) // 2
        low += half * (time + so_far[low + half - 1] + rest > limit)
        left -= half
    return low
