"""Placement fronts: for stages that can each run in several ways, every trade of latency for cost worth knowing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, log10, prod

import numpy as np
from numpy.typing import NDArray

from fairlead.planning.decomposition import Graph, Kind, Part, decompose
from fairlead.planning.front import Front
from fairlead.planning.kernel import in_kernel
from fairlead.planning.merging import Allowance, Partial, in_parallel, in_series
from fairlead.planning.pareto import Floats, Indices, pareto_filter

Options = Sequence[Sequence[tuple[float, float]]]
Choices = NDArray[np.int16]

_COMBINATIONS_MOST = 1_000_000
_OPTIONS_MOST = 1 << 15  # that an index of 16 bits can name
_DIGITS = 15  # of a decimal grid: sums on it stay below 2^53, up to where floats are exact


def placement_front(graph: Graph, options: Options, *, limit: int = 5_000, epsilon: float = 0.01) -> Front:
    """All placements that no other beats in both latency (the critical path) and cost (the sum).

    Exact on series-parallel graphs of any size, as long as no front on the way has more members than can be held
    (100,000). What is not series-parallel is exact while at most `limit` partial placements have to be told apart. Past
    either, near ones are merged: within `epsilon` if that leaves few enough, otherwise as little beyond it as needed.
    `Front.epsilon` says what came of it. The least latency is exact in any case. Of equal placements one is kept,
    always the same.

    What grows with what: a series of n stages of r options whose front has m members takes n m r log m steps; parallel
    parts add up their members; two parallel parts in series multiply theirs. What is not series-parallel takes, per
    part of it, r x `limit` labels, and a logarithm more for every finish time that must be told apart.

    Args:
        graph: For each stage the indices of its predecessors, all smaller than its own. options: For each stage its
        options as (latency_s, cost_usd). One with an infinite number does not exist; a stage
            without any makes the front empty.
        limit: Labels kept at most where the graph is not series-parallel, at least 16.
        epsilon: The error to stay within where the front cannot be exact, in [0, 1).
    """
    if limit < 16:
        raise ValueError(f"limit must be at least 16; got {limit}.")
    if not 0 <= epsilon < 1:
        raise ValueError(f"epsilon must be in [0, 1); got {epsilon}.")
    stages = _stages(graph, options)
    parts = decompose(graph)
    if not stages or not all(len(stage.usable) for stage in stages):
        return _front(graph, stages, np.empty((0 if stages else 1, len(stages)), dtype=np.int16))
    stages = [stage.pruned() for stage in stages]
    fronts = _fronts(parts, stages, limit, Allowance(epsilon, len(stages)))
    choices = np.empty((len(fronts[0]), len(stages)), dtype=np.int16)
    rows: dict[int, Indices] = {0: np.arange(len(fronts[0]))}
    for position, part in enumerate(parts):
        chosen = rows.pop(position)
        if part.kind is Kind.STAGE:
            choices[:, part.first] = stages[part.first].usable[chosen]
        rows.update(fronts[position].unwind(chosen))
    return _front(graph, stages, choices, fronts[0].factor - 1)


def brute_force_front(graph: Graph, options: Options) -> Front:
    """The same front from looking at every placement: the truth, for at most a million of them.

    Of equal placements it keeps the one with the smallest indices, the first stage's first.
    """
    stages = _stages(graph, options)
    decompose(graph)  # it checks the graph
    shape = tuple(len(stage.usable) for stage in stages)
    count = prod(shape)
    if count > _COMBINATIONS_MOST:
        raise ValueError(f"brute force looks at {_COMBINATIONS_MOST:,} placements at most; got {count:,}.")
    choices = np.empty((count, len(stages)), dtype=np.int16)
    if count and shape:
        for column, (stage, rows) in enumerate(zip(stages, np.unravel_index(np.arange(count), shape), strict=True)):
            choices[:, column] = stage.usable[rows]
    return _front(graph, stages, choices)


@dataclass(frozen=True, eq=False)
class _Stage:
    """One stage's options as rows of (latency, cost), and the indices of those that may be chosen.

    `exact` holds the same numbers as `given`, in a unit in which their sums are exact if there is one.
    """

    given: Floats
    exact: Floats
    usable: Indices

    def pruned(self) -> "_Stage":
        """Without the options that another beats: whoever takes one can take the other instead."""
        kept = pareto_filter(self.exact[self.usable, 0], self.exact[self.usable, 1])
        return replace(self, usable=self.usable[kept])


def _stages(graph: Graph, options: Options) -> list[_Stage]:
    if len(options) != len(graph):
        raise ValueError(f"every stage needs its options; got {len(graph)} stages and {len(options)} lists of options.")
    tables = []
    for index, each in enumerate(options):
        table = np.array(each, dtype=np.float64).reshape(len(each), 2)
        if len(table) > _OPTIONS_MOST:
            raise ValueError(f"a stage has {_OPTIONS_MOST:,} options at most; stage {index} has {len(table):,}.")
        if not (table >= 0).all():
            raise ValueError(f"latencies and costs must not be negative; got {each} for stage {index}.")
        tables.append(table)
    exact = [np.column_stack(columns) for columns in zip(_on_a_grid(tables, 0), _on_a_grid(tables, 1), strict=True)]
    usable = [np.flatnonzero(np.isfinite(table).all(axis=1)) for table in tables]
    return [_Stage(*each) for each in zip(tables, exact, usable, strict=True)]


def _on_a_grid(tables: Sequence[Floats], column: int) -> list[Floats]:
    """This column as whole multiples of a power of ten, if that is what it holds (to 13 digits); otherwise unchanged.

    0.1 + 0.2 and 0.3 are then equal, whatever the order of a sum. Without this, placements that are equal on paper
    would differ in the last bit, and a front would hold many members where one is meant.
    """
    values = [table[:, column] for table in tables]
    total = sum(float(each.max(where=np.isfinite(each), initial=0.0)) for each in values)
    if not 1e-200 < total < 1e200:
        return values
    scale = 10.0 ** (_DIGITS - 1 - floor(log10(total)))
    scaled = [each * scale for each in values]
    whole = [np.rint(each) for each in scaled]
    is_near = all(np.isclose(a, b, rtol=1e-13, atol=0.0).all() for a, b in zip(scaled, whole, strict=True))
    return whole if is_near else values


def _fronts(parts: Sequence[Part], stages: Sequence[_Stage], limit: int, allowance: Allowance) -> list[Partial]:
    """The front of every part, in the order of the parts."""
    fronts: dict[int, Partial] = {}
    for position in reversed(range(len(parts))):  # a part comes before its own parts in the list
        part = parts[position]
        inner = [(each, fronts[each]) for each in part.parts]
        match part.kind:
            case Kind.STAGE:
                stage = stages[part.first]
                fronts[position] = Partial(stage.exact[stage.usable, 0], stage.exact[stage.usable, 1])
            case Kind.SERIES:
                fronts[position] = in_series(inner, allowance)
            case Kind.PARALLEL:
                fronts[position] = in_parallel(inner, allowance)
            case Kind.KERNEL:
                fronts[position] = in_kernel(inner, part.after, limit, allowance)
    return [fronts[position] for position in range(len(parts))]


def _front(graph: Graph, stages: Sequence[_Stage], choices: Choices, epsilon: float = 0.0) -> Front:
    """The front of these placements, each evaluated stage by stage in the order of the graph.

    However a placement was found, its latency and cost come from this one evaluation, and no member beats another.
    """
    choices = choices[pareto_filter(*_evaluate(graph, [stage.exact for stage in stages], choices))]
    latency, cost = _evaluate(graph, [stage.given for stage in stages], choices)
    kept = pareto_filter(latency, cost)
    return Front(latency[kept], cost[kept], choices[kept], epsilon)


def _evaluate(graph: Graph, tables: Sequence[Floats], choices: Choices) -> tuple[Floats, Floats]:
    """Critical path and sum of each placement."""
    latency, cost = np.zeros(len(choices)), np.zeros(len(choices))
    finishes: list[Floats] = []
    for predecessors, table, chosen in zip(graph, tables, choices.T, strict=True):
        finish = np.zeros(len(choices))
        for predecessor in predecessors:
            np.maximum(finish, finishes[predecessor], out=finish)
        finish += table[chosen, 0]
        cost += table[chosen, 1]
        finishes.append(finish)
        np.maximum(latency, finish, out=latency)
    return latency, cost
