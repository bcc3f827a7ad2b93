"""A workflow on unlike nodes, one request per step: before it, an agent moves or scales a group of functions.

What the environments show, and what training runs on. Everything happens in the readable engine: the same cluster,
the same moves, the same measures as in `fairlead simulate`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from fairlead.engine.sim.stepped import Stepped
from fairlead.learn.darly.schedules import Phase, Schedule
from fairlead.policy.base import Move, Scale
from fairlead.policy.darly.actions import Act
from fairlead.policy.darly.reward import REFUSED, Weights, reward
from fairlead.workload import Scenario

SETTLE_S, REMOVE_S, LOOK_S, POLL_S = 18.0, 15.0, 8.5, 0.4
"""Seconds after an action, more of them if several replicas move, until counters are read, and between two polls."""

_GIVEN_UP_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What is deployed, and what may be done with it.

    Args:
        scenario: Cluster, functions and a workflow. Its arrivals and its scaler are not used.
        groups: Functions that move together; all of them are in one group.
        scaled: The group whose replicas can be scaled; empty for none.
        slots: Instances that stand for one replica, which answers several calls at a time.
        most_replicas: Of the scaled group.
        first: The node on which a group begins; the first of the cluster where it says none.
    """

    scenario: Scenario
    groups: Mapping[str, tuple[str, ...]]
    scaled: str = ""
    slots: int = 4
    most_replicas: int = 4
    first: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = [function for functions in self.groups.values() for function in functions]
        if sorted(named) != sorted(self.scenario.functions):
            raise ValueError(f"groups must have every function once; got {named}.")
        if self.scaled and self.scaled not in self.groups:
            raise ValueError(f"scaled must be a group; got {self.scaled!r}.")
        if self.slots < 1 or self.most_replicas < 1:
            raise ValueError(f"slots and most_replicas must be at least 1; got {self.slots}, {self.most_replicas}.")

    @property
    def nodes(self) -> tuple[str, ...]:
        """In the order of the cluster."""
        return tuple(node.name for node in self.scenario.cluster.nodes)

    @property
    def called(self) -> frozenset[str]:
        """Functions that run for every item of a map; all, where there is no map."""
        flow = self.scenario.workflows[self.workflow]
        mapped = frozenset(stage.function for stage in flow.stages if flow.regions[stage.name] is not None)
        return mapped or frozenset(flow.functions)

    @property
    def workflow(self) -> str:
        """The one that is called: the first."""
        return next(iter(self.scenario.workflows))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a step brought. An action that was refused runs no request: its latency is NaN, and not met.

    `has_moved` says whether a group went to another node: an agent may also send one to where it is.
    """

    latency_s: float
    slo_s: float
    reward: float
    is_refused: bool
    act: Act
    phase: int
    has_moved: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the request was within its objective."""
        return self.latency_s <= self.slo_s


class World:
    """A deployment under a schedule, from its first step to its last."""

    def __init__(
        self,
        deployment: Deployment,
        schedule: Schedule,
        *,
        seed: int = 0,
        noise: float = 0.02,
        weights: Weights = Weights(),
    ) -> None:
        self.deployment = deployment
        self._weights = weights
        self.schedule = tuple(schedule)
        self._noise = noise
        self._rng = np.random.default_rng([seed, 17])
        self._run = Stepped(deployment.scenario, seed=seed)
        self._ends = np.cumsum([phase.steps for phase in self.schedule])
        self.places = {group: deployment.first.get(group, deployment.nodes[0]) for group in deployment.groups}
        self.replicas = dict.fromkeys(deployment.groups, 1)
        self.step_number = 0
        self.last_latency_s: float | None = None
        self._pressed: dict[str, float] = {}
        for group, functions in deployment.groups.items():
            for function in functions:
                self._run.order(Scale(function, deployment.slots), Move(function, self.places[group]))
        self._press()
        self._run.advance(SETTLE_S)

    @property
    def is_over(self) -> bool:
        """Whether the schedule has come to its end."""
        return bool(self.step_number >= self._ends[-1])

    @property
    def phase(self) -> Phase:
        """The one of the step to come; the last one's at the end."""
        return self.schedule[self.phase_number]

    @property
    def phase_number(self) -> int:
        """Counted from 0."""
        return min(int(np.searchsorted(self._ends, self.step_number, side="right")), len(self.schedule) - 1)

    def counters(self) -> np.ndarray:
        """Seven counters of each node, a row each, with noise as of five samples."""
        rows = np.array([self._run.view.signals(node) for node in self.deployment.nodes])
        return rows * (1 + self._noise * self._rng.standard_normal(rows.shape))

    def step(self, act: Act) -> Outcome:
        """Carry an action out, with its destination filled in, and run one request."""
        slo_s, number, before = self.phase.slo_s, self.phase_number, dict(self.places)
        self._press()
        if not self._carry_out(act):
            self.step_number += 1
            return Outcome(latency_s=np.nan, slo_s=slo_s, reward=REFUSED, is_refused=True, act=act, phase=number)
        run = self._run
        request = run.send(self.deployment.workflow, run.now, slo_s)
        came = run.now
        end = run.wait(request, _GIVEN_UP_S)
        latency_s = _GIVEN_UP_S if end is None else ceil((end - came) / POLL_S) * POLL_S
        run.advance(run.now + LOOK_S)
        self.step_number += 1
        self.last_latency_s = latency_s
        self._press()
        worth = reward(
            latency_s,
            slo_s,
            nodes_used=len(set(self.places.values())),
            replicas=self.replica_count,
            groups=len(self.deployment.groups),
            weights=self._weights,
        )
        return Outcome(
            latency_s=latency_s,
            slo_s=slo_s,
            reward=worth,
            is_refused=False,
            act=act,
            phase=number,
            has_moved=self.places != before,
        )

    @property
    def replica_count(self) -> int:
        """Replicas of the functions that are called for every item; of all, in a workflow without a map."""
        called = self.deployment.called
        return sum(
            self.replicas[group]
            for group, functions in self.deployment.groups.items()
            for function in functions
            if function in called
        )

    def _press(self) -> None:
        """Set what the phase of the step to come has."""
        for node in self.deployment.nodes:
            pressure = self.phase.pressures.get(node, 0.0)
            if self._pressed.get(node, 0.0) != pressure:
                self._pressed[node] = pressure
                self._run.press(node, pressure)

    def _carry_out(self, act: Act) -> bool:
        run, group = self._run, act.group
        if act.kind == "keep":
            return True
        assert group is not None
        functions = self.deployment.groups[group]
        if act.kind == "move":
            assert act.node is not None, "the destination has to be filled in"
            if self.places[group] == act.node:
                return True
            self.places[group] = act.node
            run.order(*(Move(function, act.node) for function in functions))
            run.advance(run.now + SETTLE_S + (REMOVE_S if self.replicas[group] > 1 else 0.0))
            return True
        wanted = self.replicas[group] + (1 if act.kind == "out" else -1)
        if not 1 <= wanted <= self.deployment.most_replicas:
            return False
        self.replicas[group] = wanted
        run.order(*(Scale(function, wanted * self.deployment.slots) for function in functions))
        run.advance(run.now + SETTLE_S)
        return True
