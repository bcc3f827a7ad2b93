"""One function more: what it costs the agents that are there, and how long until all are steady again.

The paper's definition of the reward drop is not public. Ours: the mean reward per step of all agents when it was steady
before the change, less that in the first `window` episodes after it (while they learn again), over the former.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fairlead.learn.simppo.plan import Outcome, Plan, times_s, world_of
from fairlead.learn.simppo.training import Curve, Progress, StopRule, train
from fairlead.policy.simppo.agents import agent_numbers
from fairlead.workload import Scenario


@dataclass(frozen=True, kw_only=True)
class Change:
    """What one function more did."""

    before: float  # reward per step, over all agents
    after: float  # in the first episodes with one more
    others_after: float  # of those that were there before
    recovered: float  # when steady again
    episodes: int  # until then
    is_steady: bool
    curve: Curve

    @property
    def drop(self) -> float:
        """Share of the reward that was lost at first."""
        return (self.before - self.after) / self.before


def add_function(
    outcome: Outcome,
    scenario: Scenario,
    *,
    episodes: int,
    stop: StopRule,
    progress: Callable[[Progress], None] | None = None,
) -> Change:
    """Go on with trained agents in a scenario that has one function more, the last; its agent begins as the most alike.

    `outcome` is left with a learner that has one agent more.
    """
    plan: Plan = replace(outcome.plan, scenario=scenario)
    world, learner = world_of(plan), outcome.learner
    if world.size != learner.agents + 1 or world.functions[:-1] != tuple(outcome.plan.scenario.functions):
        raise ValueError("scenario must have the same functions and one more, the last.")
    newcomer = world.functions[-1]
    like = agent_numbers(outcome.checkpoint.description.agents, {newcomer: times_s(scenario)[newcomer]})
    learner.add(int(like[0]))
    before = float(np.mean(outcome.curve.mean[-stop.window :]))
    curve = train(
        world,
        learner,
        episodes=episodes,
        seed=plan.seed + 1,
        stop=stop,
        is_masked=plan.is_masked,
        progress=progress,
    )
    first = curve.rewards[: stop.window]
    return Change(
        before=before,
        after=float(np.nanmean(first)),
        others_after=float(np.nanmean(first[:, :-1])),
        recovered=float(np.mean(curve.mean[-stop.window :])),
        episodes=len(curve.rewards),
        is_steady=curve.is_steady,
        curve=curve,
    )
