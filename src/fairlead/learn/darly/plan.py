"""From options to a trained agent of Darly: what it learns on, how it went, and what comes of it as a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, nan
from statistics import fmean
from typing import Literal

import numpy as np

from fairlead.learn.darly.agnostic import AnySettings, Choose, by_network, keeping, run_any, train_any
from fairlead.learn.darly.cluster import Curves, Setting
from fairlead.learn.darly.family import drawn_deployment, drawn_schedule, misjudged
from fairlead.learn.darly.schedules import LOOSE_S, STRICT_S, Schedule, drawn, published
from fairlead.learn.darly.scheduling import Scheduling, chooser, deployment
from fairlead.learn.darly.training import PUBLISHED, Settings, train
from fairlead.learn.darly.world import Outcome
from fairlead.policy.darly.actions import Scheduler
from fairlead.policy.darly.checkpoint import Checkpoint, Description, Trained
from fairlead.policy.darly.features import NAMES
from fairlead.policy.darly.network import Array, arrays_of

Pressure = Literal["published", "logged", "random"]

ANY_PHASES, ANY_STEPS = 4, 12
"""What each deployment that is drawn goes through, for an agent of any workflow."""

_PHASES = 5  # of the published schedule
_LONGEST, _TRIED = 100, 50  # steps of a phase: in training and in inference, as published
_DRAWN_PHASES, _DRAWN_STEPS = 20, 25
_TRIED_DEPLOYMENTS = 10
_LATELY = 50

Layers = Sequence[tuple[Array, Array]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to train.

    Args:
        scheduler: One of the four, on the cluster of Darly with its video workflow; or `any`, on workflows and clusters
            that are drawn. What follows is for the four alone, except `seed`.
        steps: Requests.
        episodes: Of `any`: deployments, with 48 requests each.
        schedule: Objectives and pressure: those of the thesis, those with the last phase as the authors' logs show it,
            or drawn at random.
        curves: What pressure costs.
        is_as_published: Whether counters are laid over each other, as in the authors' code.
        settings: Hyper-parameters.
        seed: Of weights, actions, noise, and what is drawn.
    """

    scheduler: Trained = "fullmap"
    steps: int = 500
    episodes: int = 400
    schedule: Pressure = "published"
    curves: Curves = "logs"
    is_as_published: bool = False
    settings: Settings = PUBLISHED
    any_settings: AnySettings = field(default_factory=AnySettings)
    seed: int = 0

    @property
    def requests(self) -> int:
        """In all."""
        return self.episodes * ANY_PHASES * ANY_STEPS if self.scheduler == "any" else self.steps


@dataclass(frozen=True, kw_only=True)
class Reached:
    """How far training is: steps, and which share of the last ones was within the objective."""

    steps: int
    met: float


@dataclass(frozen=True, kw_only=True)
class Score:
    """How steps went: shares of them, and the mean reward. NaN of none."""

    name: str
    steps: int
    met: float
    loose: float
    strict: float
    reward: float
    refused: float


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """A trained agent, what its training brought step by step, and how it does now that it only serves."""

    plan: Plan
    checkpoint: Checkpoint
    outcomes: tuple[Outcome, ...]
    scores: tuple[Score, ...]

    @property
    def is_whole(self) -> bool:
        """Whether training came to its end."""
        return len(self.outcomes) >= self.plan.requests


Tell = Callable[[Reached], bool | None]


def teach(plan: Plan, progress: Tell | None = None) -> Learnt:
    """Train the agent of a plan, and try it out; `progress` is told now and then, and ends training with True."""
    layers, outcomes = _teach_any(plan, progress) if plan.scheduler == "any" else _teach_one(plan, progress)
    if plan.scheduler == "any":
        served, kept = _serve_any(plan, by_network(layers)), _serve_any(plan, keeping)
    else:
        served, kept = _serve_one(plan, layers), _serve_one(plan, None)
    last = outcomes[-max(1, len(outcomes) // 5) :]
    return Learnt(
        plan=plan,
        checkpoint=Checkpoint(description=_describe(plan, layers, len(outcomes)), arrays=arrays_of(layers)),
        outcomes=outcomes,
        scores=(
            score("learning", outcomes),
            score("its last fifth", last),
            score("served", served),
            score("nothing moved", kept),
        ),
    )


def score(name: str, outcomes: Sequence[Outcome]) -> Score:
    """How these steps went, also by objective: the looser and the stricter one of the thesis."""

    def share(slo_s: float | None = None) -> float:
        found = [outcome.is_met for outcome in outcomes if slo_s is None or outcome.slo_s == slo_s]
        return fmean(found) if found else nan

    return Score(
        name=name,
        steps=len(outcomes),
        met=share(),
        loose=share(LOOSE_S),
        strict=share(STRICT_S),
        reward=fmean(outcome.reward for outcome in outcomes) if outcomes else nan,
        refused=fmean(outcome.is_refused for outcome in outcomes) if outcomes else nan,
    )


def rewards_by_block(outcomes: Sequence[Outcome], block: int) -> np.ndarray:
    """The mean reward of so many steps at a time; the last block may have fewer."""
    rewards = [outcome.reward for outcome in outcomes]
    return np.array([fmean(rewards[i : i + block]) for i in range(0, len(rewards), block)])


# --- the four schedulers ---------------------------------------------------------------------------------------------


def _teach_one(plan: Plan, progress: Tell | None) -> tuple[Layers, tuple[Outcome, ...]]:
    scheduling = _scheduling(plan, _LONGEST, _DRAWN_PHASES)

    def tell(steps: int) -> bool | None:
        if progress is None:
            return None
        return progress(Reached(steps=steps, met=score("", scheduling.outcomes[-_LATELY:]).met))

    trained = train(scheduling, plan.steps, settings=plan.settings, seed=plan.seed, progress=tell)
    return trained.layers, trained.outcomes


def _serve_one(plan: Plan, layers: Layers | None) -> tuple[Outcome, ...]:
    """One run through the schedule, always taking the action that is valued most; without layers, keeping all."""
    scheduling = _scheduling(plan, _TRIED, _DRAWN_PHASES // 2)
    if layers is None:
        keep = next(i for i, act in enumerate(scheduling.acts) if act.kind == "keep")
        return scheduling.run(plan.seed + 100_000, lambda seen: keep)
    return scheduling.run(plan.seed + 100_000, chooser(layers))


def _scheduling(plan: Plan, longest: int, phases: int) -> Scheduling:
    scheduler: Scheduler = "fullmap" if plan.scheduler == "any" else plan.scheduler
    steps = min(longest, ceil(plan.steps / _PHASES))
    deployed = deployment(Setting(curves=plan.curves))

    def schedule(rng: np.random.Generator) -> Schedule:
        if plan.schedule == "random":
            return drawn(rng, deployed.nodes, min(phases, ceil(plan.steps / _DRAWN_STEPS)), steps=_DRAWN_STEPS)
        return published(steps, is_as_logged=plan.schedule == "logged")

    return Scheduling(deployed, scheduler, schedule, is_as_published=plan.is_as_published)


# --- any workflow on any cluster -------------------------------------------------------------------------------------


def _teach_any(plan: Plan, progress: Tell | None) -> tuple[Layers, tuple[Outcome, ...]]:
    outcomes: list[Outcome] = []

    def tell(_episode: int, _met: float) -> bool | None:
        if progress is None:
            return None
        return progress(Reached(steps=len(outcomes), met=score("", outcomes[-_LATELY:]).met))

    layers = train_any(
        plan.episodes,
        phases=ANY_PHASES,
        steps=ANY_STEPS,
        settings=plan.any_settings,
        seed=plan.seed,
        progress=tell,
        watch=outcomes.append,
    )
    return layers, tuple(outcomes)


def _serve_any(plan: Plan, choose: Choose) -> tuple[Outcome, ...]:
    """Runs through deployments that were not trained on."""
    rng = np.random.default_rng([plan.seed, 31])
    outcomes: list[Outcome] = []
    for _ in range(min(_TRIED_DEPLOYMENTS, plan.episodes)):
        drawn_one = drawn_deployment(rng)
        schedule = drawn_schedule(rng, drawn_one, ANY_PHASES, ANY_STEPS)
        problem = misjudged(rng, drawn_one, plan.any_settings.error)
        outcomes += run_any(choose, drawn_one, schedule, seed=int(rng.integers(2**31)), problem=problem)
    return tuple(outcomes)


def _describe(plan: Plan, layers: Layers, steps: int) -> Description:
    inputs, hidden = int(layers[0][0].shape[0]), tuple(int(bias.shape[0]) for _, bias in layers[:-1])
    if plan.scheduler == "any":
        return Description(
            scheduler="any",
            features=NAMES,
            observation=inputs,
            hidden=hidden,
            seed=plan.seed,
            steps=steps,
            scenario="drawn",
        )
    deployed = deployment(Setting(curves=plan.curves))
    return Description(
        scheduler=plan.scheduler,
        groups=tuple(deployed.groups),
        nodes=deployed.nodes,
        observation=inputs,
        hidden=hidden,
        is_as_published=plan.is_as_published,
        max_replicas=deployed.most_replicas,
        seed=plan.seed,
        steps=steps,
        scenario=deployed.scenario.name,
    )
