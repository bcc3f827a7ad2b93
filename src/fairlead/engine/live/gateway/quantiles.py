"""Latencies as a histogram with cells of equal width on a logarithmic scale, and the percentiles of one.

Cells are a factor of 1.04 apart, so a percentile is off by at most 2 %.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import ceil, exp, log, nan

SHARES = (0.5, 0.95, 0.99)

_LEAST_S = 1e-5
_PER_E = 1 / log(1.04)  # cells per factor e


def cell(latency_s: float) -> int:
    """The cell of a latency."""
    return 0 if latency_s <= _LEAST_S else ceil(log(latency_s / _LEAST_S) * _PER_E)


def percentiles(cells: Mapping[int, int]) -> tuple[float, ...]:
    """The 50th, 95th and 99th percentile of a histogram, in seconds; NaN for an empty one."""
    total = sum(cells.values())
    if not total:
        return (nan,) * len(SHARES)
    places, numbers = zip(*sorted(cells.items()), strict=True)
    reached = list(accumulate(numbers))
    return tuple(_seconds(places[bisect_left(reached, share * total)]) for share in SHARES)


def _seconds(place: int) -> float:
    return _LEAST_S * exp((place - 0.5) / _PER_E)


def merged(histograms: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """Several histograms as one."""
    total: dict[int, int] = {}
    for cells in histograms:
        for place, number in cells.items():
            total[place] = total.get(place, 0) + number
    return total
