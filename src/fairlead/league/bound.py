"""The most requests that any dispatcher could answer in time, by duality of linear programs.

Give each resource a price, and let an answer be worth 1. A request is then answered if the cheapest way to have it in
time costs less than 1. What all resources are worth at these prices, plus what the requests are worth beyond their
cost, is at least the number that can be answered, whatever the prices (weak duality). The ellipsoid method looks for
the prices at which this number is lowest; where it stops matters for how tight the bound is, not for its validity.

Not in it: room for instances in memory, cold starts, slices that idle instances keep, batches that take time to fill,
and the order in which requests come within a window. So a dispatcher below the bound may still be the best there is.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from math import inf, sqrt

import numpy as np

from fairlead.league.needs import Kind, Options, Pools, Reals, Requests, Visits, by_kind, counted_requests, options
from fairlead.model import Stage, Workflow
from fairlead.workload import ClosedLoop, Scenario

_GRID = 160  # parts into which an objective is divided; times are rounded down to them
_WINDOWS = (1, 4, 12)  # into which the counted time is divided; a burst is bounded better in a short one
_SHORTEST = 3.0  # objectives that a window is long, at least
_TOLERANCE = 1e-3  # of the bound
_NOT_THERE = 1e9  # price of a resource that no node has in the window
_MOST_STEPS = 1500


def attainment_bound(scenario: Scenario, seed: int, *, most_batch: float = inf) -> float | None:
    """The share of the counted requests of a run that could be answered in time at most; None if that is not known.

    It is not known where requests come in closed loops or where nodes can be added. With `most_batch` it is a bound for
    dispatchers whose batches are no larger than that.
    """
    if scenario.scaler is not None or any(isinstance(one, ClosedLoop) for one in scenario.arrivals):
        return None
    requests = counted_requests(scenario, seed)
    if not requests:
        return None
    ways = _Ways(scenario, most_batch)
    length_s = scenario.duration_s - scenario.warmup_s
    slo_s = max(scenario.workflows[kind.workflow].slo.latency_s for _, kind in requests)
    if slo_s == inf:  # there is time for everything
        return 1.0
    most = float(len(requests))
    for count in _WINDOWS:
        if count == 1 or length_s / count >= _SHORTEST * slo_s:
            most = min(most, sum(_most(ways, part) for part in _parts(requests, scenario.warmup_s, length_s / count)))
    return most / len(requests)


def _parts(requests: Requests, start: float, length_s: float) -> list[Requests]:
    """The requests of each window of this length in which there are any."""
    return [list(part) for _, part in groupby(requests, lambda one: int((one[0] - start) / length_s))]


def _most(ways: "_Ways", requests: Requests) -> float:
    """The most of these requests that can be answered between the first arrival and the last deadline."""
    slo_s = {kind: ways.scenario.workflows[kind.workflow].slo.latency_s for _, kind in requests}
    end = max(at + slo_s[kind] for at, kind in requests)
    capacity = ways.pools.capacity(ways.scenario, requests[0][0], end)
    counts = {kind: number for kind, number in by_kind(requests).items() if ways.of(kind).can_be_in_time}
    whole = float(sum(counts.values()))
    there = np.flatnonzero(capacity > 0)
    if not whole or not len(there):
        return 0.0
    scale = whole / capacity[there]  # a price of 1: all answers for all of a resource

    def dual(prices: Reals) -> tuple[float, Reals]:
        """The bound at these prices, and the direction in which it rises."""
        priced: Reals = np.full(len(capacity), _NOT_THERE)
        priced[there] = prices[: len(there)] * scale
        value, slope = whole * float(prices.sum()), np.full(len(prices), whole)
        for kind, number in counts.items():
            cost, use = ways.of(kind).cheapest(priced)
            if cost < 1:
                value += number * (1 - cost)
                slope[: len(there)] -= number * use[there] * scale
        return value, slope

    return min(whole, _lowest(dual, max(len(there), 2)))


def _lowest(dual: Callable[[Reals], tuple[float, Reals]], size: int) -> float:
    """The lowest value that the ellipsoid method finds of a convex function of prices, which are not negative."""
    centre: Reals = np.full(size, 1 / (2 * size))
    shape: Reals = np.eye(size)  # the ellipsoid is where (x - centre)' shape^-1 (x - centre) <= 1
    best = inf
    for _ in range(_MOST_STEPS):
        below = np.flatnonzero(centre < 0)
        if len(below):
            slope: Reals = np.zeros(size)
            slope[below[0]] = -1.0
        else:
            value, slope = dual(centre)
            best = min(best, value)
        width = sqrt(max(float(slope @ shape @ slope), 0.0))
        if not len(below) and width < _TOLERANCE * best:
            break
        step = shape @ slope / max(width, 1e-300)
        centre = centre - step / (size + 1)
        shape = size**2 / (size**2 - 1) * (shape - 2 / (size + 1) * np.outer(step, step))
    return best


class _Ways:
    """How the requests of a scenario can be answered, by their kinds."""

    def __init__(self, scenario: Scenario, most_batch: float) -> None:
        self.scenario = scenario
        self.pools = Pools(scenario.cluster)
        self._options = {
            name: options(scenario, self.pools, one, most_batch) for name, one in scenario.functions.items()
        }
        self._known: dict[Kind, _Way] = {}

    def of(self, kind: Kind) -> "_Way":
        """Those of one kind."""
        if kind not in self._known:
            self._known[kind] = _Way(self.scenario.workflows[kind.workflow], kind.visits, self._options)
        return self._known[kind]


class _Way:
    """How requests of one kind can be answered in time: what each stage may use.

    The times of the stages on the longest path must fit into the objective together, those of the others each beside
    the fastest that comes before and after it.
    """

    def __init__(self, workflow: Workflow, visits: Visits, known: Mapping[str, Options]) -> None:
        slo = workflow.slo
        self._visits = np.array(visits, float)
        stages = [stage for stage, runs in zip(workflow.stages, visits, strict=True) if runs]
        fastest = {
            stage.name: float(known[stage.function].least_s.min(initial=inf)) if runs else 0.0
            for stage, runs in zip(workflow.stages, visits, strict=True)
        }
        before, after = _longest(workflow.stages, fastest), _longest(_reversed(workflow.stages), fastest)
        runs_of = dict(zip([stage.name for stage in workflow.stages], visits, strict=True))
        usd = {s.name: runs_of[s.name] * known[s.function].usd for s in stages}
        spare_usd = slo.cost_usd - sum(float(one.min(initial=inf)) for one in usd.values())
        self.can_be_in_time = spare_usd >= -1e-12 * slo.cost_usd if slo.cost_usd < inf else True
        self._stages: dict[str, tuple[int, Reals, Reals]] = {}  # runs, times and uses of what each may use
        for stage in stages:
            own = known[stage.function]
            elsewhere_s = before[stage.name] + after[stage.name] - 2 * fastest[stage.name]
            able = own.least_s + elsewhere_s <= slo.latency_s * (1 + 1e-9)
            able &= usd[stage.name] - usd[stage.name].min(initial=inf) <= spare_usd + 1e-9 * min(slo.cost_usd, 1e9)
            self._stages[stage.name] = runs_of[stage.name], own.least_s[able], own.use[able]
            self.can_be_in_time &= bool(able.any())
        last = max(workflow.stages, key=lambda stage: before[stage.name])
        self._path = [name for name in _path_to(last, workflow.stages, before) if name in self._stages]
        part_s = slo.latency_s / _GRID
        self._bins = {
            name: np.minimum(self._stages[name][1] / part_s * (1 - 1e-9), _GRID + 1).astype(int) for name in self._path
        }

    def cheapest(self, prices: Reals) -> tuple[float, Reals]:
        """The least cost of an answer at these prices, and what it uses of each resource."""
        total, used = 0.0, np.zeros(len(prices))
        costs = {name: runs * (use @ prices) for name, (runs, _, use) in self._stages.items()}
        for name, (runs, _, use) in self._stages.items():
            if name not in self._bins:
                best = int(costs[name].argmin())
                total, used = total + float(costs[name][best]), used + runs * use[best]
        left = np.arange(_GRID + 1)
        table: Reals = np.zeros(_GRID + 1)  # by the time left, what all that follows costs
        chosen = {}
        for name in reversed(self._path):
            rest = left[None, :] - self._bins[name][:, None]
            whole = np.where(rest >= 0, table[np.maximum(rest, 0)], inf) + costs[name][:, None]
            chosen[name] = whole.argmin(axis=0)
            table = whole[chosen[name], left]
        at = _GRID
        for name in self._path:
            best = int(chosen[name][at])
            at -= int(self._bins[name][best])
            runs, _, use = self._stages[name]
            used = used + runs * use[best]
        return total + float(table[_GRID]), used


def _longest(stages: Sequence[Stage], seconds: Mapping[str, float]) -> dict[str, float]:
    """For each stage the time of the longest path that ends with it."""
    found: dict[str, float] = {}
    for stage in stages:
        found[stage.name] = seconds[stage.name] + max((found[name] for name in stage.after), default=0.0)
    return found


def _reversed(stages: Sequence[Stage]) -> list[Stage]:
    """The same stages from the last to the first, each after those that follow it."""
    return [
        Stage(name=stage.name, function=stage.function, after=tuple(s.name for s in stages if stage.name in s.after))
        for stage in reversed(stages)
    ]


def _path_to(last: Stage, stages: Sequence[Stage], before: Mapping[str, float]) -> list[str]:
    """The longest path that ends with a stage, first stage first."""
    by_name = {stage.name: stage for stage in stages}
    path = [last.name]
    while by_name[path[-1]].after:
        path.append(max(by_name[path[-1]].after, key=lambda name: before[name]))
    return path[::-1]
