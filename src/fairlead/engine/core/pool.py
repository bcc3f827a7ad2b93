"""The pool of instances: which are warm, what they hold, who is evicted.

An instance is *starting*, *busy* or *idle*. Starting and busy ones use capacity (`free` shrinks); an idle one
may hold its slice or only its memory (`held` grows), and the least recently used makes way when that is needed.
Replicas, the instances of a scaled function, use their capacity for as long as they live.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf, isinf

from fairlead.engine.core.capacity import DeviceState, Flavour, InstanceState, NodeState, Shape, mebi, milli
from fairlead.engine.core.device_memory import Kernel
from fairlead.engine.core.endings import Endings, Keeps
from fairlead.engine.core.events import NodeChanged
from fairlead.engine.core.placement import Placement
from fairlead.engine.core.showing import start_s
from fairlead.engine.core.slices import Slices
from fairlead.engine.core.timers import Timers
from fairlead.model import Configuration, Function
from fairlead.policy.base import Counts
from fairlead.profile import Profile


class Pool:
    """Every instance, by id and by where it is idle. `on_stop(instance, cause)` is told of each one that ends.

    Where ends take time (`awaits_end`), `endings` knows the instances that were told to stop and still exist.
    """

    __slots__ = (
        "_flavours_of",
        "_idle_on",
        "_kernels",
        "_next_id",
        "_of",
        "_on_stop",
        "_placement",
        "_timers",
        "endings",
        "flavours",
        "instances",
    )

    def __init__(
        self,
        placement: Placement,
        timers: Timers,
        on_stop: Callable[[InstanceState, str], None],
        *,
        awaits_end: bool = False,
    ) -> None:
        self.endings = Endings() if awaits_end else None
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
        self._add(instance)
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
        is_over = False
        if flavour.is_weightless:
            placement = self._placement
            placement.version += 1
            node.free = free = node.free + instance.vcpus
            node.level = placement.cpu.shift(node.bit, node.level, free)
        else:
            self._give_back(instance, now)
            self._hold(instance)
            device = instance.device
            is_over = node.memory_held > node.memory_free or node.held > node.free
            if device is not None and device.is_crowded:
                is_over = True
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
        if is_over:  # the node has shrunk below what it holds
            if instance.device is not None:
                self._make_device_room(instance.device, node, now)
            self.make_room(node, now)

    def stop(self, instance: InstanceState, now: float, cause: str) -> None:
        """End an instance in whatever state it is."""
        keeps = Keeps.NOTHING
        is_awaited = self.endings is not None and cause != "lost" and not instance.is_held_back
        if instance.is_idle and not instance.is_replica:
            self._leave_idle(instance)
            if is_awaited and cause != "evicted":
                keeps = Keeps.HELD
                self._use_held(instance, 1)
        else:
            if is_awaited:
                keeps = Keeps.ALL
            else:
                self._give_back(instance, now)
            starting = instance.flavour.starting.get(instance.node.index, [])
            if instance in starting:
                starting.remove(instance)
        instance.is_idle = False
        self._forget(instance)
        if keeps is Keeps.NOTHING:
            self._leave_buffers(instance, is_kept=cause == "evicted")
        if self.endings is not None:
            if is_awaited:
                self.endings.add(instance, keeps)
            elif instance.is_held_back:
                self.endings.withdraw(instance)
        self._on_stop(instance, cause)

    def gone(self, id: int, now: float) -> InstanceState | None:
        """Free what a terminating instance kept, now that it has ended; None if none of this number terminates."""
        found = None if self.endings is None else self.endings.end(id)
        if found is None:
            return None
        instance, keeps = found
        if keeps is Keeps.ALL:
            self._give_back(instance, now)
        elif keeps is Keeps.HELD:
            self._use_held(instance, -1)
            self._placement.version += 1
        if keeps is not Keeps.NOTHING:
            self._leave_buffers(instance, is_kept=False)
        return instance

    def next_id(self) -> int:
        """A number for an instance that is about to be adopted. It must be adopted before another one is created."""
        id = self._next_id
        self._next_id = id + 1
        return id

    def adopt(self, id: int, shape: Shape, node: NodeState, device: int, now: float) -> InstanceState | None:
        """Take in an idle instance that exists already; None if there is no room for it beside what is there.

        Nothing is evicted for it. One in a MIG slice, or of a kernel, is not taken: what it has of its device is not
        known.
        """
        self._next_id = max(self._next_id, id + 1)
        vcpus, vgpus = (shape.vcpus, shape.vgpus) if shape.flavour.keeps_slice else (0, 0)
        if not node.is_open or node.kind not in shape.beliefs or shape.kernel is not None:
            return None
        if node.free - node.held < vcpus or node.memory_free - node.memory_held < shape.memory:
            return None
        state = None
        if shape.vgpus:
            state = node.devices[device] if 0 <= device < len(node.devices) else None
            if state is None or state.slices is not None or not state.fits_beside(vgpus, shape.device_memory):
                return None
        instance = InstanceState(id, shape, node, state, now)
        instance.on_demand = False
        instance.is_ready, instance.ready = True, now
        self._add(instance)
        node.free -= instance.vcpus
        node.memory_free -= shape.memory
        if state is not None:
            state.free -= shape.vgpus
            state.memory_free -= shape.device_memory
        self.release(instance, now)
        return instance

    def turn_away(self, id: int, shape: Shape, node: NodeState, device: int, now: float) -> None:
        """Keep the room of an instance that was not adopted until it is gone."""
        self._next_id = max(self._next_id, id + 1)
        if self.endings is not None and node.is_up and shape.kernel is None:
            state = node.devices[device] if 0 <= device < len(node.devices) else None
            instance = InstanceState(id, shape, node, state, now)
            self._use_held(instance, 1)
            self.endings.add(instance, Keeps.HELD)

    def resized(self, instance: InstanceState, vcpus: int, now: float) -> None:
        """Correct the vCPUs of an instance that could not be resized; what is free may become negative."""
        more = vcpus - instance.vcpus
        instance.vcpus = vcpus
        node, keeps_slice = instance.node, instance.flavour.keeps_slice
        ending = None if self.endings is None else self.endings.find(instance.id)
        if ending is None and instance.is_idle and not instance.is_replica:
            node.held += more if keeps_slice else 0
        elif ending is None or ending[1] is Keeps.ALL or (ending[1] is Keeps.HELD and keeps_slice):
            node.free -= more
            self._placement.version += 1
        self.make_room(node, now)

    def change(self, node: NodeState, event: NodeChanged, now: float) -> None:
        """Give a node other capacities, and evict idle instances that it has no room for any more."""
        node.resize(event.vcpus, event.memory_gb)
        devices = event.devices
        if devices is not None and devices != node.node.devices:
            there = [i for i in self.instances.values() if i.node is node and i.device is not None]
            idle = [i for i in there if i.is_idle and not i.is_replica]
            ending = [] if self.endings is None else self.endings.on(node)
            in_use = {i.device.index for i in (*there, *ending) if i.device is not None and i not in idle}
            gone = node.replace_devices(devices, in_use)
            for instance in idle:
                if instance.device in gone:
                    self.stop(instance, now, "evicted")
        if event.vgpus is not None:
            for device, vgpus in zip(node.devices, event.vgpus, strict=False):
                device.resize(milli(vgpus))
                self._make_device_room(device, node, now)
        self._placement.resize(node)
        self.make_room(node, now)

    def lost_buffers(self, instance: InstanceState, buffers: Sequence[str], now: float) -> None:
        """Correct what is believed of a device: these constants of an instance's kernel are not there."""
        kernel, device = instance.flavour.kernel, instance.device
        if kernel is not None and device is not None and device.buffers.lost(kernel, buffers):
            self._stop_without_buffers(kernel, instance.node, device, now)

    def uses(self, node: NodeState) -> tuple[int, int]:
        """What exists on a node takes this much: vCPUs in thousandths, memory in MiB.

        Idle instances count with what they hold, terminating ones with what they had. An instance whose start is held
        back and those that were evicted for it count both.
        """
        evicted = 0 if self.endings is None else self.endings.evicted_on(node)
        return node.total - node.free + node.held, node.memory_total - node.memory_free + node.memory_held + evicted

    def flavours_of(self, function: str) -> Sequence[Flavour]:
        """The kinds of instances of a function that have been asked for so far."""
        return self._flavours_of.get(function, ())

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
        if self.endings is not None:
            self.endings.forget_node(node)
        return lost

    def make_room(self, node: NodeState, now: float) -> None:
        """Evict idle instances of a node until they hold no more than is free, or nothing; note what is free."""
        while (node.held > node.free and node.held) or (node.memory_held > node.memory_free and node.memory_held):
            self._evict_from(node, None, now)
        self._placement.update(node)

    def _make_device_room(self, device: DeviceState, node: NodeState, now: float) -> None:
        """Evict idle instances of a device that has shrunk. Of a MIG device that is gone, all: none may stay there."""
        while (device.held > device.free and device.held) or (
            device.memory_held > device.memory_free and device.memory_held
        ):
            self._evict_from(node, device, now)
        if device.slices is not None and not device.total:
            for instance in [i for i in self.idle_on(node) if i.device is device]:
                self.stop(instance, now, "evicted")

    def _add(self, instance: InstanceState) -> None:
        self.instances[instance.id] = instance
        self._of.setdefault(instance.flavour.function.name, {})[instance.id] = instance
        instance.flavour.living += 1

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

    def _use_held(self, instance: InstanceState, sign: int) -> None:
        """Let an instance that was idle use what it held (`sign` 1), or free that (-1)."""
        flavour, node, device = instance.flavour, instance.node, instance.device
        vcpus, vgpus = (instance.vcpus, flavour.vgpus) if flavour.keeps_slice else (0, 0)
        node.free -= sign * vcpus
        node.memory_free -= sign * flavour.memory
        if device is not None:
            device.free -= sign * vgpus
            device.memory_free -= sign * flavour.device_memory
            if device.slices is not None:
                device.slices.busy = device.slices.busy & ~instance.places | (instance.places if sign > 0 else 0)
        self._placement.update(node)

    def _leave_buffers(self, instance: InstanceState, *, is_kept: bool) -> None:
        kernel = instance.flavour.kernel
        if kernel is not None and instance.device is not None:
            instance.device.buffers.leave(kernel, is_kept=is_kept)

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
