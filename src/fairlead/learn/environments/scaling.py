"""Scaling as a learning problem for many agents: each function changes its replicas, one step per control period.

State, actions and reward follow what is public of SIMPPO (Qiu et al., SoCC 2022) and of its successor's code. Each
agent is a function; once per period it adds or removes a replica, or gives all of them a step more or less of vCPUs or
of memory.

**Differs from the paper:** memory is a need that a replica must cover, so memory utilisation is that need over what it
has; the service time depends on vCPUs only. What waits counts as latency too, by its age: a queue that does not move
would else look like one without runs. Which fields describe the others is left to whoever trains: they are all in
`state`.
"""

from collections.abc import Mapping
from math import inf
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from fairlead.engine.sim.compiled import periods
from fairlead.learn.environments.tenants import Ladder, Tenants
from fairlead.learn.environments.worlds import tenants_scenario
from fairlead.workload import Scenario

Observation = NDArray[np.float32]

FIELDS = (
    "cpu_utilisation",
    "memory_utilisation",
    "slo_preservation",
    "vcpus",
    "memory",
    "replicas",
    "arrival_rate",
    "others_vcpus",
)
"""What an agent sees of itself, in this order; see `ScalingEnv`."""

_MOST_RATE = 10.0  # the arrival rate is shown over its scale, up to so much


class ScalingEnv(ParallelEnv[str, Observation, int]):  # type: ignore[misc] # the library has no types
    """Functions that share a cluster, each an agent that scales itself.

    Actions: 0 nothing; 1 a replica more, 2 one less; 3 and 4 a step more or less of vCPUs for each replica; 5 and 6 of
    memory. An action that cannot be done changes nothing.

    Observations (`FIELDS`), each in [0, 1] but the arrival rate: busy over held vCPU-seconds of the period; memory
    needed over memory held; SLO preservation, min(1, SLO / p99 latency); vCPUs and memory of its replicas as shares of
    the cluster; wanted replicas over the most; arrivals per second over `rate_scale_rps`; the vCPUs of the others'
    replicas as a share of the cluster.

    Rewards: `alpha` x SLO preservation + (1 - `alpha`) x CPU utilisation; but -1, unless `penalties` is off, for an
    action that cannot be done, one that takes back the replica of the step before, or arrivals without any replica.

    Args:
        scenario: What to simulate; without, five functions on four nodes. Arrivals must be Poisson; `control_period_s`
            is the length of a step.
        periods: Steps after which an episode is cut off (truncated).
        alpha: Weight of the SLO, in [0, 1].
        penalties: Whether some steps are worth -1, as above.
        ladder: The sizes that a replica can have.
        replicas: The least and the most that a function can have.
        first_replicas: With how many it begins.
        joins: By function, the step at whose end it joins; those that are not named are there from the start.
        leaves: By function, the step at whose end it leaves. Requests that need it are dropped.
        memory: Whether there are the actions 5 and 6.
        rate_scale_rps: See observations.
        mask: Whether `infos` have an `action_mask`: 1 for what is within the bounds.
        requests: How many may be open at once; with more, the episode is cut off, and `infos` say `out_of_room`.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "fairlead-scaling-v0", "render_modes": [], "is_parallelizable": True}

    def __init__(
        self,
        scenario: Scenario | None = None,
        *,
        periods: int = 200,
        alpha: float = 0.7,
        penalties: bool = True,
        ladder: Ladder | None = None,
        replicas: tuple[int, int] = (0, 20),
        first_replicas: int = 2,
        joins: Mapping[str, int] | None = None,
        leaves: Mapping[str, int] | None = None,
        memory: bool = True,
        rate_scale_rps: float = 10.0,
        mask: bool = False,
        requests: int = 4096,
        render_mode: None = None,
    ) -> None:
        if periods < 1:
            raise ValueError(f"periods must be at least 1; got {periods}.")
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha must be in [0, 1]; got {alpha}.")
        least, most = replicas
        if not 0 <= least <= first_replicas <= most or most < 1:
            raise ValueError(
                f"replicas must be (least, most) with first_replicas between; got {replicas} and {first_replicas}."
            )
        if not 0 < rate_scale_rps < inf:
            raise ValueError(f"rate_scale_rps must be positive and finite; got {rate_scale_rps}.")
        self.world = Tenants(
            tenants_scenario() if scenario is None else scenario, ladder or Ladder(), least, most, requests
        )
        self.possible_agents = list(self.world.functions)
        self._numbers = {name: i for i, name in enumerate(self.possible_agents)}
        self._joins, self._leaves = dict(joins or {}), dict(leaves or {})
        for name in (*self._joins, *self._leaves):
            self._number(name)
        self.agents: list[str] = []
        self.render_mode = render_mode
        self._periods, self._alpha, self._penalties, self._has_mask = periods, alpha, penalties, mask
        self._least, self._most, self._first_replicas = least, most, first_replicas
        self._rate_scale_rps = rate_scale_rps
        self._period_s = self.world.scenario.control_period_s
        count = 7 if memory else 5
        high = np.ones(len(FIELDS), np.float32)
        high[FIELDS.index("arrival_rate")] = _MOST_RATE
        # Each agent has spaces of its own: they are seeded one by one.
        self.observation_spaces = {name: spaces.Box(0.0, high, dtype=np.float32) for name in self.possible_agents}
        self.action_spaces = {name: spaces.Discrete(count) for name in self.possible_agents}
        self._actions = np.zeros(len(self.possible_agents), np.int64)
        self._shown = np.zeros((len(self.possible_agents), len(FIELDS)), np.float32)
        self._step = 0
        self._gone: set[str] = set()
        self._is_seeded = False

    def observation_space(self, agent: str) -> spaces.Space[Observation]:
        """What an agent sees."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """What an agent can do."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Begin an episode. A seed begins the random numbers anew; without, the next episode of the seed follows."""
        if seed is not None or not self._is_seeded:
            self.world.seed(int(np.random.default_rng().integers(2**62)) if seed is None else seed)
            self._is_seeded = True
        self.world.begin()
        self.agents, self._step, self._gone = [], 0, set()
        self._actions[:] = 0
        for name in self.possible_agents:
            if self._joins.get(name, 0) <= 0:
                self._add(name)
        self._look()
        return self._observations(), self._infos()

    def join(self, agent: str) -> Observation:
        """Let a function be there from now on; gives what it sees. Who has left cannot come back in this episode."""
        number = self._number(agent)
        if agent in self.agents or agent in self._gone:
            raise ValueError(f"{agent} {'has left' if agent in self._gone else 'is there already'}.")
        self._add(agent)
        self._look()
        first: Observation = self._shown[number].copy()
        return first

    def leave(self, agent: str) -> None:
        """Let a function go at once."""
        if agent not in self.agents:
            raise ValueError(f"{agent} is not there.")
        self._remove(agent)

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """One control period. Who is not named does nothing."""
        before, names = self._actions.copy(), list(self.agents)
        self._actions[:] = 0
        for name, action in actions.items():
            if name in self.agents:
                self._actions[self._numbers[name]] = action
        self._step += 1
        has_room = self.world.run(self._step * self._period_s, self._actions)
        self._look()
        rewards = self._rewards(before)
        is_cut = self._step >= self._periods or not has_room
        left = {name for name in names if self._leaves.get(name) == self._step}
        for name in left:
            self._remove(name)
        if not is_cut:
            for name, at_step in self._joins.items():
                if at_step == self._step and name not in self.agents and name not in self._gone:
                    self._add(name)
                    names.append(name)
            self._look()
        result = (
            {name: self._shown[self._numbers[name]].copy() for name in names},
            {name: float(rewards[self._numbers[name]]) for name in names},
            {name: name in left for name in names},
            {name: is_cut and name not in left for name in names},
            self._infos(names, has_room),
        )
        if is_cut:
            self.agents = []
        return result

    def state(self) -> Observation:
        """What all possible agents see, one after the other; zeros for those that are not there."""
        return self._shown.reshape(-1).copy()

    def _number(self, agent: str) -> int:
        if agent not in self._numbers:
            raise ValueError(f"no function is called {agent!r}; there are {', '.join(self._numbers)}.")
        return self._numbers[agent]

    def _add(self, agent: str) -> None:
        self.world.join(self._numbers[agent], self._first_replicas)
        self.agents.append(agent)

    def _remove(self, agent: str) -> None:
        self.world.leave(self._numbers[agent])
        self.agents.remove(agent)
        self._gone.add(agent)

    def _look(self) -> None:
        """Turn what was measured into what is seen."""
        world, measured = self.world, self.world.measures
        present, shown = world.is_present, self._shown
        vcpus, memory_gb = self._held()
        held_s = measured[:, periods.HELD] * self._period_s
        shown[:, 0] = np.minimum(1.0, measured[:, periods.BUSY] / np.where(held_s > 0, held_s, inf))
        wanted = measured[:, periods.REPLICAS]
        needed_gb = world.needs_gb * np.where(vcpus > 0, wanted, 0)
        shown[:, 1] = np.minimum(1.0, needed_gb / np.where(memory_gb > 0, memory_gb, inf))
        slowest_s = np.maximum(measured[:, periods.SLOWEST], measured[:, periods.OLDEST])
        shown[:, 2] = np.minimum(1.0, world.slo_s / np.where(slowest_s > 0, slowest_s, world.slo_s))
        shown[:, 3] = vcpus / world.vcpus
        shown[:, 4] = memory_gb / world.memory_gb if world.memory_gb else 0.0
        shown[:, 5] = wanted / self._most
        rate = measured[:, periods.ARRIVED] / (self._period_s * self._rate_scale_rps)
        shown[:, 6] = np.minimum(_MOST_RATE, rate)
        shown[:, 7] = np.maximum(0.0, (vcpus * present).sum() - vcpus) / world.vcpus
        shown[~present] = 0.0

    def _held(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        measured = self.world.measures
        return measured[:, periods.VCPUS] / 1000, measured[:, periods.MEMORY] / 1024

    def _rewards(self, before: NDArray[np.int64]) -> NDArray[np.float64]:
        shown, measured, actions = self._shown.astype(float), self.world.measures, self._actions
        rewards = self._alpha * shown[:, 2] + (1 - self._alpha) * shown[:, 0]
        if self._penalties:
            is_reversed = (actions == periods.OUT) & (before == periods.IN)
            is_reversed |= (actions == periods.IN) & (before == periods.OUT)
            is_without = (measured[:, periods.REPLICAS] == 0) & (measured[:, periods.ARRIVED] > 0)
            rewards[is_reversed | is_without | (measured[:, periods.WAS_REFUSED] != 0)] = -1.0
        return rewards

    def _observations(self) -> dict[str, Observation]:
        return {name: self._shown[self._numbers[name]].copy() for name in self.agents}

    def _infos(self, names: list[str] | None = None, has_room: bool = True) -> dict[str, dict[str, Any]]:
        infos: dict[str, dict[str, Any]] = {name: {} for name in (self.agents if names is None else names)}
        if not has_room:
            for info in infos.values():
                info["out_of_room"] = True
        if self._has_mask:
            for name, info in infos.items():
                info["action_mask"] = self._mask(self._numbers[name])
        return infos

    def _mask(self, number: int) -> NDArray[np.int8]:
        """What is within the bounds; a size for which there is no room may still be refused."""
        wanted = self.world.measures[number, periods.REPLICAS]
        vcpus, memory = (int(step[number]) for step in self.world.steps)
        ladder = self.world.ladder
        allowed = np.ones(int(self.action_spaces[self.possible_agents[number]].n), np.int8)
        allowed[periods.OUT], allowed[periods.IN] = wanted < self._most, wanted > self._least
        allowed[periods.MORE_VCPUS] = wanted > 0 and vcpus + 1 < len(ladder.vcpus)
        allowed[periods.LESS_VCPUS] = wanted > 0 and vcpus > 0
        if len(allowed) > periods.MORE_MEMORY:
            allowed[periods.MORE_MEMORY] = wanted > 0 and memory + 1 < len(ladder.memory_gb)
            allowed[periods.LESS_MEMORY] = wanted > 0 and memory > 0
        return allowed
