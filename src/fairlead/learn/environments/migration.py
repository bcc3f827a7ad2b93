"""Moving and scaling the functions of one workflow, as a Gymnasium environment: one request per step."""

from typing import Any

import gymnasium as gym
import numpy as np

from fairlead.learn.darly.scheduling import Scheduling
from fairlead.policy.darly.observation import Floats

_HIGHEST = 100.0  # as published, counters are added up and objectives are in seconds


class MigrationEnv(gym.Env[Floats, np.int64]):
    """One of Darly's schedulers on a deployment. No episode ends; it is cut off where its schedule does."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - gymnasium's own declaration

    def __init__(self, scheduling: Scheduling) -> None:
        self.scheduling = scheduling
        self.observation_space = gym.spaces.Box(0.0, _HIGHEST, (scheduling.size,), np.float32)
        self.action_space = gym.spaces.Discrete(len(scheduling.acts))
        self._seed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Another episode, with other pressure where that is drawn."""
        super().reset(seed=seed)
        self._seed = self._seed + 1 if seed is None else seed
        return self.scheduling.begin(self._seed), {}

    def step(self, action: np.int64) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Move, scale or keep, then run one request."""
        outcome = self.scheduling.step(int(action))
        told = {"latency_s": outcome.latency_s, "slo_s": outcome.slo_s, "is_met": outcome.is_met}
        return self.scheduling.look(), outcome.reward, False, self.scheduling.world.is_over, told
