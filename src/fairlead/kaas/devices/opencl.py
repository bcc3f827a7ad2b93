"""Any OpenCL device: GPUs through their vendors' drivers, and processors through PoCL."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np

from fairlead.errors import MissingExtraError
from fairlead.kaas.devices.base import Bytes, MemoryInfo, literal_value
from fairlead.kaas.devices.pocl import mapped_file, name_processor
from fairlead.kaas.devices.programs import ProgramCache, keep, sources_of
from fairlead.kaas.errors import BuildError, DeviceLostError, DeviceMemoryError, LaunchError
from fairlead.kaas.graph import Graph, Kernel

_MOST_MESSAGE = 4000  # characters of a compiler's message
_QUICK_S = 5e-5  # that other threads may be kept waiting by a launch
_ZERO = np.zeros(1, np.uint8)


class _Program:
    """A kernel at its place in a graph, and how it is put into a queue."""

    def __init__(self, code: Any, literals: int, size: tuple[int, ...], block: tuple[int, ...], queue: Any) -> None:
        self.code = code
        self.literals = literals
        self.size = size
        self.block = block
        self.is_quick = False
        sizes = ctypes.c_size_t * len(size)
        self.call = (queue.int_ptr, code.int_ptr, len(size), None, sizes(*size), sizes(*block), 0, None, None)


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
        self._programs: dict[str, Any] = {}  # by source
        self._graphs: dict[str, list[_Program]] = {}  # by digest
        self._failures = _Failures(cl)
        self._enqueue, self._enqueue_quick = _enqueue(), cl.enqueue_nd_range_kernel

    def compile(self, graph: Graph) -> tuple[list[_Program], int]:
        """The kernels, each with its size and literals: from this process, from the disk, or from their source."""
        found = self._graphs.get(graph.digest)
        if found is not None:
            return found, 0
        made, new = [], 0
        for kernel, source in sources_of(graph, "OpenCL"):
            program = self._programs.get(source)
            if program is None:
                program, new = self._build(source), new + 1
                keep(self._programs, source, program)
            made.append(self._prepared(program, kernel))
        keep(self._graphs, graph.digest, made)
        return made, new

    def _prepared(self, program: Any, kernel: Kernel) -> _Program:
        """A kernel of its own for a place in a graph, so that its literals are set once."""
        try:
            code = self._cl.Kernel(program, kernel.name)
        except self._cl.Error as error:
            raise BuildError(f"The source has no kernel {kernel.name!r}.") from error
        expected = code.get_info(self._cl.kernel_info.NUM_ARGS)
        if expected != len(kernel.literals) + len(kernel.arguments):
            given = f"{len(kernel.literals)} literals and {len(kernel.arguments)} buffers"
            raise BuildError(f"Kernel {kernel.name!r} takes {expected} parameters; the graph gives {given}.")
        with self._failures:
            for number, literal in enumerate(kernel.literals):
                code.set_arg(number, literal_value(literal))
        size = tuple(groups * items for groups, items in zip(kernel.grid, kernel.block, strict=True))
        return _Program(code, len(kernel.literals), size, kernel.block, self._runs)

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
        with self._failures:
            allocation = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, size)
            if is_zeroed:
                cl.enqueue_fill_buffer(self._loads, allocation, _ZERO, 0, size)
            return allocation

    def upload(self, allocation: Any, data: Bytes) -> None:
        """Copy, without waiting."""
        with self._failures:
            self._cl.enqueue_copy(self._loads, allocation, data, is_blocking=False)

    def settle(self) -> None:
        """Wait for the queue of loads."""
        with self._failures:
            self._loads.finish()

    def bind(self, program: _Program, buffers: Sequence[Any]) -> _Program:
        """Set its buffers as arguments."""
        with self._failures:
            for number, buffer in enumerate(buffers, program.literals):
                program.code.set_arg(number, buffer)
        return program

    def launch(self, launch: _Program) -> None:
        """Put the kernel into the queue of runs, which keeps its order.

        PoCL runs it before it returns. pyopencl would not let other threads go on meanwhile, and `ctypes` does, for a
        microsecond more: it is taken for what was not quick the last time.
        """
        began = perf_counter()
        enqueue = self._enqueue
        if launch.is_quick or enqueue is None or enqueue(*launch.call) != 0:  # pyopencl knows what a failure means
            with self._failures:
                self._enqueue_quick(self._runs, launch.code, launch.size, launch.block)
        launch.is_quick = perf_counter() - began < _QUICK_S

    def finish(self) -> None:
        """Wait for the queue of runs."""
        with self._failures:
            self._runs.finish()

    def download(self, allocation: Any, into: Bytes) -> None:
        """Copy, and wait."""
        with self._failures:
            self._cl.enqueue_copy(self._runs, into, allocation)

    def free(self, allocation: Any) -> None:
        """Release the buffer."""
        allocation.release()

    def memory(self) -> MemoryInfo:
        """What the driver reports; it tells no free memory."""
        return MemoryInfo(self._device.global_mem_size, None)


class _Failures:
    """Turns what pyopencl raises into errors of kernels. No generator: each launch and copy goes through it."""

    def __init__(self, cl: Any) -> None:
        self._cl = cl

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None or not isinstance(error, self._cl.Error):
            return
        if isinstance(error, self._cl.MemoryError):
            raise DeviceMemoryError(f"The driver refused memory: {_message(error)}") from error
        if isinstance(error, self._cl.LogicError):
            raise LaunchError(f"The driver refuses: {_message(error)}") from error
        raise DeviceLostError(f"The device failed: {_message(error)}") from error


def _enqueue() -> Callable[..., int] | None:
    """`clEnqueueNDRangeKernel` of the library that pyopencl has loaded; None where it is not found."""
    path = mapped_file("libOpenCL")
    if path is None:
        return None
    enqueue = ctypes.CDLL(path).clEnqueueNDRangeKernel
    sizes, pointer, number = ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p, ctypes.c_uint
    enqueue.argtypes = [pointer, pointer, number, sizes, sizes, sizes, number, pointer, pointer]
    enqueue.restype = ctypes.c_int
    return cast(Callable[..., int], enqueue)


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
