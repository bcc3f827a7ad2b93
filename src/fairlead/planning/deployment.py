"""How long one request takes with its functions where they are, and where they would be quickest.

For workflows whose functions stay on nodes for many requests, one request at a time, on nodes that load from outside
may slow down. An estimate: a stage begins when its predecessors have ended; calls of a map go through so many workers,
stage after stage, and no faster than the node's vCPUs allow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import inf
from typing import Protocol

from fairlead.model import Cluster, Configuration, Node, Stage, Workflow
from fairlead.profile.interference import slowdown, under_pressure

_MOST_PRESSURE = 0.98

Groups = Mapping[str, tuple[str, ...]]
Places = Mapping[str, str]


class Times(Protocol):
    """What is known of a function's times: a `Profile`, or what somebody believes of one. The first size counts."""

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Sizes of a run."""
        ...

    @property
    def overhead_s(self) -> float:
        """Of each run besides its work, on no CPU."""
        ...

    @property
    def sensitivity(self) -> float:
        """To load from outside, where no curve says it."""
        ...

    @property
    def pressure_curves(self) -> Mapping[str, Sequence[tuple[float, float]]]:
        """What load from outside costs, by kind of node."""
        ...

    def latency_s(self, configuration: Configuration, kind: str, speed: float = 1.0, /) -> float:
        """One run, alone."""
        ...


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is deployed: a workflow over groups of functions, each group on one node.

    `workers` calls of mapped stages are under way at a time.
    """

    workflow: Workflow
    profiles: Mapping[str, Times]
    cluster: Cluster
    groups: Groups
    workers: int = 4

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """Those of the cluster, by name."""
        return {node.name: node for node in self.cluster.nodes}


class Timetable:
    """What the stages of a problem take on each node under given pressure, worked out once and when first asked for.

    For whoever compares many placements.
    """

    def __init__(self, problem: Problem, pressures: Mapping[str, float] | None = None) -> None:
        self.problem, self.pressures = problem, pressures or {}
        group_of = {function: group for group, functions in problem.groups.items() for function in functions}
        regions = problem.workflow.regions
        self._stages = [(stage, group_of[stage.function], regions[stage.name]) for stage in problem.workflow.stages]
        self._took_s: dict[tuple[str, str], float] = {}

    def latency_s(self, places: Places) -> float:
        """What one request takes with each group on its node."""
        return self.spans(places)[0]

    def spans(self, places: Places) -> tuple[float, float]:
        """What one request takes, and what its stages take together, whether they overlap or not."""
        ends: dict[str, float] = {}
        worked: dict[str, float] = {}  # until when the workers are at work on a map
        last_s = total_s = 0.0
        for stage, group, region in self._stages:  # in topological order
            begins = max([ends[name] for name in stage.after], default=0.0)
            if region is not None:  # all its stages go through the same workers
                begins = max(begins, worked.get(region, 0.0))
            took_s = self._stage_s(stage, places[group])
            ends[stage.name] = end = begins + took_s
            total_s += took_s
            last_s = max(last_s, end)
            if region is not None:
                worked[region] = end
        return last_s, total_s

    def _stage_s(self, stage: Stage, node: str) -> float:
        key = stage.name, node
        found = self._took_s.get(key)
        if found is None:
            found = self._took_s[key] = _stage_s(self.problem, stage, node, self.pressures)
        return found


def latency_s(problem: Problem, places: Places, pressures: Mapping[str, float] | None = None) -> float:
    """What one request takes with each group on its node, while load from outside takes these shares of nodes."""
    return Timetable(problem, pressures).latency_s(places)


def quickest(problem: Problem, pressures: Mapping[str, float] | None = None) -> tuple[float, dict[str, str]]:
    """The least time of all placements, and the placement; of equal ones the first."""
    table = Timetable(problem, pressures)
    return min(((table.latency_s(places), places) for places in placements(problem)), key=lambda found: found[0])


def improved(
    problem: Problem,
    first: Places,
    pressures: Mapping[str, float] | None = None,
    *,
    is_possible: Callable[[Places, str], bool] = lambda _places, _group: True,
) -> tuple[float, dict[str, str]]:
    """From a placement on, one group after the other to where a request is quickest; how long that takes, and where.

    For many groups and nodes, where `quickest` has too many placements to look at; its equal where each group is one
    function and everything is possible. Of nodes that are equal for the request, a group takes the one where it needs
    least time itself: where branches run side by side, moving one of them alone changes nothing.

    Args:
        problem: What is deployed.
        first: Where groups are.
        pressures: Load from outside, by node.
        is_possible: Whether a group may be where the placement has it.
    """
    table, places = Timetable(problem, pressures), dict(first)
    best = table.spans(places)
    is_better = True
    while is_better:
        is_better = False
        for group in problem.groups:
            for node in problem.nodes:
                found = {**places, group: node}
                spans = table.spans(found)
                if spans < best and is_possible(found, group):
                    best, places, is_better = spans, found, True
    return best[0], places


def is_doable(
    problem: Problem, slo_s: float, pressures: Mapping[str, float] | None = None, *, slack: float = 0.0
) -> bool:
    """Whether any placement meets an objective, with so much of it to spare."""
    return quickest(problem, pressures)[0] <= slo_s * (1 - slack)


def placements(problem: Problem) -> Iterator[dict[str, str]]:
    """Every way to put the groups on nodes."""
    for chosen in product(problem.nodes, repeat=len(problem.groups)):
        yield dict(zip(problem.groups, chosen, strict=True))


def call_s(problem: Problem, function: str, node: str, pressure: float) -> float:
    """What one call of a function takes on a node, alone but for the load from outside; without its overhead."""
    found = problem.nodes[node]
    profile = problem.profiles[function]
    curve = profile.pressure_curves.get(found.kind)
    configuration = profile.configurations[0]
    share = configuration.vcpus / found.vcpus if found.vcpus else 0.0
    if curve is None:  # what others take is missing from what the call could have had
        factor = max(1.0, share / (1 - min(pressure, _MOST_PRESSURE))) * slowdown(profile.sensitivity, 0.0, pressure)
    else:
        factor = max(1.0, share) * under_pressure(curve, pressure)
    return profile.latency_s(configuration, found.kind, found.speed) * factor


def _stage_s(problem: Problem, stage: Stage, node: str, pressures: Mapping[str, float]) -> float:
    profile = problem.profiles[stage.function]
    work_s = call_s(problem, stage.function, node, pressures.get(node, 0.0))
    if work_s == inf:
        return inf
    calls = _calls(problem.workflow, stage)
    if problem.workflow.regions[stage.name] is None:
        return calls * (profile.overhead_s + work_s)
    vcpus = problem.nodes[node].vcpus
    share = min(1.0, profile.configurations[0].vcpus / vcpus) if vcpus else 1.0
    return calls * max((profile.overhead_s + work_s) / problem.workers, work_s * share)


def _calls(workflow: Workflow, stage: Stage) -> float:
    """How often a stage runs for a request, on average."""
    region = workflow.regions[stage.name]
    opener = next((one for one in workflow.stages if one.name == region), None)
    calls = sum(opener.map) / 2 if opener is not None and opener.map is not None else 1.0
    current: Stage | None = stage
    while current is not None and current.when is not None:
        calls *= current.when
        before: Sequence[str] = current.after
        current = next((one for one in workflow.stages if one.name in before), None)
    return calls
