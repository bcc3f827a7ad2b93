"""Retraining without stopping the service: agents that have become worse explore, learn beside it, and are exchanged.

While the watch says so for an agent, it draws its actions by their chances, and what it sees, does and gets is kept.
When there is enough, a program apart (`trainer`) learns from it, and gives back networks, which are taken between two
control periods. Until then, and whatever becomes of the program, the agents serve as they are.

An agent falls back to the rule for good if retraining made it worse, or if it ends below what it was and below what the
rule reaches for the same function. Where the rule has not decided for long enough to tell, it is tried.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.simppo.agents import NO_ANSWER
from fairlead.policy.simppo.checkpoint import Checkpoint
from fairlead.policy.simppo.network import Array, forward, layers_of, probabilities
from fairlead.policy.simppo.observation import Floats, Observations
from fairlead.policy.simppo.reward import Actions
from fairlead.policy.simppo.trainer import Task, Trainer
from fairlead.policy.simppo.transitions import Transitions
from fairlead.policy.simppo.watch import Rule, Verdict, Watch

Flags = NDArray[np.bool_]


class Explorers:
    """Agents in this process whose networks can be exchanged, and of whom some draw their actions.

    Args:
        checkpoint: The agents.
        numbers: For each function, the number of its agent. Functions with the same agent part ways when they learn.
        rng: Draws actions.
        draws: Whether all draw, and not only those that explore.
    """

    def __init__(
        self, checkpoint: Checkpoint, numbers: NDArray[np.intp], rng: np.random.Generator, *, draws: bool
    ) -> None:
        rows = np.zeros(1, np.intp) if checkpoint.description.is_shared else numbers
        self.arrays: dict[str, Array] = {name: array[rows] for name, array in checkpoint.arrays.items()}
        self._activation = checkpoint.description.activation
        self._rng, self._draws = rng, draws
        self.is_exploring: Flags = np.zeros(len(numbers), np.bool_)
        self.log_probs, self.values = np.zeros(len(numbers), np.float32), np.zeros(len(numbers), np.float32)

    def choose(self, seen: Observations, allowed: Flags) -> Actions:
        """The likeliest action of each agent, or a drawn one of those that explore; also sets their critics' values."""
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of that is no answer
            logits = forward(layers_of(self.arrays, "actor"), seen, self._activation)
            values = forward(layers_of(self.arrays, "critic"), seen, self._activation)[:, 0]
            values = values * self.arrays.get("returns.deviation", 1.0) + self.arrays.get("returns.mean", 0.0)
        is_sound: Flags = np.isfinite(logits.astype(float)).all(axis=1)
        chances = probabilities(np.where(is_sound[:, None], logits, 0.0), allowed)
        draws = self._rng.random(len(chances))
        drawn = (np.cumsum(chances, axis=1) < draws[:, None]).sum(axis=1).clip(max=chances.shape[1] - 1)
        chosen = np.where(self.is_exploring | self._draws, drawn, chances.argmax(axis=1))
        chance = np.maximum(chances[np.arange(len(chosen)), chosen], 1e-30)
        self.log_probs, self.values = np.log(chance).astype(np.float32), np.nan_to_num(values)
        return np.where(is_sound, chosen, NO_ANSWER)

    def take(self, arrays: Mapping[str, Array], who: Flags) -> None:
        """Exchange the networks of these agents; all of them if they share one."""
        for name, array in arrays.items():
            if len(array) == len(who):
                self.arrays[name] = np.where(who.reshape(-1, *[1] * (array.ndim - 1)), array, self.arrays[name])
            else:
                self.arrays[name] = array

    def close(self) -> None:
        """Nothing to let go of."""


class Period(NamedTuple):
    """One control period of all agents: what their last actions brought, and what they do now."""

    rewards: Floats  # of the actions before
    seen: Observations
    allowed: Flags
    answers: Actions
    is_agent: Flags  # whose decision counts
    is_measured: Flags


class Retraining:
    """Watches the agents' rewards, and has those retrained that need it.

    Args:
        checkpoint: The agents, and their rewards when their training ended.
        numbers: For each function, the number of its agent.
        explorers: Serve them.
        rule: When to retrain.
        episode_periods: Control periods of an episode.
        steps: How many to learn from at a time.
        seed: Of the program that learns.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        numbers: NDArray[np.intp],
        explorers: Explorers,
        *,
        rule: Rule,
        episode_periods: int,
        steps: int,
        seed: int,
    ) -> None:
        description = checkpoint.description
        own = [description.agents[number] for number in numbers]
        references, swings = np.array([a.reward for a in own]), np.array([a.reward_deviation for a in own])
        self._explorers = explorers
        self._first = dict(explorers.arrays)
        self.watch = Watch(rule, references, swings, episode_periods)
        self._steps = Transitions(steps, len(own), description.encoding.size, description.actions)
        self._is_shared = description.is_shared
        self._task = Task(
            preset=description.preset, activation=description.activation, is_shared=description.is_shared, seed=seed
        )
        self.trainer = Trainer()
        self._learners: Flags = np.zeros(len(own), np.bool_)  # whose networks the program learns now
        self._was_agent: Flags = np.zeros(len(own), np.bool_)
        self._has_begun = False  # there is nothing to be rewarded in the first period
        self._rule_sums, self._rule_counts = np.zeros(len(own)), np.zeros(len(own), np.int64)
        self._trial = rule.window * episode_periods  # periods that a record of the rule takes
        self._means = np.full(len(own), np.nan)  # of agents that retraining left level: to be held against the record
        self.is_demoted: Flags = np.zeros(len(own), np.bool_)
        self.updates = 0

    @property
    def is_collecting(self) -> bool:
        """Whether some agent explores, and its steps are kept."""
        return bool(self.watch.is_needed.any()) and self.trainer.pid is None and not self._steps.is_full

    def observe(self, period: Period) -> None:
        """Take what a control period brought; may exchange networks, which decide from the next one on."""
        is_known = period.is_measured & self._has_begun
        for agent, verdict in self.watch.add(period.rewards, is_known & self._was_agent):
            self._heed(agent, verdict)
        by_rule = is_known & ~self._was_agent
        self._rule_sums += np.where(by_rule, period.rewards, 0.0)
        self._rule_counts += by_rule
        self._compare()
        explorers, steps = self._explorers, self._steps
        steps.end(period.rewards, explorers.values, is_known)
        learnt = self.trainer.poll()
        if learnt is not None:
            explorers.take(learnt, self._learners)
            self.watch.learnt(self._learners)
            self.updates += 1
        if learnt is not None or not self.watch.is_needed.any():
            steps.clear()
        elif steps.is_full and self.trainer.is_free:  # after a failure, with the same steps again
            self._learners = self.watch.is_needed.copy()
            self.trainer.start(self._task, explorers.arrays, steps.arrays(), self._learners)
        elif explorers.is_exploring.any() and self.is_collecting:
            counts = period.is_agent & explorers.is_exploring
            steps.begin(period.seen, period.allowed, period.answers, explorers.log_probs, explorers.values, counts)
        self._was_agent, self._has_begun = period.is_agent, True
        explorers.is_exploring = self.watch.is_needed & self.is_collecting

    def _heed(self, agent: int, verdict: Verdict) -> None:
        """Draw the consequences of what an episode showed."""
        if verdict is Verdict.WORSE:
            self.is_demoted[agent] = True
            if not self._is_shared:
                self._explorers.take(self._first, np.arange(len(self.is_demoted)) == agent)
        elif verdict is Verdict.LEVEL:
            self._means[agent] = self.watch.mean(agent)

    def _compare(self) -> None:
        """Leave level agents at work if the rule does no better; where that is not known, let the rule show it."""
        for agent in np.flatnonzero(np.isfinite(self._means)).tolist():
            is_clear = self._rule_counts[agent] >= self._trial
            record = self._rule_sums[agent] / max(self._rule_counts[agent], 1)
            self.is_demoted[agent] = not is_clear or record > self._means[agent]
            if is_clear:
                self._means[agent] = np.nan

    def close(self) -> None:
        """End the program, if it runs."""
        self.trainer.close()
