"""A function: a piece of code the cluster can run, and what an instance of it needs."""

from math import inf
from typing import Literal

import msgspec

IdleHolds = Literal["slice", "memory"]


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance of a function needs; how long it takes is its profile.

    `idle_holds` says what a warm, idle instance keeps: its whole `slice` (a container: vCPUs, GPU slice and memory)
    or `memory` only (a kernel, a paused container). `retries` counts further attempts after a failed one;
    work lost with its node follows the run's own setting. A limit of infinity is no limit.
    """

    name: str
    memory_gb: float = 0.0
    device_memory_gb: float = 0.0
    output_mb: float = 0.0
    keep_alive_s: float = 600.0
    idle_holds: IdleHolds = "slice"
    retries: int = 0
    run_limit_s: float = inf
    start_limit_s: float = inf

    def __post_init__(self) -> None:
        for name in ("memory_gb", "device_memory_gb", "output_mb"):
            value = getattr(self, name)
            if not 0 <= value < inf:
                raise ValueError(f"{name} must be finite and not negative; got {value}.")
        if not self.keep_alive_s >= 0:
            raise ValueError(f"keep_alive_s must not be negative; got {self.keep_alive_s}.")
        if self.retries < 0:
            raise ValueError(f"retries must not be negative; got {self.retries}.")
        for name in ("run_limit_s", "start_limit_s"):
            value = getattr(self, name)
            if not value > 0:
                raise ValueError(f"{name} must be positive; got {value}.")
        if self.idle_holds not in ("slice", "memory"):
            raise ValueError(f"idle_holds must be 'slice' or 'memory'; got {self.idle_holds!r}.")
