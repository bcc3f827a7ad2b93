"""What an executor asks of a device, and how one is opened by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fairlead.kaas.graph import Graph, Literal

Bytes: TypeAlias = npt.NDArray[np.uint8]
Allocation: TypeAlias = Any  # the device's own handle
Program: TypeAlias = Any
Launch: TypeAlias = Any


class MemoryInfo(NamedTuple):
    """Bytes of device memory; `free` is None where the driver does not tell."""

    total: int
    free: int | None


class Device(Protocol):
    """One device. One thread at a time binds, launches and downloads; the rest may come from another meanwhile.

    DeviceMemoryError if the driver has no room, BuildError if a kernel cannot be built, LaunchError if it
    refuses a launch, DeviceLostError if the device fails.
    """

    language: str  # of the sources it takes: "opencl", "cuda" or "numpy"
    name: str
    identity: str  # device and driver: what compiled code depends on

    def compile(self, graph: Graph) -> tuple[Sequence[Program], int]:
        """For each kernel of the graph what `bind` takes, and how many were compiled now rather than found."""
        ...

    def alloc(self, size: int, *, is_zeroed: bool) -> Allocation:
        """Memory of this many bytes. What is not zeroed must be overwritten by an upload before anything reads it."""
        ...

    def upload(self, allocation: Allocation, data: Bytes) -> None:
        """Copy bytes to the device; they may be used until `settle`."""
        ...

    def settle(self) -> None:
        """Wait until everything that was zeroed or uploaded is in its place."""
        ...

    def bind(self, program: Program, buffers: Sequence[Allocation]) -> Launch:
        """Give a program its buffers: what `launch` takes, as often as it is wanted, until the next `bind`."""
        ...

    def launch(self, launch: Launch) -> None:
        """Start a kernel after those that were launched before it."""
        ...

    def finish(self) -> None:
        """Wait for all launches."""
        ...

    def download(self, allocation: Allocation, into: Bytes) -> None:
        """Copy bytes from the device, and wait for them."""
        ...

    def free(self, allocation: Allocation) -> None:
        """Give memory back."""
        ...

    def memory(self) -> MemoryInfo:
        """How much memory the device has."""
        ...


def open_device(name: str, cache: Path) -> Device:
    """The device of this name: `numpy`, `opencl:0`, `cuda:1`. `cache` is the folder for compiled code.

    ValueError if the name is of another form; DeviceLostError if there is no such device; MissingExtraError if its
    library is not installed.
    """
    kind, _, number = name.partition(":")
    if kind not in ("numpy", "opencl", "cuda") or not (number or "0").isdecimal():
        raise ValueError(f"device must be numpy, opencl:NUMBER or cuda:NUMBER; got {name!r}.")
    index = int(number or "0")
    if kind == "opencl":
        from fairlead.kaas.devices.opencl import OpenCLDevice  # noqa: PLC0415 - an optional library

        return OpenCLDevice(index, cache)
    if kind == "cuda":
        from fairlead.kaas.devices.cuda import CudaDevice  # noqa: PLC0415 - an optional library

        return CudaDevice(index, cache)
    from fairlead.kaas.devices.numpy_device import NumpyDevice  # noqa: PLC0415 - beside the others

    return NumpyDevice()


def literal_value(literal: Literal) -> np.number[Any]:
    """A literal in its own type, as bindings take it."""
    number: np.number[Any] = np.dtype(literal.type).type(literal.value)
    return number
