"""The front of a stage and all after it, compiled: what no other choice of their options beats.

Latencies ascend and costs descend. It is known before there is a budget.
"""

import numpy as np

from fairlead.planning.search.compiled import compiled, doubled
from fairlead.planning.search.stages import Floats, Indices

_NEAR = 4  # members looked at one by one before a binary search


@compiled
def front_before(latency: Floats, cost: Floats, front_latency: Floats, front_cost: Floats) -> tuple[Floats, Floats]:
    """The front of a stage and what comes after it, from the front of either.

    For each option of the stage, the sums with the members of the other front are a list by ascending latency; the
    lists are merged. What is not cheaper than the cheapest so far is skipped in each. Options and members stand by
    ascending latency.
    """
    # The heads of the lists, as a heap: latency and cost; option and member. Sorted, as they are at first, is a heap.
    count = len(latency)
    sums, links = np.empty((count, 2)), np.zeros((count, 2), np.int64)
    for i in range(count):
        sums[i, 0], sums[i, 1], links[i, 0] = latency[i] + front_latency[0], cost[i] + front_cost[0], i
    front, size = np.empty((1024, 2)), 0
    cheapest = np.inf
    while count:
        if sums[0, 1] < cheapest:
            if size == len(front):
                front = doubled(front)
            front[size, 0], front[size, 1] = sums[0, 0], sums[0, 1]
            cheapest, size = sums[0, 1], size + 1
        i, member = links[0, 0], links[0, 1]
        member = _next_below(front_cost, member + 1, cost[i], cheapest)
        if member < len(front_cost):
            _sink(sums, links, count, latency[i] + front_latency[member], cost[i] + front_cost[member], i, member)
        else:
            count -= 1
            _sink(sums, links, count, sums[count, 0], sums[count, 1], links[count, 0], links[count, 1])
    return front[:size, 0].copy(), front[:size, 1].copy()


@compiled
def _sink(sums: Floats, links: Indices, count: int, latency: float, cost: float, i: int, member: int) -> None:
    """Put these numbers in the place of the first of a heap of so many."""
    at = 0
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and _is_less(sums[child + 1, 0], sums[child + 1, 1], sums[child, 0], sums[child, 1]):
            child += 1
        if not _is_less(sums[child, 0], sums[child, 1], latency, cost):
            break
        sums[at, 0], sums[at, 1] = sums[child, 0], sums[child, 1]
        links[at, 0], links[at, 1] = links[child, 0], links[child, 1]
        at = child
    sums[at, 0], sums[at, 1], links[at, 0], links[at, 1] = latency, cost, i, member


@compiled
def _is_less(latency: float, cost: float, other_latency: float, other_cost: float) -> bool:
    return latency < other_latency or (latency == other_latency and cost < other_cost)


@compiled
def _next_below(front_cost: Floats, first: int, cost: float, bound: float) -> int:
    """The first member from here on that costs less than the bound, with `cost` added."""
    end = len(front_cost)
    for at in range(first, min(first + _NEAR, end)):
        if cost + front_cost[at] < bound:
            return at
    low, high = min(first + _NEAR, end), end
    while low < high:
        middle = (low + high) // 2
        if cost + front_cost[middle] < bound:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def corners(latency: Floats, cost: Floats, most: int) -> tuple[Floats, Floats]:
    """A front of at most so many members (and one) that no member of this one beats.

    Neighbours whose costs are near each other become one point, as fast as the fastest and as cheap as the cheapest.
    """
    width = (cost[0] - cost[-1]) / most
    front, size = np.empty((most + 1, 2)), 0
    begun = np.inf
    for i in range(len(cost)):
        if begun - cost[i] > width:
            front[size, 0], begun, size = latency[i], cost[i], size + 1
        front[size - 1, 1] = cost[i]
    return front[:size, 0].copy(), front[:size, 1].copy()
