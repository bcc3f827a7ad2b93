"""Expected improvement with noisy observations and a constraint."""

from collections.abc import Sequence

import numpy as np

from fairlead.planning.bayesian.gaussian_process import JITTER, GaussianProcess, inverted
from fairlead.planning.bayesian.kernels import Array, climb, improvement
from fairlead.planning.bayesian.space import Choice, Space


class NoisyImprovement:
    """How promising choices are, when what was observed is noisy and a constraint must hold.

    The observations do not say for sure what the best so far is. So the functions are drawn at the observed points
    many times; each draw has its best feasible point, and the improvement over it and the probability of being feasible
    follow in closed form. Their product is averaged over the draws. A draw in which nothing is feasible compares with
    its worst point. Greater is better for the objective; the constraint holds where it is not positive.
    """

    def __init__(
        self,
        objective: GaussianProcess,
        constraint: GaussianProcess,
        space: Space,
        draws: int,
        rng: np.random.Generator,
    ) -> None:
        self._space = space
        self._rng = rng
        shape = (draws, len(objective.points))
        self.objective = _Drawn(objective, objective.draw(rng.standard_normal(shape)), space)
        self.constraint = _Drawn(constraint, constraint.draw(rng.standard_normal(shape)), space)
        self._note_best()

    def __call__(self, choices: Sequence[Choice]) -> list[float]:
        """The expected improvement of each of these choices."""
        rows = np.array(choices, dtype=np.int64)
        state = (self._space.firsts, self.objective.state, self.constraint.state, self.best, JITTER, -1.0)
        return [improvement(row, *state) for row in rows]

    def climb(self, starts: Sequence[Choice], known: Sequence[Choice]) -> Choice | None:
        """The best that hill climbing from these starts comes across, and that is not among the known."""
        found = np.zeros(len(self._space.sets), dtype=np.int64)
        most = climb(
            np.array(starts, dtype=np.int64),
            self._space.near,
            np.array(known, dtype=np.int64).reshape(len(known), len(found)),
            self._space.firsts,
            self.objective.state,
            self.constraint.state,
            self.best,
            JITTER,
            found,
        )
        return tuple(found.tolist()) if most >= 0 else None

    def expect(self, choice: Choice) -> None:
        """Take a choice as made: each draw is continued there, so that the next one differs."""
        for drawn in (self.objective, self.constraint):
            drawn.extend(choice, self._rng)
        self._note_best()

    def _note_best(self) -> None:
        values, excess = self.objective.values, self.constraint.values
        feasible = np.where(excess <= 0, values, -np.inf).max(axis=1)
        self.best = np.where(np.isfinite(feasible), feasible, values.min(axis=1))


class _Drawn:
    """A process whose values at some points are known in each of several draws: a row for each in `values`."""

    def __init__(self, process: GaussianProcess, values: Array, space: Space) -> None:
        self._process = process
        self._space = space
        self._points = process.points
        self.values = values
        self._solve()

    def extend(self, choice: Choice, rng: np.random.Generator) -> None:
        process = self._process
        point = self._space.points([choice])
        cross = process.covariance(point, self._points)[0]
        variance = process.scale - float(cross @ self._precision @ cross)
        deviation = np.sqrt(max(variance, JITTER * process.scale))
        standard = cross @ self._weights + deviation * rng.standard_normal(len(self.values))
        self._points = np.vstack([self._points, point])
        self.values = np.hstack([self.values, (process.offset + process.unit * standard)[:, None]])
        self._solve()

    def _solve(self) -> None:
        process = self._process
        known = process.covariance(self._points, self._points)
        self._precision = inverted(known + JITTER * process.scale * np.eye(len(known)))
        self._weights = np.ascontiguousarray(self._precision @ ((self.values - process.offset) / process.unit).T)
        squares = self._space.squares(self._points, process.length_scales)
        self.state = (squares, process.scale, self._precision, self._weights, process.offset, process.unit)
