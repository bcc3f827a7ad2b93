"""Who learns: our learner, all seeds in one call, and stable-baselines3's PPO with the same numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from fairlead.learn.environments.reference import (
    ACTIONS,
    FASTEST_RPS,
    FIELDS,
    MOST_CONTAINERS,
    STEPS,
    ReferenceEnv,
    ReferenceEnvs,
    optimum,
)
from fairlead.learn.simppo import MODERN, PAPER, Learner, Rollout, Settings
from fairlead.policy.simppo.network import Layer, forward, layers_of

_PRESETS = {"modern": MODERN, "paper": PAPER}

Policy = Callable[[NDArray[np.float32]], NDArray[np.int64]]


@dataclass(frozen=True)
class Task:
    """One contestant with some seeds."""

    name: str
    who: str
    preset: str
    changes: Mapping[str, Any]
    seeds: tuple[int, ...]
    steps: int
    curve_every: int
    starts: tuple[int, ...]

    @property
    def settings(self) -> Settings:
        """The hyper-parameters."""
        return replace(_PRESETS[self.preset], **self.changes)


@dataclass(frozen=True)
class Found:
    """Shares of the optimum of one seed: by steps learnt, at the end, and at the end from every possible start."""

    curve: tuple[tuple[int, float], ...]
    share: float
    share_all_starts: float


def compete(task: Task) -> list[Found]:
    """What each seed of a task has learnt."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the networks are small: threads would wait for each other
    try:
        return _learn_ours(task) if task.who == "ours" else [_learn_theirs(task, seed) for seed in task.seeds]
    finally:
        torch.set_num_threads(threads)


def share_of_optimum(policy: Policy, starts: Sequence[int]) -> float:
    """Mean over all rates and these starts of a deterministic policy's return by the best possible one."""
    pairs = [(rate, start) for rate in range(1, FASTEST_RPS + 1) for start in starts]
    worlds = ReferenceEnvs(len(pairs))
    rates, begins = np.array(pairs).T
    seen = worlds.reset(rates_rps=rates, starts=begins)
    returns = np.zeros(len(pairs))
    for _ in range(STEPS):
        seen, rewards = worlds.step(policy(seen))
        returns += rewards
    return float(np.mean([value / optimum(*pair) for value, pair in zip(returns, pairs, strict=True)]))


def _found(curve: list[tuple[int, float]], policy: Policy, task: Task) -> Found:
    every = share_of_optimum(policy, range(MOST_CONTAINERS + 1))
    return Found(tuple(curve), share_of_optimum(policy, task.starts), every)


# --- ours ------------------------------------------------------------------------------------------------------------


def _learn_ours(task: Task) -> list[Found]:
    """Seed i is agent i: with networks, random numbers and a world of its own, whoever else is in the stack."""
    count, settings = len(task.seeds), task.settings
    learner = Learner(count, len(FIELDS), ACTIONS, settings, seed=0)
    worlds = ReferenceEnvs(count, starts=task.starts, seed=0)
    curves: list[list[tuple[int, float]]] = [[] for _ in task.seeds]
    for done in range(settings.steps, task.steps + 1, settings.steps):
        learner.update(_rollout(learner, worlds, settings.steps))
        if done % task.curve_every == 0:
            for agent, curve in enumerate(curves):
                curve.append((done, share_of_optimum(_served(learner, agent), task.starts)))
    return [_found(curve, _served(learner, agent), task) for agent, curve in enumerate(curves)]


def _rollout(learner: Learner, worlds: ReferenceEnvs, steps: int) -> Rollout:
    kept: list[tuple[object, ...]] = []
    for _ in range(steps // worlds.steps):
        seen = worlds.reset()
        for left in range(worlds.steps - 1, -1, -1):
            step = learner.act(seen)
            after, rewards = worlds.step(step.actions)
            follows = step.values if left else learner.values(after)  # read only where an episode is cut
            kept.append((seen, *step, rewards.astype(np.float32), not left, follows))
            seen = after
    names = ("observations", "actions", "log_probs", "values", "rewards", "ends", "next_values")
    columns: dict[str, Any] = {
        name: np.array(column) for name, column in zip(names, zip(*kept, strict=True), strict=True)
    }
    return Rollout(**columns)


def _served(learner: Learner, agent: int) -> Policy:
    """An agent's likeliest actions, as it would serve: with NumPy, from the arrays of a checkpoint."""
    layers = [
        Layer(layer.weight[agent : agent + 1], layer.bias[agent : agent + 1])
        for layer in layers_of(learner.arrays(), "actor")
    ]
    return lambda seen: forward(layers, seen, learner.settings.activation).argmax(axis=1)


# --- stable-baselines3 -----------------------------------------------------------------------------------------------


def _learn_theirs(task: Task, seed: int) -> Found:
    settings = task.settings
    episodes = settings.steps // STEPS  # side by side, one rollout: the same steps per update as ours
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the last minibatch is smaller, as ours is
        worlds: VecEnv = DummyVecEnv([lambda: ReferenceEnv(starts=task.starts)] * episodes)
        if settings.is_value_normalised:
            # The nearest that there is to our normalised values: rewards by the running deviation of returns.
            worlds = VecNormalize(worlds, norm_obs=False, norm_reward=True, gamma=settings.gamma)
        model = PPO(
            "MlpPolicy",
            worlds,
            learning_rate=settings.learning_rate,
            n_steps=STEPS,
            batch_size=settings.minibatch,
            n_epochs=settings.epochs,
            gamma=settings.gamma,
            gae_lambda=1.0 if settings.gae_lambda is None else settings.gae_lambda,
            clip_range=settings.clip,
            ent_coef=settings.entropy,
            vf_coef=settings.value_weight,
            max_grad_norm=settings.gradient_norm or np.inf,
            policy_kwargs={
                "net_arch": {"pi": list(settings.hidden), "vf": list(settings.hidden)},
                "activation_fn": torch.nn.ReLU if settings.activation == "relu" else torch.nn.Tanh,
                "ortho_init": settings.initial == "orthogonal",
                "optimizer_kwargs": {"eps": settings.adam_epsilon},
            },
            seed=seed,
            device="cpu",
        )

        def policy(seen: NDArray[np.float32]) -> NDArray[np.int64]:
            actions: NDArray[np.int64] = model.predict(seen, deterministic=True)[0]
            return actions

        curve = []
        for done in range(task.curve_every, task.steps + 1, task.curve_every):
            model.learn(task.curve_every, reset_num_timesteps=done == task.curve_every)
            curve.append((done, share_of_optimum(policy, task.starts)))
    return _found(curve, policy, task)
