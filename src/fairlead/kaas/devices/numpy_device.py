"""The reference device: kernels of `fairlead.kaas.reference`, by name, on arrays of this process."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from fairlead.kaas.devices.base import Bytes, MemoryInfo
from fairlead.kaas.errors import BuildError, DeviceMemoryError, LaunchError
from fairlead.kaas.graph import Graph, Kernel
from fairlead.kaas.reference import REFERENCE, Reference

_Launch: TypeAlias = tuple[str, Reference, tuple[Any, ...]]  # name, kernel, arguments


class NumpyDevice:
    """Runs each launch as soon as it is asked for. Grid and block do not matter to it."""

    language = "numpy"
    name = "NumPy"

    def __init__(self) -> None:
        self.identity = f"numpy {np.__version__} {platform.machine()}"

    def compile(self, graph: Graph) -> tuple[list[tuple[Kernel, Reference]], int]:
        """The reference kernels. BuildError if the graph names none."""
        found = []
        for kernel in graph.kernels:
            if kernel.reference is None:
                raise BuildError(f"Kernel {kernel.name!r} of {graph.name} has no reference kernel for NumPy.")
            found.append((kernel, REFERENCE[kernel.reference]))
        return found, 0

    def alloc(self, size: int, *, is_zeroed: bool) -> Bytes:
        """Zeroed either way: an untouched page costs nothing."""
        try:
            return np.zeros(size, np.uint8)
        except MemoryError as error:
            raise DeviceMemoryError(f"The host has no {size} bytes left.") from error

    def upload(self, allocation: Bytes, data: Bytes) -> None:
        """Copy."""
        allocation[:] = data

    def settle(self) -> None:
        """Nothing is ever under way."""

    def bind(self, program: tuple[Kernel, Reference], buffers: Sequence[Bytes]) -> _Launch:
        """The kernel, with its buffers as arrays. LaunchError if a size of its is negative."""
        kernel, reference = program
        values = [literal.value for literal in kernel.literals]
        sizes = [value for value in values if isinstance(value, int)]
        if min(sizes, default=0) < 0:
            raise LaunchError(f"Kernel {kernel.name!r}: sizes must not be negative; got {sizes}.")
        return kernel.name, reference, (*values, *(each[: each.size // 4 * 4].view(np.float32) for each in buffers))

    def launch(self, launch: _Launch) -> None:
        """Run the kernel. LaunchError if its sizes do not fit its buffers."""
        name, reference, arguments = launch
        try:
            with np.errstate(all="ignore"):
                reference.run(*arguments)
        except (ValueError, IndexError, TypeError, ZeroDivisionError) as error:
            raise LaunchError(f"Kernel {name!r} failed: {error}") from error

    def finish(self) -> None:
        """Nothing is ever under way."""

    def download(self, allocation: Bytes, into: Bytes) -> None:
        """Copy."""
        into[:] = allocation

    def free(self, allocation: Bytes) -> None:
        """The array goes with its last reference."""

    def memory(self) -> MemoryInfo:
        """The host's; only the executor's cap counts."""
        return MemoryInfo(1 << 62, None)
