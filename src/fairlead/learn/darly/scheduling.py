"""A world with one of the four schedulers in front: actions as numbers, observations as arrays."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fairlead.learn.darly import cluster
from fairlead.learn.darly.family import problem_of
from fairlead.learn.darly.schedules import Schedule
from fairlead.learn.darly.world import Deployment, Outcome, World
from fairlead.planning.deployment import latency_s
from fairlead.policy.darly.actions import Act, Scheduler, action_space
from fairlead.policy.darly.features import pressures_of
from fairlead.policy.darly.groups import groups_of
from fairlead.policy.darly.network import Array, Layer, forward
from fairlead.policy.darly.observation import Floats, observation_size, observe
from fairlead.policy.darly.rules import (
    ALLOCATABLE,
    DAEMONS,
    Room,
    custom_node,
    drawn,
    kubernetes_nodes,
    kubernetes_start,
    oracle_node,
)


def deployment(setting: cluster.Setting | None = None, *, workers: int = 4) -> Deployment:
    """The video workflow on the cluster of Darly, everything on w01."""
    scenario = cluster.scenario(setting or cluster.Setting(curves="logs"), workers=workers)
    return Deployment(
        scenario=scenario,
        groups={group.name: group.moved for group in groups_of(tuple(scenario.functions), {})},
        scaled="models",
        slots=workers,
    )


class Scheduling:
    """What an agent meets: it chooses by number, a rule fills in the destination where the scheduler has one.

    Args:
        deployment: What is deployed.
        scheduler: Which of the four.
        schedule: Makes the schedule of an episode out of random numbers.
        is_as_published: Whether counters are laid over each other, as in the authors' code.
        is_planned: Whether the oracle goes by estimates for each node under its pressure, and not by the authors' rule.
    """

    def __init__(
        self,
        deployment: Deployment,
        scheduler: Scheduler,
        schedule: Callable[[np.random.Generator], Schedule],
        *,
        is_as_published: bool = False,
        is_planned: bool = False,
    ) -> None:
        self.deployment, self.scheduler, self.is_as_published = deployment, scheduler, is_as_published
        self._schedule = schedule
        self._problem = problem_of(deployment) if is_planned else None
        self.acts = action_space(scheduler, list(deployment.groups), deployment.nodes)
        self.size = observation_size(len(deployment.nodes), len(deployment.groups))
        nodes = deployment.scenario.cluster.nodes
        self._rooms = {node.name: Room(ALLOCATABLE.get(node.name, node.vcpus), node.memory_gb) for node in nodes}
        self._by_speed = _by_speed(deployment)
        self.outcomes: list[Outcome] = []  # of all episodes

    def begin(self, seed: int) -> Floats:
        """Another episode."""
        self._rng = np.random.default_rng([seed, 5])
        chosen = self.deployment
        if self.scheduler == "kubernetes":
            draws = self._rng.random(len(chosen.groups))
            first = kubernetes_start(chosen.groups, self._rooms, self._pods(), draws, daemons=DAEMONS)
            chosen = replace(chosen, first=first)
        self.world = World(chosen, self._schedule(np.random.default_rng([seed, 6])), seed=seed)
        self._counters = self.world.counters()
        return self.look()

    def step(self, action: int) -> Outcome:
        """Carry one action out."""
        outcome = self.world.step(self._filled(self.acts[action]))
        self.outcomes.append(outcome)
        self._counters = self.world.counters()
        return outcome

    def run(self, seed: int, choose: Callable[[Floats], int]) -> tuple[Outcome, ...]:
        """Another episode from its first step to its last, with this one's choices."""
        seen, before = self.begin(seed), len(self.outcomes)
        while not self.world.is_over:
            self.step(choose(seen))
            seen = self.look()
        return tuple(self.outcomes[before:])

    def look(self) -> Floats:
        """What the agent sees now."""
        world, groups = self.world, list(self.deployment.groups)
        positions = [self.deployment.nodes.index(world.places[group]) + 1 for group in groups]
        return observe(
            self._counters,
            positions,
            world.replicas[groups[-2]] if len(groups) > 1 else 1,
            world.replicas[groups[-1]],
            world.phase.slo_s,
            2,
            is_as_published=self.is_as_published,
        )

    def _pods(self) -> dict[str, int]:
        return {group: len(functions) for group, functions in self.deployment.groups.items()}

    def _filled(self, act: Act) -> Act:
        if act.kind != "move" or act.node is not None:
            return act
        assert act.group is not None
        counters = dict(zip(self.deployment.nodes, self._counters.tolist(), strict=True))
        if self.scheduler == "custom":
            return act._replace(node=custom_node(counters))
        if self._problem is not None:
            places, pressures = dict(self.world.places), pressures_of(counters)
            there = {n: latency_s(self._problem, {**places, act.group: n}, pressures) for n in self.deployment.nodes}
            return act._replace(node=min(there, key=there.__getitem__))
        if self.scheduler == "oracle":
            last_s = self.world.last_latency_s
            is_within = last_s is not None and last_s <= self.world.phase.slo_s
            return act._replace(node=oracle_node(counters, is_within, self._by_speed))
        others = {group: node for group, node in self.world.places.items() if group != act.group}
        best = kubernetes_nodes(act.group, others, self._rooms, self._pods(), daemons=DAEMONS)
        return act._replace(node=drawn(best, float(self._rng.random())))


def chooser(layers: Sequence[tuple[Array, Array]]) -> Callable[[Floats], int]:
    """A trained agent: always the action that it values most."""
    network = [Layer(weight, bias) for weight, bias in layers]
    return lambda seen: int(forward(network, seen).argmax())


def _by_speed(deployment: Deployment) -> tuple[str, ...]:
    """The nodes, quickest first, by the time of the first function of the workflow there."""
    flow = deployment.scenario.workflows[deployment.workflow]
    profile = deployment.scenario.profiles[flow.stages[0].function]
    nodes = deployment.scenario.cluster.nodes
    return tuple(
        node.name for node in sorted(nodes, key=lambda n: profile.latency_s(profile.configurations[0], n.kind, n.speed))
    )
