"""One agent for any workflow on any cluster: trained on many that are drawn at random, applied to others as it is.

Deep Q learning (double, with a target network) over descriptions of actions: the network gives one number for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from fairlead.learn.darly.exporting import layers_of
from fairlead.learn.darly.family import drawn_deployment, drawn_schedule, misjudged, problem_of
from fairlead.learn.darly.schedules import Schedule
from fairlead.learn.darly.world import Deployment, Outcome, World
from fairlead.learn.environments.actions import one_action
from fairlead.planning.deployment import Problem
from fairlead.policy.darly.features import NAMES, Features, Situation, allowed, any_actions, describe, pressures_of
from fairlead.policy.darly.network import Array, Layer, forward
from fairlead.policy.darly.reward import Weights

QUICK = Weights(closeness=-2.0, most_replicas=0.0, spread=0.3)
"""Ours: quicker is better, also within the objective. The published reward asks to be close to the limit, where noise
decides."""


class AnyScheduling:
    """A world of any deployment, as an agent of any deployment meets it: it moves groups, and scales none.

    Estimates are those of `problem`, or exact.
    """

    def __init__(
        self, deployment: Deployment, schedule: Schedule, *, seed: int = 0, problem: Problem | None = None
    ) -> None:
        self.world = World(deployment, schedule, seed=seed, weights=QUICK)
        self.acts = any_actions(list(deployment.groups), deployment.nodes, "")
        self._problem = problem or problem_of(deployment)

    def look(self) -> tuple[Features, np.ndarray]:
        """A description of each action, and which of them are allowed."""
        world, deployment = self.world, self.world.deployment
        counters = dict(zip(deployment.nodes, world.counters().tolist(), strict=True))
        situation = Situation(
            problem=self._problem,
            places=world.places,
            counters=counters,
            slo_s=world.phase.slo_s,
            last_s=world.last_latency_s,
            pressures=pressures_of(counters),
        )
        return describe(self.acts, situation), allowed(self.acts, situation)

    def step(self, action: int) -> Outcome:
        """Carry one action out."""
        return self.world.step(self.acts[one_action(action, len(self.acts))])


@dataclass(frozen=True, kw_only=True)
class AnySettings:
    """Ours: chosen on drawn deployments alone. `error` is how wrong the estimates are (see `misjudged`)."""

    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 1e-3
    gamma: float = 0.9
    batch: int = 64
    target_every: int = 200
    exploration: float = 0.5
    last_epsilon: float = 0.05
    learning_starts: int = 200
    replay: int = 20_000
    error: float = 0.3


@dataclass(frozen=True, kw_only=True)
class _Memory:
    row: Features
    reward: float
    following: Features
    is_allowed: np.ndarray


def train_any(
    episodes: int,
    *,
    phases: int = 4,
    steps: int = 12,
    settings: AnySettings = AnySettings(),
    seed: int = 0,
    progress: Callable[[int, float], bool | None] | None = None,
    watch: Callable[[Outcome], None] | None = None,
) -> tuple[tuple[Array, Array], ...]:
    """Learn on so many deployments, each drawn anew; gives the layers of the network.

    `progress` is told after each episode, with the share of its requests that were met; its True ends training.
    `watch` is told of every step.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng([seed, 23])
    net, target = _network(settings), _network(settings)
    target.load_state_dict(net.state_dict())
    optimiser = torch.optim.Adam(net.parameters(), settings.learning_rate)
    memory: list[_Memory] = []
    total, number = episodes * phases * steps, 0
    for episode in range(episodes):
        deployment = drawn_deployment(rng)
        first = {group: str(rng.choice(deployment.nodes)) for group in deployment.groups}
        deployment = replace(deployment, first=first)
        schedule = drawn_schedule(rng, deployment, phases, steps)
        problem = misjudged(rng, deployment, settings.error)
        env = AnyScheduling(deployment, schedule, seed=int(rng.integers(2**31)), problem=problem)
        rows, is_allowed = env.look()
        met = 0
        while not env.world.is_over:
            epsilon = max(settings.last_epsilon, 1 - number / (settings.exploration * total))
            if rng.random() < epsilon:
                action = int(rng.choice(np.flatnonzero(is_allowed)))
            else:
                action = _greedy(net, rows, is_allowed)
            outcome = env.step(action)
            met += outcome.is_met
            if watch is not None:
                watch(outcome)
            row = rows[action]
            rows, is_allowed = env.look()
            memory.append(_Memory(row=row, reward=outcome.reward, following=rows, is_allowed=is_allowed))
            if len(memory) > settings.replay:
                memory.pop(0)
            number += 1
            if len(memory) >= settings.learning_starts:
                chosen = [memory[i] for i in rng.integers(0, len(memory), settings.batch)]
                _learn(net, target, optimiser, chosen, settings.gamma)
            if number % settings.target_every == 0:
                target.load_state_dict(net.state_dict())
        if progress is not None and progress(episode + 1, met / (phases * steps)):
            break
    return layers_of(net)


Choose = Callable[[Features, np.ndarray], int]
"""Chooses one of the actions that are allowed, by their descriptions; the last one changes nothing."""


def by_network(layers: Sequence[tuple[Array, Array]]) -> Choose:
    """A trained agent: always the action that it values most."""
    network = [Layer(weight, bias) for weight, bias in layers]
    return lambda rows, is_allowed: int(np.where(is_allowed, forward(network, rows)[:, 0], -np.inf).argmax())


def by_estimate(slack: float, *, is_corrected: bool = False) -> Choose:
    """No agent, but the planner's estimates that the agent also sees.

    What is estimated to be in time, with this share to spare, stays; otherwise the move is made after which a request
    is estimated to be quickest, or none. Corrected, a request takes no less where things stay than the last one took.
    """
    now, then, last = (NAMES.index(name) for name in ("now", "then", "last"))

    def choose(rows: Features, is_allowed: np.ndarray) -> int:
        stays = max(rows[-1, now], rows[-1, last]) if is_corrected else rows[-1, now]
        if stays <= 1 - slack:
            return len(rows) - 1
        values = np.where(is_allowed, rows[:, then], np.inf)
        values[-1] = stays
        return int(values.argmin())

    return choose


def keeping(rows: Features, is_allowed: np.ndarray) -> int:
    """Nothing is ever moved."""
    return len(rows) - 1


def run_any(
    choose: Choose, deployment: Deployment, schedule: Schedule, *, seed: int = 0, problem: Problem | None = None
) -> tuple[Outcome, ...]:
    """A whole schedule, with this one's choices."""
    env = AnyScheduling(deployment, schedule, seed=seed, problem=problem)
    outcomes = []
    while not env.world.is_over:
        outcomes.append(env.step(choose(*env.look())))
    return tuple(outcomes)


def _network(settings: AnySettings) -> nn.Sequential:
    sizes = [len(NAMES), *settings.hidden]
    parts: list[nn.Module] = []
    for i, o in pairwise(sizes):
        parts += [nn.Linear(i, o), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(sizes[-1], 1))


def _greedy(net: nn.Sequential, rows: Features, is_allowed: np.ndarray) -> int:
    with torch.no_grad():
        values = net(torch.from_numpy(rows)).squeeze(1).numpy()
    return int(np.where(is_allowed, values, -np.inf).argmax())


def _learn(
    net: nn.Sequential, target: nn.Sequential, optimiser: torch.optim.Optimizer, chosen: Sequence[_Memory], gamma: float
) -> None:
    taken = torch.from_numpy(np.stack([one.row for one in chosen]))
    following = torch.from_numpy(np.concatenate([one.following for one in chosen]))
    is_allowed = torch.from_numpy(np.concatenate([one.is_allowed for one in chosen]))
    counts = [len(one.following) for one in chosen]
    rewards = torch.tensor([one.reward for one in chosen], dtype=torch.float32)
    with torch.no_grad():
        own = net(following).squeeze(1).masked_fill(~is_allowed, -torch.inf)
        theirs = target(following).squeeze(1)
        best = [values[part.argmax()] for part, values in zip(own.split(counts), theirs.split(counts), strict=True)]
        goals = rewards + gamma * torch.stack(best)
    loss = nn.functional.smooth_l1_loss(net(taken).squeeze(1), goals)
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
