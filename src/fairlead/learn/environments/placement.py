"""Placement as a learning problem: on which node does the oldest waiting invocation go?

`PlacementEnv` is one environment, `PlacementVectorEnv` many of them behind one compiled call. Both show the same things
and give the same rewards; the environment i of many that were seeded with s is the one that was seeded with s + i.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from fairlead.engine.sim.compiled import layout as at
from fairlead.engine.sim.compiled import light as light_program
from fairlead.engine.sim.compiled.coverage import scenario_gap
from fairlead.engine.sim.compiled.light_pack import LightPack, why_not_light
from fairlead.engine.sim.compiled.lower import Lowered, Rule, lower
from fairlead.engine.sim.compiled.packing import ENDED, IN_TIME, LONGEST, OPEN_TIME, OUT_OF_ROOM, Pack
from fairlead.errors import UncoveredError
from fairlead.learn.environments.actions import IS_OVER, NOT_BEGUN, many_actions, one_action, raise_reset_needed
from fairlead.learn.environments.worlds import chain_scenario, drawing_of
from fairlead.workload import Scenario
from fairlead.workload.chunks import Chunk

Reward = Literal["open-time", "in-time"]
Observation = NDArray[np.float32]

_ROWS = 256  # requests that can end at one instant, where they are counted
_MOST_INSTANCES = 1 << 14


class PlacementWorld:
    """Several environments of one scenario: their arrays, spaces and compiled functions."""

    def __init__(
        self,
        environments: int,
        *,
        scenario: Scenario | None,
        arrivals: Chunk | None,
        steps: int,
        reward: Reward,
        penalty: float,
        requests: int,
        light: bool = True,
    ) -> None:
        if steps < 1:
            raise ValueError(f"steps must be at least 1; got {steps}.")
        if environments < 1:
            raise ValueError(f"environments must be at least 1; got {environments}.")
        if reward not in get_args(Reward):
            raise ValueError(f"reward must be 'open-time' or 'in-time'; got {reward!r}.")
        if not 0 <= penalty < inf:
            raise ValueError(f"penalty must be finite and not negative; got {penalty}.")
        if requests < 1:
            raise ValueError(f"requests must be at least 1; got {requests}.")
        self.scenario = scenario = chain_scenario() if scenario is None else scenario
        reason = scenario_gap(scenario)
        if reason is not None:
            raise UncoveredError(scenario.name, reason)
        rule = Rule(number=at.OUTSIDE)
        lowered = lower(scenario, rule, instances=1, requests=1)
        lowered = lower(scenario, rule, instances=_most_instances(lowered), requests=requests)
        _schedule_pressures(lowered, scenario)
        memory = lowered.memory
        nodes, functions = len(scenario.cluster.nodes), len(scenario.functions)
        self._low, self._high = _bounds(nodes, functions, has_devices=bool(memory[at.DEVICE_TOTAL].size))
        drawing = None
        if arrivals is None:
            drawing = drawing_of(scenario, lowered.draws)
        else:
            memory[at.ARRIVAL_AT], memory[at.ARRIVAL_DRAWS] = arrivals.times, arrivals.draws
            memory[at.ARRIVAL_WORKFLOW] = arrivals.workflows
            memory[at.COUNT][at.ARRIVALS] = len(arrivals)
        room = _room(lowered)
        self.lowered = lowered
        self.is_light = light and why_not_light(lowered) is None
        self.pack: Pack | LightPack
        self.program: Any  # the compiled functions that step it
        if self.is_light:
            self.program = light_program
            self.pack = LightPack(
                lowered,
                environments,
                room=room,
                requests=requests,
                observation=len(self._low),
                drawing=drawing,
                scales=_scales(lowered),
            )
        else:
            # It holds the whole core: most environments do without, and need not wait for its compilation.
            from fairlead.engine.sim.compiled import stepping  # noqa: PLC0415

            self.program = stepping
            self.pack = Pack(
                lowered,
                environments,
                observation=len(self._low),
                drawing=drawing,
                scales=_scales(lowered),
                rows=_ROWS if reward == "in-time" else 0,
            )
        self.pack.settle(steps=steps, rewards=OPEN_TIME if reward == "open-time" else IN_TIME, penalty=penalty)

    @property
    def observation_space(self) -> spaces.Space[Observation]:
        """What one environment shows."""
        space: spaces.Space[Any] = spaces.Box(self._low, self._high, dtype=np.float32)
        return space

    @property
    def action_space(self) -> spaces.Discrete:
        """A node."""
        return spaces.Discrete(self.nodes)

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.scenario.cluster.nodes)


class PlacementEnv(gym.Env[Observation, np.int64], EzPickle):
    """One placement environment.

    Args:
        scenario: What to simulate; without, four functions in a chain on 16 nodes at 70 % load. Arrivals must be
            Poisson.
        arrivals: These arrivals instead; the episode is over (terminated) when the last decision on them is made.
        steps: Decisions after which an episode is cut off (truncated).
        reward: `open-time` is minus the time that open requests spent since the last decision, added over them;
            `in-time` is 1 for each request that was answered within its SLO since then, and -1 for each that was not.
        penalty: What an action costs whose node has no room. Such an invocation goes to the emptiest node that fits.
        requests: How many may be open at once; with more, the episode is cut off, and `info` says `out_of_room`.
        mask: Whether `info` has an `action_mask`: 1 for every node that fits.
        copy: Whether each observation is an array of its own. Without, all are the same array, and a step is quicker.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as the library declares it

    def __init__(
        self,
        scenario: Scenario | None = None,
        *,
        arrivals: Chunk | None = None,
        steps: int = 2000,
        reward: Reward = "open-time",
        penalty: float = 0.0,
        requests: int = 512,
        mask: bool = False,
        copy: bool = True,
        render_mode: None = None,
    ) -> None:
        EzPickle.__init__(
            self,
            scenario,
            arrivals=arrivals,
            steps=steps,
            reward=reward,
            penalty=penalty,
            requests=requests,
            mask=mask,
            copy=copy,
        )
        self.world = PlacementWorld(
            1, scenario=scenario, arrivals=arrivals, steps=steps, reward=reward, penalty=penalty, requests=requests
        )
        self.render_mode = render_mode
        self.observation_space = self.world.observation_space
        self.action_space = self.world.action_space
        self._h = self.world.pack.address(0)
        self._row = self.world.pack.observations[0]
        self._reset, self._mask = self.world.program.reset_one, self.world.program.mask
        # Compiled code must not run without an episode. What is called then costs a step inside of one nothing.
        self._step: Callable[[int, int], float] = _step_before_reset
        self._nodes = self.world.nodes
        self._has_mask, self._copies, self._is_seeded = mask, copy, False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode. A seed begins the random numbers anew; without, they go on."""
        super().reset(seed=seed)
        if seed is not None or not self._is_seeded:
            self.world.pack.seed(0, int(self.np_random.integers(2**62)) if seed is None else seed)
            self._is_seeded = True
        self._reset(self._h)
        self._step = self.world.program.step_one
        return self._row.copy() if self._copies else self._row, self._info()

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Places the oldest waiting invocation on the node with the number `action`, and runs to the next decision."""
        # The two usual types are told apart by hand: the general check costs a third of a step.
        number: Any = action
        if number.__class__ is not int:
            number = int(number) if number.__class__ is np.int64 else one_action(number, self._nodes)
        if not 0 <= number < self._nodes:
            one_action(number, self._nodes)  # raises
        reward = self._step(self._h, number)
        if reward != reward:
            return self._last()
        info = self._info() if self._has_mask else {}
        return (self._row.copy() if self._copies else self._row), reward, False, False, info

    def _last(self) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self._step = _step_after_end
        how = int(self.world.pack.endings[0])
        info = self._info()
        if how == OUT_OF_ROOM:
            info["out_of_room"] = True
        reward = float(self.world.pack.last_rewards[0])
        return self._row.copy() if self._copies else self._row, reward, how == ENDED, how > ENDED, info

    def _info(self) -> dict[str, Any]:
        if not self._has_mask:
            return {}
        allowed = np.zeros(self.world.nodes, np.int8)
        self._mask(self._h, allowed)
        return {"action_mask": allowed}


class PlacementVectorEnv(VectorEnv[Observation, NDArray[np.int64], NDArray[Any]], EzPickle):
    """Several placement environments, stepped by one call. One whose episode is over begins another with the next step.

    Its arguments are those of `PlacementEnv`. Seeded with s, environment i is a `PlacementEnv` seeded with s + i.
    Without `copy`, observations, rewards and flags are the same arrays in every step.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as the library declares it
        "render_modes": [],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int,
        scenario: Scenario | None = None,
        *,
        arrivals: Chunk | None = None,
        steps: int = 2000,
        reward: Reward = "open-time",
        penalty: float = 0.0,
        requests: int = 512,
        mask: bool = False,
        copy: bool = True,
    ) -> None:
        EzPickle.__init__(
            self,
            num_envs,
            scenario,
            arrivals=arrivals,
            steps=steps,
            reward=reward,
            penalty=penalty,
            requests=requests,
            mask=mask,
            copy=copy,
        )
        self.world = PlacementWorld(
            num_envs,
            scenario=scenario,
            arrivals=arrivals,
            steps=steps,
            reward=reward,
            penalty=penalty,
            requests=requests,
        )
        self.num_envs = num_envs
        self.single_observation_space = self.world.observation_space
        self.single_action_space = self.world.action_space
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)
        pack = self.world.pack
        self._step = self.world.program.step_many
        self._h, self._apart = pack.address(0), pack.apart
        self._shown, self._rewards = pack.observations, np.zeros(num_envs)
        self._terminated, self._truncated = np.zeros(num_envs, np.bool_), np.zeros(num_envs, np.bool_)
        self._has_mask, self._copies, self._is_seeded = mask, copy, False
        self._not_begun = np.ones(num_envs, np.bool_)
        self._is_ready = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode of each, or of those that `options["reset_mask"]` says. A seed begins numbers anew."""
        chosen = np.ones(self.num_envs, np.bool_)
        if options is not None and "reset_mask" in options:
            chosen = np.ascontiguousarray(options["reset_mask"], np.bool_)
            if chosen.shape != (self.num_envs,):
                raise ValueError(f"reset_mask must have {self.num_envs} entries; got the shape {chosen.shape}.")
        seeds: Sequence[int | None]
        if seed is None or isinstance(seed, (int, np.integer)):
            super().reset(seed=seed)
            first = int(self.np_random.integers(2**62)) if seed is None and not self._is_seeded else seed
            seeds = [None if first is None else first + i for i in range(self.num_envs)]
        else:
            seeds = seed
            if len(seeds) != self.num_envs:
                raise ValueError(f"seed must have {self.num_envs} entries; got {len(seeds)}.")
        self._is_seeded = True
        for i, one in enumerate(seeds):
            if one is not None and chosen[i]:
                self.world.pack.seed(i, one)
        self.world.program.reset_many(self._h, self._apart, chosen)
        self._not_begun &= ~chosen
        self._is_ready = not self._not_begun.any()
        return self._shown.copy() if self._copies else self._shown, self._info(0)

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Steps every environment once, by its own action."""
        if not self._is_ready:
            raise_reset_needed(NOT_BEGUN)
        rewards, terminated, truncated = self._rewards, self._terminated, self._truncated
        chosen = many_actions(actions, self.num_envs, self.world.nodes)
        short = self._step(self._h, self._apart, chosen, rewards, terminated, truncated)
        info = self._info(short) if short or self._has_mask else {}
        if not self._copies:
            return self._shown, rewards, terminated, truncated, info
        return self._shown.copy(), rewards.copy(), terminated.copy(), truncated.copy(), info

    def _info(self, short: int) -> dict[str, Any]:
        info: dict[str, Any] = {}
        if self._has_mask:
            allowed = np.zeros((self.num_envs, self.world.nodes), np.int8)
            for i, row in enumerate(allowed):
                self.world.program.mask(self._h + i * self._apart, row)
            info["action_mask"] = allowed
        if short:
            info["out_of_room"] = self.world.pack.endings == OUT_OF_ROOM
        return info


def _step_before_reset(h: int, action: int) -> float:
    raise_reset_needed(NOT_BEGUN)


def _step_after_end(h: int, action: int) -> float:
    raise_reset_needed(IS_OVER)


def _bounds(nodes: int, functions: int, has_devices: bool) -> tuple[Observation, Observation]:
    shares = nodes * (3 if has_devices else 2) + functions
    low = np.zeros(shares + 3, np.float32)
    high = np.ones(shares + 3, np.float32)
    low[-1], high[-2] = -LONGEST, LONGEST
    return low, high


def _scales(lowered: Lowered) -> dict[str, NDArray[np.float64]]:
    """What turns free vCPUs, free vGPUs and warm instances into shares."""
    memory = lowered.memory
    nodes = len(lowered.nodes)
    total = memory[at.NODE_TOTAL]
    first = memory[at.NODE_DEVICE]
    vgpus = np.array([memory[at.DEVICE_TOTAL][first[i] : first[i + 1]].sum() for i in range(nodes)])
    return {
        "free": _inverse(total),
        "gpu": _inverse(vgpus) if vgpus.any() else np.zeros(0),
        "warm": _inverse(_room(lowered)).reshape(-1),
    }


def _inverse(values: NDArray[Any]) -> NDArray[np.float64]:
    return np.where(values > 0, 1 / np.maximum(values, 1), 0.0)


def _room(lowered: Lowered) -> NDArray[np.int64]:
    """How many instances of each function each node can hold at most, if it holds nothing else."""
    memory = lowered.memory
    shapes = memory[at.FUNCTION_SHAPE]
    flavours = memory[at.SHAPE_FLAVOUR][shapes]
    first = memory[at.NODE_DEVICE]
    slices = [memory[at.DEVICE_TOTAL][first[i] : first[i + 1]] for i in range(len(lowered.nodes))]
    room = np.full((len(shapes), len(lowered.nodes)), _MOST_INSTANCES)
    for f, (shape, flavour) in enumerate(zip(shapes, flavours, strict=True)):
        for needed, there in (
            (memory[at.SHAPE_VCPUS][shape], memory[at.NODE_TOTAL]),
            (memory[at.FLAVOUR_MEMORY][flavour], memory[at.NODE_MEMORY]),
        ):
            if needed > 0:
                room[f] = np.minimum(room[f], there // needed)
        vgpus = memory[at.FLAVOUR_VGPUS][flavour]
        if vgpus > 0:
            room[f] = np.minimum(room[f], [int((own_ // vgpus).sum()) for own_ in slices])
    return room


def _most_instances(lowered: Lowered) -> int:
    """How many instances there can be at once, and one more: the core wants room for another at every step.

    Idle ones may hold no capacity, but never outnumber what once ran at a time.
    """
    return int(min(_MOST_INSTANCES, _room(lowered).sum())) + 1


def _schedule_pressures(lowered: Lowered, scenario: Scenario) -> None:
    """Loads from outside, which every episode meets at the same instants. In the order of time, they are a heap."""
    memory = lowered.memory
    changes = sorted((change.at_s, i) for i, change in enumerate(scenario.pressures))
    for position, (instant, i) in enumerate(changes):
        memory[at.EVENT_AT][position] = instant
        memory[at.EVENT_ORDER][position] = i + 1
        memory[at.EVENT_WHAT][position] = at.PRESS | (i << at.KIND_BITS)
    c = memory[at.COUNT]
    c[at.EVENTS] = c[at.SEQUENCE] = c[at.FAULTS] = len(changes)
