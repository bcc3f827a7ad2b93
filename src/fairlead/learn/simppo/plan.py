"""From a scenario to trained agents: what to train, where, and what comes of it as a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fairlead.learn.environments.tenancy import Apart, Tenancy
from fairlead.learn.functions.tenants import alone
from fairlead.learn.simppo.learner import Floats, Learner
from fairlead.learn.simppo.settings import MODERN, Settings
from fairlead.learn.simppo.training import Curve, Progress, StopRule, World, train
from fairlead.model import Configuration
from fairlead.policy.kit.measuring import function_slos
from fairlead.policy.simppo.agents import agent_numbers
from fairlead.policy.simppo.checkpoint import Checkpoint, Description, Trained
from fairlead.policy.simppo.observation import Encoding
from fairlead.policy.simppo.reward import SLO_WEIGHT
from fairlead.profile import Estimate
from fairlead.workload import Scenario

MOST_REPLICAS = 20
_NO_SLO_S = 1e9  # written for none: a file has no infinity


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to train.

    Args:
        scenario: The cluster and its functions.
        encoding: What an agent sees.
        settings: Hyper-parameters, and what they are called (`preset`).
        preset: See `settings`.
        is_shared: Whether all agents have one network, or each its own.
        is_apart: Whether each function is alone in the cluster: single-agent learning.
        is_masked: Whether agents are kept from actions out of bounds. Without, those cost -1, as in the paper.
        episodes: At most so many, of `periods` steps each.
        periods: See `episodes`.
        stop: When to end before; None goes on to the end.
        least_episodes: Not to end before so many.
        seed: Of weights, actions and arrivals.
        slo_weight: Of SLO preservation in the reward.
        has_memory: Whether agents can change memory.
        has_random_starts: Whether functions begin each episode with another number and size of replicas.
        first: Agents to begin with; functions without one of their own take after the most alike.
    """

    scenario: Scenario
    encoding: Encoding = field(default_factory=Encoding)
    settings: Settings = MODERN
    preset: str = "modern"
    is_shared: bool = False
    is_apart: bool = False
    is_masked: bool = True
    episodes: int = 600
    periods: int = 200
    stop: StopRule | None = field(default_factory=StopRule)
    least_episodes: int = 200
    seed: int = 0
    slo_weight: float = SLO_WEIGHT
    has_memory: bool = True
    has_random_starts: bool = True
    first: Checkpoint | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Trained agents, how their reward went, and the world and learner that can go on."""

    plan: Plan
    checkpoint: Checkpoint
    curve: Curve
    world: World
    learner: Learner


def world_of(plan: Plan) -> World:
    """Where the agents of a plan are."""
    scenarios = [plan.scenario]
    if plan.is_apart:
        scenarios = [alone(plan.scenario, name) for name in plan.scenario.functions]
    worlds = [
        Tenancy(
            scenario,
            encoding=plan.encoding,
            periods=plan.periods,
            slo_weight=plan.slo_weight,
            has_memory=plan.has_memory,
            has_random_starts=plan.has_random_starts,
            replicas=(0 if not plan.is_masked else 1, MOST_REPLICAS),
        )
        for scenario in scenarios
    ]
    return Apart(worlds) if plan.is_apart else worlds[0]


def teach(plan: Plan, progress: Callable[[Progress], bool | None] | None = None) -> Outcome:
    """Train the agents of a plan; `progress` is told after each update, and ends training with True."""
    world = world_of(plan)
    learner = Learner(
        world.size, world.encoding.size, world.actions, plan.settings, is_shared=plan.is_shared, seed=plan.seed
    )
    if plan.first is not None:
        learner.load(arrays_for(plan.first, plan.scenario, is_shared=plan.is_shared))
    curve = train(
        world,
        learner,
        episodes=plan.episodes,
        seed=plan.seed,
        stop=plan.stop,
        least_episodes=plan.least_episodes,
        is_masked=plan.is_masked,
        progress=progress,
    )
    return Outcome(plan=plan, checkpoint=checkpoint_of(plan, learner, curve), curve=curve, world=world, learner=learner)


def checkpoint_of(plan: Plan, learner: Learner, curve: Curve) -> Checkpoint:
    """What was learnt, as it is served."""
    means, deviations = curve.converged()
    times, slos = times_s(plan.scenario), function_slos(plan.scenario.workflows, estimates(plan.scenario))
    encoding = plan.encoding
    return Checkpoint(
        description=Description(
            own=encoding.own,
            others=encoding.others,
            slots=encoding.slots,
            is_workflow_aware=encoding.is_workflow_aware,
            actions=learner.actions,
            activation=plan.settings.activation,
            is_shared=plan.is_shared,
            slo_weight=plan.slo_weight,
            period_s=plan.scenario.control_period_s,
            most_replicas=MOST_REPLICAS,
            preset=plan.preset,
            scenario=plan.scenario.name,
            seed=plan.seed,
            episodes=len(curve.rewards),
            agents=tuple(
                Trained(
                    function=name,
                    time_s=times[name],
                    slo_s=min(slos[name], _NO_SLO_S),
                    reward=round(float(means[i]), 6),
                    reward_deviation=round(float(deviations[i]), 6),
                )
                for i, name in enumerate(plan.scenario.functions)
            ),
        ),
        arrays=learner.arrays(),
    )


def arrays_for(checkpoint: Checkpoint, scenario: Scenario, *, is_shared: bool) -> dict[str, Floats]:
    """The arrays with which the agents of a scenario begin: of each function its own, or those of the most alike."""
    if checkpoint.description.is_shared:
        rows = np.zeros(1 if is_shared else len(scenario.functions), np.intp)
    elif is_shared:
        raise ValueError("agents that share weights cannot begin with agents that have weights of their own.")
    else:
        rows = agent_numbers(checkpoint.description.agents, times_s(scenario))
    return {name: array[rows] for name, array in checkpoint.arrays.items()}


def times_s(scenario: Scenario) -> dict[str, float]:
    """The mean time of a run of each function on one vCPU, or on what is nearest above."""
    found = {}
    for name, estimate in estimates(scenario).items():
        sizes = sorted(c.vcpus for c in estimate.configurations if c.batch == 1 and not c.vgpus)
        found[name] = estimate.latency_s(Configuration(vcpus=next((v for v in sizes if v >= 1), sizes[-1])))
    return found


def estimates(scenario: Scenario) -> dict[str, Estimate]:
    """What is believed of each function."""
    return {name: Estimate(profile, scenario.cluster) for name, profile in scenario.profiles.items()}
