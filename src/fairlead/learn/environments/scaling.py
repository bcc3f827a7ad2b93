"""Scaling as a learning problem for many agents: each function changes its replicas, one step per control period.

State, actions and reward follow what is public of SIMPPO (Qiu et al., SoCC 2022) and of its successor's code. Each
agent is a function; once per period it adds or removes a replica, or gives all of them a step more or less of vCPUs or
of memory. What an agent sees, and what a step is worth, is that of the scaler `simppo` (`fairlead.policy.simppo`).

**Differs from the paper:** memory is a need that a replica must cover, so memory utilisation is that need over what it
has; the service time depends on vCPUs only. What waits counts as latency too, by its age: a queue that does not move
would else look like one without runs.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from fairlead.learn.environments.actions import one_action
from fairlead.learn.environments.tenancy import Tenancy
from fairlead.learn.environments.tenants import Ladder
from fairlead.learn.functions.tenants import tenants_scenario
from fairlead.policy.simppo.observation import Encoding
from fairlead.workload import Scenario

Observation = NDArray[np.float32]


class ScalingEnv(ParallelEnv[str, Observation, int], EzPickle):  # type: ignore[misc] # the library has no types
    """Functions that share a cluster, each an agent that scales itself.

    Actions: 0 nothing; 1 a replica more, 2 one less; 3 and 4 a step more or less of vCPUs for each replica; 5 and 6 of
    memory. An action that cannot be done changes nothing.

    Observations are those of an `Encoding`: the function's own state, then what it sees of the others, each from 0 to
    10 and most of them up to 1.

    Rewards: `alpha` x SLO preservation + (1 - `alpha`) x CPU utilisation; but -1, unless `penalties` is off, for an
    action that cannot be done, one that takes back the replica of the step before, or arrivals without any replica.

    Args:
        scenario: What to simulate; without, five functions that share a cluster. Arrivals must be Poisson, or wander
            (`AzureLike`); `control_period_s` is the length of a step.
        encoding: What an agent sees; by default seven numbers of its own and four of the others.
        periods: Steps after which an episode is cut off (truncated).
        alpha: Weight of the SLO, in [0, 1].
        penalties: Whether some steps are worth -1, as above.
        ladder: The sizes that a replica can have.
        replicas: The least and the most that a function can have.
        first_replicas: With how many it begins.
        joins: By function, the step at whose end it joins; those that are not named are there from the start.
        leaves: By function, the step at whose end it leaves. Requests that need it are dropped.
        memory: Whether there are the actions 5 and 6.
        mask: Whether `infos` have an `action_mask`: 1 for what is within the bounds.
        requests: How many may be open at once, by default thousands; with more, the episode is cut off, and `infos` say
            `out_of_room`.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "fairlead-scaling-v0", "render_modes": [], "is_parallelizable": True}

    def __init__(
        self,
        scenario: Scenario | None = None,
        *,
        encoding: Encoding | None = None,
        periods: int = 200,
        alpha: float = 0.7,
        penalties: bool = True,
        ladder: Ladder | None = None,
        replicas: tuple[int, int] = (0, 20),
        first_replicas: int = 2,
        joins: Mapping[str, int] | None = None,
        leaves: Mapping[str, int] | None = None,
        memory: bool = True,
        mask: bool = False,
        requests: int | None = None,
        render_mode: None = None,
    ) -> None:
        EzPickle.__init__(
            self,
            scenario,
            encoding=encoding,
            periods=periods,
            alpha=alpha,
            penalties=penalties,
            ladder=ladder,
            replicas=replicas,
            first_replicas=first_replicas,
            joins=joins,
            leaves=leaves,
            memory=memory,
            mask=mask,
            requests=requests,
        )
        self.tenancy = Tenancy(
            tenants_scenario(5) if scenario is None else scenario,
            encoding=encoding,
            periods=periods,
            slo_weight=alpha,
            has_penalties=penalties,
            ladder=ladder,
            replicas=replicas,
            first_replicas=first_replicas,
            has_memory=memory,
            requests=requests,
        )
        self.possible_agents = list(self.tenancy.functions)
        self._numbers = {name: i for i, name in enumerate(self.possible_agents)}
        self._joins, self._leaves = dict(joins or {}), dict(leaves or {})
        for name in (*self._joins, *self._leaves):
            self._number(name)
        self.tenancy.absent = frozenset(name for name, step in self._joins.items() if step > 0)
        self.agents: list[str] = []
        self.render_mode = render_mode
        self._has_mask = mask
        size = self.tenancy.encoding.size
        # Each agent has spaces of its own: they are seeded one by one.
        self.observation_spaces = {name: spaces.Box(0.0, 10.0, (size,), np.float32) for name in self.possible_agents}
        self.action_spaces = {name: spaces.Discrete(self.tenancy.actions) for name in self.possible_agents}
        self._shown = np.zeros((len(self.possible_agents), size), np.float32)
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
            self.tenancy.seed(int(np.random.default_rng().integers(2**62)) if seed is None else seed)
            self._is_seeded = True
        self._shown = self.tenancy.reset()
        self._step, self._gone = 0, set()
        self.agents = [name for name in self.possible_agents if name not in self.tenancy.absent]
        return self._observations(), self._infos()

    def join(self, agent: str) -> Observation:
        """Adds a function from now on; returns its observation. One that has left stays away until the next reset."""
        number = self._number(agent)
        self.tenancy.check_episode()
        if agent in self.agents or agent in self._gone:
            raise ValueError(f"{agent} {'has left' if agent in self._gone else 'is there already'}.")
        self._add(agent)
        self._shown = self.tenancy.look()
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
        """Runs one control period. Agents without an action do nothing; actions of absent agents are ignored."""
        self.tenancy.check_episode()
        names = list(self.agents)
        chosen = np.zeros(len(self.possible_agents), np.int64)
        for name, action in actions.items():
            number = self._number(name)
            try:
                chosen[number] = one_action(action, self.tenancy.actions)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        self._step += 1
        self._shown, rewards, is_cut = self.tenancy.step(chosen)
        left = {name for name in names if self._leaves.get(name) == self._step}
        for name in left:
            self._remove(name)
        if not is_cut:
            for name, at_step in self._joins.items():
                if at_step == self._step and name not in self.agents and name not in self._gone:
                    self._add(name)
                    names.append(name)
            self._shown = self.tenancy.look()
        result = (
            {name: self._shown[self._numbers[name]].copy() for name in names},
            {name: float(rewards[self._numbers[name]]) for name in names},
            {name: name in left for name in names},
            {name: is_cut and name not in left for name in names},
            self._infos(names),
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
        self.tenancy.join(self._numbers[agent])
        self.agents.append(agent)

    def _remove(self, agent: str) -> None:
        self.tenancy.leave(self._numbers[agent])
        self.agents.remove(agent)
        self._gone.add(agent)

    def _observations(self) -> dict[str, Observation]:
        return {name: self._shown[self._numbers[name]].copy() for name in self.agents}

    def _infos(self, names: list[str] | None = None) -> dict[str, dict[str, Any]]:
        infos: dict[str, dict[str, Any]] = {name: {} for name in (self.agents if names is None else names)}
        if not self.tenancy.has_room:
            for info in infos.values():
                info["out_of_room"] = True
        if self._has_mask:
            allowed = self.tenancy.allowed().astype(np.int8)
            for name, info in infos.items():
                info["action_mask"] = allowed[self._numbers[name]]
        return infos
