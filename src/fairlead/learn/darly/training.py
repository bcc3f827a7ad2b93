"""Deep Q learning with the published numbers, by Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback

from fairlead.learn.darly.exporting import layers_of
from fairlead.learn.darly.scheduling import Scheduling
from fairlead.learn.environments.migration import MigrationEnv

if TYPE_CHECKING:
    from fairlead.learn.darly.world import Outcome
    from fairlead.policy.darly.network import Array


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Hyper-parameters. The defaults are Darly's: paper and thesis, and the authors' code for what they leave out."""

    learning_rate: float = 0.0025
    gamma: float = 0.99
    batch: int = 32
    replay: int = 1_000_000
    target_every: int = 60
    exploration: float = 0.2
    last_epsilon: float = 0.01
    hidden: tuple[int, ...] = (256, 128, 64)
    learning_starts: int = 15


PUBLISHED = Settings()
OURS = Settings(learning_rate=5e-4, gamma=0.9, target_every=250, exploration=0.3, batch=64, hidden=(128, 64))
"""For training that is longer, under pressure at random."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A Q network as (weight, bias) pairs, and what training brought."""

    layers: tuple[tuple[Array, Array], ...]
    outcomes: tuple[Outcome, ...]


def train(
    scheduling: Scheduling,
    steps: int,
    *,
    settings: Settings = PUBLISHED,
    seed: int = 0,
    progress: Callable[[int], bool | None] | None = None,
) -> Trained:
    """Learn for so many steps; episodes follow one another. `progress` is told each step, and its True ends it."""
    torch.set_num_threads(1)
    env = MigrationEnv(scheduling)
    model = DQN(
        "MlpPolicy",
        env,
        learning_rate=settings.learning_rate,
        gamma=settings.gamma,
        batch_size=settings.batch,
        buffer_size=min(settings.replay, steps + 1),  # more would stay empty
        target_update_interval=settings.target_every,
        exploration_fraction=settings.exploration,
        exploration_final_eps=settings.last_epsilon,
        learning_starts=settings.learning_starts,
        train_freq=1,
        policy_kwargs={"net_arch": list(settings.hidden)},
        seed=seed,
        device="cpu",
    )

    class _Watch(BaseCallback):
        def _on_step(self) -> bool:
            return not (progress is not None and progress(self.num_timesteps))

    model.learn(steps, callback=_Watch())
    return Trained(layers=layers_of(model.q_net.q_net), outcomes=tuple(scheduling.outcomes))
