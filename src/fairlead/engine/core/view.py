"""The read-only view that policies get: queries answered from the controller's state, nothing to write to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from fairlead.engine.core.capacity import DeviceState, Shape, milli
from fairlead.engine.core.showing import batch_of, predicted_end, shown
from fairlead.engine.core.transfers import holder, inputs
from fairlead.errors import UnknownNameError
from fairlead.model import Configuration, Instance, Invocation, Node, Request
from fairlead.monitor.modelled import modelled
from fairlead.policy.base import Batch, Changes, Counts, DeviceStatus, Order, Resize, Scale
from fairlead.profile import Estimate

if TYPE_CHECKING:
    from fairlead.engine.core.capacity import NodeState
    from fairlead.engine.core.controller import Controller
    from fairlead.engine.core.placement import Placement
    from fairlead.engine.core.progress import RequestState
    from fairlead.engine.core.queues import Line, Waiting
    from fairlead.engine.core.scaling import ReplicaSet


class ControllerView:
    """See `fairlead.policy.base.View`, whose contract this fulfils. Made once; every query is current."""

    __slots__ = ("__controller", "__placement", "__scaled", "__shapes", "__waiting")
    __controller: Controller
    __placement: Placement
    __scaled: dict[str, ReplicaSet]
    __shapes: dict[tuple[str, Configuration], Shape | None]
    __waiting: Waiting

    def __init__(self, controller: Controller) -> None:
        for name, value in (
            ("controller", controller),
            ("placement", controller.placement),
            ("scaled", controller.replicas.sets),
            ("shapes", controller.beliefs.shapes),
            ("waiting", controller.waiting),
        ):
            object.__setattr__(self, f"_ControllerView__{name}", value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a view is read-only: yield actions to change things.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a view is read-only: yield actions to change things.")

    @property
    def now(self) -> float:
        return self.__controller.now

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(state.node for state in self.__controller.nodes.values() if state.is_up)

    @property
    def fresh(self) -> tuple[Request, ...]:
        controller = self.__controller
        return tuple([controller.requests[id].request for id in controller.fresh if id in controller.requests])

    @property
    def freed(self) -> tuple[str, ...]:
        return tuple(self.__controller.freed)

    @property
    def lost(self) -> tuple[Invocation, ...]:
        return tuple(self.__controller.lost)

    @property
    def changes(self) -> Changes:
        return self.__controller.changes.show()

    def oldest(self, workflow: str | None = None, function: str | None = None) -> Invocation | None:
        waiting = self.__waiting
        if not waiting.tasks:
            return None
        if workflow is None and function is None:
            return waiting.all.oldest(waiting.tasks)
        return self.__line(workflow, function).oldest(waiting.tasks)

    def by_ready(self, workflow: str | None = None, function: str | None = None) -> Iterator[Invocation]:
        waiting = self.__waiting
        if workflow is None and function is None:
            return waiting.all.walk(waiting.tasks)
        return self.__line(workflow, function).walk(waiting.tasks)

    def by_deadline(self, workflow: str | None = None, function: str | None = None) -> Iterator[Invocation]:
        return self.__waiting.ranking(*self.__known(workflow, function)).walk()

    def most_urgent(self, workflow: str | None = None, function: str | None = None) -> Invocation | None:
        return self.__waiting.ranking(*self.__known(workflow, function)).first()

    def running(self, workflow: str | None = None, function: str | None = None) -> tuple[Batch, ...]:
        controller = self.__controller
        workflow, function = self.__known(workflow, function)
        found = controller.running.values() if function is None else controller.running.of(function)
        profiles, now = controller.scenario.profiles, controller.now
        return tuple(
            [
                batch_of(instance, profiles[instance.shape.name], now)
                for instance in found
                if workflow is None or any(task[0].workflow == workflow for task in instance.tasks)
            ]
        )

    def spent_usd(self, request: int) -> float:
        return self.__open(request).cost_usd

    def queues(self, *, can_start: bool = False) -> tuple[tuple[str, str], ...]:
        return tuple(self.__waiting.filled(can_start=can_start))

    def waiting(self, workflow: str | None = None, function: str | None = None) -> int:
        waiting = self.__controller.waiting
        if workflow is None and function is None:
            return len(waiting.tasks)
        if workflow is not None and function is not None:
            line = waiting.lines().get((workflow, function))
            return 0 if line is None else line.size
        return sum(
            line.size
            for (w, f), line in waiting.lines().items()
            if (workflow is None or w == workflow) and (function is None or f == function)
        )

    def is_waiting(self, invocation: Invocation) -> bool:
        return invocation in self.__controller.waiting.tasks

    def waiting_of(self, request: int) -> tuple[Invocation, ...]:
        controller = self.__controller
        state = controller.requests.get(request)
        return () if state is None else tuple(i for i in state.invocations if i in controller.waiting.tasks)

    def slack_s(self, invocation: Invocation) -> float:
        return invocation.deadline - self.__controller.now

    def request(self, request: int) -> Request:
        return self.__open(request).request

    def is_open(self, request: int) -> bool:
        return request in self.__controller.requests

    def profile(self, function: str) -> Estimate:
        estimates = self.__controller.beliefs.estimates
        try:
            return estimates[function]
        except KeyError:
            raise UnknownNameError("function", function, estimates) from None

    def fits(
        self,
        function: str,
        configuration: Configuration,
        node: str,
        device: int | None = None,
        *,
        evicts: bool = True,
        is_fresh: bool = False,
    ) -> bool:
        controller = self.__controller
        shape = self.__shape(function, configuration)
        state = controller.nodes.get(node)
        if state is None:
            raise UnknownNameError("node", node, controller.nodes)
        if function in controller.replicas.sets:
            return controller.replicas.find(function, node, device, configuration.batch) is not None
        pool = controller.pool
        fits = shape.fits(state, device) if evicts else pool.fits_beside(shape, state, device, is_fresh=is_fresh)
        return fits or (not is_fresh and pool.find_starting(shape, state, device) is not None)

    def place(
        self,
        function: str,
        configuration: Configuration,
        order: Order = "warm-first",
        *,
        evicts: bool = True,
        near: Invocation | None = None,
    ) -> str | None:
        if near is not None and (found := self.__beside_input(near, configuration, order, evicts=evicts)) is not None:
            return found
        shape = self.__shapes.get((function, configuration)) or self.__shape(function, configuration)
        if function in self.__scaled:
            return self.__controller.replicas.place(function, configuration.batch)
        if evicts:
            node = self.__placement.find(shape, order)
        else:
            beside = partial(self.__controller.pool.fits_beside, is_fresh=order == "fresh")
            node = self.__placement.find_beside(shape, order, beside)
        if node is None and shape.flavour.starting and order not in ("warm", "fresh"):
            node = self.__with_starting(shape)
        return None if node is None else node.name

    def is_warm(self, function: str, configuration: Configuration, node: str, device: int | None = None) -> bool:
        controller = self.__controller
        state = controller.nodes.get(node)
        if state is None:
            raise UnknownNameError("node", node, controller.nodes)
        if function in controller.replicas.sets:
            return controller.replicas.find(function, node, device, configuration.batch) is not None
        shape = self.__shapes.get((function, configuration)) or self.__shape(function, configuration)
        if shape.kernel is not None:
            spots = (d for d in state.devices if device is None or d.index == device)
            return state.is_up and any(d.buffers.is_warm(shape.kernel) and _has_slice(d, shape) for d in spots)
        if not shape.flavour.warm & state.bit:
            return False
        return any(
            (device is None or (i.device is not None and i.device.index == device)) and _has_slice(i.device, shape)
            for i in shape.flavour.idle.get(state.index, ())
        )

    def load(self, node: str) -> float:
        state = self.__controller.nodes.get(node)
        if state is None:
            raise UnknownNameError("node", node, self.__controller.nodes)
        if state.total:
            return 1 - state.free / state.total
        if not state.devices:  # all of its vCPUs are somebody else's now
            return 1.0
        return 1 - sum(device.free for device in state.devices) / sum(device.total for device in state.devices)

    def finishes(self, node: str) -> tuple[float, ...]:
        controller = self.__controller
        profiles, now = controller.scenario.profiles, controller.now
        found = [
            max(now, predicted_end(instance, profiles[instance.shape.name]))
            for instance in controller.running.values()
            if instance.node.name == node
        ]
        return tuple(sorted(found))

    def devices(self) -> tuple[DeviceStatus, ...]:
        return tuple(
            [
                DeviceStatus(
                    node.name,
                    device.index,
                    device.free / 1000,
                    (device.total - device.free) / 1000,
                    device.last_start,
                    device.last_release,
                )
                for node in self.__controller.nodes.values()
                if node.is_up
                for device in node.devices
            ]
        )

    def instances(self, function: str) -> tuple[Instance, ...]:
        return tuple([shown(instance) for instance in self.__controller.pool.of(function)])

    def counts(self, function: str) -> tuple[Counts, ...]:
        controller = self.__controller
        profile = controller.scenario.profiles.get(function)
        if profile is None:
            raise UnknownNameError("function", function, controller.scenario.profiles)
        return controller.pool.counts(function, profile)

    def scaled(self, function: str) -> Scale | None:
        found = self.__scaled.get(function)
        return None if found is None else Scale(function, found.target, found.configuration)

    def resizes(self, function: str, vcpus: float, memory_gb: float = 0.0) -> bool:
        return self.__controller.replicas.resize_refusal(Resize(function, vcpus, memory_gb)) is None

    def idle(self, node: str) -> tuple[Instance, ...]:
        state = self.__controller.nodes.get(node)
        if state is None:
            raise UnknownNameError("node", node, self.__controller.nodes)
        return tuple([shown(instance) for instance in self.__controller.pool.idle_on(state)])

    def inputs(self, invocation: Invocation) -> tuple[tuple[str, float], ...]:
        task = self.__controller.waiting.tasks.get(invocation)
        return () if task is None else tuple(inputs(task))

    def holder(self, invocation: Invocation) -> tuple[str, float] | None:
        task = self.__controller.waiting.tasks.get(invocation)
        found = None if task is None or not task[1].outputs else holder(task)
        if found is None:
            return None
        node, mb = found
        state = self.__controller.nodes.get(node)
        saved_s = self.__controller.transfers.saved_s(mb)
        return (node, saved_s) if saved_s > 0 and state is not None and state.is_up else None

    def __beside_input(
        self, invocation: Invocation, configuration: Configuration, order: Order, *, evicts: bool
    ) -> str | None:
        """The node that holds most of an input, where a run there is no later than on the node found otherwise."""
        found = self.holder(invocation)
        if found is None:
            return None
        (node, saved_s), function = found, invocation.function
        if order == "warm" or order == "warm-first":
            if self.is_warm(function, configuration, node):
                return node if self.fits(function, configuration, node, evicts=evicts) else None
            if order == "warm":
                return None
            is_warm_elsewhere = self.place(function, configuration, "warm", evicts=evicts) is not None
            if is_warm_elsewhere and saved_s <= self.profile(function).cold_start_s():
                return None
        is_fresh = order == "fresh"
        return node if self.fits(function, configuration, node, evicts=evicts, is_fresh=is_fresh) else None

    def pressure(self, node: str) -> float:
        state = self.__controller.nodes.get(node)
        if state is None:
            raise UnknownNameError("node", node, self.__controller.nodes)
        return state.pressure

    def signals(self, node: str) -> tuple[float, ...]:
        state = self.__controller.nodes.get(node)
        if state is None:
            raise UnknownNameError("node", node, self.__controller.nodes)
        if state.signals:
            return state.signals
        whole = milli(state.node.vcpus)  # replicas at rest hold room, and keep no core busy
        busy = sum(instance.vcpus for instance in self.__controller.running.values() if instance.node is state)
        return modelled(state.pressure, busy / whole if whole else 0.0)

    def __with_starting(self, shape: Shape) -> NodeState | None:
        """A node where an instance warms ahead of need and nobody has taken it."""
        for index in sorted(shape.flavour.starting):
            node = self.__placement.nodes[index]
            if self.__controller.pool.find_starting(shape, node, None) is not None:
                return node
        return None

    def __open(self, request: int) -> RequestState:
        state = self.__controller.requests.get(request)
        if state is None:
            raise UnknownNameError("open request", str(request), ())
        return state

    def __known(self, workflow: str | None, function: str | None) -> tuple[str | None, str | None]:
        """The names themselves, if they are declared."""
        scenario = self.__controller.scenario
        if workflow is not None and workflow not in scenario.workflows:
            raise UnknownNameError("workflow", workflow, scenario.workflows)
        if function is not None and function not in scenario.functions:
            raise UnknownNameError("function", function, scenario.functions)
        return workflow, function

    def __line(self, workflow: str | None, function: str | None) -> Line:
        if workflow is None or function is None:
            raise TypeError("a queue is named by both a workflow and a function.")
        lines = self.__controller.waiting.lines()
        if (workflow, function) not in lines:
            raise UnknownNameError("queue", f"{workflow}/{function}", [f"{w}/{f}" for w, f in lines])
        return lines[workflow, function]

    def __shape(self, function: str, configuration: Configuration) -> Shape:
        shape = self.__controller.beliefs.shape(function, configuration)
        if shape is None:
            known = self.__controller.scenario.profiles
            if function not in known:
                raise UnknownNameError("function", function, known)
            available = [str(c) for c in known[function].configurations]
            raise UnknownNameError(f"configuration of {function}", str(configuration), available)
        return shape


def _has_slice(device: DeviceState | None, shape: Shape) -> bool:
    """Whether nothing must be cut for this on a device; idle instances may hold the slice."""
    return device is None or device.slices is None or device.slices.has_unused(shape.vgpus)
