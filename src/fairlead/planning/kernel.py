"""The front of a kernel, a graph that is not series-parallel, by label setting.

Its parts are taken in topological order. A label stands for a placement of the parts taken so far and holds all that
the rest can see of it: its cost, and the finish times of the parts that are still open, which are those that something
not yet taken comes after. A label that another beats in all of these is dropped, and nothing is lost by it. The number
of labels grows with how many finish times must be told apart (one gives a plain front, each further one another
dimension), not with the number of parts as such.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf

import numpy as np

from fairlead.planning.bound import distance
from fairlead.planning.merging import ROUNDING, Allowance, Partial, Pointers, thin
from fairlead.planning.pareto import Floats, Indices, dominance_filter

_WIDE = 3  # finish times told apart; past the limit, each more halves the labels kept, which cost more to compare
_LEAST = 256
_EXPANSIONS = 16  # labels made in one step, per label of the limit; past that the part that is added is thinned


def in_kernel(parts: Sequence[tuple[int, Partial]], after: Sequence[int], limit: int, allowance: Allowance) -> Partial:
    """The front of these parts; `after` says for each, as a bit mask, which come after it.

    Exact while no step leaves more than `limit` labels.
    """
    order = _narrowest(after)
    shortest = [float(part.latency[0]) for _, part in parts]
    points = np.zeros((1, 1))  # columns: cost, then one finish time for each group
    groups: tuple[int, ...] = ()
    factor, stages = 1.0, 0
    steps: list[tuple[Pointers, Pointers]] = []
    for taken, index in enumerate(order.sequence):
        part, rows = _affordable(parts[index][1], _EXPANSIONS * limit // len(points), allowance)
        factor, stages = max(factor, part.factor), stages + part.stages
        finishes = _expand(points, groups, order, index, part)
        groups = tuple(finishes)
        _raise(finishes, order, taken + 1, shortest)
        cost = np.add.outer(points[:, 0], part.cost).ravel()
        points = np.column_stack([cost, *finishes.values()])
        kept = dominance_filter(points)
        fewer_most = max(limit >> max(0, len(groups) - _WIDE), min(limit, _LEAST))
        if len(kept) > (limit if factor == 1 else fewer_most):
            fewer, lost = thin_labels(points[kept], fewer_most, allowance.step(stages, factor))
            kept, factor = kept[fewer], factor * lost
        points = points[kept]
        steps.append(((kept // len(part)).astype(np.int32), rows[kept % len(part)].astype(np.int32)))
    # Nothing is open any more: one finish time is left, and the labels stand by ascending cost.
    steps[-1] = (steps[-1][0][::-1], steps[-1][1][::-1])
    positions = tuple(parts[index][0] for index in order.sequence)
    front = Partial(points[::-1, 1], points[::-1, 0], factor, stages, positions, tuple(steps))
    if factor > exp(allowance.step(stages, 1.0)):
        fronts = [part for _, part in parts]
        front = replace(front, factor=min(factor, distance(front, fronts, after, allowance)))
    return front


def thin_labels(points: Floats, most: int, step: float) -> tuple[Indices, float]:
    """Fewer labels, and the factor it cost: at most e^step, unless more is needed to come down to `most`.

    Every column is put on a geometric grid, and one label of each cell is kept: the first, which is the cheapest, as
    they stand by ascending cost. The fastest label is always kept. Zero is a cell of its own. The factor is the
    measured one.
    """
    least = np.where(points > 0, points, inf).min(axis=0)
    logs = np.log(np.where(points > 0, points, least) / np.where(least < inf, least, 1.0))
    fastest = int(np.argmin(points[:, 1:].sum(axis=1)))
    while True:
        cell = np.zeros(len(points), dtype=np.intp)
        for column in np.where(points > 0, np.floor(logs / step) + 1, 0.0).T:
            _, number = np.unique(column, return_inverse=True)
            _, cell = np.unique(cell * (number.max() + 1) + number, return_inverse=True)
        _, first, number = np.unique(cell, return_index=True, return_inverse=True)
        if len(first) < most or step > 1e3:
            break
        step *= 2
    instead = points[first[number]]
    ratio = np.divide(instead, points, out=np.ones_like(points), where=points > 0)
    return np.unique(np.append(first, fastest)), float(ratio.max()) * ROUNDING


@dataclass(frozen=True)
class _Sequence:
    """An order in which to take the parts, and what it implies.

    `after` is all that comes after a part, `predecessors` those directly before it, and `widths` how many finish times
    are told apart after each step.
    """

    sequence: tuple[int, ...]
    after: tuple[int, ...]
    predecessors: tuple[tuple[int, ...], ...]
    widths: tuple[int, ...]


def _narrowest(after: Sequence[int]) -> _Sequence:
    """From the entries or from the exits, where fewer finish times have to be told apart.

    A critical path is as long read backwards, so that both give the same front.
    """
    count = len(after)
    before = [sum(1 << i for i in range(count) if after[i] >> index & 1) for index in range(count)]
    both = [_sequence(after, before), _sequence(before, after)]
    return min(both, key=lambda each: (max(each.widths), sum(each.widths)))


def _sequence(after: Sequence[int], before: Sequence[int]) -> _Sequence:
    """Greedily: of the parts that can be taken next, one that leaves the fewest groups."""
    count = len(after)
    sequence: list[int] = []
    widths: list[int] = []
    groups: set[int] = set()
    taken = 0
    while len(sequence) < count:
        ready = [i for i in range(count) if not taken >> i & 1 and before[i] & ~taken == 0]
        options = {i: {group & ~(1 << i) for group in groups} | {after[i]} for i in ready}
        best = min(ready, key=lambda i: (len(options[i]), i))
        groups = options[best]
        taken |= 1 << best
        sequence.append(best)
        widths.append(len(groups))
    predecessors = tuple(
        tuple(i for i in range(count) if before[index] >> i & 1 and not after[i] & before[index])
        for index in range(count)
    )
    return _Sequence(tuple(sequence), tuple(after), predecessors, tuple(widths))


def _affordable(part: Partial, most: int, allowance: Allowance) -> tuple[Partial, Indices]:
    """The part, thinned if it has more than so many members, and which of them are left."""
    rows = np.arange(len(part))
    if len(part) > max(most, 2):
        rows, lost = thin(part.latency, most, allowance.step(part.stages, part.factor))
        part = Partial(part.latency[rows], part.cost[rows], part.factor * lost, part.stages)
    return part, rows


def _expand(points: Floats, groups: Sequence[int], order: _Sequence, index: int, part: Partial) -> dict[int, Floats]:
    """Each label with each member of the part: the finish time of each group of open parts.

    Parts after which the same is still to come are one group: only the latest of them matters. A group is named by the
    bit mask of what comes after it.
    """
    bit = 1 << index
    start = np.zeros(len(points))
    finishes: dict[int, Floats] = {}
    for group, column in zip(groups, points.T[1:], strict=True):
        if group & bit:
            np.maximum(start, column, out=start)
        repeated = np.repeat(column, len(part))
        left = group & ~bit
        finishes[left] = np.maximum(finishes[left], repeated) if left in finishes else repeated
    finish = np.add.outer(start, part.latency).ravel()
    own = order.after[index]
    finishes[own] = np.maximum(finishes[own], finish) if own in finishes else finish
    return finishes


def _raise(finishes: dict[int, Floats], order: _Sequence, taken: int, shortest: Sequence[float]) -> None:
    """Raise each finish time to what what comes after it has to wait for anyway.

    It changes no placement's latency, and labels that differ only in slack that cannot be used become equal.
    """
    starts: dict[int, Floats] = {}
    end = np.zeros_like(next(iter(finishes.values())))
    for index in order.sequence[taken:]:
        start = np.zeros_like(end)
        for group, finish in finishes.items():
            if group >> index & 1:
                np.maximum(start, finish, out=start)
        for predecessor in order.predecessors[index]:
            if predecessor in starts:
                np.maximum(start, starts[predecessor] + shortest[predecessor], out=start)
        starts[index] = start
        np.maximum(end, start + shortest[index], out=end)
    for group, finish in finishes.items():
        waiting = [start for index, start in starts.items() if group >> index & 1]
        bound = np.minimum.reduce(waiting) if waiting else end
        finishes[group] = np.maximum(finish, bound)
