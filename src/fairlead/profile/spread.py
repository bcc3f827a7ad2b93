"""How far above its mean a time may lie: a running estimate of a high percentile, in constant time and memory."""

FIRST_SPREAD = 1.2  # of what was never observed

_PERCENTILE = 0.95
_STEP = 0.05


def widened(spread: float, ratio: float) -> float:
    """The spread after one more observation, whose ratio to the mean is given; at least 1.

    A step up for each observation above it and a small one down for each below balance where 95 % of them
    lie below. How far above does not matter, so that one odd run moves it as little as any other.
    """
    if ratio > spread:
        return spread * (1 + _STEP * _PERCENTILE)
    return max(1.0, spread * (1 - _STEP * (1 - _PERCENTILE)))
