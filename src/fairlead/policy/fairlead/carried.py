"""What runs of some options of a function tell of the others: how far declared times are off, and in which way.

A run takes longer than declared by a factor, where the machine is slower or shared, or by a fixed time, where something
happens once per run. Both agree on what was seen of one size, and differ on others: a run of 3 ms that is declared with
1 ms says of one declared with 4 ms that it takes 12 ms or 6 ms. Runs of several sizes tell which it is.
"""

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

_DECLARED_RUNS = 10.0  # runs that the declared time of an option counts for in what a view believes of it
_PRIOR_RUNS = 5.0  # weight of "declared times are right" for other options
_MOST_RUNS = 50.0  # of one option that count
_HOPE = 0.5  # of an excess that is expected of an option, for what it may cost
_NOISE = 0.2  # standard deviation of a run over its mean that is reckoned with


def seen(believed: Reals, runs: Reals) -> Reals:
    """The mean of observed over declared times, of which a belief is that has the declared time in it.

    Args:
        believed: What is believed over what is declared, by option.
        runs: How many were observed, at least 1.
    """
    return np.maximum(1 + (believed - 1) * (1 + _DECLARED_RUNS / runs), 0.0)


def carried(declared_s: Reals, known: NDArray[np.int_], ratios: Reals, runs: Reals) -> tuple[Reals, Reals]:
    """Factors on the declared times of all options, by what was seen of some: hopeful ones, and cautious ones.

    The excess over declared times is split into a factor and a fixed time, neither of which is of the other sign. As
    far as the options that were seen do not tell which it is, the cautious factor takes all for a factor, and the
    hopeful one is the lower of both. Of an excess, the hopeful one has half only: an option that may be worth it is
    tried. A mean excess that is no larger than its standard error is none.

    Args:
        declared_s: By option.
        known: Which of them were seen.
        ratios: Of these, observed over declared time.
        runs: Of these, how many.
    """
    weights = np.minimum(runs, _MOST_RUNS)
    total = float(weights.sum())
    excess = ratios - 1
    mean = float(weights @ excess) / total
    inverse = 1 / declared_s
    at = inverse[known]
    centre = float(weights @ at) / total
    apart = at / centre - 1
    telling = float(weights @ apart**2)
    part = 0.0
    if telling > 0 and mean:
        part = min(max(float(weights @ (apart * (excess - mean))) / telling / mean, 0.0), 1.0)
    fixed = np.maximum(mean * inverse / centre, min(float(excess.min()), 0.0))  # none gains more than the best
    fitted = mean + part * (fixed - mean)
    told = telling * mean**2 / (telling * mean**2 + _NOISE**2)
    scale = total / (total + _PRIOR_RUNS) * max(0.0, 1 - _NOISE**2 / max(total * mean**2, _NOISE**2))
    likely = told * fitted + (1 - told) * np.minimum(fixed, mean)
    hopeful = np.where(likely > 0, _HOPE * likely, likely)
    return 1 + scale * hopeful, 1 + scale * (told * fitted + (1 - told) * mean)
