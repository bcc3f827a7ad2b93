"""The placements of a workflow that are worth trying: prepared before the run, chosen on each request.

Those on the front of latency and cost, and beside them those that spare one resource or another: a placement that is
both slower and more expensive than another may still be the one to take when the other's bottleneck is full.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from operator import is_
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fairlead.model import Workflow
from fairlead.planning import Front, placement_front
from fairlead.policy.base import Site
from fairlead.policy.dag_admission.tasks import Way, tasks_of
from fairlead.profile import Estimate

_BETWEEN = (0.25, 0.5, 0.75)  # how the weight is shared between two resources

Floats = NDArray[np.float64]
Selection = Literal["random", "cheapest", "fastest", "balanced"]


class DagPlan:
    """One workflow prepared: its tasks in topological order, and its placements.

    Placements are counted from 0: first the members of `front`, then those that spare a resource. `latency_s` and
    `cost_usd` are optimistic: nothing waits, and what can be warm is. `work_s` says how many seconds of all vCPUs and
    of all vGPUs of each kind a placement uses, with cold starts where no instance stays warm. `index` finds a task by
    its key.
    """

    def __init__(self, workflow: Workflow, ways: Mapping[str, tuple[Way, ...]], site: Site) -> None:
        self.workflow = workflow
        self.tasks = tasks_of(workflow, site.functions)
        self.index = {task.key: index for index, task in enumerate(self.tasks)}
        self.ways = tuple(ways[stage.function] for stage in workflow.stages)
        copies = [0] * len(workflow.stages)
        for task in self.tasks:
            copies[task.stage] += 1
        positions = {stage.name: i for i, stage in enumerate(workflow.stages)}
        self._graph = [[positions[name] for name in stage.after] for stage in workflow.stages]
        bills_cold = site.cluster.price.bill_cold_start
        self._options: list[list[tuple[float, float]]] = []
        self._work: list[Floats] = []
        for stage, count, own in zip(workflow.stages, copies, self.ways, strict=True):
            profile = site.profiles[stage.function]
            self._options.append([_option(way, profile, count, bills_cold) for way in own])
            self._work.append(_work(own, profile, count, tuple(site.cluster.kinds)))
        self.front: Front = placement_front(self._graph, self._options)
        self.choices: list[list[int]] = self.front.choices.tolist()
        self.choices += self._sparing(self.choices)
        self.latency_s = np.array([self._latency_s(row) for row in self.choices])
        self.cost_usd = np.array([self._cost_usd(row) for row in self.choices])
        self.work_s = np.array([sum(self._work[i][c] for i, c in enumerate(row)) for row in self.choices])
        self._choices = np.array(self.choices, dtype=np.intp).reshape(len(self.choices), len(self.ways))
        self._cold_s = [np.array([0.0 if way.has_seats else way.cold_s for way in own]) for own in self.ways]
        self._placements: dict[int, tuple[Way, ...]] = {}
        self._missing: tuple[frozenset[tuple[object, ...]], NDArray[np.intp]] | None = None  # for these sizes
        self._safe: tuple[Sequence[Floats], Floats] | None = None  # for these durations

    def placement(self, index: int) -> tuple[Way, ...]:
        """The way to run each stage."""
        found = self._placements.get(index)
        if found is None:
            found = tuple([own[i] for own, i in zip(self.ways, self.choices[index], strict=True)])
            self._placements[index] = found
        return found

    def safe_latency_s(self, seconds: Sequence[Floats]) -> Floats:
        """The latency of each placement, where nothing waits and what can be warm is.

        `seconds` has the safe durations of all ways of each stage, in arrays that are never changed.
        """
        if self._safe is not None and all(map(is_, self._safe[0], seconds)):
            return self._safe[1]
        ends: list[Floats] = []
        for stage, before in enumerate(self._graph):
            own = (seconds[stage] + self._cold_s[stage])[self._choices[:, stage]]
            ends.append(own + reduce(np.maximum, [ends[j] for j in before]) if before else own)
        latest: Floats = reduce(np.maximum, ends)
        self._safe = seconds, latest
        return latest

    def rest_s(self, seconds: Sequence[float]) -> list[float]:
        """How long the successors of each stage take at least after it, if the stages take these times."""
        rest = [0.0] * len(self._graph)
        for stage in range(len(rest) - 1, -1, -1):
            for before in self._graph[stage]:
                rest[before] = max(rest[before], seconds[stage] + rest[stage])
        return rest

    def missing(self, sizes: frozenset[tuple[object, ...]]) -> NDArray[np.intp]:
        """Of each placement, how many of its stages that could be warm have no instance of one of these sizes."""
        if self._missing is None or self._missing[0] is not sizes:
            found = np.zeros(len(self.choices), dtype=np.intp)
            for stage, ways in enumerate(self.ways):
                lacks = np.array([way.has_seats and way.seat_key not in sizes for way in ways], dtype=np.intp)
                found += lacks[self._choices[:, stage]]
            self._missing = sizes, found
        return self._missing[1]

    def _sparing(self, known: list[list[int]]) -> list[list[int]]:
        """Placements within the workflow's objectives that use least of one resource, or of two in some proportion."""
        slo = self.workflow.slo
        found: list[list[int]] = []
        for weights in _weights(sum(rows.sum(axis=0) for rows in self._work)) if known else ():
            weighted = [
                [(latency_s, float(work)) for (latency_s, _), work in zip(options, rows @ weights, strict=True)]
                for options, rows in zip(self._options, self._work, strict=True)
            ]
            front = placement_front(self._graph, weighted)
            last = int(np.searchsorted(front.latency_s, slo.latency_s, side="right"))
            if last:
                choice = front.choices[last - 1].tolist()
                if self._cost_usd(choice) <= slo.cost_usd and choice not in known and choice not in found:
                    found.append(choice)
        return found

    def _cost_usd(self, choice: list[int]) -> float:
        return sum(self._options[i][c][1] for i, c in enumerate(choice))

    def _latency_s(self, choice: list[int]) -> float:
        ends: list[float] = []
        for before, options, c in zip(self._graph, self._options, choice, strict=True):
            ends.append(max((ends[j] for j in before), default=0.0) + options[c][0])
        return max(ends)


def _weights(used: Floats) -> list[Floats]:
    """Each resource that is used at all alone, and neighbours in several proportions."""
    ones = [row for row in np.eye(len(used)) if used[row.argmax()] > 0]
    mixed = [share * one + (1 - share) * other for one, other in pairwise(ones) for share in _BETWEEN]
    return ones + mixed if len(ones) > 1 else []


def _option(way: Way, profile: Estimate, count: int, bills_cold: bool) -> tuple[float, float]:
    seconds = profile.latency_s(way.configuration, way.kind)
    cold_s = 0.0 if way.has_seats else way.cold_s
    return cold_s + seconds, count * way.usd_per_s * (seconds + (cold_s if bills_cold else 0.0))


def _work(ways: tuple[Way, ...], profile: Estimate, count: int, kinds: tuple[str, ...]) -> Floats:
    """A row per way: seconds of all vCPUs and of all vGPUs of each kind."""
    rows = np.zeros((len(ways), 2 * len(kinds)))
    for i, way in enumerate(ways):
        cold_s = 0.0 if way.has_seats else way.cold_s
        seconds = count * (cold_s + profile.latency_s(way.configuration, way.kind))
        at = 2 * kinds.index(way.kind)
        rows[i, at : at + 2] = seconds * way.share[0], seconds * way.share[1]
    return rows


def candidates(
    dag: DagPlan,
    latency_s: float,
    cost_usd: float,
    selection: Selection,
    sample: int,
    pressure: Floats,
    rng: np.random.Generator,
    missing: NDArray[np.intp] | None = None,
    safe_latency_s: Floats | None = None,
) -> list[int]:
    """Placements that could meet both objectives, in the order to try them: at most `sample` (0: all) of a kind.

    Those of which all instances are there (none are `missing`) come before those of which some must be started; of
    these, the ones that miss fewest come first. `random` draws from the front without replacement, as published.
    `cheapest` and `fastest` take the first of the front by cost or latency. `balanced` takes those that leave the least
    work ahead of the busiest resource; for it alone, placements that spare a resource count too. `pressure` has the
    seconds of work that are ahead of all vCPUs and of all vGPUs of each kind. Placements that are too slow by safe
    durations are left out unless all are.
    """
    if selection == "balanced":
        members = np.flatnonzero((dag.latency_s <= latency_s) & (dag.cost_usd <= cost_usd))
        if len(members) > 1:
            after = (dag.work_s[members] + pressure).max(axis=1)
            members = members[np.argsort(after, kind="stable")]
    else:
        within = dag.front.within(latency_s, cost_usd)
        members = np.arange(within.start, within.stop)
    if safe_latency_s is not None:
        is_safe = safe_latency_s[members] <= latency_s
        members = members[is_safe] if is_safe.any() else members
    if selection == "cheapest":
        members = members[::-1]  # the front is sorted by latency, which on a front is by falling cost
    kinds = [members]
    if missing is not None:
        lacking = missing[members]
        others = np.flatnonzero(lacking)
        kinds = [members[lacking == 0], members[others[np.argsort(lacking[others], kind="stable")]]]
    chosen: list[int] = []
    for alike in kinds:
        count = len(alike) if sample == 0 else min(sample, len(alike))
        drawn = rng.choice(alike, size=count, replace=False) if selection == "random" and count else alike[:count]
        chosen += drawn.tolist()
    return chosen
