"""The stages of a search as arrays: read and checked, and how exactly their sums can be compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, frexp, inf, isfinite, ldexp, prod

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
# Choices (a row for each path), latencies and costs of paths; steps, cut by time, cut by cost.
Result = tuple[Indices, Floats, Floats, int, int, int]
Table = tuple[Floats, Floats, Indices, Indices]  # of options: latency, cost, index in the stage; where stages begin
Options = Sequence[tuple[float, float]] | Floats

_UNIT = float(np.finfo(np.float64).eps) / 2  # the greatest relative error of one addition


@dataclass(frozen=True, eq=False)
class Stages:
    """The options that exist, stage after stage, each stage's in the order given.

    Attributes:
        latency_s: Of each option.
        cost_usd: Of each option.
        option: Its index within its stage, as given.
        start: Where each stage begins; one more for the end.
        counts: How many options each stage was given, those included that do not exist.
        slack: Relative error of a sum over the stages, in whatever order it is added up, with room to spare.
        grid_s: If not 0: latencies are whole multiples of this, and small enough that all their sums are exact.
    """

    latency_s: Floats
    cost_usd: Floats
    option: Indices
    start: Indices
    counts: tuple[int, ...]
    slack: float
    grid_s: float

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def sizes(self) -> list[int]:
        """How many options of each stage exist."""
        sizes: list[int] = np.diff(self.start).tolist()
        return sizes

    @property
    def paths(self) -> int:
        """How many ways there are to take one option of each stage."""
        return prod(self.sizes)

    def table(self, orders: Sequence[Indices]) -> Table:
        """These options of each stage, in this order."""
        order = np.concatenate(orders)
        start = np.cumsum([0, *map(len, orders)]).astype(np.int64)
        return self.latency_s[order], self.cost_usd[order], self.option[order], start

    def by_latency(self, stage: int) -> Indices:
        """Where the options of a stage are, by ascending latency, then cost, then index."""
        part = self.of(stage)
        order: Indices = part.start + np.lexsort((self.cost_usd[part], self.latency_s[part])).astype(np.int64)
        return order

    def by_cost(self, stage: int) -> Indices:
        """Where the options of a stage are, by ascending cost, then latency, then index."""
        part = self.of(stage)
        order: Indices = part.start + np.lexsort((self.latency_s[part], self.cost_usd[part])).astype(np.int64)
        return order

    def of(self, stage: int) -> slice:
        """Where the options of this stage are."""
        return slice(int(self.start[stage]), int(self.start[stage + 1]))

    def total(self, of_stage: Callable[[Floats], float], values: Floats) -> float:
        """The sum over the stages of one number each, such as the least, added up in their order."""
        total = 0.0
        for stage in range(len(self)):
            part = values[self.of(stage)]
            total += float(of_stage(part)) if len(part) else inf
        return total

    def window(self, budget_s: float) -> tuple[float, float, float]:
        """The budget, up to where a sum added up in any order is surely within it, and past where surely not.

        In between, only adding up in the order of the stages tells. On a grid all three are one: sums are exact.
        """
        if self.grid_s:
            steps = budget_s / self.grid_s  # a power of two: exact
            if abs(steps) < 2**53:
                budget_s = floor(steps) * self.grid_s
            return budget_s, budget_s, budget_s
        return budget_s, budget_s * (1 - self.slack), budget_s * (1 + self.slack)


def limited(table: Table, allowed: Mask) -> Table:
    """The table with the allowed options of the first stage only."""
    latency, cost, option, start = table
    kept = np.ones(len(option), dtype=np.bool_)
    kept[: start[1]] = allowed[option[: start[1]]]
    if kept.all():
        return table
    fewer = start.copy()
    fewer[1:] -= len(kept) - np.count_nonzero(kept)
    return latency[kept], cost[kept], option[kept], fewer


def read_stages(given: Sequence[Options]) -> Stages:
    """The stages as arrays.

    Raises:
        ValueError: There are none, an option is not a pair, or a number is negative or not a number.
    """
    tables = [_table(index, options) for index, options in enumerate(given)]
    if not tables:
        raise ValueError("a search needs a stage at least; got none. Give a sequence of options for each.")
    usable = [np.flatnonzero(np.isfinite(table).all(axis=1)) for table in tables]
    kept = np.concatenate([table[rows] for table, rows in zip(tables, usable, strict=True)])
    latency, cost = np.ascontiguousarray(kept[:, 0]), np.ascontiguousarray(kept[:, 1])
    largest = [
        sum(float(table[rows, column].max(initial=0.0)) for table, rows in zip(tables, usable, strict=True))
        for column in (0, 1)
    ]
    if not all(map(isfinite, largest)):
        raise ValueError(
            f"latencies and costs must have finite sums; got up to {largest[0]:g} s and {largest[1]:g} USD. "
            "An option that does not exist has infinity in either."
        )
    return Stages(
        latency_s=latency,
        cost_usd=cost,
        option=np.concatenate(usable).astype(np.int64),
        start=np.cumsum([0, *map(len, usable)]).astype(np.int64),
        counts=tuple(map(len, tables)),
        slack=4 * (len(tables) + 2) * _UNIT,
        grid_s=_grid(latency, largest[0]),
    )


def _table(index: int, options: Options) -> Floats:
    """A row of two numbers for each option."""
    table = np.asarray(options, dtype=np.float64) if len(options) else np.empty((0, 2))
    if table.ndim != 2 or table.shape[1] != 2:
        raise ValueError(
            f"an option is a pair (latency_s, cost_usd); got an array of shape {table.shape} for stage {index}."
        )
    wrong = np.flatnonzero(~(table >= 0).all(axis=1))
    if len(wrong):
        latency_s, cost_usd = table[wrong[0]].tolist()
        raise ValueError(
            f"latencies and costs must be numbers of at least 0; got ({latency_s:g}, {cost_usd:g}) for option "
            f"{wrong[0]} of stage {index}. An option that does not exist has infinity in either."
        )
    return table


def _grid(latency: Floats, largest: float) -> float:
    """A power of two of which all latencies are multiples, if no sum has more than 2^53 of it; otherwise 0."""
    _, exponent = frexp(largest)
    whole = np.rint(np.ldexp(latency, 53 - exponent))
    return ldexp(1.0, exponent - 53) if (np.ldexp(whole, exponent - 53) == latency).all() else 0.0
