"""What can be chosen: one option from each of several finite sets, seen as a point in the unit cube."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from fairlead.planning.bayesian.kernels import Array, Indices

Choice = tuple[int, ...]
"""The index of an option for each set."""

_REACH = 6  # nearest options that count as neighbours: one step either way along three axes


@dataclass(frozen=True, eq=False)
class Space:
    """Sets of options, each an array with a row of coordinates in [0, 1] per option."""

    sets: tuple[Array, ...]

    @classmethod
    def of(cls, sets: Sequence[Sequence[Sequence[float]]]) -> "Space":
        """From options as tuples of sizes. Along an axis, sizes in use are evenly spaced, whatever they are.

        The i-th of n sizes is the middle of the i-th of n equal cells, so that a random point of the cube is nearest to
        each of them equally often. Doublings of a batch thereby are equal steps.
        """
        return cls(tuple(np.column_stack([_evenly(axis) for axis in zip(*options, strict=True)]) for options in sets))

    @property
    def dimensions(self) -> int:
        """Coordinates of a point."""
        return sum(options.shape[1] for options in self.sets)

    @property
    def size(self) -> int:
        """How many choices there are."""
        return prod(len(options) for options in self.sets)

    def snap(self, vectors: Array) -> list[Choice]:
        """For each point of the cube, one per row, the nearest choice, the first among equals."""
        columns, first = [], 0
        for options in self.sets:
            own = vectors[:, first : first + options.shape[1]]
            first += options.shape[1]
            columns.append(((own[:, None, :] - options[None, :, :]) ** 2).sum(axis=2).argmin(axis=1).tolist())
        return list(zip(*columns, strict=True))

    def points(self, choices: Sequence[Choice]) -> Array:
        """The points of these choices, a row for each."""
        indices = np.array(choices, dtype=np.intp).reshape(len(choices), len(self.sets))
        return np.hstack([options[indices[:, i]] for i, options in enumerate(self.sets)])

    def squares(self, points: Array, length_scales: Array) -> Array:
        """For each option of all sets, one set after the other, what its coordinates add to the squared distance.

        The distance of a choice to each of these points, in length scales, is the sum over its options.
        """
        rows, first = [], 0
        for options in self.sets:
            own = slice(first, first + options.shape[1])
            gaps = (options[:, None, :] - points[None, :, own]) / length_scales[own]
            rows.append((gaps**2).sum(axis=2))
            first = own.stop
        return np.vstack(rows)

    @cached_property
    def firsts(self) -> Indices:
        """For each set the row of its first option, where all are listed one after the other."""
        return np.cumsum([0, *[len(options) for options in self.sets[:-1]]], dtype=np.int64)

    @cached_property
    def near(self) -> Indices:
        """For each option of all sets the nearest others of its set, by index, then -1."""
        rows = []
        for options in self.sets:
            distances = ((options[:, None, :] - options[None, :, :]) ** 2).sum(axis=2)
            np.fill_diagonal(distances, np.inf)
            order = np.argsort(distances.round(12), axis=1, kind="stable")[:, : min(_REACH, len(options) - 1)]
            rows.append(np.pad(order, ((0, 0), (0, _REACH - order.shape[1])), constant_values=-1))
        return np.vstack(rows).astype(np.int64)


def _evenly(sizes: Sequence[float]) -> list[float]:
    known = sorted(set(sizes))
    return [(known.index(size) + 0.5) / len(known) for size in sizes]
