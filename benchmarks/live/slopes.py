"""Whether a series of measurements grows: its slope with a 95 % interval that allows for autocorrelation."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt
from statistics import fmean, median

_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09)
"""97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom; 2.09 is close enough beyond."""


@dataclass(frozen=True)
class Slope:
    """A straight line through a series: change per unit of time, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def contains_zero(self) -> bool:
        return self.low <= 0 <= self.high


@dataclass(frozen=True)
class Tolerance:
    """How much a series may grow: by `least`, or by a share of its level, whichever is more.

    A strict one demands both: growth below that, and a slope that is not above 0 beyond chance. Otherwise either will
    do, as for latencies, which the machine's other work moves by more.
    """

    share: float
    least: float
    is_strict: bool = False

    def of(self, level: float) -> float:
        return max(self.share * level, self.least)


@dataclass(frozen=True)
class Trend:
    """A series over time: its level, what it grew by from its first part to its last, and its slope per minute."""

    name: str
    level: float
    growth: float
    slope: Slope
    allowed: float
    is_strict: bool

    @property
    def negligible(self) -> float:
        """A slope that is as good as 0: at which it takes a hundred minutes to grow by what is allowed."""
        return self.allowed / 100

    @property
    def is_flat(self) -> bool:
        """Whether it stays within its tolerance. A slope whose whole interval is negligible counts as none."""
        has_grown = self.growth >= self.allowed
        is_rising = self.slope.low > 0 and self.slope.high >= self.negligible
        return not (has_grown or is_rising) if self.is_strict else not (has_grown and is_rising)


def fit(times: Sequence[float], values: Sequence[float]) -> Slope:
    """The least-squares slope. Neighbours of a memory or latency series resemble each other, so that the plain interval
    would be too narrow: it is widened by the autocorrelation of the residuals. Fewer than four points say nothing.
    """
    n = len(values)
    if n < 2:
        return Slope(0.0, -inf, inf)
    centre, level = fmean(times), fmean(values)
    spread = sum((time - centre) ** 2 for time in times)
    slope = sum((time - centre) * (value - level) for time, value in zip(times, values, strict=True)) / spread
    if n < 4:
        return Slope(slope, -inf, inf)
    rest = [value - level - slope * (time - centre) for time, value in zip(times, values, strict=True)]
    power = sum(one * one for one in rest)
    rho = min(0.9, max(0.0, sum(a * b for a, b in pairwise(rest)) / power)) if power else 0.0
    inflation = (1 + rho) / (1 - rho)
    freedom = max(1, int(n / inflation) - 2)
    error = sqrt(inflation * power / (n - 2) / spread)
    half = _T[min(freedom, len(_T)) - 1] * error
    return Slope(slope, slope - half, slope + half)


def trend(name: str, times_s: Sequence[float], values: Sequence[float], tolerance: Tolerance) -> Trend:
    """The trend of a series whose instants are in seconds. Growth is from the median of the first quarter to that of
    the last, so that one outlier is none.
    """
    quarter = max(1, len(values) // 4)
    growth = median(values[-quarter:]) - median(values[:quarter])
    level = median(values)
    return Trend(
        name, level, growth, fit([time / 60 for time in times_s], values), tolerance.of(level), tolerance.is_strict
    )


def by_bin(times: Sequence[float], values: Sequence[float], length: float) -> tuple[list[float], list[float]]:
    """The median of the values in each bin of time; the middle of every bin that has some."""
    bins: dict[int, list[float]] = {}
    for time, value in zip(times, values, strict=True):
        bins.setdefault(int(time // length), []).append(value)
    return [(number + 0.5) * length for number in sorted(bins)], [median(bins[number]) for number in sorted(bins)]
