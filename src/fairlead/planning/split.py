"""How the SLO of a workflow is divided among its stages: by dominator tree, into groups that are planned together.

The idea is ESG's (Hui, Xu, Guo, Shen: ESG, HPDC 2024, as told in its slides): functions are grouped by dominance, each
group of a few functions has a share of the latency, and the search for configurations runs per group. The slides name
these steps and no more; how each is carried out is ours (docs/design/slo_split.md).

A graph is cut wherever all its paths meet. What lies on all paths is a chain of groups; what lies between is a region
that weighs as much as its heaviest path. Units in series share by weight; each arm of a region has all of the region's
time and is split in the same way. Where a region cannot be cut, each stage has its share of the heaviest path through
it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf, isfinite
from typing import TYPE_CHECKING

from fairlead.planning.decomposition import Graph

if TYPE_CHECKING:
    from fairlead.planning.dominators import Net

_LIGHTEST = 1e-9  # of the heaviest: a stage of no weight still needs a share, or no time is left to run it in


@dataclass(frozen=True)
class Split:
    """Which stages are planned together, and what part of the SLO each may take.

    Attributes:
        groups: Every stage once: up to `group_size` stages that follow each other, in topological order.
        group_of: For each stage the position of its group.
        share: For each stage the part of the SLO that it may take. Along any path these make 1 at most.
        group_share: The same for each group: the sum over its stages.
        finish: For each stage the part of the SLO that is over when its *group* is to be done. Arms that join have the
            same. Never above 1.
        fractions, rests: See `fraction` and `rest`.
    """

    groups: tuple[tuple[int, ...], ...]
    group_of: tuple[int, ...]
    share: tuple[float, ...]
    group_share: tuple[float, ...]
    finish: tuple[float, ...]
    fractions: tuple[float, ...]
    rests: tuple[tuple[int, ...], ...]

    def rest(self, stage: int) -> tuple[int, ...]:
        """The stage and those after it in its group: what is planned together when it is about to start."""
        return self.rests[stage]

    def fraction(self, stage: int) -> float:
        """Of the time that is left when the stage is about to start, the part for the `rest` of its group, in (0, 1].

        Whatever was early or late before is thereby spread over all that is still to come. Who takes no more than
        this at every stage is done in time, however much was left to begin with.
        """
        return self.fractions[stage]


def slo_split(graph: Graph, weights: Sequence[float], *, group_size: int = 3) -> Split:
    """Divide an SLO over any directed acyclic graph of stages.

    The arms of a branch (`when`) are like any others that run side by side: whichever is taken has all of the time.

    Args:
        graph: For each stage the indices of its predecessors, all smaller than its own.
        weights: For each stage how long it is likely to take, in any unit (`average_weights`). Only ratios matter. One
            below a billionth of the largest counts as that, and if all are 0 they are equal.
        group_size: Stages that are planned together at most, at least 1.
    """
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1; got {group_size}.")
    weight = _checked(graph, weights)
    from fairlead.planning.dominators import Net  # noqa: PLC0415 - networkx takes longer to load than most commands run

    builder = _Builder(Net(graph), weight, group_size)
    if graph:
        builder.series(builder.net.order, after=0.0, length=1.0)
    return builder.split()


def proportional(graph: Graph, weights: Sequence[float]) -> tuple[float, ...]:
    """For each stage its part of the SLO by its weight alone: of the heaviest path through it, what part it makes.

    The plain rule, for schedulers that know a latency per function and no workflow. Along any path the parts make 1 at
    most; a light path between heavy ones leaves time unused.
    """
    weight = _checked(graph, weights)
    after: list[list[int]] = [[] for _ in graph]
    for stage, predecessors in enumerate(graph):
        for each in predecessors:
            after[each].append(stage)
    heads = _heaviest(range(len(graph)), graph, weight)
    tails = _heaviest(range(len(graph) - 1, -1, -1), after, weight)
    return tuple(w / (heads[i] + tails[i] - w) for i, w in enumerate(weight))


def average_weights(times: Sequence[Sequence[float]]) -> list[float]:
    """For each stage its average part of a request's time, over configurations; they sum to 1.

    Lists of one length are read as times under the same configurations: for each, every stage's part of the sum, then
    the mean of the parts, so that slow configurations count no more than quick ones. Otherwise a stage has its mean
    time over the sum of the means.

    Args:
        times: For each stage its times, in any unit, one per configuration. Infinite ones do not count.
    """
    for stage, own in enumerate(times):
        if not all(each >= 0 for each in own):
            raise ValueError(f"times must not be negative; got {list(own)} for stage {stage}.")
        if not any(isfinite(each) for each in own):
            raise ValueError(f"every stage needs a finite time; stage {stage} has none.")
    if len({len(own) for own in times}) == 1:
        columns = [column for column in zip(*times, strict=True) if 0 < sum(column) < inf]
        if columns:
            sums = [sum(column) for column in columns]
            return [
                sum(each / whole for each, whole in zip(own, sums, strict=True)) / len(sums)
                for own in zip(*columns, strict=True)
            ]
    means = []
    for own in times:
        finite = [each for each in own if isfinite(each)]
        means.append(sum(finite) / len(finite))
    whole = sum(means)
    return [each / whole if whole > 0 else 1 / len(means) for each in means]


def _checked(graph: Graph, weights: Sequence[float]) -> list[float]:
    """The weights, the largest 1, after a look at the graph."""
    for stage, predecessors in enumerate(graph):
        for each in predecessors:
            if not 0 <= each < stage:
                raise ValueError(
                    f"a predecessor must come earlier in the graph, which is in topological order; "
                    f"stage {stage} names {each}."
                )
    if len(weights) != len(graph):
        raise ValueError(f"every stage needs a weight; got {len(graph)} stages and {len(weights)} weights.")
    if not all(0 <= weight < inf for weight in weights):
        raise ValueError(f"weights must be finite and not negative; got {list(weights)}.")
    most = max(weights, default=0.0)
    return [max(weight / most, _LIGHTEST) if most > 0 else 1.0 for weight in weights]


def _heaviest(
    points: Sequence[int], before: Sequence[Sequence[int]] | Mapping[int, Sequence[int]], weight: Sequence[float]
) -> dict[int, float]:
    """The weight of the heaviest path to each of these points, itself included; each comes after those before it."""
    heaviest: dict[int, float] = {}
    for point in points:
        heaviest[point] = weight[point] + max((heaviest.get(each, 0.0) for each in before[point]), default=0.0)
    return heaviest


class _Builder:
    """Collects groups while the graph is cut. Time is counted from the end: `after` is what must be left to others."""

    def __init__(self, net: "Net", weight: Sequence[float], group_size: int) -> None:
        self.net = net
        self.weight = [*weight, *[0.0] * (len(net.order) - len(weight))]  # a knot weighs nothing
        self.group_size = group_size
        self.found: list[tuple[tuple[int, ...], float, float]] = []  # stages, after, length
        self.open: list[tuple[list[int], float, float]] = []

    def series(self, points: Sequence[int], *, after: float, length: float) -> None:
        """Divide this length among these points and all inside; a list and no recursion, for graphs nest deeply."""
        self.open.append((list(points), after, length))
        while self.open:
            inner, after, length = self.open.pop()
            units = self._units(inner)
            weights = [self._weight(unit) for unit in units]
            whole = sum(weights)
            behind = list(accumulate(reversed(weights), initial=0.0))[-2::-1]  # for each unit, the weight after it
            for unit, own, later in zip(units, weights, behind, strict=True):
                self._place(unit, after + length * later / whole, length * own / whole)

    def split(self) -> Split:
        groups = sorted(self.found)
        count = self.net.count
        group_of, share, finish, fractions = [0] * count, [0.0] * count, [0.0] * count, [0.0] * count
        rests: list[tuple[int, ...]] = [()] * count
        for position, (stages, after, length) in enumerate(groups):
            whole = sum(self.weight[stage] for stage in stages)
            behind = 0.0
            for place, stage in reversed(list(enumerate(stages))):
                behind += self.weight[stage]
                group_of[stage] = position
                share[stage] = length * self.weight[stage] / whole
                finish[stage] = 1 - after
                rest = length if place == 0 else length * behind / whole
                fractions[stage] = rest / (rest + after)
                rests[stage] = stages[place:]
        return Split(
            groups=tuple(stages for stages, _, _ in groups),
            group_of=tuple(group_of),
            share=tuple(share),
            group_share=tuple(length for _, _, length in groups),
            finish=tuple(finish),
            fractions=tuple(fractions),
            rests=tuple(rests),
        )

    def _units(self, points: Sequence[int]) -> list[tuple[bool, list[int]]]:
        """What follows each other: groups of the spine (True), and regions between them."""
        units: list[tuple[bool, list[int]]] = []
        is_open = False
        for unit in self.net.series(points):
            if len(unit) > 1:
                units.append((False, unit))
                is_open = False
            elif not self.net.is_stage(unit[0]):
                is_open = False
            elif is_open and len(units[-1][1]) < self.group_size:
                units[-1][1].append(unit[0])
            else:
                units.append((True, list(unit)))
                is_open = True
        return units

    def _weight(self, unit: tuple[bool, list[int]]) -> float:
        is_group, points = unit
        if is_group:
            return sum(self.weight[stage] for stage in points)
        return max(_heaviest(points, self.net.before, self.weight).values())

    def _place(self, unit: tuple[bool, list[int]], after: float, length: float) -> None:
        is_group, points = unit
        if is_group:
            self.found.append((tuple(points), after, length))
            return
        arms = self.net.arms(points)
        if len(arms) > 1:
            self.open += [(arm, after, length) for arm in arms]
            return
        # All hangs together and nothing is on every path (or a cut would have found it). By the heaviest path through
        # a stage: what must be done before it, itself, what must follow. Along an edge the first grows and the last
        # falls, so that no stage's time overlaps with that of one before it.
        heads = _heaviest(points, self.net.before, self.weight)
        tails = _heaviest(points[::-1], self.net.after, self.weight)
        for point in points:
            if self.net.is_stage(point):
                own = self.weight[point]
                whole = heads[point] + tails[point] - own
                self.found.append(((point,), after + length * (tails[point] - own) / whole, length * own / whole))
