"""Moving and scaling the functions of one workflow, as a Gymnasium environment: one request per step."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import EzPickle

from fairlead.learn.darly.schedules import drawn
from fairlead.learn.darly.scheduling import Scheduling, deployment
from fairlead.learn.environments.actions import IS_OVER, NOT_BEGUN, one_action, raise_reset_needed
from fairlead.policy.darly.observation import Floats

_HIGHEST = 100.0  # as published, counters are added up and objectives are in seconds


class MigrationEnv(gym.Env[Floats, np.int64], EzPickle):
    """One of Darly's schedulers on a deployment. No episode terminates; it is truncated where its schedule ends.

    Args:
        scheduling: The deployment, the scheduler and its schedule; by default the video workflow under the scheduler
            `custom`, with four phases of 25 steps whose objectives and pressures are drawn at random.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - gymnasium's own declaration

    def __init__(self, scheduling: Scheduling | None = None, *, render_mode: None = None) -> None:
        EzPickle.__init__(self, scheduling)
        self.render_mode = render_mode
        self.scheduling = scheduling = _default_scheduling() if scheduling is None else scheduling
        self.observation_space = gym.spaces.Box(0.0, _HIGHEST, (scheduling.size,), np.float32)
        self.action_space = gym.spaces.Discrete(len(scheduling.acts))
        self._seed = 0
        self._missing: str | None = NOT_BEGUN  # why there is no episode to step

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Begins an episode; where the schedule is drawn, one with another pressure."""
        super().reset(seed=seed)
        self._seed = self._seed + 1 if seed is None else seed
        self._missing = None
        return self.scheduling.begin(self._seed), {}

    def step(self, action: np.int64) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Moves, scales or keeps, then runs one request."""
        if self._missing is not None:
            raise_reset_needed(self._missing)
        outcome = self.scheduling.step(one_action(action, len(self.scheduling.acts)))
        told = {"latency_s": outcome.latency_s, "slo_s": outcome.slo_s, "is_met": outcome.is_met}
        is_over = self.scheduling.world.is_over
        self._missing = IS_OVER if is_over else None
        return self.scheduling.look(), outcome.reward, False, is_over, told


def _default_scheduling() -> Scheduling:
    deployed = deployment()
    return Scheduling(deployed, "custom", lambda rng: drawn(rng, deployed.nodes, 4))
