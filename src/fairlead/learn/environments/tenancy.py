"""Functions that share a cluster, each scaled by an agent, one control period per step: arrays in, arrays out.

What `ScalingEnv` shows through PettingZoo, and what training runs on.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlead.engine.sim.compiled import periods as of
from fairlead.learn.environments.actions import IS_OVER, NOT_BEGUN, many_actions, raise_reset_needed
from fairlead.learn.environments.tenants import Ladder, Tenants
from fairlead.policy.kit.measuring import Measures
from fairlead.policy.simppo import reward as worth
from fairlead.policy.simppo.observation import OWN_FIELDS, Encoding, Floats, Observations, State, observe, state_of
from fairlead.policy.simppo.site import describe_site
from fairlead.profile import Estimate
from fairlead.workload import Scenario

Flags = NDArray[np.bool_]


class Period(NamedTuple):
    """What a step brought: what each agent sees now, what its step was worth, whether the episode is cut off here."""

    observations: Observations
    rewards: Floats
    is_cut: bool


class Tenancy:
    """A cluster and its functions, in a fixed order.

    Args:
        scenario: What to simulate. Arrivals must be Poisson, or wander (`AzureLike`); `control_period_s` is the length
            of a step.
        periods: Steps after which an episode is cut off.
        encoding: What an agent sees.
        slo_weight: Weight of SLO preservation in what a step is worth, in [0, 1]; the rest is CPU utilisation.
        has_penalties: Whether some steps are worth -1.
        ladder: The sizes that a replica can have.
        replicas: The least and the most that a function can have.
        first_replicas: With how many it begins.
        has_random_starts: Whether it begins with one to eight replicas of any size between a quarter and three quarters
            of the ladder instead, drawn anew for each episode: agents that seldom see a bad state do not learn to
            leave it.
        has_memory: Whether there are the two actions that change memory.
        requests: How many may be open at once; with more, the episode is cut off.
        absent: Functions that are not there when an episode begins.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        periods: int = 200,
        encoding: Encoding | None = None,
        slo_weight: float = worth.SLO_WEIGHT,
        has_penalties: bool = True,
        ladder: Ladder | None = None,
        replicas: tuple[int, int] = (0, 20),
        first_replicas: int = 2,
        has_random_starts: bool = False,
        has_memory: bool = True,
        requests: int | None = None,
        absent: Sequence[str] = (),
    ) -> None:
        if periods < 1:
            raise ValueError(f"periods must be at least 1; got {periods}.")
        least, most = replicas
        if not 0 <= least <= first_replicas <= most or most < 1:
            raise ValueError(
                f"replicas must be (least, most) with first_replicas between; got {replicas} and {first_replicas}."
            )
        if not 0 <= slo_weight <= 1:
            raise ValueError(f"slo_weight must be in [0, 1]; got {slo_weight}.")
        room = max(16384, 512 * len(scenario.functions)) if requests is None else requests
        period_s = scenario.control_period_s
        self.world = Tenants(scenario, ladder or Ladder(), least, most, room, until_s=periods * period_s)
        self.functions = self.world.functions
        self.encoding = encoding or Encoding()
        self.actions = 7 if has_memory else 5
        own = self.world.scenario
        self.site = describe_site(
            own.cluster,
            own.functions,
            own.workflows,
            {name: Estimate(profile, own.cluster) for name, profile in own.profiles.items()},
            most_replicas=most,
        )
        self.periods, self.period_s = periods, period_s
        self.slo_weight, self.has_penalties, self._least = slo_weight, has_penalties, least
        self._first_replicas, self.absent = first_replicas, frozenset(absent)
        self._starts = np.random.default_rng(0) if has_random_starts else None
        self._actions = np.zeros(len(self.functions), np.int64)
        self._step = 0
        self.has_room = True
        self._has_begun = False
        self.state: State

    @property
    def size(self) -> int:
        """How many functions there may be."""
        return len(self.functions)

    @property
    def is_present(self) -> Flags:
        """Which functions are there."""
        return self.world.is_present

    @property
    def measures(self) -> Measures:
        """What the last period brought."""
        return _measures(self.world.measures, self.period_s)

    def seed(self, seed: int) -> None:
        """Begin the random numbers anew."""
        self.world.seed(seed)
        if self._starts is not None:
            self._starts = np.random.default_rng([seed, 1])

    def reset(self) -> Observations:
        """Begin the next episode."""
        self.world.begin()
        self._step, self.has_room, self._has_begun = 0, True, True
        self._actions[:] = 0
        for number, name in enumerate(self.functions):
            if name not in self.absent:
                self.join(number)
        return self.look()

    def step(self, actions: NDArray[np.int64]) -> Period:
        """One control period after these actions, one per function; those of absent ones count for nothing."""
        before = self.advance(actions)
        seen = self.look()
        rewards = worth.rewards(
            self.state,
            self._actions,
            before,
            self.world.measures[:, of.WAS_REFUSED] != 0,
            slo_weight=self.slo_weight,
            has_penalties=self.has_penalties,
            is_workflow_aware=self.encoding.is_workflow_aware,
        )
        return Period(seen, rewards, self.is_cut)

    @property
    def is_cut(self) -> bool:
        """Whether the episode ends here."""
        return self._step >= self.periods or not self.has_room

    def advance(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Runs one control period without observing it; returns the actions of the period before."""
        self.check_episode()
        actions = many_actions(actions, self.size, self.actions)
        before, self._actions = self._actions, np.where(self.is_present, actions, 0)
        self._step += 1
        self.has_room = self.world.run(self._step * self.period_s, self._actions)
        return before

    def check_episode(self) -> None:
        """Raises Gymnasium's `ResetNeeded` unless an episode has begun and is not over."""
        if not self._has_begun:
            raise_reset_needed(NOT_BEGUN)
        if self.is_cut:
            raise_reset_needed(IS_OVER)

    def join(self, number: int) -> None:
        """Let a function be there from now on."""
        if self._starts is None:
            self.world.join(number, self._first_replicas)
            return
        rungs = len(self.world.ladder.vcpus)
        replicas = min(max(int(self._starts.integers(1, 9)), self._least), self.site.most_replicas)
        self.world.join(number, replicas, int(self._starts.integers(rungs // 4, rungs - rungs // 4)))

    def leave(self, number: int) -> None:
        """Let a function go at once; requests that need it are dropped."""
        self.world.leave(number)

    def look(self) -> Observations:
        """What every agent sees now, a row each; zeros for those that are not there."""
        self.state = state_of(self.measures, self.site, self.is_present, self.period_s)
        return observe(self.state, self.site, self.encoding, *worth.steps(self._actions))

    def allowed(self) -> Flags:
        """Which actions are within the bounds; a size for which there is no room may still be refused."""
        wanted = self.world.measures[:, of.REPLICAS]
        vcpus, memory = self.world.steps
        ladder = self.world.ladder
        has_any = wanted > 0
        allowed = np.ones((self.size, 7), np.bool_)
        allowed[:, worth.OUT], allowed[:, worth.IN] = wanted < self.site.most_replicas, wanted > self._least
        allowed[:, worth.MORE_VCPUS] = has_any & (vcpus + 1 < len(ladder.vcpus))
        allowed[:, worth.LESS_VCPUS] = has_any & (vcpus > 0)
        allowed[:, worth.MORE_MEMORY] = has_any & (memory + 1 < len(ladder.memory_gb))
        allowed[:, worth.LESS_MEMORY] = has_any & (memory > 0)
        return allowed[:, : self.actions]


class Apart:
    """The same functions, each alone in a cluster of its own: what single-agent learning sees.

    All that an agent would see of others is zero.
    """

    def __init__(self, worlds: Sequence[Tenancy]) -> None:
        if any(world.size != 1 for world in worlds):
            raise ValueError("each of the worlds must have one function.")
        self.worlds = tuple(worlds)
        self.functions = tuple(world.functions[0] for world in worlds)
        first = worlds[0]
        self.encoding, self.actions, self.periods = first.encoding, first.actions, first.periods
        sites = [world.site for world in worlds]
        self._site = replace(
            first.site,
            slo_s=np.concatenate([site.slo_s for site in sites]),
            needs_gb=np.concatenate([site.needs_gb for site in sites]),
            upstream=np.concatenate([site.upstream for site in sites]),
            downstream=np.concatenate([site.downstream for site in sites]),
        )
        self._before = np.zeros(self.size, np.int64)

    @property
    def size(self) -> int:
        """How many functions there are."""
        return len(self.worlds)

    @property
    def is_present(self) -> Flags:
        """All are there."""
        return np.ones(self.size, np.bool_)

    def seed(self, seed: int) -> None:
        """Begin the random numbers anew."""
        for number, world in enumerate(self.worlds):
            world.seed(seed * 1009 + number)

    def reset(self) -> Observations:
        """Begin the next episode."""
        self._before = np.zeros(self.size, np.int64)
        return np.concatenate([world.reset() for world in self.worlds])

    def step(self, actions: NDArray[np.int64]) -> Period:
        """One control period in every cluster; one without room ends the episode of all."""
        for world in self.worlds:
            world.check_episode()
        actions = many_actions(actions, self.size, self.actions)
        for i, world in enumerate(self.worlds):
            world.advance(actions[i : i + 1])
        first = self.worlds[0]
        measured = np.concatenate([world.world.measures for world in self.worlds])
        state = state_of(_measures(measured, first.period_s), self._site, self.is_present, first.period_s)
        rewards = worth.rewards(
            state,
            actions,
            self._before,
            measured[:, of.WAS_REFUSED] != 0,
            slo_weight=first.slo_weight,
            has_penalties=first.has_penalties,
            is_workflow_aware=self.encoding.is_workflow_aware,
        )
        self._before = actions
        return Period(self._look(state), rewards, any(world.is_cut for world in self.worlds))

    def _look(self, state: State) -> Observations:
        """As if each were observed by itself, in one call."""
        own = OWN_FIELDS[self.encoding.own]
        none = np.zeros(self.size)
        alone = observe(state, self._site, replace(self.encoding, others="none", slots=0), none, none)
        if "others_vcpus" in own:
            alone[:, own.index("others_vcpus")] = 0.0
        others = np.zeros((self.size, self.encoding.size - alone.shape[1]), np.float32)
        return np.concatenate([alone[:, : len(own)], others, alone[:, len(own) :]], axis=1)

    def allowed(self) -> Flags:
        """Which actions are within the bounds."""
        return np.concatenate([world.allowed() for world in self.worlds])


def _measures(rows: NDArray[np.float64], period_s: float) -> Measures:
    """What the engine measured, a row for each function."""
    measured = rows.T
    return Measures(
        arrived=measured[of.ARRIVED],
        ran=measured[of.RAN],
        busy_s=measured[of.BUSY],
        held_s=measured[of.HELD] * period_s,
        p99_s=measured[of.SLOWEST],
        oldest_s=measured[of.OLDEST],
        replicas=measured[of.REPLICAS],
        ready=measured[of.READY_REPLICAS],
        vcpus=measured[of.VCPUS] / 1000,
        memory_gb=measured[of.MEMORY] / 1024,
        lateness=measured[of.LATENESS],
    )
