"""Best-first search whose heuristic is the front of what comes after, compiled.

What a path costs at least is what it costs so far plus the cheapest member of the next stages' front that is still in
time. That is not a bound but the truth (up to rounding, and unless a front had to be made smaller), so that nearly
every path that is taken up leads to a result.
"""

import numpy as np

from fairlead.planning.pareto import pareto_filter
from fairlead.planning.search.compiled import compiled, doubled, insert
from fairlead.planning.search.preparing import corners, front_before
from fairlead.planning.search.stages import Floats, Indices, Mask, Result, Stages, Table

_MEMBERS_MOST = 20_000  # of a front; past it, lower bounds take the place of what can be reached
_PATHS_MOST = 1 << 21  # 56 bytes each
_NEAR = 8  # members of a front passed one by one before a binary search


class Frontier:
    """The front from each stage on, and the options that can matter."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._by_latency = [stages.by_latency(stage) for stage in range(len(stages))]
        self._options: dict[int, Table] = {}
        self._fronts = self._fold()

    def find(self, budget_s: float, k: int, allowed: Mask) -> Result:
        """At most k paths.

        Raises:
            ValueError: More paths would have to be kept than there is room for.
        """
        options = self._options.get(k) or self._prepare(k)
        window, slack = self._stages.window(budget_s), self._stages.slack
        result = _search(window, slack, k, _PATHS_MOST, allowed, options, self._fronts)
        if result[3] < 0:
            raise ValueError(
                f"frontier keeps {_PATHS_MOST:,} paths at most, and {len(self._stages)} stages of up to "
                f"{max(self._stages.sizes)} options, which trade latency for cost in too many equal ways, need more. "
                "Search fewer stages at once, or round latencies and costs."
            )
        return result

    def _prepare(self, k: int) -> Table:
        """The options that can be on one of the k cheapest paths; all of the first stage, as who is allowed varies."""
        stages = self._stages
        orders = self._by_latency[:1]
        for order in self._by_latency[1:]:
            everyone = np.ones(len(order), dtype=np.bool_)
            orders.append(order[worth_it(everyone, stages.cost_usd[order], np.arange(len(order)), k)])
        self._options[k] = table = stages.table(orders)
        return table

    def _fold(self) -> "_Fronts":
        """The front from each stage on but the first, which is not needed; the last is that of nothing at all."""
        stages = self._stages
        latency, cost = np.zeros(1), np.zeros(1)
        fronts = [(latency, cost)]
        is_exact = True
        for order in self._by_latency[:0:-1]:
            own = order[pareto_filter(stages.latency_s[order], stages.cost_usd[order])]
            latency, cost = front_before(stages.latency_s[own], stages.cost_usd[own], latency, cost)
            if len(latency) > _MEMBERS_MOST:
                latency, cost = corners(latency, cost, _MEMBERS_MOST)
                is_exact = False
            fronts.append((latency, cost))
        fronts.append((np.empty(0), np.empty(0)))
        latencies, costs = zip(*reversed(fronts), strict=True)
        start = np.cumsum([0, *map(len, latencies)]).astype(np.int64)
        return np.concatenate(latencies), np.concatenate(costs), start, is_exact


_Fronts = tuple[Floats, Floats, Indices, bool]  # latency, cost; where each front begins; whether all can be reached


@compiled
def _search(
    window: tuple[float, float, float], slack: float, k: int, most: int, allowed: Mask, options: Table, fronts: _Fronts
) -> Result:
    """Options stand by ascending latency. `allowed` has a mark for each of the first stage.

    Steps are -1 if more than `most` paths would have to be kept.
    """
    budget, sure, limit = window
    latency, cost, option, start = options
    front_latency, front_cost, front_start, is_exact = fronts
    stages = len(start) - 1
    choices = np.empty((k, stages), np.int64)
    latencies, costs = np.empty(k), np.empty(k)
    estimates = np.empty(len(latency))
    steps, cut_by_time, cut_by_cost, found = 0, 0, 0, 0

    first, first_end, rest, rest_end = 0, start[1], front_start[1], front_start[2]
    worth = worth_it(allowed, cost[:first_end], option[:first_end], k)
    bound = np.inf
    if is_exact:  # each estimate is then the cost of a path of its own, if it is surely in time
        _estimate(
            0.0,
            0.0,
            latency[:first_end],
            cost[:first_end],
            front_latency[rest:rest_end],
            front_cost[rest:rest_end],
            sure,
            estimates,
        )
        bound = _kth_least(estimates, worth, k) * (1 + slack)

    # Paths so far: latency, cost and what it costs at least; the path before, the option added, how many stages it has.
    sums, links, count = np.zeros((512, 3)), np.zeros((512, 3), np.int64), 1
    heap, waiting = np.zeros((512, 1), np.int64), 1
    while waiting and found < k:
        this, waiting = heap[0, 0], waiting - 1
        _sink(heap, waiting, heap[waiting, 0], sums, links)
        time, price, least = sums[this, 0], sums[this, 1], sums[this, 2]
        before, added, length = links[this, 0], links[this, 1], links[this, 2]
        if length == stages:
            latencies[found], costs[found] = time, price
            for stage in range(stages - 1, -1, -1):
                choices[found, stage] = option[added]
                before, added = links[before, 0], links[before, 1]
            found += 1
            continue
        first, first_end = start[length], start[length + 1]
        if count + first_end - first > most:
            return choices[:0], latencies[:0], costs[:0], -1, 0, 0
        while count + first_end - first > len(sums):
            sums, links, heap = doubled(sums), doubled(links), doubled(heap)
        rest, rest_end = front_start[length + 1], front_start[length + 2]
        in_time = _estimate(
            time,
            price,
            latency[first:first_end],
            cost[first:first_end],
            front_latency[rest:rest_end],
            front_cost[rest:rest_end],
            limit,
            estimates,
        )
        for i in range(first_end - first):
            if length == 0 and not allowed[option[i]]:
                continue
            steps += 1
            finish = time + latency[first + i]
            if i >= in_time or (length == stages - 1 and finish > budget):
                cut_by_time += 1
            elif estimates[i] > bound or (length == 0 and not worth[i]):
                cut_by_cost += 1
            else:
                # What differs by rounding alone is equal: otherwise many equal paths would all be taken a step
                # further before one of them is complete.
                sums[count, 2] = least if estimates[i] <= least * (1 + slack) else estimates[i]
                sums[count, 0], sums[count, 1] = finish, price + cost[first + i]
                links[count, 0], links[count, 1], links[count, 2] = this, first + i, length + 1
                _rise(heap, waiting, count, sums, links)
                count, waiting = count + 1, waiting + 1
    return choices[:found], latencies[:found], costs[:found], steps, cut_by_time, cut_by_cost


@compiled
def _is_before(one: int, other: int, sums: Floats, links: Indices) -> bool:
    """Whether a path is to be taken up first: it costs less at least; of equals it is longer, or else earlier."""
    is_cheaper: bool = sums[one, 2] < sums[other, 2]
    is_longer: bool = links[one, 2] > links[other, 2]
    if sums[one, 2] == sums[other, 2]:
        return is_longer or (links[one, 2] == links[other, 2] and one < other)
    return is_cheaper


@compiled
def _rise(heap: Indices, at: int, path: int, sums: Floats, links: Indices) -> None:
    """Add a path to a heap of so many."""
    while at > 0 and _is_before(path, heap[(at - 1) // 2, 0], sums, links):
        heap[at, 0] = heap[(at - 1) // 2, 0]
        at = (at - 1) // 2
    heap[at, 0] = path


@compiled
def _sink(heap: Indices, count: int, path: int, sums: Floats, links: Indices) -> None:
    """Put a path in the place of the first of a heap of so many."""
    at = 0
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and _is_before(heap[child + 1, 0], heap[child, 0], sums, links):
            child += 1
        if not _is_before(heap[child, 0], path, sums, links):
            break
        heap[at, 0] = heap[child, 0]
        at = child
    heap[at, 0] = path


@compiled
def _estimate(
    time: float,
    price: float,
    latency: Floats,
    cost: Floats,
    front_latency: Floats,
    front_cost: Floats,
    limit: float,
    estimates: Floats,
) -> int:
    """What a path costs at least with each option of its next stage; returns how many leave enough time.

    Options stand by ascending latency, so that those are the first ones, and the member of the front only moves down.
    """
    member = len(front_latency) - 1
    for i in range(len(latency)):
        room = limit - (time + latency[i])
        near = max(member - _NEAR, -1)
        while member > near and front_latency[member] > room:
            member -= 1
        if member == near and member >= 0 and front_latency[member] > room:
            low, high = -1, member  # the last member in time is at `low` or later, and before `high`
            while high - low > 1:
                middle = (low + high) // 2
                if front_latency[middle] > room:
                    high = middle
                else:
                    low = middle
            member = low
        if member < 0:
            for later in range(i, len(latency)):
                estimates[later] = np.inf
            return i
        estimates[i] = price + cost[i] + front_cost[member]
    return len(latency)


@compiled
def worth_it(allowed: Mask, cost: Floats, option: Indices, k: int) -> Mask:
    """Of the allowed options those that fewer than k others beat; they stand by ascending latency, then cost.

    A path with any other option has k paths before it: those in which one that beats it stands in its place.
    """
    kept = np.zeros(len(cost), np.bool_)
    cheapest, unused, count = np.full(k, np.inf), np.empty((k, 2), np.int64), 0
    for i in range(len(cost)):
        if allowed[option[i]] and (count < k or cost[i] < cheapest[k - 1]):
            count = insert(cheapest, unused, count, cost[i], 0, 0)
            kept[i] = True
    return kept


@compiled
def _kth_least(values: Floats, counted: Mask, k: int) -> float:
    """The k-th least of those that count; infinity if there are fewer."""
    least, unused, count = np.full(k, np.inf), np.empty((k, 2), np.int64), 0
    for i in range(len(counted)):
        if counted[i] and values[i] < least[k - 1]:
            count = insert(least, unused, count, values[i], 0, 0)
    kth: float = least[k - 1]
    return kth
