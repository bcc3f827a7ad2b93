"""The pool of instances: which are warm, what they hold, who is evicted, when they expire.

An instance is *starting*, *busy* or *idle*. Starting and busy ones use capacity (`free` shrinks); an idle one
may hold its slice or only its memory (`held` grows), and the least recently used makes way when that is needed.
Replicas, the instances of a scaled function, use their capacity for as long as they live.
"""

from collections import deque
from collections.abc import Callable, Iterable
from math import isinf

from fairlead.engine.core.capacity import (
    DeviceState,
    Flavour,
    InstanceState,
    NodeState,
    Shape,
    mebi,
    milli,
)
from fairlead.engine.core.placement import Placement
from fairlead.model import Configuration, Function

Expiry = deque[tuple[float, InstanceState, int]]


class Pool:
    """Every instance, by id and by where it is idle. `on_stop(instance, cause)` is told of each one that ends."""

    def __init__(self, placement: Placement, on_stop: Callable[[InstanceState, str], None]) -> None:
        self.placement = placement
        self.instances: dict[int, InstanceState] = {}
        self.flavours: dict[tuple[str, int, int], Flavour] = {}
        self._idle_on: dict[int, dict[int, InstanceState]] = {}  # by node index; least recently used first
        self._expiries: dict[float, Expiry] = {}
        self._on_stop = on_stop
        self._next_id = 0

    def flavour(self, function: Function, configuration: Configuration) -> Flavour:
        """The kind of instance that this function needs in this configuration."""
        memory = mebi(configuration.memory_gb or function.memory_gb)
        key = (function.name, milli(configuration.vgpus), memory)
        flavour = self.flavours.get(key)
        if flavour is None:
            flavour = self.flavours[key] = Flavour(function, key[1], memory)
            if not isinf(function.keep_alive_s):
                flavour.expiry = self._expiries.setdefault(function.keep_alive_s, deque())
        return flavour

    def warm_instance(self, shape: Shape, node: NodeState, device: int | None) -> InstanceState | None:
        """The most recently used idle instance on a node whose device (if it has one) is free."""
        idle = shape.flavour.idle.get(node.index)
        if not idle:
            return None
        if shape.vgpus == 0:
            return idle[-1]
        for instance in reversed(idle):
            state = instance.device
            if state is not None and (device is None or state.index == device):
                if state.fits(shape.vgpus, shape.device_memory):
                    return instance
        return None

    def starting_instance(self, shape: Shape, node: NodeState, device: int | None) -> InstanceState | None:
        """An instance that warms ahead of need and that nobody has claimed yet."""
        for instance in shape.flavour.starting.get(node.index, ()):
            if instance.vcpus == shape.vcpus and (
                device is None or (instance.device is not None and instance.device.index == device)
            ):
                return instance
        return None

    def reuse(self, instance: InstanceState, shape: Shape, now: float) -> None:
        """Turn an idle instance busy, at the vCPUs of this shape."""
        self._leave_idle(instance)
        instance.vcpus = shape.vcpus
        self._take(instance, now)

    def create(
        self, shape: Shape, node: NodeState, device: DeviceState | None, now: float, *, on_demand: bool
    ) -> InstanceState:
        """A new instance that starts now; what is idle in its way is evicted. The caller has checked that it fits."""
        instance = InstanceState(self._next_id, shape.flavour, shape.configuration, node, device)
        self._next_id += 1
        instance.started = now
        instance.on_demand = on_demand
        self.instances[instance.id] = instance
        self._take(instance, now)
        return instance

    def release(self, instance: InstanceState, now: float) -> None:
        """Turn a busy (or just started) instance idle, and let its capacity be used by others."""
        self._give_back(instance, now)
        flavour, node = instance.flavour, instance.node
        instance.is_idle = True
        instance.stamp += 1
        idle = flavour.idle.get(node.index)
        if idle is None:
            flavour.idle[node.index] = [instance]
            flavour.warm |= 1 << node.index
        else:
            if not idle:
                flavour.warm |= 1 << node.index
            idle.append(instance)
        on_node = self._idle_on.get(node.index)
        if on_node is None:
            on_node = self._idle_on[node.index] = {}
        on_node[instance.id] = instance
        if flavour.function.idle_holds == "slice":
            node.held += instance.vcpus
        node.memory_held += flavour.memory
        if instance.device is not None:
            device = instance.device
            device.memory_held += flavour.device_memory
            if flavour.function.idle_holds == "slice":
                device.held += flavour.vgpus
                device.places_held |= instance.places
            else:
                instance.places = 0
        if flavour.expiry is not None:
            flavour.expiry.append((now + flavour.function.keep_alive_s, instance, instance.stamp))

    def stop(self, instance: InstanceState, now: float, cause: str) -> None:
        """End an instance in whatever state it is."""
        if instance.is_idle:
            self._leave_idle(instance)
        else:
            self._give_back(instance, now)
            starting = instance.flavour.starting.get(instance.node.index)
            if starting and instance in starting:
                starting.remove(instance)
        instance.stamp += 1
        del self.instances[instance.id]
        self._on_stop(instance, cause)

    def forget_node(self, node: NodeState) -> list[InstanceState]:
        """End everything on a lost node, at once and without accounts; gives what was there, oldest first."""
        lost = [instance for instance in self.instances.values() if instance.node is node]
        for instance in lost:
            if instance.is_idle:
                instance.flavour.idle[node.index].clear()
                instance.flavour.warm &= ~(1 << node.index)
            instance.flavour.starting.pop(node.index, None)
            instance.stamp += 1
            del self.instances[instance.id]
        self._idle_on.pop(node.index, None)
        return lost

    def expire(self, now: float) -> None:
        """Stop every instance that has been idle for its function's keep-alive."""
        for expiry in self._expiries.values():
            while expiry and expiry[0][0] <= now:
                _, instance, stamp = expiry.popleft()
                if instance.stamp == stamp:
                    self.stop(instance, now, "expired")

    def next_expiry(self) -> Iterable[float]:
        """When the next instances expire, one instant per keep-alive time in use."""
        for expiry in self._expiries.values():
            while expiry and expiry[0][1].stamp != expiry[0][2]:
                expiry.popleft()
            if expiry:
                yield expiry[0][0]

    def make_room(self, node: NodeState, now: float) -> None:
        """Evict idle instances of a node until they hold no more than is free, and note what is."""
        while node.held > node.free or node.memory_held > node.memory_free:
            self._evict_from(node, None, now)
        self.placement.update(node)

    @staticmethod
    def count_busy(instance: InstanceState, now: float) -> None:
        """Add the time since it turned busy; its cold start is not busy time, and a replica counts its own."""
        if instance.is_ready and (instance.batch >= 0 or not instance.is_replica) and not instance.is_idle:
            instance.busy_s += now - instance.since

    def _take(self, instance: InstanceState, now: float) -> None:
        """Use capacity for an instance, evicting idle ones that hold what it needs."""
        flavour, node, device = instance.flavour, instance.node, instance.device
        instance.is_idle = False
        instance.stamp += 1
        instance.since = now
        node.busy += 1
        node.free -= instance.vcpus
        node.memory_free -= flavour.memory
        if device is not None:
            device.free -= flavour.vgpus
            device.memory_free -= flavour.device_memory
            device.last_start = now
            if device.is_mig:
                if not instance.places:
                    instance.places = device.place(flavour.vgpus)
                device.places_busy |= instance.places
        if device is not None:
            while (
                device.held > device.free
                or device.memory_held > device.memory_free
                or device.places_held & device.places_busy
            ):
                self._evict_from(node, device, now)
        self.make_room(node, now)

    def _give_back(self, instance: InstanceState, now: float) -> None:
        flavour, node, device = instance.flavour, instance.node, instance.device
        self.count_busy(instance, now)
        node.busy -= 1
        node.free += instance.vcpus
        node.memory_free += flavour.memory
        if device is not None:
            device.free += flavour.vgpus
            device.memory_free += flavour.device_memory
            device.last_release = now
            device.places_busy &= ~instance.places
        self.placement.update(node)
        self.placement.version += 1

    def _leave_idle(self, instance: InstanceState) -> None:
        flavour, node, device = instance.flavour, instance.node, instance.device
        idle = flavour.idle[node.index]
        if idle[-1] is instance:
            idle.pop()
        else:
            idle.remove(instance)
        if not idle:
            flavour.warm &= ~(1 << node.index)
        del self._idle_on[node.index][instance.id]
        instance.is_idle = False
        if flavour.function.idle_holds == "slice":
            node.held -= instance.vcpus
        node.memory_held -= flavour.memory
        if device is not None:
            device.memory_held -= flavour.device_memory
            if flavour.function.idle_holds == "slice":
                device.held -= flavour.vgpus
                device.places_held &= ~instance.places

    def _evict_from(self, node: NodeState, device: DeviceState | None, now: float) -> None:
        """Stop the least recently used idle instance of a node (on one device, if given) that holds what is short."""
        for instance in self._idle_on[node.index].values():
            if device is not None and instance.device is not device:
                continue
            if device is not None and device.places_held & device.places_busy:
                if not instance.places & device.places_busy:
                    continue
            self.stop(instance, now, "evicted")
            return
        raise AssertionError("idle instances hold more than is free, and none can be found")
