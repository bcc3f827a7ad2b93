"""Latency distributions as histograms: discretised, added, and compared. All have one bin width, and bin i is time i.

A time falls into the bin whose middle is nearest, so that the sum of two times is the sum of their bins.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Histogram:
    """A distribution of bins: `share[i]` is the probability of bin `first + i`."""

    first: int
    share: NDArray[np.float64]

    @property
    def last(self) -> int:
        """The greatest bin."""
        return self.first + len(self.share) - 1

    def quantile(self, level: float) -> int:
        """The least bin that is not exceeded with this probability."""
        return self.first + int(np.searchsorted(np.cumsum(self.share), level - 1e-12))

    def up_to(self, most: int) -> "Histogram":
        """The same with everything later in the bin `most`, so that sums stay short."""
        if self.last <= most:
            return self
        if self.first >= most:
            return Histogram(most, np.ones(1))
        share = self.share[: most - self.first + 1].copy()
        share[-1] += self.share[most - self.first + 1 :].sum()
        return Histogram(self.first, share)


NOW = Histogram(0, np.ones(1))


def of_times(times: NDArray[np.float64], bin_s: float, most: int) -> Histogram:
    """The histogram of equally likely times in seconds; what lies beyond the bin `most` is put there."""
    bins = np.minimum(np.rint(times / bin_s), most).astype(np.int64)
    first = int(bins.min())
    return Histogram(first, np.bincount(bins - first) / len(bins))


def one_after_the_other(one: Histogram, other: Histogram) -> Histogram:
    """The distribution of the sum of two independent times: a convolution."""
    return Histogram(one.first + other.first, np.convolve(one.share, other.share))


def latest(parts: Sequence[Histogram]) -> Histogram:
    """The distribution of the maximum of independent times: the product of their cumulative distributions."""
    if len(parts) == 1:
        return parts[0]
    first, last = max(each.first for each in parts), max(each.last for each in parts)
    product = np.ones(last - first + 1)
    for each in parts:
        product *= _cumulative(each, first, last)
    return Histogram(first, np.diff(product, prepend=0.0))


def latest_of_equal(one: Histogram, count: int) -> Histogram:
    """The maximum of so many independent times that are distributed alike."""
    return Histogram(one.first, np.diff(np.cumsum(one.share) ** count, prepend=0.0))


def first_of_equal(one: Histogram, count: int) -> Histogram:
    """The minimum of so many independent times that are distributed alike."""
    later = np.clip(1 - np.cumsum(one.share), 0.0, 1.0) ** count
    return Histogram(one.first, np.diff(1 - later, prepend=0.0))


def _cumulative(one: Histogram, first: int, last: int) -> NDArray[np.float64]:
    """The probability of no more than each of the bins from `first`, which is not before its own, to `last`."""
    sums = np.cumsum(one.share)
    bins = np.minimum(np.arange(first, last + 1) - one.first, len(sums) - 1)
    found = np.where(bins >= 0, sums[np.maximum(bins, 0)], 0.0)
    return np.asarray(found, dtype=np.float64)
