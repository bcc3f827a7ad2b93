"""How far a front of a kernel can be from the best at most, whatever way it was found.

Leaving out precedences makes every placement faster or as fast, and none dearer. With one direct predecessor left to
each part the graph is a forest, which is series-parallel: its front is exact and cheap, and no placement of the whole
beats it. The distance from several such fronts is a bound that does not grow with the number of steps in which labels
were merged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fairlead.planning.merging import ROUNDING, Allowance, Partial, in_parallel, in_series
from fairlead.planning.pareto import Floats

_FRONT_MOST = 10_000  # members of a relaxation's front: what thinning it costs is small against what it proves


def distance(found: Partial, parts: Sequence[Partial], after: Sequence[int], allowance: Allowance) -> float:
    """Factor by which every placement of these parts is reached by a found one, from relaxations."""
    allowance = replace(allowance, front_most=_FRONT_MOST)
    fronts = [_forest(parts, parents, allowance) for parents in _forests(parts, after)]
    cost = np.unique(np.concatenate([front.cost for front in fronts]))
    # For each cost the greatest of the least latencies that the relaxations allow: none can be undercut.
    latency = np.max([_fastest(front, cost) for front in fronts], axis=0)
    return _reach(found, latency, cost) * max(front.factor for front in fronts) * ROUNDING


def _fastest(front: Partial, cost: Floats) -> Floats:
    """The least latency at each of these costs. The cheapest are equally dear in all fronts, up to rounding."""
    return front.latency[np.minimum(np.searchsorted(-front.cost, -cost), len(front) - 1)]


def _reach(found: Partial, latency: Floats, cost: Floats) -> float:
    """How many times slower or dearer the nearest found member is, for the worst of these points.

    Along a front members become slower and cheaper: the nearest is one of the two where the larger of both ratios
    changes.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes, wanted = found.latency / found.cost, latency / cost
        turn = np.searchsorted(slopes, wanted)
        ratios = []
        for index in (np.maximum(turn - 1, 0), np.minimum(turn, len(found) - 1)):
            slower, dearer = found.latency[index] / latency, found.cost[index] / cost
            ratios.append(np.fmax(np.fmax(slower, dearer), 1.0))  # 0 / 0 is no distance
    return float(np.minimum(*ratios).max())


def _forests(parts: Sequence[Partial], after: Sequence[int]) -> Iterator[list[int | None]]:
    """Which precedence to keep: of each part's direct predecessors the one that finishes last.

    When they finish depends on the placement: once all are fastest, once all cheapest, once in between. And once more
    read backwards.
    """
    count = len(parts)
    before = [sum(1 << i for i in range(count) if after[i] >> index & 1) for index in range(count)]
    for later, earlier in ((after, before), (before, after)):
        for place in (0.0, 0.5, 1.0):
            finishes = [0.0] * count
            parents: list[int | None] = [None] * count
            for index in sorted(range(count), key=lambda i: earlier[i].bit_count()):
                direct = [i for i in range(count) if earlier[index] >> i & 1 and not later[i] & earlier[index]]
                if direct:
                    parents[index] = max(direct, key=lambda i: (finishes[i], -i))
                latency = parts[index].latency
                finishes[index] = float(latency[round(place * (len(latency) - 1))])
                finishes[index] += max((finishes[i] for i in direct), default=0.0)
            yield parents


def _forest(parts: Sequence[Partial], parents: Sequence[int | None], allowance: Allowance) -> Partial:
    """The front of the parts when each waits for its parent only."""
    children: dict[int | None, list[int]] = {}
    for index, parent in enumerate(parents):
        children.setdefault(parent, []).append(index)
    order: list[int | None] = [None]
    for each in order:  # grows as it is read: parents before children
        order += children.get(each, [])
    fronts: dict[int | None, Partial] = {}
    for each in reversed(order):
        below = [(i, fronts[i]) for i in children.get(each, [])]
        inner = in_parallel(below, allowance) if below else None
        if each is None:
            assert inner is not None  # a kernel has parts
            return inner
        own = parts[each]
        fronts[each] = own if inner is None else in_series([(0, own), (1, inner)], allowance)
    raise AssertionError("the root comes last")
