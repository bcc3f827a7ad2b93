"""Capacities: what is free on a node and its devices, in whole thousandths, so that sums are exact.

`free` is what is not in use by anything that runs or starts. Idle instances may hold part of it (`held`); they can be
evicted, so they never stand in the way of a run: whether something fits depends on `free` alone.
"""

from collections.abc import Container
from math import inf, isinf

import msgspec

from fairlead.engine.core.assumed import Assumed
from fairlead.engine.core.device_memory import DeviceMemory, Kernel, MemoryCounts
from fairlead.engine.core.queues import Task
from fairlead.engine.core.slices import Slices
from fairlead.engine.core.timers import Expiries
from fairlead.model import Configuration, Device, Function, Node
from fairlead.profile.spread import FIRST_SPREAD, widened

UNLIMITED = 1 << 60

_LEAST_VCPUS = 0.001
_LEAST_GB = 1 / 1024

_PRIOR = 10
_MEMORY = 90


def milli(amount: float) -> int:
    """An amount of vCPUs or vGPUs in thousandths."""
    return round(amount * 1000)


def mebi(amount_gb: float) -> int:
    """An amount of memory in MiB; infinity is a number too large to use up."""
    return UNLIMITED if isinf(amount_gb) else round(amount_gb * 1024)


class DeviceState:
    """One accelerator: free vGPUs and memory; of a MIG device, also its slices. `total` may be less than the `whole`.

    Where some function is a kernel, `memory` knows the buffers that lie there.
    """

    __slots__ = (
        "free",
        "held",
        "index",
        "last_release",
        "last_start",
        "memory",
        "memory_free",
        "memory_held",
        "memory_total",
        "memory_whole",
        "serves",
        "slices",
        "total",
        "whole",
    )

    def __init__(self, index: int, device: Device, counts: MemoryCounts | None) -> None:
        self.index = index
        self.memory = None if counts is None else DeviceMemory(self, counts)
        self.whole = self.total = self.free = milli(device.vgpus)
        self.memory_whole = self.memory_total = self.memory_free = mebi(device.usable_gb)
        self.held = self.memory_held = 0
        self.slices = Slices(device) if device.sharing == "mig" else None
        self.serves = device.serves
        self.last_start = self.last_release = -inf

    def fits(self, vgpus: int, memory: int) -> bool:
        """Whether this much is not in use; idle instances do not count."""
        if self.free < vgpus or self.memory_free < memory:
            return False
        return self.slices is None or self.slices.fits(vgpus)

    def fits_beside(self, vgpus: int, memory: int) -> bool:
        """Whether this much is neither in use nor held by idle instances."""
        if self.free - self.held < vgpus or self.memory_free - self.memory_held < memory:
            return False
        return self.slices is None or self.slices.fits_beside(vgpus)

    @property
    def is_crowded(self) -> bool:
        """Whether idle instances hold more than is free, or hold a MIG device that cannot be used any more."""
        if self.held > self.free or self.memory_held > self.memory_free:
            return True
        return self.slices is not None and not self.total

    def resize(self, vgpus: int) -> None:
        """Have only this many of its vGPUs to use, and as large a share of its memory; `free` may become negative."""
        memory = self.memory_whole
        if vgpus < self.whole and memory < UNLIMITED:
            memory = memory * vgpus // self.whole
        self.free += vgpus - self.total
        self.memory_free += memory - self.memory_total
        self.total, self.memory_total = vgpus, memory

    @property
    def buffers(self) -> DeviceMemory:
        """What knows the buffers that lie here; there is none in a run without kernels."""
        assert self.memory is not None
        return self.memory


class NodeState:
    """One machine: free vCPUs and memory, and its devices."""

    __slots__ = (
        "bit",
        "devices",
        "free",
        "gpu_level",
        "held",
        "index",
        "is_draining",
        "is_open",
        "is_up",
        "kind",
        "level",
        "memory_counts",
        "memory_free",
        "memory_held",
        "memory_total",
        "name",
        "node",
        "pressure",
        "signals",
        "total",
    )

    def __init__(self, index: int, node: Node, has_kernels: bool = False) -> None:
        self.index = index
        self.bit = 1 << index  # its place in masks over nodes
        self.node = node
        self.name = node.name
        self.kind = node.kind
        self.is_up = self.is_open = True  # open: up, and taking new work
        self.is_draining = False
        self.pressure = 0.0
        self.signals: tuple[float, ...] = ()  # none yet, or nobody looks
        self.level = self.gpu_level = 0  # where the placement index has it
        self.memory_counts = [MemoryCounts() for _ in node.devices] if has_kernels else []
        self.reset()

    def reset(self) -> None:
        """Everything free again, as after a restart."""
        self.total = self.free = milli(self.node.capacity_vcpus)
        self.memory_total = self.memory_free = mebi(self.node.memory_gb)
        self.held = self.memory_held = 0
        self.devices = [self._device(i, device) for i, device in enumerate(self.node.devices)]

    @property
    def is_over(self) -> bool:
        """Whether more is in use than there is, after it has shrunk."""
        return self.free < 0 or self.memory_free < 0 or any(device.free < 0 for device in self.devices)

    def resize(self, vcpus: float, memory_gb: float) -> None:
        """Have other capacities than before; what is free may become negative.

        A policy is never shown a node of size 0: `node` has at least a thousandth of a vCPU and a MiB of memory.
        """
        total, memory = milli(vcpus), mebi(memory_gb)
        self.free += total - self.total
        self.memory_free += memory - self.memory_total
        self.total, self.memory_total = total, memory
        node = self.node
        self.node = msgspec.structs.replace(
            node,
            vcpus=(vcpus if total else _LEAST_VCPUS) / node.overcommit,
            memory_gb=memory_gb if memory else _LEAST_GB,
        )

    def replace_devices(self, devices: tuple[Device, ...], in_use: Container[int]) -> list[DeviceState]:
        """Have other devices than before, except that those in use stay; returns the states that went.

        A device below one that is in use stays too, or the numbers of devices would change.
        """
        least = max((i + 1 for i in range(len(self.devices)) if i in in_use), default=0)
        now = self.node.devices
        kept = [i < len(now) and (i in in_use or i >= len(devices)) for i in range(max(least, len(devices)))]
        wanted = tuple(now[i] if is_kept else devices[i] for i, is_kept in enumerate(kept))
        gone = [state for i, state in enumerate(self.devices) if i >= len(wanted) or wanted[i] != now[i]]
        if self.memory_counts:
            self.memory_counts += [MemoryCounts() for _ in wanted[len(self.memory_counts) :]]
        self.devices = [
            self.devices[i] if i < len(now) and wanted[i] == now[i] else self._device(i, device)
            for i, device in enumerate(wanted)
        ]
        self.node = msgspec.structs.replace(self.node, devices=wanted)
        return gone

    def _device(self, index: int, device: Device) -> DeviceState:
        return DeviceState(index, device, self.memory_counts[index] if self.memory_counts else None)


class Belief:
    """How long a shape takes on one kind of node: declared, and corrected by what was observed.

    `correction` is the mean of observed over declared time, `spread` how far above that a safe percentile lies. Each
    change is noted by adding the configuration to `moved`, from which an `Estimate` knows what to work out anew. Where
    the time was `assumed`, that has the correction.
    """

    __slots__ = ("_assumed", "configuration", "correction", "declared_s", "moved", "observed", "per_s", "spread")

    def __init__(
        self,
        declared_s: float,
        configuration: Configuration | None = None,
        moved: set[Configuration] | None = None,
        assumed: Assumed | None = None,
    ) -> None:
        self.configuration = configuration or Configuration()
        self.moved: set[Configuration] = set() if moved is None else moved
        self.declared_s = declared_s
        self.per_s = 1 / declared_s if declared_s > 0 else 0.0
        self.correction = 1.0
        self.spread = FIRST_SPREAD
        self.observed = 0
        self._assumed = assumed
        if assumed is not None:
            assumed.add(self)

    def learn(self, work_s: float) -> None:
        """Take in one finished batch: a running mean that starts with the weight of ten and remembers a hundred."""
        if self._assumed is not None:
            if self.correction > 0 and self.observed:
                self.spread = widened(self.spread, work_s * self.per_s / self.correction)
            self._assumed.learn(self, work_s)
            return
        observed = self.observed
        if observed < _MEMORY:
            self.observed = observed = observed + 1
        ratio = work_s * self.per_s
        if self.correction > 0:
            self.spread = widened(self.spread, ratio / self.correction)
        self.correction += (ratio - self.correction) / (observed + _PRIOR)
        self.moved.add(self.configuration)

    @property
    def upper(self) -> float:
        """Observed over declared time at a safe percentile: of twenty runs, nineteen take no longer."""
        return self.correction * self.spread


class Shape:
    """A function in one configuration: what an instance takes, and which instances will do.

    Instances of the same flavour (function, GPU share, memory) are interchangeable: vCPUs resize in place.
    """

    __slots__ = (
        "beliefs",
        "blocked_at",
        "cold_at",
        "configuration",
        "copy_mb",
        "device_memory",
        "flavour",
        "function",
        "is_undemanding",
        "kernel",
        "memory",
        "name",
        "run_limit_s",
        "usd_per_s",
        "vcpus",
        "vgpus",
    )

    def __init__(self, function: Function, configuration: Configuration, flavour: "Flavour", usd_per_s: float) -> None:
        self.function = function
        self.name = function.name
        self.run_limit_s = None if isinf(function.run_limit_s) else function.run_limit_s
        self.configuration = configuration
        self.flavour = flavour
        self.vcpus = milli(configuration.vcpus)
        self.vgpus = flavour.vgpus
        self.memory = flavour.memory
        self.device_memory = flavour.device_memory
        self.kernel = kernel = flavour.kernel
        self.copy_mb = 0.0 if kernel is None else kernel.input_mb + kernel.output_mb  # between host and device
        self.usd_per_s = usd_per_s
        self.beliefs: dict[str, Belief] = {}  # by node kind, where it can run
        self.is_undemanding = False  # needs vCPUs only, on whatever kind of node
        self.blocked_at = -1  # version of the placement index at which nothing fitted
        self.cold_at = -1  # version at which no idle instance of its flavour had room

    def device_for(self, node: NodeState, wanted: int | None) -> DeviceState | None:
        """The device to use on a node: the one asked for, else the emptiest that fits.

        Where there are MIG devices, one with a free slice of the right size comes before one to be cut.
        """
        if self.kernel is not None:
            return self._device_for_kernel(self.kernel, node, wanted)
        best: DeviceState | None = None
        best_lacks = False
        for device in node.devices:
            if (wanted is not None and device.index != wanted) or device.serves == "kernels":
                continue
            if device.fits(self.vgpus, self.device_memory):
                lacks = device.slices is not None and not device.slices.has_free(self.vgpus)
                if best is None or (best_lacks, device.free) > (lacks, best.free):
                    best, best_lacks = device, lacks
        return best

    def _device_for_kernel(self, kernel: Kernel, node: NodeState, wanted: int | None) -> DeviceState | None:
        """As above, but first of all the device where least of the kernel is missing."""
        if wanted is None:
            fitting = [device for device in node.devices if self.fits_on(device)]
            return min(fitting, key=lambda device: (device.buffers.missing(kernel), -device.free), default=None)
        device = node.devices[wanted] if 0 <= wanted < len(node.devices) else None
        return device if device is not None and self.fits_on(device) else None

    def fits_on(self, device: DeviceState) -> bool:
        """Whether a device has room for a run, idle instances and unused buffers out of the way."""
        if device.serves == ("kernels" if self.kernel is None else "functions"):
            return False
        if not device.fits(self.vgpus, self.device_memory):
            return False
        return self.kernel is None or device.buffers.fits(self.kernel)

    def wakes_on(self, device: DeviceState) -> bool:
        """Whether an idle instance could run on its device now; on a MIG device, in a slice that is cut already."""
        return self.fits_on(device) and (device.slices is None or device.slices.has_unused(self.vgpus))

    def fits(self, node: NodeState, device: int | None = None) -> bool:
        """Whether an instance could run on this node now, idle ones out of the way."""
        if self.is_undemanding:
            return node.free >= self.vcpus and node.is_open and device is None
        return (
            node.free >= self.vcpus
            and node.memory_free >= self.memory
            and node.is_open
            and node.kind in self.beliefs
            and (self.device_for(node, device) is not None if self.vgpus else device is None)
        )


class Flavour:
    """Instances of one function that can stand in for each other, and where they are idle."""

    __slots__ = (
        "device_memory",
        "expiries",
        "function",
        "idle",
        "idling",
        "is_weightless",
        "keep_alive_s",
        "keeps_slice",
        "kernel",
        "living",
        "memory",
        "starting",
        "unready",
        "vgpus",
        "warm",
    )

    def __init__(self, function: Function, vgpus: int, memory: int, kernel: Kernel | None) -> None:
        self.function = function
        self.kernel = kernel  # of a function with buffers, where it runs on a device
        self.vgpus = vgpus
        self.memory = memory
        self.device_memory = mebi(function.device_memory_gb) if vgpus else 0
        self.keep_alive_s = function.keep_alive_s
        # Idle instances that hold nothing are never in anyone's way, so nobody needs to know which was used last.
        self.keeps_slice = function.idle_holds == "slice"
        self.is_weightless = vgpus == 0 and memory == 0 and not self.keeps_slice
        self.warm = 0  # bit mask of nodes with an idle instance
        self.idle: dict[int, list[InstanceState]] = {}  # by node index, most recently used last
        self.starting: dict[int, list[InstanceState]] = {}  # warming ahead of need, by node index
        self.expiries: Expiries | None = None  # None keeps them for ever
        self.living = self.unready = self.idling = 0  # how many there are, have not started, are in `idle`


class InstanceState:
    """One running copy of a function, and the batch it serves from that batch's start to its end.

    `stamp` changes whenever it turns idle, so that old timers are known.
    """

    __slots__ = (
        "batch",
        "cold_s",
        "configuration",
        "device",
        "flavour",
        "id",
        "is_cold",
        "is_cut",
        "is_draining",
        "is_held_back",
        "is_idle",
        "is_ready",
        "is_replica",
        "load_mb",
        "node",
        "on_demand",
        "places",
        "ready",
        "shape",
        "stamp",
        "start",
        "started",
        "starts_executor",
        "tasks",
        "transfer_mb",
        "vcpus",
    )

    def __init__(self, id: int, shape: Shape, node: NodeState, device: DeviceState | None, now: float) -> None:
        self.id = id
        self.flavour = shape.flavour
        self.configuration = shape.configuration
        self.node = node
        self.device = device
        self.vcpus = shape.vcpus
        self.places = 0
        self.stamp = 0
        self.is_idle = self.is_ready = self.is_draining = self.is_replica = False
        self.is_held_back = False  # its start waits for the end of instances that were evicted for it
        self.on_demand = True
        self.load_mb = 0.0  # of a kernel: what must come to the device before it is ready
        self.starts_executor = False
        self.is_cut = False  # on a MIG device: its slice had to be cut, which delays its start
        self.started = now
        self.ready: float | None = None
        # The batch, or what is left of the last one.
        self.batch = -1
        self.shape = shape
        self.tasks: list[Task] = []
        self.start = now
        self.is_cold = False
        self.cold_s = 0.0
        self.transfer_mb = 0.0

    @property
    def cut_s(self) -> float:
        """What cutting its slice is declared to add to its start."""
        if not self.is_cut or self.device is None:
            return 0.0
        return self.node.node.devices[self.device.index].repartition_s
