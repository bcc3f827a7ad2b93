"""The world of a scaling environment: its arrays, its ladders of sizes, and one call per control period."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from fairlead.engine.sim.compiled import layout as at
from fairlead.engine.sim.compiled import packing as own
from fairlead.engine.sim.compiled import periods
from fairlead.engine.sim.compiled.coverage import scenario_gap
from fairlead.engine.sim.compiled.lower import Lowered, Rule, lower
from fairlead.engine.sim.compiled.memory import Array
from fairlead.engine.sim.compiled.packing import random_state
from fairlead.errors import UncoveredError
from fairlead.learn.environments.worlds import drawing_of, rates_rps
from fairlead.model import Configuration
from fairlead.policy.kit.measuring import stage_goals
from fairlead.profile import Estimate
from fairlead.workload import AzureLike, Poisson, Scenario

_CHUNK = 256  # arrivals drawn at once
_SAMPLES = 4096  # latencies kept per function and period
_STEP = 0.128  # vCPUs, and GB, of one vertical step


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """The sizes that a replica can have: steps of vCPUs and of memory, and where it begins, if that is enough."""

    vcpus: tuple[float, ...] = tuple(round(_STEP * i, 3) for i in range(1, 17))
    memory_gb: tuple[float, ...] = tuple(0.125 * i for i in range(2, 25))
    first_vcpus: float = 1.024
    first_memory_gb: float = 0.25

    def __post_init__(self) -> None:
        for name, steps, first in (
            ("vcpus", self.vcpus, self.first_vcpus),
            ("memory_gb", self.memory_gb, self.first_memory_gb),
        ):
            if not steps or list(steps) != sorted(set(steps)) or steps[0] <= 0:
                raise ValueError(f"{name} must rise, from above 0; got {steps}.")
            if first not in steps:
                raise ValueError(f"first_{name} must be one of {name}; got {first}.")


class Tenants:
    """Functions of one scenario that share its cluster, each on replicas of its own."""

    def __init__(
        self, scenario: Scenario, ladder: Ladder, least: int, most: int, requests: int, *, until_s: float
    ) -> None:
        reason = scenario_gap(scenario) or _gap(scenario)
        if reason is not None:
            raise UncoveredError(scenario.name, reason)
        self.scenario = scenario = _with_rungs(scenario, ladder)
        self.ladder = ladder
        self._until_s = until_s
        self.functions = tuple(scenario.functions)
        sizes = {name: _sizes(scenario, name, ladder) for name in self.functions}
        instances = 4 * most * len(self.functions) + 64
        self.lowered = lowered = lower(
            scenario,
            Rule(number=at.LEAST_LOADED),
            instances=instances,
            requests=requests,
            sizes={name: [c for c in own_ if c is not None] for name, own_ in sizes.items()},
        )
        memory = lowered.memory
        c = memory[at.COUNT]
        c[at.RECORDS], c[at.TALLIES], c[at.MORE_ARRIVALS] = at.KEEP_INVOCATIONS, 1, 1
        rows = 2 * instances
        memory.whole(at.INVOCATION_INTS, rows * at.INVOCATION_INT_COLUMNS)
        memory.real(at.INVOCATION_REALS, rows * at.INVOCATION_REAL_COLUMNS)
        c[at.INVOCATION_ROOM] = rows
        c[at.REQUEST_ROOM] = c[at.INSTANCE_ROOM] = at.INFINITE  # none is written
        memory.real(at.ARRIVAL_AT, _CHUNK)
        memory.whole(at.ARRIVAL_WORKFLOW, _CHUNK)
        memory.real(at.ARRIVAL_DRAWS, _CHUNK * max(1, int(c[at.DRAWS])))
        drawing = drawing_of(steady(scenario), lowered.draws)
        self._extra: dict[int, Array] = {
            own.OWN: np.zeros(own.OWN_COUNTS, np.int64),
            own.OWN_REALS: np.zeros(own.OWN_CLOCKS),
            own.CHANCES: drawing.chances.copy(),
            own.DRAW_KIND: drawing.kinds,
            own.DRAW_SIGMA: drawing.sigmas,
        }
        self._extra[own.OWN][own.CHUNK] = _CHUNK
        self._mean_rps = rates_rps(steady(scenario))
        self._arrivals = [(list(scenario.workflows).index(a.workflow), a) for a in scenario.arrivals]
        self._levels: list[tuple[int, float, float, NDArray[np.float64]]] = []
        self._table = _table(lowered, self._extra)
        self._h = int(self._table.ctypes.data)
        self._pristine = [(block, block.copy()) for block in memory.blocks().values()]
        self._ladders = _ladders(lowered, sizes)
        self._bounds = np.array([least, most, len(ladder.vcpus), len(ladder.memory_gb)])
        self._places = np.zeros((len(self.functions), periods.PLACE_COLUMNS), np.int64)
        self.measures = np.zeros((len(self.functions), periods.MEASURES))
        self._latencies = np.zeros((len(self.functions), _SAMPLES))
        self._late = np.zeros((len(self.functions), _SAMPLES))
        self._came = np.zeros(1 << (8 * requests).bit_length())
        self._goals = _goals(scenario)
        self._episode = 0
        self._seed = random_state(0)
        self.needs_gb = np.array([f.memory_gb for f in scenario.functions.values()])
        nodes = scenario.cluster.nodes
        self.vcpus = float(sum(node.vcpus for node in nodes))
        self.memory_gb = float(sum(node.memory_gb for node in nodes))
        numbers = {name: i for i, name in enumerate(self.functions)}
        self._uses = [np.array([numbers[f] for f in workflow.functions]) for workflow in scenario.workflows.values()]

    @property
    def now(self) -> float:
        """Seconds since the episode began."""
        return float(self.lowered.memory[at.CLOCK][at.NOW])

    @property
    def is_present(self) -> NDArray[np.bool_]:
        """Which functions are there."""
        return np.asarray(self._places[:, periods.IS_PRESENT], np.bool_)

    @property
    def steps(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where each function stands on the ladders of vCPUs and of memory."""
        return self._places[:, periods.VCPU_STEP], self._places[:, periods.MEMORY_STEP]

    def seed(self, seed: int) -> None:
        """Begin the random numbers anew."""
        self._seed, self._episode = random_state(seed), 0

    def begin(self) -> None:
        """An episode in which nobody is there yet."""
        for block, values in self._pristine:
            block[:] = values
        self._episode += 1
        numbers = self._extra[own.OWN]
        numbers[own.RANDOM] = random_state([int(self._seed) & (2**63 - 1), self._episode])
        self._extra[own.OWN_REALS][own.DRAWN_UNTIL] = 0.0
        self._levels = self._drawn_levels()
        self._places[:] = 0
        self.measures[:] = 0

    def _drawn_levels(self) -> list[tuple[int, float, float, NDArray[np.float64]]]:
        """Of each arrival process whose rate wanders: its workflow, mean and period, and how the rate goes."""
        generators = np.random.default_rng([int(self._seed) & (2**63 - 1), self._episode]).spawn(len(self._arrivals))
        return [
            (
                workflow,
                process.rate_rps,
                process.period_s,
                process.levels(rng, int(self._until_s // process.period_s) + 1),
            )
            for (workflow, process), rng in zip(self._arrivals, generators, strict=True)
            if isinstance(process, AzureLike)
        ]

    def join(self, function: int, replicas: int, rung: int | None = None) -> bool:
        """Let a function be there from now on; False if the arrays have no room for it."""
        first = self.ladder.vcpus.index(self.ladder.first_vcpus) if rung is None else rung
        self._places[function, periods.VCPU_STEP] = first
        self._places[function, periods.MEMORY_STEP] = _first_memory(self.ladder, float(self.needs_gb[function]))
        status = periods.join(self._h, function, replicas, self._places, self._ladders, self._bounds, self.measures)
        return bool(status == periods.OK)

    def leave(self, function: int) -> None:
        """Let a function go."""
        periods.leave(self._h, function, self._places)

    def run(self, until: float, actions: NDArray[np.int64]) -> bool:
        """Let all act and run up to an instant; False if the arrays have no room. `measures` says what came of it."""
        self._set_rates()
        status = periods.run_period(
            self._h,
            until,
            actions,
            self._places,
            self._ladders,
            self._bounds,
            self.measures,
            self._latencies,
            self._late,
            self._came,
            self._goals,
        )
        return bool(status == periods.OK)

    def _set_rates(self) -> None:
        """Workflows all of whose functions are there bring requests, as many as their rates say now."""
        rates = self._mean_rps.copy()
        for workflow, mean_rps, period_s, levels in self._levels:
            rates[workflow] += mean_rps * (levels[min(int(self.now // period_s), len(levels) - 1)] - 1)
        if not self.is_present.all():
            present = self.is_present
            rates *= [present[uses].all() for uses in self._uses]
        total = float(rates.sum())
        self._extra[own.OWN_REALS][own.GAP] = 1 / total if total > 0 else inf
        self._extra[own.CHANCES][:] = np.cumsum(rates) / total if total > 0 else 1.0


def steady(scenario: Scenario) -> Scenario:
    """The scenario with Poisson arrivals in place of those whose rate wanders."""
    arrivals = tuple(Poisson(a.workflow, a.rate_rps) if isinstance(a, AzureLike) else a for a in scenario.arrivals)
    return replace(scenario, arrivals=arrivals)


def _gap(scenario: Scenario) -> str | None:
    for name, profile in scenario.profiles.items():
        if any(c.vgpus or c.batch > 1 for c in profile.configurations):
            return f"function {name} runs on a GPU or in batches, and a scaling environment has neither"
    return None


def _with_rungs(scenario: Scenario, ladder: Ladder) -> Scenario:
    """The scenario with every number of vCPUs on the ladder among the configurations of its functions."""
    profiles = {
        name: structs.replace(
            profile,
            configurations=tuple(
                Configuration(vcpus=vcpus)
                for vcpus in ladder.vcpus
                if all(profile.latency_s(Configuration(vcpus=vcpus), kind) < inf for kind in scenario.cluster.kinds)
            ),
        )
        for name, profile in scenario.profiles.items()
    }
    return replace(scenario, profiles=profiles)


def _sizes(scenario: Scenario, name: str, ladder: Ladder) -> list[Configuration | None]:
    """The sizes of a function, row by row; None where it needs more memory, or its law knows no such run."""
    profile, needs_gb = scenario.profiles[name], scenario.functions[name].memory_gb
    sizes: list[Configuration | None] = []
    for vcpus in ladder.vcpus:
        for memory_gb in ladder.memory_gb:
            is_known = Configuration(vcpus=vcpus) in profile.configurations
            size = Configuration(vcpus=vcpus, memory_gb=memory_gb)
            sizes.append(size if is_known and memory_gb >= needs_gb else None)
    first = sizes[ladder.vcpus.index(ladder.first_vcpus) * len(ladder.memory_gb) + _first_memory(ladder, needs_gb)]
    if first is None:
        raise UncoveredError(
            scenario.name,
            f"function {name} cannot begin with {ladder.first_vcpus} vCPU and the {needs_gb} GB that it needs",
        )
    return sizes


def _first_memory(ladder: Ladder, needs_gb: float) -> int:
    """The step of memory that a function begins with: that of the ladder, or more where it needs more."""
    fitting = [i for i, memory_gb in enumerate(ladder.memory_gb) if memory_gb >= max(needs_gb, ladder.first_memory_gb)]
    return fitting[0] if fitting else len(ladder.memory_gb) - 1


def _ladders(lowered: Lowered, sizes: Mapping[str, Sequence[Configuration | None]]) -> NDArray[np.int64]:
    numbers = {key: i for i, key in enumerate(lowered.shapes)}
    return np.array([[-1 if c is None else numbers[name, c] for c in own_] for name, own_ in sizes.items()])


def _table(lowered: Lowered, extra: Mapping[int, Array]) -> NDArray[np.int64]:
    memory = lowered.memory
    table = np.zeros(2 * own.ENVIRONMENT_FIELDS, np.int64)
    table[::2] = table.ctypes.data  # fields that are not in use lie nowhere in particular
    declared = {field: memory[field] for group in memory.blocks() for field in group}
    for field, array in {**declared, **extra}.items():
        table[2 * field], table[2 * field + 1] = array.ctypes.data, len(array)
    return table


def _goals(scenario: Scenario) -> NDArray[np.float64]:
    """For each stage of all workflows, how long after its request came it is meant to have ended."""
    estimates = {name: Estimate(profile, scenario.cluster) for name, profile in scenario.profiles.items()}
    goals = stage_goals(scenario.workflows, estimates)
    stages = [(name, stage.name) for name, workflow in scenario.workflows.items() for stage in workflow.stages]
    return np.array([goals[key].seconds if key in goals else inf for key in stages])
