"""Any OpenCL device: GPUs through their vendors' drivers, and processors through PoCL."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.errors import MissingExtraError
from fairlead.kaas.devices.base import Bytes, MemoryInfo, literal_value
from fairlead.kaas.devices.pocl import name_processor
from fairlead.kaas.devices.programs import ProgramCache
from fairlead.kaas.errors import BuildError, DeviceLostError, DeviceMemoryError, LaunchError
from fairlead.kaas.graph import Graph, Kernel

_MOST_MESSAGE = 4000  # characters of a compiler's message
_MOST_PROGRAMS = 1024  # that are kept in this process
_ZERO = np.zeros(1, np.uint8)


class OpenCLDevice:
    """The device of this number, among those of all platforms.

    Loads have a queue of their own, so that they overlap with runs where the driver allows it.
    """

    language = "opencl"

    def __init__(self, index: int, cache: Path) -> None:
        os.environ.setdefault("POCL_CACHE_DIR", _made(cache / "pocl"))
        try:
            import pyopencl as cl  # noqa: PLC0415 - an optional library
        except ImportError as error:
            raise MissingExtraError("The OpenCL device", "pyopencl and a driver such as PoCL", "kaas") from error
        warnings.simplefilter("ignore", cl.CompilerWarning)
        self._cl: Any = cl
        devices = _devices(cl)
        if index >= len(devices):
            names = ", ".join(f"opencl:{i} ({d.name.strip()})" for i, d in enumerate(devices)) or "none"
            raise DeviceLostError(f"There is no device opencl:{index}. Available: {names}.")
        self._device = device = devices[index]
        named = None
        if device.version.endswith("-generic") and device.driver_version.startswith("3."):
            named = name_processor(device.int_ptr)
        self.name = device.name.strip()
        driver = (device.platform.name, device.platform.version, device.driver_version, device.version, named or "")
        self.identity = "; ".join((self.name, *driver))
        self._context = cl.Context([device])
        self._loads = cl.CommandQueue(self._context, device)
        self._runs = cl.CommandQueue(self._context, device)
        self._cache = ProgramCache(cache / "programs")
        self._programs: dict[str, Any] = {}
        self._kernels: dict[tuple[str, str], Any] = {}

    def compile(self, graph: Graph, kernel: Kernel) -> tuple[Any, bool]:
        """The kernel, from this process, from the disk, or from its source."""
        source = None if kernel.source is None else graph.sources[kernel.source].opencl
        if source is None:
            raise BuildError(f"Kernel {kernel.name!r} of {graph.name} has no source in OpenCL.")
        found = self._kernels.get((source, kernel.name))
        if found is not None:
            return found, False
        program = self._programs.get(source)
        if program is None:
            if len(self._programs) >= _MOST_PROGRAMS:  # rare, and found again on disk
                self._programs.clear()
                self._kernels.clear()
            program = self._programs[source] = self._build(source)
        try:
            made = self._cl.Kernel(program, kernel.name)
        except self._cl.Error as error:
            raise BuildError(f"The source has no kernel {kernel.name!r}.") from error
        expected = made.get_info(self._cl.kernel_info.NUM_ARGS)
        if expected != len(kernel.literals) + len(kernel.arguments):
            given = f"{len(kernel.literals)} literals and {len(kernel.arguments)} buffers"
            raise BuildError(f"Kernel {kernel.name!r} takes {expected} parameters; the graph gives {given}.")
        self._kernels[source, kernel.name] = made
        return made, True

    def _build(self, source: str) -> Any:
        cl, key = self._cl, self._cache.key("opencl", source, self.identity)
        binary = self._cache.get(key)
        if binary is not None:
            try:
                return cl.Program(self._context, [self._device], [binary]).build(cache_dir=False)
            except cl.Error:
                pass  # the driver no longer takes it: build it anew
        try:
            program = cl.Program(self._context, source).build(cache_dir=False)
        except cl.Error as error:
            raise BuildError(f"The source does not compile: {_message(error)}") from error
        self._cache.put(key, program.get_info(cl.program_info.BINARIES)[0])
        return program

    def alloc(self, size: int, *, is_zeroed: bool) -> Any:
        """A buffer. Drivers allocate late, so zeroing also shows here that there is room."""
        cl = self._cl
        with self._failures():
            allocation = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, size)
            if is_zeroed:
                cl.enqueue_fill_buffer(self._loads, allocation, _ZERO, 0, size)
            return allocation

    def upload(self, allocation: Any, data: Bytes) -> None:
        """Copy, without waiting."""
        with self._failures():
            self._cl.enqueue_copy(self._loads, allocation, data, is_blocking=False)

    def settle(self) -> None:
        """Wait for the queue of loads."""
        with self._failures():
            self._loads.finish()

    def launch(self, program: Any, kernel: Kernel, buffers: Sequence[Any]) -> None:
        """Put the kernel into the queue of runs, which keeps its order."""
        with self._failures():
            program.set_args(*map(literal_value, kernel.literals), *buffers)
            size = tuple(groups * items for groups, items in zip(kernel.grid, kernel.block, strict=True))
            self._cl.enqueue_nd_range_kernel(self._runs, program, size, kernel.block)

    def finish(self) -> None:
        """Wait for the queue of runs."""
        with self._failures():
            self._runs.finish()

    def download(self, allocation: Any, into: Bytes) -> None:
        """Copy, and wait."""
        with self._failures():
            self._cl.enqueue_copy(self._runs, into, allocation)

    def free(self, allocation: Any) -> None:
        """Release the buffer."""
        allocation.release()

    def memory(self) -> MemoryInfo:
        """What the driver reports; it tells no free memory."""
        return MemoryInfo(self._device.global_mem_size, None)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        cl = self._cl
        try:
            yield
        except cl.MemoryError as error:
            raise DeviceMemoryError(f"The driver refused memory: {_message(error)}") from error
        except cl.LogicError as error:
            raise LaunchError(f"The driver refuses: {_message(error)}") from error
        except cl.Error as error:
            raise DeviceLostError(f"The device failed: {_message(error)}") from error


def _devices(cl: Any) -> list[Any]:
    try:
        return [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error:  # there is no platform at all
        return []


def _message(error: Exception) -> str:
    """What a driver says, without the options it was called with, which have paths of this machine."""
    return str(error).partition("(options:")[0].strip()[:_MOST_MESSAGE]


def _made(folder: Path) -> str:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder)
