"""How the devices of a node stand, as `status`, `top` and the metrics show it, and as agents report it."""

from collections.abc import Mapping

import msgspec


class Resident(msgspec.Struct, frozen=True):
    """A buffer that lies on a device: whose it is, what it is known by, and its bytes."""

    app: str
    key: str
    bytes: int


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One device: its memory now, and totals since its executor was first started, restarts included.

    `memory_bytes` is its cap, None where there is none; `device_s` is how long kernels of each app ran. The memory is
    not known while the executor is being started.
    """

    node: str
    index: int
    device: str
    name: str = ""
    is_ready: bool = True
    memory_bytes: int | None = None
    used_bytes: int = 0
    peak_bytes: int = 0
    residents: tuple[Resident, ...] = ()
    hits: int = 0
    compulsory_misses: int = 0
    capacity_misses: int = 0
    evictions: int = 0
    compiled: int = 0
    loaded_bytes: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    runs: int = 0
    waiting: int = 0
    restarts: int = 0
    device_s: Mapping[str, float] = {}

    @property
    def hit_rate(self) -> float | None:
        """Share of the constants that were there when a run needed them; None before the first."""
        asked = self.hits + self.compulsory_misses + self.capacity_misses
        return self.hits / asked if asked else None
