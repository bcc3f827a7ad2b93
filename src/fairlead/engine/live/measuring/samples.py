"""When a point has been measured often enough, and what its samples say."""

from collections.abc import Sequence
from math import ceil, inf, sqrt

import msgspec

# The 97.5 % quantiles of Student's t for 1, 2, 3, ... degrees of freedom; beyond, the formula is good to 0.1 %.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


class StopRule(msgspec.Struct, frozen=True, kw_only=True):
    """Stop when the 95 % interval of the mean is within `tolerance` of it, or after `most` samples.

    Whoever runs out of time stops too, but not before `least_late` samples.
    """

    tolerance: float = 0.05
    least: int = 10
    most: int = 200
    least_late: int = 2

    def is_enough(self, samples: Sequence[float], *, is_late: bool = False) -> bool:
        """Whether no more samples are needed; `is_late` says that the point's time is used up."""
        count = len(samples)
        if count >= self.most or (is_late and count >= self.least_late):
            return True
        return count >= self.least and half_width(samples) <= self.tolerance


def half_width(samples: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean, as a share of the mean; infinite for a single sample."""
    count, average = len(samples), mean(samples)
    if count < 2:
        return inf
    if average == 0:
        return 0.0
    freedom = count - 1
    t = _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.4 / freedom + 2.6 / freedom**2
    return t * deviation(samples) / sqrt(count) / average


def mean(samples: Sequence[float]) -> float:
    """Their average."""
    return sum(samples) / len(samples)


def deviation(samples: Sequence[float]) -> float:
    """Standard deviation of what they are drawn from; 0 for a single one."""
    if len(samples) < 2:
        return 0.0
    average = mean(samples)
    return sqrt(sum((sample - average) ** 2 for sample in samples) / (len(samples) - 1))


def percentile(samples: Sequence[float], share: float) -> float:
    """The least sample that this share of all does not exceed."""
    ranked = sorted(samples)
    return ranked[max(0, ceil(share * len(ranked)) - 1)]


def pooled_noise(groups: Sequence[Sequence[float]]) -> float:
    """Relative standard deviation within groups, of all groups together; each counts by its degrees of freedom."""
    squares = freedom = 0.0
    for samples in groups:
        if len(samples) >= 2 and mean(samples) > 0:
            squares += (len(samples) - 1) * (deviation(samples) / mean(samples)) ** 2
            freedom += len(samples) - 1
    return sqrt(squares / freedom) if freedom else 0.0
