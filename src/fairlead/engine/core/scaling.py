"""Replicas: the fixed set of instances that a scaled function runs on, and nodes that come and go.

A scaled function runs only on its replicas. They keep their capacity while they live. Scaling in and moving
*drain*: a busy replica ends with its batch, and where there is room its replacement is ready first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlead.engine.core import effects as fx
from fairlead.engine.core.capacity import InstanceState, NodeState, Shape, milli
from fairlead.engine.core.squeeze import RESTED_S, displaced, neediest_first, surplus
from fairlead.model import Configuration
from fairlead.policy import base

if TYPE_CHECKING:
    from fairlead.engine.core.controller import Controller


class ReplicaSet:
    """The replicas of one function: how many are wanted, in what size, and which are free."""

    __slots__ = ("configuration", "function", "idle", "instances", "is_ending", "node", "target")

    def __init__(self, function: str, configuration: Configuration) -> None:
        self.function = function
        self.configuration = configuration
        self.target = 0
        self.is_ending = False  # once the last replica is gone, the dispatcher decides again
        self.node: str | None = None  # where they must be, after a Move
        self.instances: list[InstanceState] = []
        self.idle: dict[str, list[InstanceState]] = {}  # by node, those with any

    def living(self) -> list[InstanceState]:
        """Replicas that are not on their way out."""
        return [instance for instance in self.instances if not instance.is_draining]

    def resting(self) -> list[InstanceState]:
        """Those of them that have no batch."""
        return [instance for instance in self.living() if instance.batch < 0]

    def leave_idle(self, instance: InstanceState) -> bool:
        """Take a replica out of the free ones; True if it was the last."""
        there = self.idle[instance.node.name]
        there.remove(instance)
        if not there:
            del self.idle[instance.node.name]
        return not self.idle


class Replicas:
    """The replica sets of every scaled function, and the growing and shrinking of the cluster."""

    __slots__ = (
        "_controller",
        "_is_squeezed",
        "_looks_again",
        "_replaces",
        "in_use",
        "is_short",
        "sets",
    )

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.sets: dict[str, ReplicaSet] = {}
        self.in_use = False  # some function is scaled, or some node drains
        self.is_short = False  # some set has fewer replicas than it wants
        self._is_squeezed = False  # replicas had to go because a node has shrunk, and some are missing since
        self._looks_again = False  # a timer is set for that
        self._replaces: dict[int, InstanceState] = {}  # a starting replica's id -> the one it stands in for

    # --- actions -----------------------------------------------------------------------------------------------

    def scale(self, action: base.Scale) -> str | None:
        """Carry out a Scale."""
        controller = self._controller
        profile = controller.scenario.profiles.get(action.function)
        if profile is None:
            return f"there is no function {action.function!r}"
        found = self.sets.get(action.function)
        if action.instances is None:
            return f"{action.function} is not scaled" if found is None else self._hand_back(found)
        if action.instances < 0:
            return f"a number of instances must not be negative; got {action.instances}"
        configuration = action.configuration or (found.configuration if found else profile.configurations[0])
        if controller.beliefs.shape(action.function, configuration) is None:
            return f"{action.function} has no configuration {configuration}"
        if found is None:
            self.in_use = True
            found = self.sets[action.function] = ReplicaSet(action.function, configuration)
            controller.waiting.block(action.function, True)
            for instance in list(controller.pool.of(action.function)):
                if instance.is_idle:
                    controller.pool.stop(instance, controller.now, "retired")
        found.target = action.instances
        found.is_ending = False
        if configuration != found.configuration:
            found.configuration = configuration
            self._replace_all(found)
        self._reconcile(found)
        return None

    def _hand_back(self, found: ReplicaSet) -> str | None:
        """Let every replica of a function go, and then the set."""
        found.target, found.is_ending = 0, True
        self._reconcile(found)
        self._end_if_empty(found)
        return None

    def _end_if_empty(self, found: ReplicaSet) -> None:
        if found.is_ending and not found.instances:
            self.sets.pop(found.function, None)
            self._controller.waiting.block(found.function, False)

    def resize(self, action: base.Resize) -> str | None:
        """Carry out a Resize: vCPUs in place where there is room, memory by replacement."""
        refusal = self.resize_refusal(action)
        if refusal is not None:
            return refusal
        found = self.sets[action.function]
        wanted = _resized(found, action)
        is_same_memory = wanted.memory_gb == found.configuration.memory_gb
        found.configuration = wanted
        if is_same_memory:
            for instance in found.resting():  # those at work follow when their batch ends
                self._adapt(found, instance)
        else:
            self._replace_all(found)
        return None

    def resize_refusal(self, action: base.Resize) -> str | None:
        """Why a Resize cannot be carried out now; None if it can."""
        found = self.sets.get(action.function)
        if found is None:
            return f"{action.function} is not scaled"
        controller, wanted = self._controller, _resized(found, action)
        if controller.beliefs.shape(action.function, wanted) is None:
            return f"{action.function} has no configuration {wanted}"
        grow_on: dict[str, int] = {}
        for instance in found.resting():
            grow_on[instance.node.name] = grow_on.get(instance.node.name, 0) + milli(action.vcpus) - instance.vcpus
        if any(more > 0 and controller.nodes[name].free < more for name, more in grow_on.items()):
            return f"{action.function} at {wanted} does not fit where its replicas are"
        return None

    def move(self, action: base.Move) -> str | None:
        """Carry out a Move: replacements on the other node first, then the old ones drain."""
        found = self.sets.get(action.function)
        if found is None:
            return f"{action.function} is not scaled"
        node = self._controller.nodes.get(action.node)
        if node is None or not node.is_open:
            return f"there is no node {action.node!r}"
        shape = self._controller.beliefs.shape(found.function, found.configuration)
        if shape is None or node.kind not in shape.beliefs:
            return f"{action.function} cannot run on {action.node}"
        found.node = action.node
        self._replace_all(found)
        return None

    def unpin(self, function: str) -> None:
        """Forget the node that a Move brought a function to; its replicas stay where they are."""
        found = self.sets.get(function)
        if found is not None:
            found.node = None

    def grow(self, action: base.Grow) -> str | None:
        """Carry out a Grow."""
        if action.kind not in self._controller.scenario.cluster.kinds:
            return f"there is no kind of node {action.kind!r}"
        refusal = self._controller.roster.growth_refusal(action.kind, self._controller.nodes.values())
        if refusal is not None:
            return refusal
        self._controller.roster.ask(action.kind, self._controller.now)
        self._controller.effects.append(fx.AddNode(self._controller.now, action.kind))
        return None

    def shrink(self, action: base.Shrink) -> str | None:
        """Carry out a Shrink: the emptiest node takes no more work and goes when it is empty."""
        nodes = [n for n in self._controller.nodes.values() if n.kind == action.kind and n.is_open]
        if not nodes:
            return f"no node of kind {action.kind!r} is left"
        refusal = self._controller.roster.shrink_refusal(action.kind, len(nodes))
        if refusal is not None:
            return refusal
        self.close_node(min(nodes, key=lambda n: (self._controller.pool.busy_on(n), -n.index)))
        return None

    def close_node(self, node: NodeState) -> None:
        """Let a node take no more work, and go when it is empty."""
        self.in_use = True
        node.is_draining, node.is_open = True, False
        self._controller.changes.node(node.node, "changed", is_draining=True)
        for found in self.sets.values():
            for instance in [i for i in found.living() if i.node is node]:
                self._drain(instance)
            self._reconcile(found)
        self.drain_node(node)

    def stand_in(self, node: NodeState) -> list[InstanceState]:
        """Start replicas elsewhere for those of a node that is closed, where there is room; gives the new ones.

        Each of the old ones drains when the one in its place is ready. A Move to this node does not hold any more.
        """
        replaced = {id(old) for old in self._replaces.values()}
        made = []
        for found in self.sets.values():
            found.node = None if found.node == node.name else found.node
            for old in [i for i in found.living() if i.node is node and id(i) not in replaced]:
                new = self._create(found)
                if new is None:
                    break
                self._replaces[new.id] = old
                made.append(new)
        return made

    # --- what the controller asks and tells ------------------------------------------------------------------------

    def find(self, function: str, node: str, device: int | None, batch: int) -> InstanceState | None:
        """A free replica on a node that takes batches of this size."""
        for instance in self.sets[function].idle.get(node, ()):
            is_there = device is None or (instance.device is not None and instance.device.index == device)
            if is_there and self._takes(instance, batch):
                return instance
        return None

    def shape_of(self, instance: InstanceState, batch: int) -> Shape | None:
        """How a replica runs a batch of this size; None if its function has no such configuration for where it is."""
        size = instance.configuration
        if size.batch != batch:
            size = msgspec.structs.replace(size, batch=batch)
        shape = self._controller.beliefs.shape(instance.flavour.function.name, size)
        return shape if shape is not None and instance.node.kind in shape.beliefs else None

    def _takes(self, instance: InstanceState, batch: int) -> bool:
        return instance.configuration.batch == batch or self.shape_of(instance, batch) is not None

    def take(self, instance: InstanceState) -> None:
        """Let a free replica work."""
        function = instance.flavour.function.name
        if self.sets[function].leave_idle(instance):
            self._controller.waiting.block(function, True)
        instance.is_idle = False

    def place(self, function: str, batch: int) -> str | None:
        """The node with the most free replicas that take batches of this size."""
        found: str | None = None
        most = first = 0  # how many, and the number of that node: the lower one among equals
        for node, idle in self.sets[function].idle.items():
            many = sum([i.configuration.batch == batch or self._takes(i, batch) for i in idle])
            index = idle[0].node.index
            if many and (many > most or (many == most and index < first)):
                found, most, first = node, many, index
        return found

    def ready(self, instance: InstanceState) -> None:
        """A replica has started; the one it replaces may go."""
        self._rest(instance)
        old = self._replaces.pop(instance.id, None)
        if old is not None and old.id in self._controller.pool.instances:
            self._drain(old)

    def release(self, instance: InstanceState, now: float) -> None:
        """An instance has finished its batch, in a run where some function is scaled or some node drains."""
        pool, node = self._controller.pool, instance.node
        if instance.is_replica:
            self._give_back(instance)
        else:
            pool.release(instance, now)
            if instance.flavour.function.name in self.sets and instance.id in pool.instances:  # scaled while this ran
                pool.stop(instance, now, "retired")
        if node.is_draining:
            self.drain_node(node)
        elif node.is_over:
            self.make_way(node)

    def _give_back(self, instance: InstanceState) -> None:
        found = self.sets[instance.flavour.function.name]
        if not instance.is_draining:
            self._adapt(found, instance)  # without room it stays as it is: a small replica is better than none
        if instance.is_draining:
            self._drain(instance)
        else:
            self._rest(instance)

    def _adapt(self, found: ReplicaSet, instance: InstanceState) -> bool:
        """Give a replica the vCPUs of its set, in place; False if there is no room.

        One that has another GPU share or memory is left as it is: its replacement is on the way.
        """
        controller, vcpus = self._controller, milli(found.configuration.vcpus)
        if controller.pool.flavour(instance.flavour.function, found.configuration) is not instance.flavour:
            return True
        more = vcpus - instance.vcpus
        if more > 0 and more > instance.node.free:
            return False
        if more:
            instance.node.free -= more
            instance.vcpus = vcpus
            instance.configuration = found.configuration
            controller.pool.make_room(instance.node, controller.now)
            controller.placement.version += 1
        return True

    def forget(self, instance: InstanceState) -> None:
        """A replica was lost or stopped by someone else."""
        if instance.is_replica:
            found = self.sets[instance.flavour.function.name]
            found.instances.remove(instance)
            is_free = instance in found.idle.get(instance.node.name, ())
            if is_free and found.leave_idle(instance):
                self._controller.waiting.block(found.function, True)
            self.is_short = True
            self._end_if_empty(found)

    def reconcile(self) -> None:
        """Start what is missing, where room has come up."""
        self.is_short = False
        sets = list(self.sets.values())  # one that is given back may end here
        for found in neediest_first(sets, self._controller.waiting) if self._is_squeezed else sets:
            self._reconcile(found)
        if self._is_squeezed:
            self._squeeze()

    def drain_node(self, node: NodeState) -> None:
        """Let a draining node go once nothing runs there."""
        controller = self._controller
        if node.is_up and controller.pool.busy_on(node) == 0:
            node.is_up = False
            controller.roster.leave(node.name, controller.now, is_given_back=True)
            self._controller.changes.node(node.node, "lost")
            for instance in [i for i in controller.pool.instances.values() if i.node is node]:
                controller.end_instance(instance, "drained")
            self.remove_node(node)

    def remove_node(self, node: NodeState) -> None:
        """Give a drained node back, unless instances there are still terminating."""
        endings = self._controller.pool.endings
        if endings is None or not endings.on(node):
            self._controller.effects.append(fx.RemoveNode(self._controller.now, node.name))

    def make_way(self, node: NodeState) -> None:
        """Drain replicas on a node that has shrunk below what is in use there; they start again when there is room."""
        controller = self._controller
        for instance in surplus(node, self.sets.values(), controller.pool.endings, controller.waiting, controller.now):
            self._drain(instance)
        self.is_short = self._is_squeezed = True

    def _squeeze(self) -> None:
        """Let functions take turns on nodes that have shrunk, until every set is complete again."""
        controller = self._controller
        over = [node for node in controller.nodes.values() if node.is_up and node.is_over]
        self._is_squeezed = self.is_short or bool(over)
        for node in over:
            self.make_way(node)
        instance = displaced(self.sets.values(), controller.pool.endings, controller.waiting, controller.now)
        if instance is not None:
            self._drain(instance)
        if self._is_squeezed and not self._looks_again:
            self._looks_again = True
            controller.timers.at(controller.now + RESTED_S, self._look_again)

    def _look_again(self) -> None:
        self._looks_again, self.is_short = False, True

    # --- inside ------------------------------------------------------------------------------------------------

    def _reconcile(self, found: ReplicaSet) -> None:
        standing_in = {id(self._replaces[i.id]) for i in found.instances if i.id in self._replaces}
        living = [i for i in found.living() if id(i) not in standing_in]
        for _ in range(found.target - len(living)):
            if self._create(found) is None:
                self.is_short = True
                if not found.instances and self._controller.pool.endings is not None:  # live, and it cannot run at all
                    self._is_squeezed = True
                return
        surplus = len(living) - found.target
        # The unready go first, then the idle, then those at work; the youngest of each.
        for instance in sorted(living, key=lambda i: (i.is_ready, not i.is_idle, -i.id))[: max(0, surplus)]:
            self._drain(instance)
        if found.node is not None:
            self._bring(found, [i for i in living if not i.is_draining and i.node.name != found.node])

    def _bring(self, found: ReplicaSet, astray: list[InstanceState]) -> None:
        """Replace those that are not where a Move wants them, as their replacement was lost before it was ready."""
        for old in astray:
            new = self._create(found)
            if new is None:
                self.is_short = True
                return
            self._replaces[new.id] = old

    def _create(self, found: ReplicaSet) -> InstanceState | None:
        controller = self._controller
        shape = controller.beliefs.shape(found.function, found.configuration)
        assert shape is not None
        if found.node is None:
            node = controller.placement.find(shape, "emptiest")
        else:
            node = controller.nodes[found.node]
            node = node if shape.fits(node) else None
        if node is None:
            return None
        device = shape.device_for(node, None) if shape.vgpus else None
        instance = controller.pool.create(shape, node, device, controller.now, on_demand=False)
        instance.is_replica = True
        found.instances.append(instance)
        controller.start_instance(instance)
        return instance

    def _replace_all(self, found: ReplicaSet) -> None:
        shape = self._controller.beliefs.shape(found.function, found.configuration)
        assert shape is not None
        for old in found.living():
            if old.flavour is shape.flavour and found.node in (None, old.node.name) and old.vcpus == shape.vcpus:
                continue
            new = self._create(found)
            if new is None:  # no room beside it: it must go first
                self._drain(old)
                self.is_short = True
            else:
                self._replaces[new.id] = old
        self._reconcile(found)

    def _rest(self, instance: InstanceState) -> None:
        found = self.sets[instance.flavour.function.name]
        instance.is_idle = True
        if not found.idle:
            self._controller.waiting.block(found.function, False)
        found.idle.setdefault(instance.node.name, []).append(instance)

    def _drain(self, instance: InstanceState) -> None:
        """Let a replica go: now, or with the end of its batch."""
        instance.is_draining = True
        if instance.batch < 0 and instance.id in self._controller.pool.instances:
            self._controller.end_instance(instance, "drained")


def _resized(found: ReplicaSet, action: base.Resize) -> Configuration:
    """The size that a Resize asks for."""
    memory_gb = action.memory_gb or found.configuration.memory_gb
    return msgspec.structs.replace(found.configuration, vcpus=action.vcpus, memory_gb=memory_gb)
