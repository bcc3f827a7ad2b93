"""Which points no other point beats: in two objectives by sorting, in more by divide and conquer.

A point beats another when it is at most as large in every column. Of equal points one is kept.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]

_BLOCK = 48  # points compared each with each: below this, splitting costs more than it saves
_PAIRS = 8192  # the same, between two sets


def pareto_filter(latency: Floats, cost: Floats) -> Indices:
    """Indices of what is neither slower nor dearer than another, by ascending latency.

    Costs are then strictly descending. Of equal pairs the first is kept. One sort and one running minimum.
    """
    order = np.argsort(latency, kind="stable")
    ordered = cost[order]
    cheaper = np.ones(len(order), dtype=np.bool_)
    cheaper[1:] = ordered[1:] < np.minimum.accumulate(ordered)[:-1]
    order = order[cheaper]
    # Equally fast ones that are left stand by descending cost: the last is the cheapest.
    faster = np.ones(len(order), dtype=np.bool_)
    faster[:-1] = latency[order[:-1]] < latency[order[1:]]
    return order[faster]


def dominance_filter(points: Floats) -> Indices:
    """Indices of the rows that no other row beats, in lexicographic order.

    n log^(d-2) n steps for n rows of d columns (Kung, Luccio and Preparata 1975), each on arrays; where d is so large
    that hardly a row is beaten it approaches all pairs.
    """
    order = np.lexsort(points.T[::-1])
    ordered = points[order]
    fresh = np.ones(len(order), dtype=np.bool_)
    fresh[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    order, ordered = order[fresh], ordered[fresh]
    return order[_unbeaten(ordered)]


def _unbeaten(points: Floats) -> Mask:
    """Rows that no other beats; they are distinct and in lexicographic order, so that only an earlier one can."""
    count = len(points)
    if points.shape[1] == 2:  # the second column alone decides
        kept = np.ones(count, dtype=np.bool_)
        kept[1:] = points[1:, 1] < np.minimum.accumulate(points[:, 1])[:-1]
        return kept
    if count <= _BLOCK:
        earlier = np.tri(count, k=-1, dtype=np.bool_)
        beaten = np.any(_pairs(points[:, 1:], points[:, 1:]) & earlier, axis=1)
        return np.asarray(~beaten)
    half = count // 2
    kept = np.concatenate([_unbeaten(points[:half]), _unbeaten(points[half:])])
    later = np.flatnonzero(kept[half:]) + half
    first = points[:half][kept[:half]]
    kept[later] = ~_beaten(first[:, 1:], points[later, 1:])
    return kept


def _beaten(by: Floats, points: Floats) -> Mask:
    """Which rows of `points` have a row of `by` that is at most as large in every column."""
    if not len(by) or not len(points):
        return np.zeros(len(points), dtype=np.bool_)
    if points.shape[1] == 1:
        return np.asarray(points[:, 0] >= by[:, 0].min())
    if points.shape[1] == 2:
        order = np.argsort(by[:, 0])
        so_far = np.minimum.accumulate(by[order, 1])
        below = np.searchsorted(by[order, 0], points[:, 0], side="right")
        return np.asarray((below > 0) & (so_far[np.maximum(below, 1) - 1] <= points[:, 1]))
    if len(by) * len(points) <= _PAIRS:
        return np.asarray(np.any(_pairs(by, points), axis=1))
    mine, theirs = by[:, 0], points[:, 0]
    least, most = float(theirs.min()), float(max(mine.max(), theirs.max()))
    if mine.max() <= least:
        return _beaten(by[:, 1:], points[:, 1:])
    both = np.concatenate([mine, theirs])
    pivot = float(np.partition(both, len(both) // 2)[len(both) // 2])
    # Half of the values may be the greatest: then they are the upper part, and the next call drops the column.
    low_by, low = (mine < pivot, theirs < pivot) if pivot == most else (mine <= pivot, theirs <= pivot)
    beaten = np.zeros(len(points), dtype=np.bool_)
    beaten[low] = _beaten(by[low_by], points[low])
    high = np.flatnonzero(~low)
    beaten[high] = _beaten(by[low_by, 1:], points[high, 1:])
    high = high[~beaten[high]]
    beaten[high] = _beaten(by[~low_by], points[high])
    return beaten


def _pairs(by: Floats, points: Floats) -> Mask:
    """For each row of `points` (row) and of `by` (column): whether the second is at most as large in every column."""
    beats: Mask = by[None, :, 0] <= points[:, None, 0]
    for column in range(1, points.shape[1]):
        beats &= by[None, :, column] <= points[:, None, column]
    return beats
