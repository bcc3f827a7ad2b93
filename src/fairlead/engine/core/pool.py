"""The pool of instances: which are warm, what they hold, who is evicted.

An instance is *starting*, *busy* or *idle*. Starting and busy ones use capacity (`free` shrinks); an idle one
may hold its slice or only its memory (`held` grows), and the least recently used makes way when that is needed.
Replicas, the instances of a scaled function, use their capacity for as long as they live.
"""

from collections.abc import Callable, Iterable
from math import inf, isinf

from fairlead.engine.core.capacity import DeviceState, Flavour, InstanceState, NodeState, Shape, mebi, milli
from fairlead.engine.core.device_memory import Kernel
from fairlead.engine.core.placement import Placement
from fairlead.engine.core.showing import start_s
from fairlead.engine.core.slices import Slices
from fairlead.engine.core.timers import Timers
from fairlead.model import Configuration, Function
from fairlead.policy.base import Counts
from fairlead.profile import Profile


class Pool:
    """Every instance, by id and by where it is idle. `on_stop(instance, cause)` is told of each one that ends."""

    __slots__ = (
        "_flavours_of",
        "_idle_on",
        "_kernels",
        "_next_id",
        "_of",
        "_on_stop",
        "_placement",
        "_timers",
        "flavours",
        "instances",
    )

    def __init__(self, placement: Placement, timers: Timers, on_stop: Callable[[InstanceState, str], None]) -> None:
        self.instances: dict[int, InstanceState] = {}
        self.flavours: dict[tuple[str, int, int], Flavour] = {}
        self._flavours_of: dict[str, list[Flavour]] = {}  # by function
        self._of: dict[str, dict[int, InstanceState]] = {}  # by function
        self._kernels: dict[str, Kernel] = {}  # by function
        self._placement = placement
        self._timers = timers
        self._idle_on: dict[int, dict[int, InstanceState]] = {}  # by node index; least recently used first
        self._on_stop = on_stop
        self._next_id = 0

    def flavour(self, function: Function, configuration: Configuration) -> Flavour:
        """The kind of instance that this function needs in this configuration."""
        memory = mebi(configuration.memory_gb or function.memory_gb)
        key = (function.name, milli(configuration.vgpus), memory)
        flavour = self.flavours.get(key)
        if flavour is None:
            kernel = self._kernel(function) if function.buffers and key[1] else None
            flavour = self.flavours[key] = Flavour(function, key[1], memory, kernel)
            self._flavours_of.setdefault(function.name, []).append(flavour)
            if kernel is not None:
                kernel.flavours.append(flavour)
            if not isinf(function.keep_alive_s):
                flavour.expiries = self._timers.expiries(function.keep_alive_s)
        return flavour

    def _kernel(self, function: Function) -> Kernel:
        found = self._kernels.get(function.name)
        if found is None:
            found = self._kernels[function.name] = Kernel(function)
        return found

    def warm(self, shape: Shape, node: NodeState, device: int | None, now: float) -> InstanceState | None:
        """The most recently used idle instance that will do, turned busy; None if there is none."""
        flavour = shape.flavour
        idle = flavour.idle.get(node.index)
        if not idle:
            return None
        if flavour.is_weightless:
            instance = idle.pop()
            flavour.idling -= 1
            if not idle:
                flavour.warm ^= node.bit
            instance.is_idle = False
            instance.vcpus = shape.vcpus
            node.free = free = node.free - shape.vcpus
            node.level = self._placement.cpu.shift(node.bit, node.level, free)
            if node.held > free:
                self.make_room(node, now)
            return instance
        found = self._usable(shape, idle, device)
        if found is not None:
            self._leave_idle(found)
            found.vcpus = shape.vcpus
            self._take(found, now)
        return found

    def starting(self, shape: Shape, node: NodeState, device: int | None) -> InstanceState | None:
        """An instance that warms ahead of need, taken by a run that will begin when it is ready."""
        instance = self.find_starting(shape, node, device)
        if instance is not None:
            shape.flavour.starting[node.index].remove(instance)
        return instance

    def find_starting(self, shape: Shape, node: NodeState, device: int | None) -> InstanceState | None:
        """An instance that warms ahead of need and nobody has taken yet."""
        if node.is_open:
            for instance in shape.flavour.starting.get(node.index, ()):
                if instance.vcpus == shape.vcpus and (
                    device is None or (instance.device is not None and instance.device.index == device)
                ):
                    return instance
        return None

    def create(
        self, shape: Shape, node: NodeState, device: DeviceState | None, now: float, *, on_demand: bool
    ) -> InstanceState:
        """A new instance that starts now; what is idle in its way is evicted. The caller has checked that it fits.

        One of a kernel of which everything is there already counts as warm: nobody has to wait for it.
        """
        instance = InstanceState(self._next_id, shape, node, device, now)
        self._next_id += 1
        instance.on_demand = on_demand
        self.instances[instance.id] = instance
        self._of.setdefault(instance.flavour.function.name, {})[instance.id] = instance
        instance.flavour.living += 1
        instance.flavour.unready += 1
        self._take(instance, now)
        kernel = instance.flavour.kernel
        if kernel is not None and device is not None:
            device.buffers.join(kernel)
            is_delayed = instance.load_mb > 0 or instance.starts_executor or instance.cut_s > 0
            instance.on_demand = on_demand and is_delayed
        return instance

    def release(self, instance: InstanceState, now: float) -> None:
        """Turn a busy (or just started) instance idle, and let its capacity be used by others."""
        flavour, node = instance.flavour, instance.node
        if flavour.is_weightless:
            placement = self._placement
            placement.version += 1
            node.free = free = node.free + instance.vcpus
            node.level = placement.cpu.shift(node.bit, node.level, free)
        else:
            self._give_back(instance, now)
            self._hold(instance)
        idle = flavour.idle.get(node.index)
        if idle:
            idle.append(instance)
        else:
            flavour.idle[node.index] = [instance]
            flavour.warm |= node.bit
        instance.is_idle = True
        flavour.idling += 1
        expiries = flavour.expiries
        if expiries is not None:
            instance.stamp = stamp = instance.stamp + 1
            at = now + flavour.keep_alive_s
            expiries.append((at, instance, stamp))
            if at < self._timers.soonest:
                self._timers.soonest = at

    def stop(self, instance: InstanceState, now: float, cause: str) -> None:
        """End an instance in whatever state it is."""
        if instance.is_idle and not instance.is_replica:
            self._leave_idle(instance)
        else:
            self._give_back(instance, now)
            starting = instance.flavour.starting.get(instance.node.index, [])
            if instance in starting:
                starting.remove(instance)
        instance.is_idle = False
        self._forget(instance)
        kernel = instance.flavour.kernel
        if kernel is not None and instance.device is not None:
            instance.device.buffers.leave(kernel, is_kept=cause == "evicted")
        self._on_stop(instance, cause)

    def of(self, function: str) -> Iterable[InstanceState]:
        """The instances of a function, oldest first."""
        return self._of.get(function, {}).values()

    def counts(self, function: str, profile: Profile) -> tuple[Counts, ...]:
        """How many instances of a function there are of each GPU share, smallest first."""
        found: list[Counts] = []
        flavours = [flavour for flavour in self._flavours_of.get(function, ()) if flavour.living]
        for vgpus in sorted({flavour.vgpus for flavour in flavours}):
            alike = [flavour for flavour in flavours if flavour.vgpus == vgpus]
            starting = sum([flavour.unready for flavour in alike])
            ready_at = inf
            resting = 0  # replicas at rest, which are idle and in no list of idle instances
            for instance in self.of(function) if starting or any(f.living > f.idling for f in alike) else ():
                if instance.flavour.vgpus == vgpus:
                    if not instance.is_ready:
                        ready_at = min(ready_at, instance.started + start_s(instance, profile))
                    resting += instance.is_replica and instance.is_idle
            idle = sum([flavour.idling for flavour in alike]) + resting
            ready = sum([flavour.living for flavour in alike]) - starting
            found.append(Counts(vgpus / 1000, ready, idle, starting, ready_at))
        return tuple(found)

    def fits_beside(self, shape: Shape, node: NodeState, device: int | None, *, is_fresh: bool = False) -> bool:
        """Whether a Start of this shape would be carried out on a node without evicting anything.

        With `is_fresh`, in an instance of its own: an idle one that would do does not count.
        """
        if not shape.fits(node, device):
            return False
        idle = None if is_fresh else shape.flavour.idle.get(node.index)
        found = self._usable(shape, idle, device) if idle else None
        if found is None:
            chosen = shape.device_for(node, device) if shape.vgpus else None
            if node.free - node.held < shape.vcpus or node.memory_free - node.memory_held < shape.memory:
                return False
            if chosen is None:
                return True
            if not chosen.fits_beside(shape.vgpus, shape.device_memory):
                return False
            return shape.kernel is None or chosen.buffers.fits_beside(shape.kernel)
        own = found.vcpus if shape.flavour.keeps_slice else 0
        if node.free - shape.vcpus < node.held - own:
            return False
        if found.device is None or shape.flavour.keeps_slice:
            return True
        is_cut = found.device.slices is None or found.device.slices.has_free(shape.vgpus)
        return is_cut and found.device.free - shape.vgpus >= found.device.held

    def idle_on(self, node: NodeState) -> Iterable[InstanceState]:
        """The idle instances on a node that hold anything, least recently used first."""
        return self._idle_on.get(node.index, {}).values()

    def busy_on(self, node: NodeState) -> int:
        """How many instances start or run on a node. A full listing."""
        return sum(instance.node is node and not instance.is_idle for instance in self.instances.values())

    def forget_node(self, node: NodeState) -> list[InstanceState]:
        """End everything on a lost node, at once and without accounts; gives what was there, oldest first."""
        lost = [instance for instance in self.instances.values() if instance.node is node]
        for instance in lost:
            flavour = instance.flavour
            flavour.idling -= len(flavour.idle.pop(node.index, ()))
            flavour.starting.pop(node.index, None)
            flavour.warm &= ~node.bit
            instance.is_idle = False
            self._forget(instance)
        self._idle_on.pop(node.index, None)
        return lost

    def make_room(self, node: NodeState, now: float) -> None:
        """Evict idle instances of a node until they hold no more than is free, and note what is."""
        while node.held > node.free or node.memory_held > node.memory_free:
            self._evict_from(node, None, now)
        self._placement.update(node)

    def _forget(self, instance: InstanceState) -> None:
        del self.instances[instance.id]
        flavour = instance.flavour
        del self._of[flavour.function.name][instance.id]
        flavour.living -= 1
        flavour.unready -= not instance.is_ready

    def _take(self, instance: InstanceState, now: float) -> None:
        """Use capacity for an instance, evicting idle ones that hold what it needs."""
        flavour, node, device = instance.flavour, instance.node, instance.device
        node.free -= instance.vcpus
        node.memory_free -= flavour.memory
        if device is not None:
            device.free -= flavour.vgpus
            device.memory_free -= flavour.device_memory
            device.last_start = now
            if flavour.kernel is not None:
                instance.load_mb, instance.starts_executor = device.buffers.pin(flavour.kernel)
            if device.slices is not None:
                self._take_slice(instance, device, device.slices, now)
            while device.held > device.free or device.memory_held > device.memory_free:
                self._evict_from(node, device, now)
        self.make_room(node, now)

    def _take_slice(self, instance: InstanceState, device: DeviceState, slices: Slices, now: float) -> None:
        """Use a slice of a MIG device, and evict the idle instances that lose theirs by it."""
        if instance.places:  # it is warm and has kept its own
            slices.busy |= instance.places
            return
        node, vgpus = instance.node, instance.flavour.vgpus
        there = [other for other in self.idle_on(node) if other.device is device]
        held = (other.places for other in there if other.places and other.flavour.vgpus == vgpus)
        instance.places, instance.is_cut = slices.take(vgpus, held, may_cut=not instance.is_ready)
        if instance.is_cut:
            self._placement.version += 1  # a slice that was cut along may let an idle instance run
        elif not slices.held & slices.busy:
            return
        left = set(slices.cut.values())
        for other in there:
            if other.places & slices.busy or other.flavour.vgpus not in left:
                self.stop(other, now, "evicted")

    def _give_back(self, instance: InstanceState, now: float) -> None:
        """Let what an instance uses be used by others."""
        flavour, node, device = instance.flavour, instance.node, instance.device
        node.free += instance.vcpus
        node.memory_free += flavour.memory
        if device is not None:
            device.free += flavour.vgpus
            device.memory_free += flavour.device_memory
            device.last_release = now
            if device.slices is not None:
                device.slices.busy &= ~instance.places
            if flavour.kernel is not None:
                device.buffers.unpin(flavour.kernel)
        self._placement.version += 1
        self._placement.update(node)

    def _hold(self, instance: InstanceState) -> None:
        """Let an idle instance keep what its function keeps, until somebody needs it more."""
        flavour, node, device = instance.flavour, instance.node, instance.device
        self._idle_on.setdefault(node.index, {})[instance.id] = instance
        if flavour.keeps_slice:
            node.held += instance.vcpus
        node.memory_held += flavour.memory
        if device is not None:
            device.memory_held += flavour.device_memory
            if flavour.keeps_slice:
                device.held += flavour.vgpus
                if device.slices is not None:
                    device.slices.held |= instance.places
            else:
                instance.places = 0

    def _leave_idle(self, instance: InstanceState) -> None:
        """Take an instance out of the idle ones, and back what `_hold` gave it."""
        flavour, node, device = instance.flavour, instance.node, instance.device
        idle = flavour.idle[node.index]
        idle.remove(instance)
        flavour.idling -= 1
        if not idle:
            flavour.warm ^= node.bit
        instance.is_idle = False
        if flavour.is_weightless:
            return
        del self._idle_on[node.index][instance.id]
        if flavour.keeps_slice:
            node.held -= instance.vcpus
        node.memory_held -= flavour.memory
        if device is not None:
            device.memory_held -= flavour.device_memory
            if flavour.keeps_slice:
                device.held -= flavour.vgpus
                if device.slices is not None:
                    device.slices.held &= ~instance.places

    @staticmethod
    def _usable(shape: Shape, idle: list[InstanceState], device: int | None) -> InstanceState | None:
        """The most recently used of these whose device, if it needs one, is free."""
        if shape.vgpus == 0:
            return idle[-1]
        for instance in reversed(idle):
            state = instance.device
            if state is None or (device is not None and state.index != device):
                continue
            if shape.wakes_on(state):
                return instance
        return None

    def _evict_from(self, node: NodeState, device: DeviceState | None, now: float) -> None:
        """Stop the least recently used idle instance that holds what is short on a node, or on one of its devices.

        Where the memory of a device is short, unused buffers go first: they come back sooner than a process.
        """
        if device is not None and device.memory is not None and device.memory_held > device.memory_free:
            kernel = device.memory.evict()
            if kernel is not None:
                self._stop_without_buffers(kernel, node, device, now)
                return
        for instance in self._idle_on[node.index].values():
            if _holds_what_is_short(instance, node, device):
                self.stop(instance, now, "evicted")
                return
        raise AssertionError("idle instances hold more than is free, and none can be found")

    def _stop_without_buffers(self, kernel: Kernel, node: NodeState, device: DeviceState, now: float) -> None:
        """Stop the idle instances of a kernel that has lost a buffer on this device."""
        for flavour in kernel.flavours:
            for instance in [i for i in flavour.idle.get(node.index, ()) if i.device is device]:
                self.stop(instance, now, "evicted")


def _holds_what_is_short(instance: InstanceState, node: NodeState, device: DeviceState | None) -> bool:
    flavour = instance.flavour
    if device is None:
        return (node.held > node.free and flavour.keeps_slice and instance.vcpus > 0) or (
            node.memory_held > node.memory_free and flavour.memory > 0
        )
    if instance.device is not device:
        return False
    return (device.held > device.free and flavour.keeps_slice) or (
        device.memory_held > device.memory_free and flavour.device_memory > 0
    )
