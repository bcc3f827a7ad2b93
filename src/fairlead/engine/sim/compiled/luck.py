"""Random numbers inside compiled code: the arrivals of an environment, and the luck of each request.

A generator is one word that goes up by a constant; what is drawn is the word, well mixed (SplitMix64). How many numbers
a request takes does not depend on what is decided, so that two policies with one seed meet the same requests.
"""

from math import cos, exp, log, pi, sqrt

import numpy as np

from fairlead.engine.sim.compiled.layout import (
    ARRIVAL,
    ARRIVAL_AT,
    ARRIVAL_DRAW,
    ARRIVAL_DRAWS,
    ARRIVAL_WORKFLOW,
    ARRIVALS,
    COUNT,
    DRAWS,
    WORKFLOW_DRAWS,
)
from fairlead.engine.sim.compiled.packing import (
    CHANCES,
    CHUNK,
    DRAW_KIND,
    DRAW_SIGMA,
    DRAWN_UNTIL,
    GAP,
    OWN,
    OWN_REALS,
    RANDOM,
)
from fairlead.engine.sim.compiled.views import Ints, Reals, compiled, ints, reals

EXPONENTIAL, LOG_NORMAL, NOISE = range(3)

_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 2.0**-53
_MOST_DEVIATIONS, _LEAST_FACTOR = 3.0, 0.05  # of noise, as in `engine.sim.draws` and `engine.sim.physics`


@compiled
def _mixed(word: np.uint64) -> np.uint64:
    word = (word ^ (word >> _30)) * _FIRST
    word = (word ^ (word >> _27)) * _SECOND
    return word ^ (word >> _31)


@compiled
def scatter(seed: int, episode: int) -> int:
    """Where the generator of an episode starts: whatever was decided in those before."""
    return np.int64(_mixed(np.uint64(seed) ^ _mixed(np.uint64(episode) * _STEP)))  # type: ignore[return-value]


@compiled
def uniform(own: Ints) -> float:
    """A number in (0, 1]. The generator is the first of an environment's own numbers."""
    state = np.uint64(own[RANDOM]) + _STEP
    own[RANDOM] = np.int64(state)
    return (np.float64(_mixed(state) >> _11) + 1.0) * _UNIT


@compiled
def exponential(own: Ints) -> float:
    """A number of mean 1."""
    return -log(uniform(own))


@compiled
def _normal(own: Ints) -> float:
    return sqrt(-2.0 * log(uniform(own))) * cos(2.0 * pi * uniform(own))


@compiled
def factor(own: Ints, kind: int, sigma: float) -> float:
    """A factor of mean 1 by which a run differs from the declared mean."""
    if kind == EXPONENTIAL:
        return exponential(own)
    if kind == LOG_NORMAL:
        return exp(sigma * _normal(own) - sigma * sigma / 2)
    return max(_LEAST_FACTOR, 1 + sigma * max(-_MOST_DEVIATIONS, min(_MOST_DEVIATIONS, _normal(own))))


@compiled
def choose(own: Ints, chances: Reals) -> int:
    """Of which workflow an arrival is."""
    last = len(chances) - 1
    if last <= 0:
        return 0
    chance, least, most = uniform(own), 0, last
    while least < most:
        middle = (least + most) >> 1
        if chance > chances[middle]:
            least = middle + 1
        else:
            most = middle
    return least


@compiled
def draw_arrivals(h: int) -> None:
    """The next few arrivals of an endless stream."""
    c, x, own = ints(h, COUNT), reals(h, OWN_REALS), ints(h, OWN)
    chances, kinds, sigmas = reals(h, CHANCES), ints(h, DRAW_KIND), reals(h, DRAW_SIGMA)
    times, workflows, draws = reals(h, ARRIVAL_AT), ints(h, ARRIVAL_WORKFLOW), reals(h, ARRIVAL_DRAWS)
    gap, instant, at = x[GAP], x[DRAWN_UNTIL], 0
    for place in range(own[CHUNK]):
        instant += gap * exponential(own)
        times[place] = instant
        workflow = choose(own, chances)
        workflows[place] = workflow
        first = workflow * c[DRAWS]
        for i in range(first, first + ints(h, WORKFLOW_DRAWS)[workflow]):
            draws[at] = factor(own, kinds[i], sigmas[i])
            at += 1
    x[DRAWN_UNTIL] = instant
    c[ARRIVAL] = c[ARRIVAL_DRAW] = 0
    c[ARRIVALS] = own[CHUNK]
