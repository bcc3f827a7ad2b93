"""Fronts of parts of a graph, put together in series and in parallel.

A front is kept as arrays, with two back-pointers for each step of putting it together: which member so far, and which
member of the part that was added. A placement is read off them at the end, for the members that are left.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt, log, log1p

import numpy as np
from numpy.typing import NDArray

from fairlead.planning.pareto import Floats, Indices, pareto_filter

Pointers = NDArray[np.int32]
Merged = tuple[Floats, Floats, Indices, Indices]  # latency, cost, member so far, member of the part added
Merge = Callable[["Partial", "Partial"], Merged | None]

FRONT_MOST = 100_000  # members of a front: past this it is thinned, whatever the graph
PAIRS_MOST = 20_000_000  # pairs of members that one sum may look at
_CHUNK = 1 << 20  # pairs held in memory at once
_LEAST_STEP = 1e-7  # where no error is allowed and yet there are too many
ROUNDING = 1 + 1e-12  # on each measured factor, so that the last bits of a division break no promise


@dataclass(frozen=True, eq=False)
class Partial:
    """The front of a part: ascending latency, strictly descending cost.

    Attributes:
        factor: Every placement of the part has a member at most this many times as slow and as dear; 1 is exact.
        stages: How many stages the part has.
        order: Its parts in the order in which they were added.
        steps: For each of them, the back-pointers of the members after it: (member before it, member of the part).
    """

    latency: Floats
    cost: Floats
    factor: float = 1.0
    stages: int = 1
    order: tuple[int, ...] = ()
    steps: tuple[tuple[Pointers, Pointers], ...] = ()

    def __len__(self) -> int:
        return len(self.latency)

    def unwind(self, rows: Indices) -> Iterator[tuple[int, Indices]]:
        """For each part added, the rows of it that these rows are made of."""
        for part, (before, added) in zip(reversed(self.order), reversed(self.steps), strict=True):
            yield part, added[rows].astype(np.intp)
            rows = before[rows].astype(np.intp)

    def take(self, kept: Indices, factor: float) -> "Partial":
        """These members only, at the price of this factor."""
        (before, added), earlier = self.steps[-1], self.steps[:-1]
        steps = (*earlier, (before[kept], added[kept]))
        return replace(self, latency=self.latency[kept], cost=self.cost[kept], factor=self.factor * factor, steps=steps)


@dataclass(frozen=True)
class Allowance:
    """How much error a part of so many stages may have, so that the whole stays within epsilon.

    Errors multiply along the path from a stage to the whole, and each part on that path has more stages than the one
    before: every stage brings an equal share, and what one step has not used the next may use.
    """

    epsilon: float
    stages: int
    front_most: int = FRONT_MOST

    def step(self, stages: int, factor: float) -> float:
        """Logarithm of the factor that is left to a part of so many stages which has this one already."""
        return max(_LEAST_STEP, log1p(self.epsilon) * stages / self.stages - log(factor))


def in_series(parts: Sequence[tuple[int, Partial]], allowance: Allowance) -> Partial:
    """One after the other: latencies add, costs add.

    The largest front first and single stages last. A step costs (members so far) x (members added), and towards the
    end, where the members so far are most, few should be added.
    """
    return _fold(sorted(parts, key=lambda each: -len(each[1])), _one_after_the_other, allowance)


def in_parallel(parts: Sequence[tuple[int, Partial]], allowance: Allowance) -> Partial:
    """Side by side: the slower one counts, costs add. A step is linear, and sizes at most add up."""
    return _fold(sorted(parts, key=lambda each: len(each[1])), _side_by_side, allowance)


def thin(latency: Floats, most: int, step: float) -> tuple[Indices, float]:
    """Fewer members of a front, and the factor it cost: at most e^step, unless more is needed to come down to `most`.

    Latencies are put on a geometric grid, and of each cell the last member is kept, which is the cheapest: nothing
    becomes dearer, only slower. The fastest is always kept. The factor is the measured one, not the width of a cell.
    """
    least = latency[latency > 0].min(initial=np.inf)
    logs = np.log(np.maximum(latency, least) / least)  # only the fastest can be at zero, and it is kept
    while True:
        cells = np.floor(logs / step)
        kept = np.ones(len(latency), dtype=np.bool_)
        kept[1:-1] = cells[1:-1] != cells[2:]
        if np.count_nonzero(kept) <= max(most, 2):
            break
        step *= 2
    left = np.flatnonzero(kept)
    instead = latency[left[np.searchsorted(left, np.arange(len(latency)))]]
    ratio = np.divide(instead, latency, out=np.ones_like(latency), where=latency > 0)
    return left, float(ratio.max()) * ROUNDING


def _fold(parts: Sequence[tuple[int, Partial]], merge: Merge, allowance: Allowance) -> Partial:
    whole = Partial(np.zeros(1), np.zeros(1), stages=0)
    for position, part in parts:
        whole, part, rows = _affordable(whole, part, merge, PAIRS_MOST, allowance)
        merged = merge(whole, part)
        if merged is None:
            whole, part, rows = _affordable(whole, part, merge, _CHUNK, allowance)
            merged = merge(whole, part)
            assert merged is not None  # one chunk is always held
        latency, cost, before, added = merged
        whole = Partial(
            latency,
            cost,
            max(whole.factor, part.factor),  # sums and maxima of what is within a factor are within it
            whole.stages + part.stages,
            (*whole.order, position),
            (*whole.steps, (before.astype(np.int32), rows[added].astype(np.int32))),
        )
        if len(whole) > allowance.front_most:
            whole = whole.take(*thin(whole.latency, allowance.front_most, allowance.step(whole.stages, whole.factor)))
    return whole


def _affordable(
    whole: Partial, part: Partial, merge: Merge, pairs_most: int, allowance: Allowance
) -> tuple[Partial, Partial, Indices]:
    """Both, thinned if there are more pairs of them than that, and which members of the part are left."""
    rows = np.arange(len(part))
    if merge is _side_by_side or len(whole) * len(part) <= pairs_most:
        return whole, part, rows
    few = min(len(whole), len(part), isqrt(pairs_most))
    many = pairs_most // few
    whole_most, part_most = (many, few) if len(whole) >= len(part) else (few, many)
    if len(whole) > whole_most:
        whole = whole.take(*thin(whole.latency, whole_most, allowance.step(whole.stages, whole.factor)))
    if len(part) > part_most:
        rows, factor = thin(part.latency, part_most, allowance.step(part.stages, part.factor))
        part = Partial(part.latency[rows], part.cost[rows], part.factor * factor, part.stages)
    return whole, part, rows


def _one_after_the_other(one: Partial, other: Partial) -> Merged | None:
    """All sums of a member of each that no other sum beats; None if they become too many to hold.

    Chunk by chunk, each filtered before the next is made, so that memory stays bounded.
    """
    latency, cost = np.empty(0), np.empty(0)
    before, added = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    width = max(1, _CHUNK // len(one))
    for first in range(0, len(other), width):
        chunk = slice(first, first + width)
        sums_s = np.add.outer(other.latency[chunk], one.latency).ravel()
        sums_usd = np.add.outer(other.cost[chunk], one.cost).ravel()
        kept = pareto_filter(sums_s, sums_usd)
        latency, cost = np.concatenate([latency, sums_s[kept]]), np.concatenate([cost, sums_usd[kept]])
        before = np.concatenate([before, kept % len(one)])
        added = np.concatenate([added, kept // len(one) + first])
        if first:
            kept = pareto_filter(latency, cost)
            latency, cost, before, added = latency[kept], cost[kept], before[kept], added[kept]
            if len(latency) > _CHUNK:
                return None
    return latency, cost, before, added


def _side_by_side(one: Partial, other: Partial) -> Merged:
    """For each latency that either can have, the cheapest member of each that is as fast."""
    latency = np.union1d(one.latency, other.latency)
    latency = latency[latency >= max(one.latency[0], other.latency[0])]
    before = np.searchsorted(one.latency, latency, side="right") - 1
    added = np.searchsorted(other.latency, latency, side="right") - 1
    cost = one.cost[before] + other.cost[added]
    kept = pareto_filter(latency, cost)  # a saving may be lost in the rounding of the sum
    return latency[kept], cost[kept], before[kept], added[kept]
