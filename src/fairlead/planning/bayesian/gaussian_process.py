"""Gaussian process regression: Matérn 5/2, a length scale per dimension, observation noise.

Hyperparameters are the most likely ones given the data and weak priors: length scale Gamma(3, 6), output variance
Gamma(2, 0.15), noise variance Gamma(1.1, 0.05), the usual ones for inputs in the unit cube and standardised values
(those of BoTorch's SingleTaskGP, which Aquatope uses).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from fairlead.planning.bayesian.kernels import Array, log_likelihood

_SHAPE_LENGTH, _RATE_LENGTH = 3.0, 6.0
_SHAPE_SCALE, _RATE_SCALE = 2.0, 0.15
_SHAPE_NOISE, _RATE_NOISE = 1.1, 0.05
_LEAST, _MOST = np.log(1e-4), np.log(1e3)  # of every hyperparameter; noise this small keeps matrices well-conditioned
_SHORTEST = 1e-3  # step of the search, in logarithms
_ENOUGH = 0.01  # gain of a step, in logarithms of probability, below which the search ends
JITTER = 1e-6  # of the output variance: what stands in for noise where none is meant


def matern52(squares: Array) -> Array:
    """Correlation at these squared distances, measured in length scales."""
    scaled = np.sqrt(5.0 * squares)
    return (1.0 + scaled + scaled * scaled / 3.0) * np.exp(-scaled)


def inverted(matrix: Array) -> Array:
    """The inverse of a matrix."""
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """A process that was told of some values. `scale` and `noise` are variances of standardised values."""

    points: Array
    values: Array
    length_scales: Array
    scale: float = 1.0
    noise: float = 1e-4
    offset: float = 0.0
    unit: float = 1.0

    def covariance(self, points: Array, others: Array) -> Array:
        """Prior covariance of the standardised function between two sets of points."""
        a, b = points / self.length_scales, others / self.length_scales
        squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None, :] - 2.0 * (a @ b.T)
        return self.scale * matern52(np.maximum(squares, 0.0))

    def posterior(self, points: Array) -> tuple[Array, Array]:
        """Mean and joint covariance of the function itself, without the noise of an observation."""
        cross = self.covariance(points, self.points)
        mean = cross @ self._weights
        covariance = self.covariance(points, points) - cross @ self._precision @ cross.T
        return self.offset + self.unit * mean, self.unit**2 * covariance

    def leave_one_out(self) -> tuple[Array, Array]:
        """For each observation what the others predict of it: mean and standard deviation, noise included.

        In closed form, from the inverse of the covariance (Rasmussen and Williams, section 5.4.2).
        """
        variance = 1.0 / np.diag(self._precision)
        mean = self._standard - self._weights * variance
        return self.offset + self.unit * mean, self.unit * np.sqrt(variance)

    def draw(self, normals: Array) -> Array:
        """Draws of the function at the observed points, one per row of standard normal numbers."""
        mean, covariance = self.posterior(self.points)
        jitter = JITTER * self.scale * self.unit**2
        return mean + normals @ np.linalg.cholesky(covariance + jitter * np.eye(len(mean))).T

    def told(self, points: Array, values: Array) -> Self:
        """The same process, told of these values instead."""
        return type(self)(points, values, self.length_scales, self.scale, self.noise, self.offset, self.unit)

    @cached_property
    def _standard(self) -> Array:
        return (self.values - self.offset) / self.unit

    @cached_property
    def _precision(self) -> Array:
        known = self.covariance(self.points, self.points)
        return inverted(known + self.noise * np.eye(len(known)))

    @cached_property
    def _weights(self) -> Array:
        return self._precision @ self._standard


def fit(points: Array, values: Array, start: GaussianProcess | None = None, *, steps: int = 30) -> GaussianProcess:
    """The process with the most likely hyperparameters, searched from those of `start`, in at most so many steps."""
    offset = float(values.mean())
    unit = float(values.std()) or 1.0
    standard = (values - offset) / unit
    if start is None:
        first = np.log(np.array([*[0.5] * points.shape[1], 1.0, 0.01]))
    else:
        first = np.log(np.array([*start.length_scales, start.scale, start.noise]))
    found = np.exp(_climb(first, points, standard, steps))
    return GaussianProcess(points, values, found[:-2], float(found[-2]), float(found[-1]), offset, unit)


def log_posterior(logarithms: Array, points: Array, values: Array) -> tuple[float, Array]:
    """Log of likelihood times priors, up to a constant, and its gradient.

    Args:
        logarithms: Of the length scales, then of scale and noise.
        points: Where values are known.
        values: Standardised.
    """
    parameters = np.exp(logarithms)
    gradient = np.empty_like(parameters)
    likelihood = log_likelihood(points, values, parameters[:-2], parameters[-2], parameters[-1], gradient)
    dimensions = points.shape[1]
    shape = np.array([*[_SHAPE_LENGTH] * dimensions, _SHAPE_SCALE, _SHAPE_NOISE]) - 1.0
    rate = np.array([*[_RATE_LENGTH] * dimensions, _RATE_SCALE, _RATE_NOISE])
    prior = float(shape @ logarithms - rate @ parameters)
    return likelihood + prior, gradient + shape - rate * parameters


def _climb(first: Array, points: Array, values: Array, steps: int) -> Array:
    """Quasi-Newton ascent (BFGS) with halved steps, inside the bounds."""
    at = np.clip(first, _LEAST, _MOST)
    value, gradient = log_posterior(at, points, values)
    inverse = np.eye(len(at))
    for _ in range(steps):
        direction = inverse @ gradient
        if direction @ gradient <= 0:
            inverse, direction = np.eye(len(at)), gradient
        direction = direction * min(1.0, 1.0 / float(np.abs(direction).max(initial=1e-12)))
        length = 1.0
        while True:
            there = np.clip(at + length * direction, _LEAST, _MOST)
            next_value, next_gradient = log_posterior(there, points, values)
            if next_value > value + 1e-4 * length * float(direction @ gradient):
                break
            length /= 2
            if length < _SHORTEST:
                return at
        moved, turned = there - at, gradient - next_gradient
        curvature = float(moved @ turned)
        if curvature > 1e-10:
            left = np.eye(len(at)) - np.outer(moved, turned) / curvature
            inverse = left @ inverse @ left.T + np.outer(moved, moved) / curvature
        gain, at, value, gradient = next_value - value, there, next_value, next_gradient
        if gain < _ENOUGH:
            break
    return at
