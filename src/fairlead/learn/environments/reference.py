"""One function on eight cores in closed form: a world in which the best possible return is known.

The code that SIMPPO's authors published with a successor (AWARE, ATC 2023) replays a table of 21 x 9 rows, one for each
number of containers and of requests per second. All its stable rows follow from M/M/1 queues; this is that table as
formulas, with the state, actions and rewards of the same code. Vertical actions change no outcome in it, and there are
no neighbours: it serves to check a learner, not to learn scaling.

**Differs from the table:**

* 19 rows in which more arrives than can be served have latencies between 44,000 and 78,000 in it; here all have
  60,000 s. SLO preservation is 0 either way, to three digits.
* What a row without containers says was not recorded: here utilisation is 0, and the SLO is kept only without requests.
* A reversal is a move in or out right after its opposite. What was illegal was no move, and so reverses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from fairlead.learn.environments.actions import IS_OVER, NOT_BEGUN, many_actions, one_action, raise_reset_needed

MOST_CONTAINERS, FASTEST_RPS = 20, 8
CORES, SERVICE_RPS, SLO_S = 8, 1.5, 9.0
SATURATED_S, OVERLOADED_S = 8.1, 60_000.0
LEAST_SHARES, MOST_SHARES, FIRST_SHARES, SHARES_STEP = 128, 2048, 1024, 128
UTILISATION_WEIGHT, SLO_WEIGHT, PENALTY = 0.3, 0.7, -1.0
NOTHING, OUT, IN, UP, DOWN = range(5)
ACTIONS = 5
STEPS = 200
STARTS = (0, 8)
"""Containers at the beginning of an episode: none in the one version of the authors' harness, 6 + 2 in the other."""

FIELDS = ("cpu_utilisation", "slo_preservation", "cpu_shares", "others_cpu_shares", "containers", "arrival_rate")
_ALL_SHARES, _OTHERS_SHARES, _RATES = 20480, 92160, 10  # what the state is divided by; containers by their maximum

_LEVELS = (MOST_SHARES - LEAST_SHARES) // SHARES_STEP + 1
_FIRST_LEVEL = (FIRST_SHARES - LEAST_SHARES) // SHARES_STEP
_STATES = (MOST_CONTAINERS + 1, 3, _LEVELS)  # containers; last move: none, out, in; shares

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]


def latency_s(containers: int, rate_rps: int) -> float:
    """Mean time in one of the queues, between which requests are split evenly; infinite without any."""
    if not containers:
        return np.inf if rate_rps else 0.0
    # Comparing whole numbers: 2 x min(2, 8) x 1.5 is 6, and 3 requests per second are exactly as many as 2 can serve.
    room = 3 * min(containers, CORES) - 2 * rate_rps
    if room <= 0:
        return SATURATED_S if room == 0 else OVERLOADED_S
    service_rps = SERVICE_RPS * min(1.0, CORES / containers)
    return 1 / (service_rps - rate_rps / containers)


def utilisation(containers: int, rate_rps: int) -> float:
    """Share of the containers' time that is used, as if each had a core."""
    if not containers:
        return 0.0
    return 1.0 if latency_s(containers, rate_rps) in (SATURATED_S, OVERLOADED_S) else rate_rps / (1.5 * containers)


def slo_preservation(containers: int, rate_rps: int) -> float:
    """SLO by latency, at most 1."""
    latency = latency_s(containers, rate_rps)
    return min(1.0, SLO_S / latency) if latency else 1.0


def worth(containers: int, rate_rps: int) -> float:
    """Reward of a step that ends with `containers` containers, if nothing forbidden was done."""
    if rate_rps and not containers:
        return PENALTY
    return UTILISATION_WEIGHT * utilisation(containers, rate_rps) + SLO_WEIGHT * slo_preservation(containers, rate_rps)


def _numbered(containers: int, move: int, level: int) -> int:
    return int(np.ravel_multi_index((containers, move, level), _STATES))


@cache
def _tables() -> tuple[Numbers, NDArray[np.float64], Floats]:
    """The next state by (state, action), the reward by (rate, state, action), and what is seen by (rate, state)."""
    count = int(np.prod(_STATES))
    rates = range(FASTEST_RPS + 1)
    after = np.zeros((count, ACTIONS), np.int64)
    rewards = np.full((len(rates), count, ACTIONS), PENALTY)
    seen = np.zeros((len(rates), count, len(FIELDS)), np.float32)
    worths = np.array([[worth(c, rate) for c in range(MOST_CONTAINERS + 1)] for rate in rates])
    for state, (containers, move, level) in enumerate(np.ndindex(*_STATES)):
        shares = containers * (LEAST_SHARES + SHARES_STEP * level)
        for rate in rates:
            own = utilisation(containers, rate), slo_preservation(containers, rate)
            seen[rate, state] = *own, shares / _ALL_SHARES, 0.0, containers / MOST_CONTAINERS, rate / _RATES
        for action in range(ACTIONS):
            to = containers + (action == OUT) - (action == IN)
            size = level + (action == UP) - (action == DOWN)
            is_resize = action in (UP, DOWN)
            if not (0 <= to <= MOST_CONTAINERS and 0 <= size < _LEVELS) or (is_resize and not containers):
                after[state, action] = _numbered(containers, NOTHING, level)
                continue
            after[state, action] = _numbered(to, action if action in (OUT, IN) else NOTHING, size)
            if {move, action} != {OUT, IN}:
                rewards[:, state, action] = worths[:, to]
    return after, rewards, seen


@cache
def _lists() -> tuple[list[list[int]], list[list[list[float]]]]:
    """The first two tables as lists, of which one number is read more quickly."""
    after, rewards, _ = _tables()
    return after.tolist(), rewards.tolist()


@cache
def _optima(rate_rps: int, steps: int) -> NDArray[np.float64]:
    """The best return from each state. Enumerated backwards over all states and actions, so that it is exact."""
    after, rewards, _ = _tables()
    best = np.zeros(len(after))
    for _ in range(steps):
        best = (rewards[rate_rps] + best[after]).max(axis=1)
    return best


def optimum(rate_rps: int, start: int, *, steps: int = STEPS) -> float:
    """The best undiscounted return of an episode that begins with `start` containers."""
    return float(_optima(rate_rps, steps)[_numbered(start, NOTHING, _FIRST_LEVEL)])


class ReferenceEnvs:
    """Many such worlds at once, as arrays; all episodes take `steps` steps.

    Args:
        count: How many.
        starts: Containers at the beginning of an episode: one of these, drawn.
        steps: Length of an episode.
        seed: Where the random numbers begin; world i has its own, however many there are.
    """

    def __init__(self, count: int, *, starts: Sequence[int] = STARTS, steps: int = STEPS, seed: int = 0) -> None:
        if count < 1:
            raise ValueError(f"count must be at least 1; got {count}.")
        check(starts, steps)
        self.steps = steps
        self._starts = np.array(starts, np.int64)
        self._rngs = [np.random.default_rng([seed, i]) for i in range(count)]
        self._after, self._rewards, self._seen = _tables()
        self._states = np.zeros(count, np.int64)
        self._rates = np.zeros(count, np.int64)
        self._has_begun = False

    def reset(self, *, rates_rps: Numbers | None = None, starts: Numbers | None = None) -> Floats:
        """Begin an episode in every world, with rates from 1 to 8 requests per second and starts drawn or given."""
        count = len(self._rngs)
        if rates_rps is None:
            rates_rps = np.array([rng.integers(1, FASTEST_RPS + 1) for rng in self._rngs])
        if starts is None:
            starts = self._starts[[int(rng.integers(len(self._starts))) for rng in self._rngs]]
        self._rates = np.broadcast_to(rates_rps, count).astype(np.int64)
        self._has_begun = True
        begin = (np.broadcast_to(starts, count), np.full(count, NOTHING), np.full(count, _FIRST_LEVEL))
        self._states = np.ravel_multi_index(begin, _STATES)
        return self._observed()

    def step(self, actions: Numbers) -> tuple[Floats, NDArray[np.float64]]:
        """What each world shows after an action each, [count, 6], and the rewards."""
        if not self._has_begun:
            raise_reset_needed(NOT_BEGUN)
        actions = many_actions(actions, len(self._rngs), ACTIONS)
        rewards = self._rewards[self._rates, self._states, actions]
        self._states = self._after[self._states, actions]
        return self._observed(), rewards

    def _observed(self) -> Floats:
        found: Floats = self._seen[self._rates, self._states]
        return found


class ReferenceEnv(gym.Env[Floats, np.int64], EzPickle):
    """One such world, for libraries that speak Gymnasium. An episode is cut (truncated) after `steps` steps.

    `reset` takes the options `rate_rps` and `start`; without, they are drawn.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as the library declares it

    def __init__(self, *, starts: Sequence[int] = STARTS, steps: int = STEPS, render_mode: None = None) -> None:
        EzPickle.__init__(self, starts=starts, steps=steps)
        check(starts, steps)
        self.render_mode = render_mode
        self.steps, self._starts = steps, tuple(starts)
        # Twenty containers of 2048 shares are twice what the state is divided by.
        self.observation_space = spaces.Box(0.0, np.array([1, 1, 2, 1, 1, 1], np.float32), dtype=np.float32)
        self.action_space = spaces.Discrete(ACTIONS)
        self._after, self._rewards = _lists()
        self._seen = _tables()[2]
        self._rate = self._state = self._left = 0
        self._missing = NOT_BEGUN  # why there is no episode to step, once no steps are left

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        options = options or {}
        drawn = int(self.np_random.integers(1, FASTEST_RPS + 1)), int(self.np_random.choice(self._starts))
        self._rate, start = int(options.get("rate_rps", drawn[0])), int(options.get("start", drawn[1]))
        if not 0 <= self._rate <= FASTEST_RPS or not 0 <= start <= MOST_CONTAINERS:
            raise ValueError(
                f"rate_rps must be in [0, {FASTEST_RPS}] and start in [0, {MOST_CONTAINERS}]; "
                f"got {self._rate} and {start}."
            )
        self._state = _numbered(start, NOTHING, _FIRST_LEVEL)
        self._left, self._missing = self.steps, IS_OVER
        return self._seen[self._rate, self._state].copy(), {}

    def step(self, action: np.int64 | int) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Carries one action out."""
        if self._left <= 0:
            raise_reset_needed(self._missing)
        action = one_action(action, ACTIONS)
        reward: float = self._rewards[self._rate][self._state][action]
        self._state = self._after[self._state][action]
        self._left -= 1
        return self._seen[self._rate, self._state].copy(), reward, False, self._left <= 0, {}


def check(starts: Sequence[int], steps: int) -> None:
    """Raises ValueError unless `starts` and `steps` describe possible episodes."""
    if not starts or any(not 0 <= start <= MOST_CONTAINERS for start in starts):
        raise ValueError(f"starts must be numbers in [0, {MOST_CONTAINERS}]; got {tuple(starts)}.")
    if steps < 1:
        raise ValueError(f"steps must be at least 1; got {steps}.")
