"""System-managed device memory: which buffers of which kernels lie on a device, and who makes room.

A kernel's constants stay when its run ends and may serve the next; they are *pinned* while a run uses them, and all the
rest may be evicted. Its inputs, outputs and temporaries belong to one run and are freed with it. Room is made once,
before a run loads anything: first among the buffers used at most twice, then among the others, the least recently
used of each. Sizes are whole MiB, rounded up per buffer as allocators do, so that sums are exact.

After N. Pemberton et al., "Kernel-as-a-Service: A Serverless Interface to GPUs" (arXiv 2212.08146, 2022).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING

from fairlead.kaas.lists import TwoLists
from fairlead.model import DeviceMemoryUse, Function

if TYPE_CHECKING:
    from fairlead.engine.core.capacity import DeviceState, Flavour, NodeState

Key = tuple[str, str]  # function and buffer: nothing is shared between functions
_USE = tuple(name for name in DeviceMemoryUse.__dataclass_fields__ if name not in ("node", "device"))


class Kernel:
    """The buffers of one function: what stays on a device, and what each run needs besides."""

    __slots__ = ("constants", "flavours", "input_mb", "name", "output_mb", "scratch")

    def __init__(self, function: Function) -> None:
        self.name = function.name
        self.flavours: list[Flavour] = []  # of this function, whatever their share of a device
        self.constants: list[tuple[Key, int, float]] = []  # key, MiB, exact MB
        self.scratch = 0  # MiB of everything else
        self.input_mb = self.output_mb = 0.0
        for buffer in function.buffers:
            if buffer.kind == "constant":
                self.constants.append(((self.name, buffer.name), ceil(buffer.size_mb), buffer.size_mb))
            else:
                self.scratch += ceil(buffer.size_mb)
            if buffer.kind == "input":
                self.input_mb += buffer.size_mb
            elif buffer.kind == "output":
                self.output_mb += buffer.size_mb


class Resident:
    """One constant that lies on a device, or is on its way there."""

    __slots__ = ("is_loaded", "kernel", "pins", "size", "uses")

    def __init__(self, kernel: Kernel, size: int) -> None:
        self.kernel = kernel
        self.size = size
        self.pins = 0  # runs that use it now
        self.uses = 0
        self.is_loaded = False


class MemoryCounts:
    """What happened in a device's memory over a whole run, restarts of its node included.

    `corrections` counts constants that were believed to be there and were not, as a live device says.
    """

    __slots__ = (*_USE, "corrections")

    def __init__(self) -> None:
        self.corrections = 0
        self.hits = self.compulsory_misses = self.capacity_misses = self.evictions = self.executor_starts = 0
        self.loaded_mb = self.input_mb = self.output_mb = 0.0


class DeviceMemory:
    """The buffers on one device. The device's own `memory_free` and `memory_held` are kept up to date with them.

    `memory_free` is what no run uses, so a kernel fits if what it would pin is no more than that. `memory_held` is what
    lies there unpinned; whenever it exceeds what is free, the pool asks to `evict`.
    """

    __slots__ = ("_device", "_evicted", "_has_executor", "_idle", "_instances", "_resident", "counts")

    def __init__(self, device: DeviceState, counts: MemoryCounts) -> None:
        self._device = device
        self.counts = counts
        self._resident: dict[Key, Resident] = {}
        self._idle: TwoLists[Key, Resident] = TwoLists()  # unpinned, in the order in which they are evicted
        self._evicted: set[Key] = set()  # what had to go: loading it again is a miss for lack of room
        self._instances: dict[str, int] = {}  # by function
        self._has_executor = False

    def fits(self, kernel: Kernel) -> bool:
        """Whether a run could pin everything it needs, all that is not pinned out of the way."""
        need = kernel.scratch
        for key, size, _ in kernel.constants:
            found = self._resident.get(key)
            if found is None or not found.pins:
                need += size
        return need <= self._device.memory_free

    def fits_beside(self, kernel: Kernel) -> bool:
        """Whether a run could pin everything it needs without evicting a buffer or an idle instance."""
        need = kernel.scratch + sum(size for key, size, _ in kernel.constants if key not in self._resident)
        return need <= self._device.memory_free - self._device.memory_held

    def is_warm(self, kernel: Kernel) -> bool:
        """Whether a run would load nothing: the executor runs, and every constant is there."""
        return self._has_executor and not self.missing(kernel)

    def missing(self, kernel: Kernel) -> int:
        """How many MiB of its constants are not there."""
        resident = self._resident
        return sum(size for key, size, _ in kernel.constants if key not in resident or not resident[key].is_loaded)

    def pin(self, kernel: Kernel) -> tuple[float, bool]:
        """Give a run its memory: how many MB it must load first, and whether the executor must start.

        The caller makes room afterwards, once. What another run is still loading counts as if it had to be
        loaded here too: that is how long this run waits for it at most.
        """
        device, counts, taken, load_mb = self._device, self.counts, kernel.scratch, 0.0
        for key, size, exact_mb in kernel.constants:
            found = self._resident.get(key)
            if found is None:
                found = self._resident[key] = Resident(kernel, size)
                if key in self._evicted:
                    counts.capacity_misses += 1
                else:
                    counts.compulsory_misses += 1
                counts.loaded_mb += exact_mb
                taken += size
            else:
                counts.hits += 1
                if not found.pins:
                    self._idle.take(key, found.uses)
                    device.memory_held -= size
                    taken += size
            if not found.is_loaded:
                load_mb += exact_mb
            found.pins += 1
            found.uses += 1
        device.memory_free -= taken
        return load_mb, not self._has_executor

    def unpin(self, kernel: Kernel) -> None:
        """Take a run's memory back: what is its own is freed, the constants may be evicted from now on."""
        device, given = self._device, kernel.scratch
        for key, size, _ in kernel.constants:
            found = self._resident[key]
            found.pins -= 1
            if not found.pins:
                self._idle.put(key, found, found.uses)
                device.memory_held += size
                given += size
        device.memory_free += given

    def evict(self) -> Kernel | None:
        """Free the buffer that is missed least, and say whose it was; None if all that is there is pinned."""
        key = self._idle.first()
        if key is None:
            return None
        found = self._free(key)
        self._evicted.add(key)
        self.counts.evictions += 1
        return found.kernel

    def lost(self, kernel: Kernel, buffers: Iterable[str]) -> bool:
        """Forget constants that are not there, as the device itself says; whether that is news.

        Those that a run has pinned are left: it loads what it does not find.
        """
        is_news = False
        for name in buffers:
            key = (kernel.name, name)
            found = self._resident.get(key)
            if found is not None and not found.pins:
                self._free(key)
                self._evicted.add(key)
                self.counts.corrections += 1
                is_news = True
        return is_news

    def join(self, kernel: Kernel) -> None:
        """An instance starts."""
        self._instances[kernel.name] = self._instances.get(kernel.name, 0) + 1

    def ready(self, kernel: Kernel) -> None:
        """An instance has loaded what it needs."""
        if not self._has_executor:
            self._has_executor = True
            self.counts.executor_starts += 1
        for key, _, _ in kernel.constants:
            self._resident[key].is_loaded = True

    def leave(self, kernel: Kernel, is_kept: bool) -> None:
        """An instance ended. With the last one on the device go its buffers, unless they are kept."""
        self._instances[kernel.name] -= 1
        if self._instances[kernel.name] or is_kept:
            return
        for key, _, _ in kernel.constants:
            if key in self._resident:
                self._free(key)

    def ran(self, kernel: Kernel) -> None:
        """A run came to its end: its input was copied in, its output written back."""
        self.counts.input_mb += kernel.input_mb
        self.counts.output_mb += kernel.output_mb

    def _free(self, key: Key) -> Resident:
        found = self._resident.pop(key)
        self._idle.take(key, found.uses)
        self._device.memory_held -= found.size
        return found


def memory_use(nodes: Iterable[NodeState]) -> tuple[DeviceMemoryUse, ...]:
    """What happened in the memory of every device; nothing where no function has buffers."""
    return tuple(
        DeviceMemoryUse(node=node.name, device=index, **{name: getattr(counts, name) for name in _USE})
        for node in nodes
        for index, counts in enumerate(node.memory_counts)
    )
