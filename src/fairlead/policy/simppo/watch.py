"""When an agent has to be retrained while it serves, and when that may end: by its own rewards.

The rule found in the code of a successor of SIMPPO: over the last ten episodes the mean is below 0.6 per step or the
deviation at least 0.05. A fixed mean cannot be right for every function, since the best that can be reached differs, so
ours is relative to what the agent had when its training ended; theirs is an option.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Trigger = Literal["relative", "absolute"]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

WORSE_BY = 0.2
"""Retraining that costs an agent so much of its reward per step has failed."""

_UPDATES = 5  # of its networks before no more is expected of an agent


class Verdict(Enum):
    """What an episode showed of an agent."""

    RETRAIN = "its reward has fallen, or swings"
    RECOVERED = "it is where it was when its training ended"
    LEVEL = "its reward no longer changes, if elsewhere"
    WORSE = "retraining has made it worse"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Trigger and stop of retraining, over rewards per step, one per episode.

    Args:
        trigger: `relative` to what the agent had when its training ended, or `absolute`, as published.
        window: Over how many of the last episodes; at least 2.
        drop: Relative: the share of the former reward that may be lost.
        deviation: The largest deviation over the window: as a share of the former reward (relative; or three times
            what it was in training, where that is more: episodes are shorter here), or as it is (absolute).
        least: Absolute: the least mean.
        change: Level is what changes by less than this share from one window to the next.
    """

    trigger: Trigger = "relative"
    window: int = 10
    drop: float = 0.1
    deviation: float = 0.05
    least: float = 0.6
    change: float = 0.02

    def __post_init__(self) -> None:
        if self.trigger not in get_args(Trigger):
            raise ValueError(f"trigger must be one of {', '.join(get_args(Trigger))}; got {self.trigger!r}.")
        if self.window < 2:
            raise ValueError(f"window must be at least 2; got {self.window}.")
        for name in ("drop", "deviation", "change"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive; got {getattr(self, name)}.")

    def is_well(self, rewards: Floats, reference: float, swing: float) -> bool:
        """Whether the last window is as high and as steady as it has to be."""
        last = rewards[-self.window :]
        if self.trigger == "absolute":
            return bool(last.mean() >= self.least and last.std() < self.deviation)
        least, most = reference - self.drop * abs(reference), max(self.deviation * abs(reference), 3 * swing)
        return bool(last.mean() >= least and last.std() < most)

    def is_level(self, rewards: Floats) -> bool:
        """Whether the last window is steady, and differs little from the one before."""
        if len(rewards) < 2 * self.window:
            return False
        last, before = rewards[-self.window :], rewards[-2 * self.window : -self.window]
        size = max(abs(last.mean()), 1e-9)
        return bool(abs(last.mean() - before.mean()) < self.change * size and last.std() < self.deviation * size)


class Watch:
    """The rewards of all agents, episode by episode; only periods in which an agent decided count.

    Args:
        rule: When to retrain, and when to stop.
        references: Each agent's reward per step when its training ended.
        swings: The deviation of it, over episodes.
        episode_periods: Control periods of an episode; at least 1.
    """

    def __init__(self, rule: Rule, references: Floats, swings: Floats, episode_periods: int) -> None:
        self._rule, self._length = rule, episode_periods
        self._references, self._swings = references.copy(), swings
        self._sums, self._counts = np.zeros(len(references)), np.zeros(len(references), np.int64)
        self._episodes: list[deque[float]] = [deque(maxlen=2 * rule.window) for _ in references]
        self._before = np.zeros(len(references))  # of those in retraining: the mean that set it off,
        self._updates = np.zeros(len(references), np.int64)  # and how often their networks were exchanged
        self.is_needed: Flags = np.zeros(len(references), np.bool_)

    def mean(self, agent: int) -> float:
        """Reward per step over the agent's last window."""
        return float(np.mean(list(self._episodes[agent])[-self._rule.window :]))

    def learnt(self, who: Flags) -> None:
        """Take note that these agents have new networks."""
        self._updates += who

    def add(self, rewards: Floats, counts: Flags) -> list[tuple[int, Verdict]]:
        """Take the rewards of a period, and say what became clear with it, by agent."""
        self._sums += np.where(counts, rewards, 0.0)
        self._counts += counts
        found = []
        for agent in np.flatnonzero(self._counts >= self._length).tolist():
            self._episodes[agent].append(float(self._sums[agent] / self._counts[agent]))
            self._sums[agent], self._counts[agent] = 0.0, 0
            verdict = self._judge(agent)
            if verdict is not None:
                found.append((agent, verdict))
        return found

    def _judge(self, agent: int) -> Verdict | None:
        rewards = np.array(self._episodes[agent])
        is_full = len(rewards) >= self._rule.window
        if not self.is_needed[agent]:
            if not is_full or self._rule.is_well(rewards, self._references[agent], self._swings[agent]):
                return None
            self._begin(agent)
            return Verdict.RETRAIN
        if 2 * len(rewards) >= self._rule.window and self.mean(agent) < self._before[agent] - WORSE_BY:
            verdict = Verdict.WORSE
        elif is_full and self._rule.is_well(rewards, self._references[agent], self._swings[agent]):
            verdict = Verdict.RECOVERED
        elif self._updates[agent] >= _UPDATES and self._rule.is_level(rewards):
            verdict = Verdict.LEVEL
            self._references[agent] = self.mean(agent)  # more is not to be had in this cluster
        else:
            return None
        self.is_needed[agent] = False
        return verdict

    def _begin(self, agent: int) -> None:
        self._before[agent], self._updates[agent] = self.mean(agent), 0
        self.is_needed[agent] = True
        self._episodes[agent].clear()
