"""What agents did and got, and what each step was worth: returns and advantages. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairlead.learn.simppo.settings import Settings

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """T steps of N agents.

    Args:
        observations: [T, N, inputs], what each agent saw.
        actions: [T, N], what it did.
        log_probs: [T, N], of what it did, when it did it.
        values: [T, N], the critic's value of what it saw.
        rewards: [T, N], what it got for it.
        ends: [T], whether the episode is cut after this step. The rollout itself is cut after its last step.
        next_values: [T, N], the critic's value of what follows. Read only where something is cut, and only if the
            settings bootstrap; without, it is zero.
        is_present: [T, N], which steps count. An agent's episode is also cut where it leaves or a step was lost.
            Nothing else of a step that does not count is read. Without, all count.
        masks: [T, N, actions], which actions were allowed. Without, all were.
    """

    observations: Floats
    actions: NDArray[np.int64]
    log_probs: Floats
    values: Floats
    rewards: Floats
    ends: Flags
    next_values: Floats | None = None
    is_present: Flags | None = None
    masks: Flags | None = None

    def __post_init__(self) -> None:
        if self.observations.ndim != 3 or not len(self.observations):
            raise ValueError(f"observations must be [T, N, inputs] with T > 0; got {self.observations.shape}.")
        steps, agents, _ = self.observations.shape
        if self.ends.shape != (steps,):
            raise ValueError(f"ends must be [{steps}]; got {list(self.ends.shape)}.")
        for name in ("actions", "log_probs", "values", "rewards", "next_values", "is_present"):
            array = getattr(self, name)
            if array is not None and array.shape != (steps, agents):
                raise ValueError(f"{name} must be [{steps}, {agents}]; got {list(array.shape)}.")
        if self.masks is not None and self.masks.shape[:2] != (steps, agents):
            raise ValueError(f"masks must be [{steps}, {agents}, actions]; got {list(self.masks.shape)}.")

    @property
    def agents(self) -> int:
        """How many there are."""
        return int(self.observations.shape[1])

    @property
    def present(self) -> Flags:
        """[T, N], which steps count."""
        return np.ones(self.actions.shape, np.bool_) if self.is_present is None else self.is_present


def advantages_of(rollout: Rollout, settings: Settings) -> tuple[Floats, Floats]:
    """How much better each step was than the critic thought, and the return that it should have thought: both [T, N].

    Both are zero where a step does not count. Advantages are not normalised.
    """
    present = rollout.present
    is_cut = np.repeat(rollout.ends[:, None], rollout.agents, axis=1)
    is_cut[-1] = True
    is_cut[:-1] |= ~present[1:]
    ahead = np.zeros(present.shape)  # value of what follows each step
    ahead[:-1] = rollout.values[1:]
    after_cut = rollout.next_values if settings.bootstraps and rollout.next_values is not None else 0.0
    ahead = np.where(is_cut, after_cut, ahead)
    surprise = rollout.rewards + settings.gamma * ahead - rollout.values
    decay = settings.gamma * (1.0 if settings.gae_lambda is None else settings.gae_lambda)
    advantages = np.zeros(present.shape)
    later = np.zeros(rollout.agents)
    for t in range(len(present) - 1, -1, -1):
        later = surprise[t] + decay * np.where(is_cut[t], 0.0, later)
        advantages[t] = later
    returns = np.where(present, advantages + rollout.values, 0.0)
    return np.where(present, advantages, 0.0).astype(np.float32), returns.astype(np.float32)


def normalised(advantages: Floats, present: Flags) -> Floats:
    """Each agent's advantages, less their mean, by their deviation; zero where a step does not count."""
    count = np.maximum(present.sum(axis=0), 1)
    mean = np.where(present, advantages, 0.0).sum(axis=0, dtype=np.float64) / count
    centred = np.where(present, advantages - mean, 0.0)
    deviation = np.sqrt((centred**2).sum(axis=0) / count)
    result: Floats = (centred / (deviation + 1e-8)).astype(np.float32)
    return result
