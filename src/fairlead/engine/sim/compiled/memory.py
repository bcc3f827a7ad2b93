"""The memory of a compiled run: its arrays, and the table of where they lie that compiled code works with."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.engine.sim.compiled.layout import COLUMN, FIELDS, REALS

Array = NDArray[Any]  # of int64 or float64

_NOTHING = np.zeros(1, np.int64)  # where fields lie that a run does not use


class Memory:
    """The arrays of one run by field. `h` goes to compiled code: the address of the table, valid while this lives.

    Fields that lie in records (`layout.COLUMN`) are columns of one block; the others are arrays of their own.
    """

    __slots__ = ("_arrays", "_blocks", "_table", "h")

    def __init__(self) -> None:
        self._arrays: dict[int, Array] = {}
        self._blocks: dict[tuple[int, ...], NDArray[np.int64]] = {}
        self._table = np.zeros(2 * FIELDS, np.int64)
        self._table[::2] = _NOTHING.ctypes.data
        self.h: int = self._table.ctypes.data

    def __getitem__(self, field: int) -> Array:
        return self._arrays[field]

    def __setitem__(self, field: int, values: object) -> None:
        array = np.ascontiguousarray(values)
        if array.dtype.kind in "bui":
            array = array.astype(np.int64, copy=False)
        elif array.dtype != np.float64:
            raise TypeError(f"a field must be of whole or real numbers; got {array.dtype}.")
        array = array.reshape(-1)
        if field in COLUMN:
            group, _ = COLUMN[field]
            if group not in self._blocks or len(self._blocks[group]) != len(array):
                self._make(group, len(array))
            self._arrays[field][:] = array
        else:
            self._put(field, array)

    def blocks(self) -> dict[tuple[int, ...], Array]:
        """What a run is made of: each stretch of memory, by the fields that lie in it."""
        own: dict[tuple[int, ...], Array] = {
            (field,): array for field, array in self._arrays.items() if field not in COLUMN
        }
        return {**own, **self._blocks}

    def whole(self, field: int, count: int, value: int = 0) -> None:
        """Make a field of whole numbers."""
        self[field] = np.zeros(count, np.int64) if value == 0 else np.full(count, value, np.int64)

    def real(self, field: int, count: int, value: float = 0.0) -> None:
        """Make a field of real numbers."""
        self[field] = np.zeros(count) if value == 0 else np.full(count, value)

    def grow(self, field: int, count: int) -> None:
        """Give a field more room, and the others of its record; what is new is 0."""
        if field in COLUMN:
            group, _ = COLUMN[field]
            self._make(group, count)
        else:
            old = self._arrays[field]
            larger = np.zeros(count, old.dtype)
            larger[: len(old)] = old
            self._put(field, larger)

    def _make(self, group: tuple[int, ...], count: int) -> None:
        """Lay out records, with what was there before."""
        block = np.zeros((count, len(group)), np.int64)
        old = self._blocks.get(group)
        if old is not None:
            kept = min(count, len(old))
            block[:kept] = old[:kept]
        self._blocks[group] = block
        for column, field in enumerate(group):
            values = block[:, column].view(np.float64) if field in REALS else block[:, column]
            self._arrays[field] = values
            self._table[2 * field] = block.ctypes.data + 8 * column
            self._table[2 * field + 1] = count

    def _put(self, field: int, array: Array) -> None:
        self._arrays[field] = array
        self._table[2 * field] = array.ctypes.data
        self._table[2 * field + 1] = len(array)
