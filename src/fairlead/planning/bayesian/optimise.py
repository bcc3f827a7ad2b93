"""The loop: random choices first, then rounds of the most promising ones, each observed once."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairlead.planning.bayesian.gaussian_process import GaussianProcess, fit
from fairlead.planning.bayesian.improvement import NoisyImprovement
from fairlead.planning.bayesian.space import Choice, Space

_INTERVAL = 1.959964  # standard deviations to either side that hold 95 % of a normal distribution
_FEWEST = 4  # observations that a model is made of, whatever is taken for an outlier


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is tried: random choices, rounds, choices per round; and how hard each round is thought about.

    `draws` are those of noisy expected improvement. Its best point is searched from the best `restarts` of `raw` random
    ones.
    """

    initial: int = 10
    rounds: int = 20
    per_round: int = 3
    draws: int = 32
    restarts: int = 10
    raw: int = 32

    @property
    def observations(self) -> int:
        """How many choices are observed in all."""
        return self.initial + self.rounds * self.per_round


@dataclass(frozen=True)
class Observation:
    """What a choice was seen to give: an objective, the less the better, and an excess, to be 0 at most."""

    choice: Choice
    objective: float
    excess: float


@dataclass(frozen=True)
class Outcome:
    """The best choice, and everything that was observed, in order."""

    best: Observation
    observations: tuple[Observation, ...]


def optimise(
    observe: Callable[[Choice], tuple[float, float]], space: Space, rng: np.random.Generator, effort: Effort = Effort()
) -> Outcome:
    """Find the choice with the least objective among those whose excess is not positive.

    A space no larger than the number of observations is observed whole.

    Args:
        observe: Gives the objective and the excess of a choice, both finite, with noise or without.
    """
    if space.size <= effort.observations:
        every = np.ndindex(*[len(options) for options in space.sets])
        seen = [Observation(choice, *observe(choice)) for choice in every]
        return Outcome(min(seen, key=_rank), tuple(seen))
    known: dict[Choice, Observation] = {}
    while len(known) < effort.initial:
        _note(known, observe, _random(1, space, rng)[0])
    models: tuple[GaussianProcess, GaussianProcess] | None = None
    for _ in range(effort.rounds):
        models = _models(list(known.values()), space, models)
        improvement = NoisyImprovement(*models, space, effort.draws, rng)
        for _ in range(effort.per_round):
            choice = _most_promising(improvement, known, space, effort, rng)
            _note(known, observe, choice)
            improvement.expect(choice)
    seen = list(known.values())
    return Outcome(min(seen, key=_rank), tuple(seen))


def _note(known: dict[Choice, Observation], observe: Callable[[Choice], tuple[float, float]], choice: Choice) -> None:
    if choice not in known:
        known[choice] = Observation(choice, *observe(choice))


def _rank(seen: Observation) -> tuple[bool, float]:
    """Feasible ones first, the least first; where none is, the one that is nearest to being feasible."""
    is_infeasible = seen.excess > 0
    return is_infeasible, seen.excess if is_infeasible else seen.objective


def _models(
    seen: list[Observation], space: Space, before: tuple[GaussianProcess, GaussianProcess] | None
) -> tuple[GaussianProcess, GaussianProcess]:
    """Models of the (negated) objective and of the excess, from what is no outlier.

    An outlier is an objective that lies outside of the 95 % interval which all others predict. All are judged anew in
    each round, so that one that was taken for an outlier too early comes back.
    """
    points = space.points([each.choice for each in seen])
    gains = np.array([-each.objective for each in seen])
    excess = np.array([each.excess for each in seen])
    if before is not None:
        mean, deviation = before[0].told(points, gains).leave_one_out()
        usual = np.abs(gains - mean) <= _INTERVAL * deviation
        if usual.sum() >= _FEWEST:
            points, gains, excess = points[usual], gains[usual], excess[usual]
    first = before or (None, None)
    return fit(points, gains, first[0]), fit(points, excess, first[1])


def _most_promising(
    improvement: NoisyImprovement,
    known: dict[Choice, Observation],
    space: Space,
    effort: Effort,
    rng: np.random.Generator,
) -> Choice:
    """The unobserved choice with the highest expected improvement: hill climbing from the best of some random ones.

    The best that was observed is one more start, as its neighbours often are the next best.
    """
    raw = list(dict.fromkeys(_random(effort.raw, space, rng)))
    scores = dict(zip(raw, improvement(raw), strict=True))
    starts = sorted(raw, key=lambda choice: -scores[choice])[: effort.restarts]
    found = improvement.climb([*starts, min(known.values(), key=_rank).choice], list(known))
    return _random(1, space, rng)[0] if found is None else found


def _random(count: int, space: Space, rng: np.random.Generator) -> list[Choice]:
    return space.snap(rng.random((count, space.dimensions)))
