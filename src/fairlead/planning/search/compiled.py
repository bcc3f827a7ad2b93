"""Compile a function to machine code when it is first called, and two small functions that compiled ones share.

The machine code is kept on disk beside the source. That a function has changed is noticed by its own file alone: after
a change here, delete the `.nbi` files in `__pycache__`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairlead.planning.search.stages import Floats, Indices

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T", np.float64, np.int64)

if TYPE_CHECKING:

    def compiled(function: F) -> F:
        """The same function, fast."""
        return function

else:
    from numba import njit

    compiled = njit(cache=True)


@compiled
def insert(values: Floats, rows: Indices, count: int, value: float, first: int, second: int) -> int:
    """Add to the least values so far, which stand in ascending order; returns how many they are then.

    When there is no room the last is dropped. Each value has a row of two numbers. What comes later stands behind its
    equals.
    """
    at = min(count, len(values) - 1)
    while at > 0 and values[at - 1] > value:
        values[at] = values[at - 1]
        rows[at, 0], rows[at, 1] = rows[at - 1, 0], rows[at - 1, 1]
        at -= 1
    values[at] = value
    rows[at, 0], rows[at, 1] = first, second
    return min(count + 1, len(values))


@compiled
def doubled(values: NDArray[T]) -> NDArray[T]:
    """The same rows, with room for as many again."""
    rows, columns = values.shape
    larger = np.empty((2 * rows, columns), values.dtype)
    for row in range(rows):  # assigning a slice would take seconds to compile
        for column in range(columns):
            larger[row, column] = values[row, column]
    return larger
