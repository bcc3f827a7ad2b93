"""A latency model learned from measured points, to predict those that were not measured.

Time is a sum of terms that can only add to it: fixed work, work per item of a batch (or its square root, where items
share), each alone or divided by the vCPUs or vGPUs that do it. The weights are fitted by non-negative least squares of
the *relative* error, so that a millisecond counts as much at ten as a second at ten thousand. Which terms there are is
chosen by the error on held-out points.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from fairlead.model import Configuration

Times = Mapping[Configuration, float]
"""Mean seconds by configuration."""

_Array = NDArray[np.float64]

# What batch size and resources may contribute; a family is every product of one of each.
_Terms = Mapping[str, Callable[[float], float]]
_BATCH: _Terms = {"1": lambda n: 1.0, "n": lambda n: n, "sqrt n": sqrt, "n^2": lambda n: n * n}
_CPU: _Terms = {
    "1": lambda c: 1.0,
    "1/min(c,1)": lambda c: 1.0 / min(c, 1.0) if c else 1.0,  # one thread: faster only up to one vCPU
    "1/c": lambda c: 1.0 / c if c else 1.0,
}
_GPU: _Terms = {"1": lambda g: 1.0, "1/g": lambda g: 1.0 / g if g else 1.0}
_FAMILIES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("1", "n"), ("1",)),
    (("1", "n"), ("1/min(c,1)",)),
    (("1", "n"), ("1", "1/min(c,1)")),
    (("1", "n"), ("1", "1/min(c,1)", "1/c")),
    (("1", "sqrt n", "n"), ("1", "1/min(c,1)", "1/c")),
    (("1", "sqrt n", "n", "n^2"), ("1", "1/min(c,1)", "1/c")),
)


@dataclass(frozen=True)
class Predictor:
    """A fitted model, and how far off it was on each point while that point was held out.

    `errors` are relative: 0.1 is a tenth too much or too little. Empty with fewer than three points.
    """

    terms: tuple[tuple[str, str, str], ...]
    weights: tuple[float, ...]
    errors: Mapping[Configuration, float]

    def mean_s(self, configuration: Configuration) -> float:
        """The predicted time of a warm run."""
        return float(np.dot(_features(configuration, self.terms), self.weights))

    @property
    def held_out_error(self) -> float | None:
        """The mean over held-out points; None where there were too few to hold one out."""
        return sum(self.errors.values()) / len(self.errors) if self.errors else None


def fit(times: Times) -> Predictor:
    """The model of these measured points; of several that fit, the simplest with the least held-out error."""
    if not times:
        raise ValueError("nothing was measured, so nothing can be predicted.")
    best: Predictor | None = None
    least = inf
    for batches, cpus in _FAMILIES:
        terms = _terms(times, batches, cpus)
        candidate = Predictor(terms, _weights(times, terms), _held_out(times, terms))
        error = _mean(candidate.errors) if candidate.errors else _misfit(times, candidate)
        # A richer family must earn its place: by a tenth, as held-out errors are noisy themselves.
        if best is None or error < 0.9 * least:
            best, least = candidate, error
    assert best is not None
    return best


def next_to_measure(space: Sequence[Configuration], times: Times, tolerance: float) -> Configuration | None:
    """What to measure next; None once everything is measured, or can be predicted within the tolerance.

    First the corners of the space, then its middle, then what is farthest from all of these until a quarter is known:
    a law that happens to fit a few points must fit elsewhere too. From then on beside the point predicted worst.
    """
    left = [configuration for configuration in space if configuration not in times]
    if not left:
        return None
    for corner in _spread(space):
        if corner not in times:
            return corner
    if len(times) < len(space) / 4:
        return max(left, key=lambda one: (min(_distance(one, known) for known in times), one))
    errors = fit(times).errors
    if not errors:
        return left[0]
    if _mean(errors) <= tolerance and max(errors.values()) <= 2 * tolerance:
        return None
    worst = max(errors, key=lambda configuration: (errors[configuration], configuration))
    return min(left, key=lambda configuration: (_distance(configuration, worst), configuration))


def complete(space: Sequence[Configuration], times: Times) -> tuple[dict[Configuration, float], Predictor]:
    """Predicted times of all that was not measured, and the model."""
    predictor = fit(times)
    return {one: predictor.mean_s(one) for one in space if one not in times}, predictor


def non_negative_least_squares(matrix: _Array, target: _Array) -> _Array:
    """The x >= 0 that brings matrix @ x closest to the target (Lawson and Hanson's active set)."""
    count = matrix.shape[1]
    x = np.zeros(count)
    is_free = np.zeros(count, dtype=bool)
    scale = float(np.abs(matrix).max(initial=0.0) * np.abs(target).max(initial=0.0))
    tolerance = 1e-10 * max(scale, 1e-300)
    for _ in range(10 * count):
        slope = matrix.T @ (target - matrix @ x)
        slope[is_free] = -np.inf
        if is_free.all() or slope.max() <= tolerance:
            break
        is_free[int(slope.argmax())] = True
        while True:
            trial = np.zeros(count)
            trial[is_free] = np.linalg.lstsq(matrix[:, is_free], target, rcond=None)[0]
            is_low = is_free & (trial <= 0)
            if not is_low.any():
                x = trial
                break
            # Go towards the trial only as far as nothing becomes negative, and drop what has come to zero.
            step = np.min(x[is_low] / np.maximum(x[is_low] - trial[is_low], 1e-300))
            x = x + step * (trial - x)
            is_free &= x > 1e-12 * max(1.0, float(x.max()))
            x[~is_free] = 0.0
            if not is_free.any():
                break
    return x


def _terms(times: Times, batches: Sequence[str], cpus: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
    """The products of this family; a resource that does not vary would only say the same again."""
    several_batches = len({c.batch for c in times}) > 1
    several_cpus = len({c.vcpus for c in times}) > 1
    gpus = tuple(_GPU) if len({c.vgpus for c in times}) > 1 else ("1",)
    return tuple(
        (batch, cpu, gpu)
        for batch in (batches if several_batches else batches[:1])
        for cpu in (cpus if several_cpus else ("1",))
        for gpu in gpus
    )


def _features(configuration: Configuration, terms: Sequence[tuple[str, str, str]]) -> list[float]:
    n, c, g = configuration.batch, configuration.vcpus, configuration.vgpus
    return [_BATCH[batch](n) * _CPU[cpu](c) * _GPU[gpu](g) for batch, cpu, gpu in terms]


def _weights(times: Times, terms: Sequence[tuple[str, str, str]]) -> tuple[float, ...]:
    floor = 1e-9  # a function that does nothing takes no time; its relative error would be infinite
    rows = [[value / max(seconds, floor) for value in _features(c, terms)] for c, seconds in times.items()]
    return tuple(float(w) for w in non_negative_least_squares(np.array(rows), np.ones(len(rows))))


def _held_out(times: Times, terms: Sequence[tuple[str, str, str]]) -> dict[Configuration, float]:
    if len(times) < 3:
        return {}
    errors = {}
    for out, seconds in times.items():
        shown = {one: value for one, value in times.items() if one != out}
        predicted = float(np.dot(_features(out, terms), _weights(shown, terms)))
        errors[out] = abs(predicted - seconds) / max(seconds, 1e-9)
    return errors


def _misfit(times: Times, predictor: Predictor) -> float:
    """The relative error on what it was shown: all there is to go by where nothing can be held out."""
    return sum(abs(predictor.mean_s(c) - seconds) / max(seconds, 1e-9) for c, seconds in times.items()) / len(times)


def _spread(space: Sequence[Configuration]) -> list[Configuration]:
    """The corners of the space, then what lies nearest to its middle."""
    axes = [sorted({getattr(c, name) for c in space}) for name in ("batch", "vcpus", "vgpus")]
    ends = [(axis[0], axis[-1]) for axis in axes]
    corners = [c for c in space if all(v in end for v, end in zip((c.batch, c.vcpus, c.vgpus), ends, strict=True))]
    middle = Configuration(*(axis[len(axis) // 2] for axis in axes))
    return [*corners, min(space, key=lambda c: (_distance(c, middle), c))]


def _distance(one: Configuration, other: Configuration) -> float:
    """Between configurations, by factors: from 1 to 2 is as far as from 2 to 4."""
    return (
        abs(log(one.batch / other.batch))
        + abs(log(max(one.vcpus, 0.01) / max(other.vcpus, 0.01)))
        + abs(log(max(one.vgpus, 0.01) / max(other.vgpus, 0.01)))
    )


def _mean(errors: Mapping[Configuration, float]) -> float:
    return sum(errors.values()) / len(errors) if errors else 0.0
