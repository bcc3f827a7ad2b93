"""Memory that an `Executor` shares with its process: the bytes of requests and answers, and what runs just now.

Bytes that crossed a socket would be copied twice more, and every 200 kB of them would wake the other side. So both map
files without names, whose sizes the parent sets.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from struct import Struct

import numpy as np
import numpy.typing as npt

_LEAST = 1 << 16  # bytes of a file that is used
_KEPT = 1 << 25  # bytes that a file may hold while nothing uses it
_ENTRY = Struct("<Qd")


class Slot:
    """A file without a name. One side is its owner, who makes it grow before it tells the other of it."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _nameless() if descriptor is None else descriptor
        self._size = 0  # of the file, as its owner made it
        self._map: mmap.mmap | None = None

    def grow(self, size: int) -> memoryview:
        """The first bytes of the file, which is made that large."""
        if size > self._size:
            self._size = max(_LEAST, 1 << (size - 1).bit_length())
            os.ftruncate(self.descriptor, self._size)
            self._map = mmap.mmap(self.descriptor, self._size)
        return memoryview(self._mapped(size))[:size]

    def view(self, size: int) -> npt.NDArray[np.uint8]:
        """The first bytes of a file that its owner made large enough."""
        return np.frombuffer(self._mapped(size), np.uint8, size) if size else np.empty(0, np.uint8)

    def settle(self) -> None:
        """Give memory back that is too much to be kept for the next use."""
        if self._size > _KEPT:
            self._map = None
            self._size = 0
            os.ftruncate(self.descriptor, 0)

    def close(self) -> None:
        """Let go of the file. Views keep their memory."""
        self._map = None
        os.close(self.descriptor)

    def _mapped(self, size: int) -> mmap.mmap:
        if self._map is None or len(self._map) < size:
            self._map = mmap.mmap(self.descriptor, os.fstat(self.descriptor).st_size)
        return self._map


class Board:
    """Which request runs, and since when, by `perf_counter`: one process writes it, the other reads it."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._slot = Slot(descriptor)
        self._data = self._slot.grow(_ENTRY.size) if descriptor is None else self._slot.view(_ENTRY.size).data

    @property
    def descriptor(self) -> int:
        """Of its file."""
        return self._slot.descriptor

    def begin(self, identity: int, now: float) -> None:
        """This request runs from now on; 0 for none."""
        _ENTRY.pack_into(self._data, 0, identity, now)

    def read(self) -> tuple[int, float]:
        """The request, and since when it runs."""
        entry = _ENTRY.unpack_from(self._data)
        while (again := _ENTRY.unpack_from(self._data)) != entry:  # it was being written
            entry = again
        return int(entry[0]), float(entry[1])

    def close(self) -> None:
        """Let go of it."""
        self._slot.close()


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fairlead-kernels", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
