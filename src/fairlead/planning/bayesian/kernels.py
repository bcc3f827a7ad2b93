"""The compiled parts: likelihood of a process, expected improvement of a choice, hill climbing over choices.

Plain loops on one thread. The matrices are so small that a threaded library spends more time on waiting than on
computing, and its rounding depends on the machine.
"""

from math import erfc, exp, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from fairlead.planning.search.compiled import compiled

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@compiled
def expected_improvement(mean: float, deviation: float, best: float) -> float:
    """By how much a normal variable exceeds `best`, on average, counting 0 where it does not."""
    if deviation <= 0.0:
        return max(mean - best, 0.0)
    z = (mean - best) / deviation
    return deviation * max(z * 0.5 * erfc(-z / sqrt(2.0)) + exp(-0.5 * z * z) / sqrt(2.0 * pi), 0.0)


@compiled
def log_likelihood(
    points: Array, values: Array, length_scales: Array, scale: float, noise: float, gradient: Array
) -> float:
    """Log marginal likelihood up to a constant; `gradient` is set to that by the logarithms of the hyperparameters."""
    count, dimensions = points.shape
    root = np.empty((count, count))  # the Cholesky factor, below
    slope = np.empty((count, count))  # of the correlation, by half the squared distance
    correlation = np.empty((count, count))
    for i in range(count):
        for j in range(i + 1):
            square = 0.0
            for d in range(dimensions):
                gap = (points[i, d] - points[j, d]) / length_scales[d]
                square += gap * gap
            scaled = sqrt(5.0 * square)
            decay = exp(-scaled)
            correlation[i, j] = (1.0 + scaled + scaled * scaled / 3.0) * decay
            slope[i, j] = 5.0 / 3.0 * (1.0 + scaled) * decay
    value = 0.0
    for i in range(count):
        for j in range(i + 1):
            total = scale * correlation[i, j]
            if i == j:
                total += noise
            for k in range(j):
                total -= root[i, k] * root[j, k]
            root[i, j] = sqrt(total) if i == j else total / root[j, j]
        value -= log(root[i, i])
    inverse = np.zeros((count, count))  # of the factor: lower triangle
    for column in range(count):
        inverse[column, column] = 1.0 / root[column, column]
        for i in range(column + 1, count):
            total = 0.0
            for k in range(column, i):
                total -= root[i, k] * inverse[k, column]
            inverse[i, column] = total / root[i, i]
    half = np.zeros(count)
    for i in range(count):
        for k in range(i + 1):
            half[i] += inverse[i, k] * values[k]
        value -= 0.5 * half[i] * half[i]
    weights = np.zeros(count)
    for k in range(count):
        for i in range(k + 1):
            weights[i] += inverse[k, i] * half[k]
    precision = np.zeros((count, count))
    for k in range(count):
        for i in range(k + 1):
            for j in range(i + 1):
                precision[i, j] += inverse[k, i] * inverse[k, j]
    gradient[:] = 0.0
    for i in range(count):
        for j in range(i + 1):
            pull = weights[i] * weights[j] - precision[i, j]
            if i == j:
                gradient[dimensions] += 0.5 * scale * pull * correlation[i, j]
                gradient[dimensions + 1] += 0.5 * noise * pull
                continue
            gradient[dimensions] += scale * pull * correlation[i, j]
            pulled = scale * pull * slope[i, j]
            for d in range(dimensions):
                gap = (points[i, d] - points[j, d]) / length_scales[d]
                gradient[d] += pulled * gap * gap
    return value


@compiled
def _predict(
    choice: Indices, firsts: Indices, squares: Array, scale: float, precision: Array, weights: Array, means: Array
) -> float:
    """Sets the mean of each draw at a choice and returns the variance, both standardised."""
    count, draws = weights.shape
    cross = np.zeros(count)
    for part in range(len(choice)):
        row = squares[firsts[part] + choice[part]]
        for i in range(count):
            cross[i] += row[i]
    solved = np.zeros(count)
    means[:] = 0.0
    for i in range(count):
        scaled = sqrt(5.0 * cross[i])
        known = scale * (1.0 + scaled + scaled * scaled / 3.0) * exp(-scaled)
        cross[i] = known
        for j in range(count):  # sums by rows, which are vectorised without changing the order of any sum
            solved[j] += precision[i, j] * known
        for draw in range(draws):
            means[draw] += weights[i, draw] * known
    variance = scale
    for i in range(count):
        variance -= cross[i] * solved[i]
    return variance


@compiled
def improvement(
    choice: Indices,
    firsts: Indices,
    objective: tuple[Array, float, Array, Array, float, float],
    constraint: tuple[Array, float, Array, Array, float, float],
    best: Array,
    least: float,
    floor: float,
) -> float:
    """Expected improvement times the probability that the constraint holds, averaged over the draws.

    Where it cannot be above `floor`, 0 is returned, and the constraint is not looked at.

    Args:
        choice: An option for each set.
        firsts: For each set the row of its first option in `squares`.
        objective: Squared distances of all options to all points, scale, precision, weights by draw, offset, unit.
        constraint: The same of the constraint.
        best: What is to be improved on, by draw.
        least: The smallest variance, as a part of the scale.
        floor: What is of interest; -1 for everything.
    """
    draws = len(best)
    gains, excess = np.empty(draws), np.empty(draws)
    squares, scale, precision, weights, offset, unit = objective
    variance = _predict(choice, firsts, squares, scale, precision, weights, gains)
    deviation = unit * sqrt(max(variance, least * scale))
    total = 0.0
    for draw in range(draws):
        gains[draw] = expected_improvement(offset + unit * gains[draw], deviation, best[draw])
        total += gains[draw]
    if total <= floor * draws:
        return 0.0
    squares, scale, precision, weights, origin, size = constraint
    variance = _predict(choice, firsts, squares, scale, precision, weights, excess)
    spread = sqrt(max(variance, least * scale))
    total = 0.0
    for draw in range(draws):
        total += gains[draw] * 0.5 * erfc((origin / size + excess[draw]) / spread / sqrt(2.0))
    return total / draws


@compiled
def climb(
    starts: Indices,
    near: Indices,
    known: Indices,
    firsts: Indices,
    objective: tuple[Array, float, Array, Array, float, float],
    constraint: tuple[Array, float, Array, Array, float, float],
    best: Array,
    least: float,
    found: Indices,
) -> float:
    """Hill climbing from each start, one set at a time; `found` is set to the best choice seen that is not known.

    Args:
        near: For each option of all sets the options of its set that are near, then -1.
        known: Choices that are not wanted, sorted or not.

    Returns:
        The improvement expected of what was found; -1 if there is nothing that was not known.
    """
    parts = starts.shape[1]
    most = -1.0
    for start in range(len(starts)):
        at = starts[start].copy()
        here = improvement(at, firsts, objective, constraint, best, least, -1.0)
        if here > most and not _is_listed(at, known):
            most = here
            found[:] = at
        part, unmoved = 0, 0
        while unmoved < parts:
            before = at[part]
            chosen = before
            for other in near[firsts[part] + before]:
                if other < 0:
                    break
                at[part] = other
                there = improvement(at, firsts, objective, constraint, best, least, min(here, most))
                if there > most and not _is_listed(at, known):
                    most = there
                    found[:] = at
                if there > here:
                    here, chosen = there, other
            at[part] = chosen
            unmoved = unmoved + 1 if chosen == before else 0
            part = (part + 1) % parts
    return most


@compiled
def _is_listed(choice: Indices, listed: Indices) -> bool:
    for row in range(len(listed)):
        is_same = True
        for part in range(len(choice)):
            if listed[row, part] != choice[part]:
                is_same = False
                break
        if is_same:
            return True
    return False
