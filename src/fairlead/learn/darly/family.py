"""Workflows and clusters at random, for an agent that is to serve any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairlead.learn.darly.schedules import Phase
from fairlead.learn.darly.world import Deployment
from fairlead.model import SLO, Cluster, Configuration, Function, Node, Stage, Workflow
from fairlead.planning.deployment import Problem, quickest
from fairlead.profile import Profile, Row, Table
from fairlead.workload import ClosedLoop, PolicyChoice, Scenario

_LEVELS = (0.0, 0.25, 0.5, 0.75)


def drawn_deployment(rng: np.random.Generator, name: str = "drawn") -> Deployment:
    """A chain, a fork, or a map over items, of two to five functions in two to four groups, on three to six nodes.

    Nodes differ by up to 2.5 in speed, functions by what they take, by their sensitivity to pressure and by how much
    of a node they need.
    """
    nodes = _nodes(rng)
    workers = int(rng.choice([2, 4, 8]))
    shape = str(rng.choice(["chain", "fork", "map"]))
    stages = _stages(rng, shape)
    functions = tuple(dict.fromkeys(stage.function for stage in stages))
    profiles = {function: _profile(rng, nodes, shape, function == functions[0]) for function in functions}
    scenario = Scenario(
        name=name,
        cluster=Cluster(nodes=nodes),
        functions={f: Function(name=f, memory_gb=0.3, keep_alive_s=1e9) for f in functions},
        profiles=profiles,
        workflows={"work": Workflow(name="work", stages=stages, slo=SLO(latency_s=60.0))},
        arrivals=(ClosedLoop("work", users=1, think_s=30.0, think="constant"),),
        policy=PolicyChoice(name="queue-workers", parameters={"workers": workers}),
    )
    return Deployment(scenario=scenario, groups=_groups(rng, functions), scaled="", slots=workers, first={})


def problem_of(deployment: Deployment) -> Problem:
    """The deployment as the planner takes it."""
    scenario = deployment.scenario
    return Problem(
        workflow=scenario.workflows[deployment.workflow],
        profiles=scenario.profiles,
        cluster=scenario.cluster,
        groups=deployment.groups,
        workers=int(str(scenario.policy.parameters.get("workers", 4))),
    )


@dataclass(frozen=True)
class Misjudged:
    """A profile whose times are wrong by a factor for each kind of node."""

    profile: Profile
    factors: Mapping[str, float]

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """As they are."""
        return self.profile.configurations

    @property
    def overhead_s(self) -> float:
        """As it is."""
        return self.profile.overhead_s

    @property
    def sensitivity(self) -> float:
        """As it is."""
        return self.profile.sensitivity

    @property
    def pressure_curves(self) -> Mapping[str, Sequence[tuple[float, float]]]:
        """As they are."""
        return self.profile.pressure_curves

    def latency_s(self, configuration: Configuration, kind: str, speed: float = 1.0, /) -> float:
        """One run, as it is taken to be."""
        return self.profile.latency_s(configuration, kind, speed) * self.factors[kind]


def misjudged(rng: np.random.Generator, deployment: Deployment, error: float) -> Problem:
    """The deployment as a planner takes it whose profiles are off.

    Each function on each kind of node by a factor of its own; `error` is the standard deviation of its logarithm.
    """
    problem = problem_of(deployment)
    kinds = list(dict.fromkeys(node.kind for node in problem.cluster.nodes))
    return replace(
        problem,
        profiles={
            name: Misjudged(profile, dict(zip(kinds, rng.lognormal(0.0, error, len(kinds)).tolist(), strict=True)))
            for name, profile in deployment.scenario.profiles.items()
        },
    )


def drawn_schedule(rng: np.random.Generator, deployment: Deployment, phases: int, steps: int) -> tuple[Phase, ...]:
    """Pressure at random, and an objective between 1.08 and 1.6 times what the quickest placement takes under it."""
    problem = problem_of(deployment)
    found = []
    for _ in range(phases):
        pressures = {node: float(rng.choice(_LEVELS)) for node in deployment.nodes}
        slo_s = quickest(problem, pressures)[0] * float(rng.uniform(1.08, 1.6))
        found.append(Phase(steps=steps, slo_s=slo_s, pressures=pressures))
    return tuple(found)


def _nodes(rng: np.random.Generator) -> tuple[Node, ...]:
    speeds = np.round(rng.uniform(0.4, 1.0, int(rng.integers(3, 7))), 2)
    return tuple(
        Node(
            name=f"n{i + 1}",
            kind=f"n{i + 1}",
            vcpus=float(rng.choice([4, 8, 16])),
            memory_gb=32.0,
            speed=float(speed),
            overcommit=64.0,
        )
        for i, speed in enumerate(speeds)
    )


def _stages(rng: np.random.Generator, shape: str) -> tuple[Stage, ...]:
    if shape == "map":
        items = int(rng.integers(4, 25))
        return (
            Stage(name="a", function="a"),
            Stage(name="b", function="b", after=("a",), map=(items, items)),
            Stage(name="c", function="c", after=("b",)),
            Stage(name="d", function="d", after=("c",), join=True),
        )
    if shape == "fork":
        return (
            Stage(name="a", function="a"),
            Stage(name="b", function="b", after=("a",)),
            Stage(name="c", function="c", after=("a",)),
            Stage(name="d", function="d", after=("b", "c")),
        )
    names = "abcde"[: int(rng.integers(2, 6))]
    return tuple(Stage(name=n, function=n, after=(names[i - 1],) if i else ()) for i, n in enumerate(names))


def _groups(rng: np.random.Generator, functions: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    many = min(len(functions), int(rng.integers(2, 5)))
    cuts = sorted(rng.choice(np.arange(1, len(functions)), many - 1, replace=False).tolist())
    parts = [functions[i:j] for i, j in zip([0, *cuts], [*cuts, len(functions)], strict=True)]
    return {f"g{i + 1}": tuple(part) for i, part in enumerate(parts)}


def _profile(rng: np.random.Generator, nodes: tuple[Node, ...], shape: str, is_first: bool) -> Profile:
    seconds = float(rng.uniform(2, 20)) if is_first or shape != "map" else float(rng.uniform(0.1, 1.0))
    vcpus = float(rng.choice([1, 2, 4]))
    steep = float(rng.uniform(0.2, 2.0))
    curve = ((0.25, 1 + 0.1 * steep), (0.5, 1 + 0.35 * steep), (0.8, 1 + steep))
    differs = rng.uniform(0.85, 1.15, len(nodes)).tolist()
    rows = [Row(seconds=seconds * by, vcpus=vcpus, kind=n.kind) for n, by in zip(nodes, differs, strict=True)]
    return Profile(
        law=Table(tuple(rows)),
        cold_start_s=5.0,
        noise=0.05,
        pressure_curves={node.kind: curve for node in nodes},
        overhead_s=0.0 if is_first or shape != "map" else float(rng.uniform(0.0, 0.4)),
    )
