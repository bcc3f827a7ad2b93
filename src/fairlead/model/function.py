"""A function: a piece of code the cluster can run, and what an instance of it needs."""

from math import ceil, inf
from typing import Literal, get_args

import msgspec

IdleHolds = Literal["slice", "memory"]
BufferKind = Literal["constant", "input", "output", "temporary"]


class Buffer(msgspec.Struct, frozen=True, kw_only=True):
    """Device memory that a kernel names. A constant may stay there from run to run; the others belong to one run.

    An input is copied to the device before the run and an output back after it; a temporary only takes up room. 1024 MB
    are a GB.
    """

    name: str
    size_mb: float
    kind: BufferKind = "constant"

    def __post_init__(self) -> None:
        if not 0 < self.size_mb < inf:
            raise ValueError(f"size_mb must be positive and finite; got {self.size_mb}.")
        if self.kind not in get_args(BufferKind):
            raise ValueError(f"kind must be one of {', '.join(get_args(BufferKind))}; got {self.kind!r}.")


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance of a function needs; how long it takes is its profile.

    `idle_holds` says what a warm, idle instance keeps: its whole `slice` (a container: vCPUs, GPU slice and memory)
    or `memory` only (a kernel, a paused container). The last `warm` instances do not expire. `retries` counts further
    attempts after a failed one; work lost with its node follows the run's own setting. A limit of infinity is no
    limit. A function with `buffers` is a kernel: the system manages its device memory. `hit_rate` is the share of its
    invocations that a prediction cache answers in a simulation; a live run has what its cache has.
    """

    name: str
    memory_gb: float = 0.0
    device_memory_gb: float = 0.0
    output_mb: float = 0.0
    keep_alive_s: float = 600.0
    warm: int = 0
    idle_holds: IdleHolds = "slice"
    retries: int = 0
    run_limit_s: float = inf
    start_limit_s: float = inf
    buffers: tuple[Buffer, ...] = ()
    hit_rate: float = 0.0

    def __post_init__(self) -> None:
        for name in ("memory_gb", "device_memory_gb", "output_mb"):
            value = getattr(self, name)
            if not 0 <= value < inf:
                raise ValueError(f"{name} must be finite and not negative; got {value}.")
        if not self.keep_alive_s >= 0:
            raise ValueError(f"keep_alive_s must not be negative; got {self.keep_alive_s}.")
        if self.warm < 0:
            raise ValueError(f"warm must not be negative; got {self.warm}.")
        if self.retries < 0:
            raise ValueError(f"retries must not be negative; got {self.retries}.")
        for name in ("run_limit_s", "start_limit_s"):
            value = getattr(self, name)
            if not value > 0:
                raise ValueError(f"{name} must be positive; got {value}.")
        if not 0 <= self.hit_rate <= 1:
            raise ValueError(f"hit_rate must be in [0, 1]; got {self.hit_rate}.")
        if self.idle_holds not in ("slice", "memory"):
            raise ValueError(f"idle_holds must be 'slice' or 'memory'; got {self.idle_holds!r}.")
        if self.buffers:
            self._check_buffers()

    def _check_buffers(self) -> None:
        names = [buffer.name for buffer in self.buffers]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"buffers must have names of their own; two are called {twice!r}.")
        if self.device_memory_gb:
            raise ValueError(f"device_memory_gb must be left out beside buffers; got {self.device_memory_gb}.")
        if self.idle_holds != "memory":
            raise ValueError(
                f"idle_holds must be 'memory' beside buffers, as a kernel keeps no slice; got {self.idle_holds!r}."
            )

    @property
    def constant_mb(self) -> float:
        """What a device must hold of it before it can run, and may keep afterwards."""
        return sum(buffer.size_mb for buffer in self.buffers if buffer.kind == "constant")

    @property
    def footprint_gb(self) -> float:
        """Device memory that a run needs: of its instance, or of all its buffers, each in whole MB."""
        return sum(ceil(buffer.size_mb) for buffer in self.buffers) / 1024 if self.buffers else self.device_memory_gb
