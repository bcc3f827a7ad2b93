"""NVIDIA GPUs, through cuda-core. Kernels are compiled by NVRTC, which needs no GPU: see `compile_cuda`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import local
from typing import Any

from fairlead.errors import MissingExtraError
from fairlead.kaas.devices.base import Bytes, MemoryInfo, literal_value
from fairlead.kaas.devices.programs import ProgramCache, keep, sources_of
from fairlead.kaas.errors import BuildError, DeviceLostError, DeviceMemoryError, LaunchError
from fairlead.kaas.graph import Graph

_MOST_MESSAGE = 4000  # characters of a compiler's message
_PARAMETER = ("INVALID_VALUE", "INVALID_CONFIGURATION", "LAUNCH_OUT_OF_RESOURCES")


class CudaDevice:
    """The GPU of this number. Loads have a stream of their own, so that they overlap with runs."""

    language = "cuda"

    def __init__(self, index: int, cache: Path) -> None:
        core = _core()
        self._core = core
        try:
            self._device = core.Device(index)
            self._device.set_current()
            self._loads = self._device.create_stream()
            self._runs = self._device.create_stream()
        except Exception as error:  # without a driver, each release has another exception for it
            raise DeviceLostError(f"There is no device cuda:{index}: {error}") from error
        major, minor = self._device.compute_capability
        self._architecture = f"sm_{major}{minor}"
        self.name = self._device.name
        self.identity = f"{self.name}; {self._architecture}; cuda-core {core.__version__}"
        self._cache = ProgramCache(cache / "programs")
        self._programs: dict[str, Any] = {}  # by source
        self._graphs: dict[str, list[tuple[Any, ...]]] = {}  # by digest
        self._thread = local()

    def compile(self, graph: Graph) -> tuple[list[tuple[Any, ...]], int]:
        """The kernels, each with its configuration and literals: from this process, the disk, or their source."""
        found = self._graphs.get(graph.digest)
        if found is not None:
            return found, 0
        made, new = [], 0
        for kernel, source in sources_of(graph, "CUDA"):
            with self._failures():
                program = self._programs.get(source)
                if program is None:
                    program, new = self._core.ObjectCode.from_cubin(self._built(source)), new + 1
                    keep(self._programs, source, program)
                config = self._core.LaunchConfig(grid=kernel.grid, block=kernel.block)
            try:
                code = program.get_kernel(kernel.name)
            except Exception as error:
                raise BuildError(f"The source has no kernel {kernel.name!r}.") from error
            made.append((config, code, *map(literal_value, kernel.literals)))
        keep(self._graphs, graph.digest, made)
        return made, new

    def _built(self, source: str) -> bytes:
        key = self._cache.key("cuda", source, self.identity)
        binary = self._cache.get(key)
        if binary is None:
            binary = compile_cuda(source, self._architecture)
            self._cache.put(key, binary)
        return binary

    def alloc(self, size: int, *, is_zeroed: bool) -> Any:
        """A buffer from the driver's pool."""
        with self._failures():
            allocation = self._device.allocate(size, stream=self._loads)
            if is_zeroed:
                allocation.fill(b"\0", stream=self._loads)
            return allocation

    def upload(self, allocation: Any, data: Bytes) -> None:
        """Copy. Waits, since the host's memory is not pinned."""
        from cuda.bindings import runtime  # noqa: PLC0415 - an optional library

        with self._failures():
            kind = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
            _checked(
                runtime.cudaMemcpyAsync(int(allocation.handle), data.ctypes.data, data.size, kind, self._loads.handle)
            )

    def settle(self) -> None:
        """Wait for the stream of loads."""
        with self._failures():
            self._loads.sync()

    def bind(self, program: tuple[Any, ...], buffers: Sequence[Any]) -> tuple[Any, ...]:
        """The kernel and its configuration, literals and buffers."""
        return (*program, *buffers)

    def launch(self, launch: tuple[Any, ...]) -> None:
        """Put the kernel into the stream of runs, which keeps its order."""
        with self._failures():
            self._core.launch(self._runs, *launch)

    def finish(self) -> None:
        """Wait for the stream of runs."""
        with self._failures():
            self._runs.sync()

    def download(self, allocation: Any, into: Bytes) -> None:
        """Copy, and wait."""
        from cuda.bindings import runtime  # noqa: PLC0415 - an optional library

        with self._failures():
            kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
            _checked(
                runtime.cudaMemcpyAsync(into.ctypes.data, int(allocation.handle), into.size, kind, self._runs.handle)
            )
            self._runs.sync()

    def free(self, allocation: Any) -> None:
        """Give the buffer back to the pool, once what runs has ended."""
        allocation.close(stream=self._runs)

    def memory(self) -> MemoryInfo:
        """What the driver reports."""
        from cuda.bindings import runtime  # noqa: PLC0415 - an optional library

        with self._failures():
            free, total = _checked(runtime.cudaMemGetInfo())
            return MemoryInfo(total, free)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        if not getattr(self._thread, "is_current", False):  # each thread has a current device of its own
            self._device.set_current()
            self._thread.is_current = True
        try:
            yield
        except (BuildError, DeviceLostError, DeviceMemoryError):
            raise
        except Exception as error:
            text = str(error)[:_MOST_MESSAGE]
            if "OUT_OF_MEMORY" in text or "MemoryAllocation" in text:
                raise DeviceMemoryError(f"The driver refused memory: {text}") from error
            if any(code in text for code in _PARAMETER):
                raise LaunchError(f"The driver refuses: {text}") from error
            raise DeviceLostError(f"The device failed: {text}") from error


def compile_cuda(source: str, architecture: str = "sm_80") -> bytes:
    """CUDA C++ as code for GPUs of an architecture (cubin). BuildError with the compiler's message."""
    core = _core()
    try:
        program = core.Program(source, "c++", core.ProgramOptions(std="c++17", arch=architecture))
        code = program.compile("cubin").code
    except Exception as error:
        raise BuildError(f"The source does not compile: {str(error)[:_MOST_MESSAGE]}") from error
    return bytes(code)


def _core() -> Any:
    try:
        import cuda.core as core  # noqa: PLC0415 - an optional library
    except ImportError as error:
        raise MissingExtraError("The CUDA device", "cuda-core", "cuda") from error
    return core


def _checked(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of a call to the runtime, whose first is its status."""
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(str(status))
    return tuple(values)
