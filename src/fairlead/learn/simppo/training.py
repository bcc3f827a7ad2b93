"""Agents at work in a world, and learning from it, until their reward no longer changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairlead.learn.environments.tenancy import Period
from fairlead.learn.simppo.learner import Learner, Step
from fairlead.learn.simppo.rollout import Rollout
from fairlead.policy.simppo.observation import Encoding, Observations

Flags = NDArray[np.bool_]
Rewards = NDArray[np.float64]


class World(Protocol):
    """What agents can be trained in: `Tenancy`, or `Apart`."""

    functions: tuple[str, ...]
    encoding: Encoding
    actions: int
    periods: int

    @property
    def size(self) -> int: ...  # noqa: D102
    @property
    def is_present(self) -> Flags: ...  # noqa: D102
    def seed(self, seed: int) -> None: ...  # noqa: D102
    def reset(self) -> Observations: ...  # noqa: D102
    def step(self, actions: NDArray[np.int64]) -> Period: ...  # noqa: D102
    def allowed(self) -> Flags: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True)
class StopRule:
    """When training may end: the mean over all agents of the reward per step has become steady.

    The mean of the last `window` episodes differs from that of the `window` before by less than `change` of it, and
    the deviation of the last ones is less than `deviation` of their mean. With `least` (and then `least_deviation`) the
    rule found in the code of a successor of SIMPPO instead: the mean is at least so much and the deviation smaller.
    """

    window: int = 10
    change: float = 0.02
    deviation: float = 0.05
    least: float | None = None
    least_deviation: float = 0.05

    def __post_init__(self) -> None:
        if self.window < 2:
            raise ValueError(f"window must be at least 2; got {self.window}.")
        for name in ("change", "deviation", "least_deviation"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive; got {getattr(self, name)}.")

    def is_met(self, rewards: Rewards) -> bool:
        """Whether these rewards per step, one per episode, are steady."""
        if self.least is not None:
            last = rewards[-self.window :]
            is_high = float(last.mean()) >= self.least and float(last.std()) < self.least_deviation
            return len(last) == self.window and is_high
        if len(rewards) < 2 * self.window:
            return False
        last, before = rewards[-self.window :], rewards[-2 * self.window : -self.window]
        size = max(abs(float(last.mean())), 1e-9)
        is_level = abs(float(last.mean() - before.mean())) < self.change * size
        return is_level and float(last.std()) < self.deviation * size


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far training is."""

    episodes: int
    reward: float  # per step, over all agents, of the last episode
    steps: int
    environment_s: float
    learner_s: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What training brought: rewards per step, by (episode, agent), NaN where an agent was not there."""

    rewards: Rewards
    steps: int
    is_steady: bool
    environment_s: float  # spent in the environment, and in learning
    learner_s: float

    @property
    def mean(self) -> Rewards:
        """By episode, over all agents."""
        return np.nanmean(self.rewards, axis=1) if len(self.rewards) else np.empty(0)

    def converged(self, window: int = 10) -> tuple[Rewards, Rewards]:
        """Mean and deviation of each agent over the last episodes."""
        last = self.rewards[-window:]
        return np.nanmean(last, axis=0), np.nanstd(last, axis=0)


def train(
    world: World,
    learner: Learner,
    *,
    episodes: int,
    seed: int,
    stop: StopRule | None = None,
    least_episodes: int = 0,
    is_masked: bool = True,
    only: Flags | None = None,
    progress: Callable[[Progress], bool | None] | None = None,
) -> Curve:
    """Let the agents learn for so many episodes, or until their reward is steady.

    Args:
        world: Where they are.
        learner: Of as many agents as the world has functions.
        episodes: At most so many.
        seed: Of the world's random numbers.
        stop: When to end before that, and not before `least_episodes`; None goes on to the end.
        least_episodes: See `stop`.
        is_masked: Whether agents are kept from what is not within the bounds, or have to learn that.
        only: Agents that learn; the others act as they are. None lets all learn.
        progress: Told after each update, once an episode has ended; its True ends training there.
    """
    buffer = _Buffer(learner, is_masked)
    world.seed(seed)
    seen = world.reset()
    finished: list[Rewards] = []
    sums, counts = np.zeros(world.size), np.zeros(world.size)
    steps, spent, learnt = 0, 0.0, 0.0
    is_steady = is_ended = False
    while len(finished) < episodes and not is_steady and not is_ended:
        began = perf_counter()
        buffer.clear()
        while not buffer.is_full and len(finished) < episodes:
            allowed = world.allowed() if is_masked else None
            chosen = learner.act(seen, mask=allowed)
            present = world.is_present
            period = world.step(chosen.actions)
            buffer.add(seen, chosen, present, allowed, period)
            seen = period.observations
            sums += np.where(present, period.rewards, 0.0)
            counts += present
            steps += 1
            if period.is_cut or buffer.is_full:
                buffer.follow(learner.values(seen))
            if period.is_cut:
                finished.append(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
                sums, counts = np.zeros(world.size), np.zeros(world.size)
                seen = world.reset()
        spent += perf_counter() - began
        began = perf_counter()
        learner.update(buffer.rollout(), only=only)
        learnt += perf_counter() - began
        means = np.array([np.nanmean(each) for each in finished])
        is_steady = stop is not None and len(finished) >= least_episodes and stop.is_met(means)
        if progress is not None and len(finished):
            last = float(means[-1])
            told = Progress(episodes=len(finished), reward=last, steps=steps, environment_s=spent, learner_s=learnt)
            is_ended = bool(progress(told))
    return Curve(
        rewards=np.array(finished).reshape(-1, world.size),
        steps=steps,
        is_steady=is_steady,
        environment_s=spent,
        learner_s=learnt,
    )


def evaluate(world: World, learner: Learner, *, episodes: int, seed: int, is_masked: bool = True) -> Rewards:
    """Rewards per step of agents that no longer learn and take the likeliest action, by (episode, agent)."""
    world.seed(seed)
    found = []
    for _ in range(episodes):
        seen, total, count, is_cut = world.reset(), np.zeros(world.size), 0, False
        while not is_cut:
            mask = world.allowed() if is_masked else None
            seen, rewards, is_cut = world.step(learner.act(seen, mask=mask, is_greedy=True).actions)
            total, count = total + rewards, count + 1
        found.append(total / count)
    return np.array(found)


class _Buffer:
    """The steps of one rollout."""

    def __init__(self, learner: Learner, is_masked: bool) -> None:
        steps, agents = learner.settings.steps, learner.agents
        self._observations = np.zeros((steps, agents, learner.inputs), np.float32)
        self._actions = np.zeros((steps, agents), np.int64)
        self._log_probs, self._values, self._rewards, self._next = (
            np.zeros((steps, agents), np.float32) for _ in range(4)
        )
        self._present = np.zeros((steps, agents), np.bool_)
        self._ends = np.zeros(steps, np.bool_)
        self._masks = np.zeros((steps, agents, learner.actions), np.bool_) if is_masked else None
        self._length = 0

    @property
    def is_full(self) -> bool:
        return self._length == len(self._actions)

    def clear(self) -> None:
        self._length = 0

    def add(self, seen: Observations, chosen: Step, present: Flags, allowed: Flags | None, period: Period) -> None:
        """What the agents saw, did and got."""
        at = self._length
        self._observations[at] = seen
        self._actions[at], self._log_probs[at], self._values[at] = chosen
        self._rewards[at], self._ends[at] = period.rewards, period.is_cut
        self._present[at] = present
        if self._masks is not None and allowed is not None:
            self._masks[at] = allowed
        self._length += 1

    def follow(self, values: NDArray[np.float32]) -> None:
        """What the state after the last step is worth; needed where an episode, or the rollout, is cut."""
        self._next[self._length - 1] = values

    def rollout(self) -> Rollout:
        """What is in it so far."""
        taken = slice(0, self._length)
        return Rollout(
            observations=self._observations[taken],
            actions=self._actions[taken],
            log_probs=self._log_probs[taken],
            values=self._values[taken],
            rewards=self._rewards[taken],
            ends=self._ends[taken],
            next_values=self._next[taken],
            is_present=self._present[taken],
            masks=None if self._masks is None else self._masks[taken],
        )
