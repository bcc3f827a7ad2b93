"""Capacities: what is free on a node and its devices, in whole thousandths, so that sums are exact.

`free` is what is not in use by anything that runs or starts. Idle instances may hold part of it (`held`); they can be
evicted, so they never stand in the way of a run: whether something fits depends on `free` alone.
"""

from collections import deque
from math import inf, isinf

from fairlead.model import Configuration, Device, Function, Node

UNLIMITED = 1 << 60


def milli(amount: float) -> int:
    """An amount of vCPUs or vGPUs in thousandths."""
    return round(amount * 1000)


def mebi(amount_gb: float) -> int:
    """An amount of memory in MiB; infinity is a number too large to use up."""
    return UNLIMITED if isinf(amount_gb) else round(amount_gb * 1024)


# Where a slice of each size may begin on a MIG device and how many of its eight memory slices it takes:
# the placements of an A100 (1g.5gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb).
_MIG_STARTS = {1: (0, 1, 2, 3, 4, 5, 6), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)}
_MIG_WIDTH = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
MIG_MASKS = {
    size * 1000: tuple(((1 << _MIG_WIDTH[size]) - 1) << start for start in starts)
    for size, starts in _MIG_STARTS.items()
}


class DeviceState:
    """One accelerator: free vGPUs and memory; on a MIG device also which places are taken."""

    __slots__ = (
        "free",
        "held",
        "index",
        "is_mig",
        "last_release",
        "last_start",
        "memory_free",
        "memory_held",
        "places_busy",
        "places_held",
        "total",
    )

    def __init__(self, index: int, device: Device) -> None:
        self.index = index
        self.total = self.free = milli(device.vgpus)
        self.memory_free = mebi(device.memory_gb)
        self.held = self.memory_held = 0
        self.is_mig = device.sharing == "mig"
        self.places_busy = self.places_held = 0
        self.last_start = self.last_release = -inf

    def fits(self, vgpus: int, memory: int) -> bool:
        """Whether this much is not in use; idle instances do not count."""
        if self.free < vgpus or self.memory_free < memory:
            return False
        return not self.is_mig or any(not mask & self.places_busy for mask in MIG_MASKS.get(vgpus, ()))

    def place(self, vgpus: int) -> int:
        """The places a MIG slice should take: untouched ones, else ones that only idle instances hold."""
        masks = [mask for mask in MIG_MASKS[vgpus] if not mask & self.places_busy]
        return min(masks, key=lambda mask: (mask & self.places_held != 0, -mask))


class NodeState:
    """One machine: free vCPUs and memory, and its devices."""

    __slots__ = (
        "busy",
        "devices",
        "free",
        "held",
        "index",
        "is_draining",
        "is_up",
        "kind",
        "memory_free",
        "memory_held",
        "node",
        "pressure",
        "total",
    )

    def __init__(self, index: int, node: Node) -> None:
        self.index = index
        self.node = node
        self.kind = node.kind
        self.is_up = True
        self.is_draining = False
        self.pressure = 0.0
        self.reset()

    def reset(self) -> None:
        """Everything free again, as after a restart."""
        self.total = self.free = milli(self.node.vcpus)
        self.memory_free = mebi(self.node.memory_gb)
        self.held = self.memory_held = 0
        self.busy = 0  # instances that start or run here
        self.devices = [DeviceState(i, device) for i, device in enumerate(self.node.devices)]


class Shape:
    """A function in one configuration: what an instance takes, and which instances will do.

    Instances of the same flavour (function, GPU share, memory) are interchangeable: vCPUs resize in place.
    """

    __slots__ = (
        "beliefs",
        "blocked_at",
        "configuration",
        "declared_s",
        "device_memory",
        "flavour",
        "function",
        "memory",
        "usd_per_s",
        "vcpus",
        "vgpus",
    )

    def __init__(self, function: Function, configuration: Configuration, flavour: "Flavour", usd_per_s: float) -> None:
        self.function = function
        self.configuration = configuration
        self.flavour = flavour
        self.vcpus = milli(configuration.vcpus)
        self.vgpus = flavour.vgpus
        self.memory = flavour.memory
        self.device_memory = flavour.device_memory
        self.usd_per_s = usd_per_s
        self.declared_s: dict[str, float] = {}  # by node kind
        self.beliefs: dict[str, list[float]] = {}  # by node kind: correction, number of observations
        self.blocked_at = -1  # version of the placement index at which nothing fitted

    def device_for(self, node: NodeState, wanted: int | None) -> DeviceState | None:
        """The device to use on a node: the one asked for, else the emptiest that fits."""
        best: DeviceState | None = None
        for device in node.devices:
            if wanted is not None and device.index != wanted:
                continue
            if device.fits(self.vgpus, self.device_memory) and (best is None or device.free > best.free):
                best = device
        return best

    def fits(self, node: NodeState, device: int | None = None) -> bool:
        """Whether an instance could run on this node now, idle ones out of the way."""
        if not node.is_up or node.is_draining or node.free < self.vcpus or node.memory_free < self.memory:
            return False
        if node.kind not in self.declared_s:
            return False
        return self.vgpus == 0 or self.device_for(node, device) is not None


class Flavour:
    """Instances of one function that can stand in for each other, and where they are idle."""

    __slots__ = ("device_memory", "expiry", "function", "idle", "memory", "starting", "vgpus", "warm")

    def __init__(self, function: Function, vgpus: int, memory: int) -> None:
        self.function = function
        self.vgpus = vgpus
        self.memory = memory
        self.device_memory = mebi(function.device_memory_gb) if vgpus else 0
        self.warm = 0  # bit mask of nodes with an idle instance
        self.idle: dict[int, list[InstanceState]] = {}  # by node index, most recently used last
        self.starting: dict[int, list[InstanceState]] = {}  # warming ahead of need, by node index
        self.expiry: deque[tuple[float, InstanceState, int]] | None = None  # shared by equal keep-alives


class InstanceState:
    """One running copy of a function. `stamp` changes whenever it turns busy or idle, so that old timers are known."""

    __slots__ = (
        "batch",
        "busy_s",
        "configuration",
        "device",
        "flavour",
        "id",
        "is_draining",
        "is_idle",
        "is_ready",
        "is_replica",
        "node",
        "on_demand",
        "places",
        "ready",
        "since",
        "stamp",
        "started",
        "vcpus",
    )

    def __init__(
        self, id: int, flavour: Flavour, configuration: Configuration, node: NodeState, device: DeviceState | None
    ) -> None:
        self.id = id
        self.flavour = flavour
        self.configuration = configuration
        self.node = node
        self.device = device
        self.vcpus = milli(configuration.vcpus)
        self.places = 0
        self.stamp = 0
        self.batch = -1  # id of the batch that runs or will run here
        self.is_idle = self.is_ready = self.is_draining = self.is_replica = False
        self.on_demand = True
        self.started = self.since = 0.0
        self.ready: float | None = None
        self.busy_s = 0.0
