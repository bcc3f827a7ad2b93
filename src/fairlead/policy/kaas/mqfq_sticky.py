"""Fair queueing between functions that stays with the models a device has, within a window.

A. Fuerst et al., "MQFQ-Sticky: Fair Queueing For Serverless GPU Functions" (arXiv 2507.08954, 2025), after M. Hedayati
et al., "Multi-Queue Fair Queueing" (USENIX ATC 2019). We had the abstract and introduction and the public code of the
authors' system (COS-IN/iluvatar-faas, `gpu_mqfq.rs`), not the full text.

From that code: a queue per function; its oldest has a virtual start tag, the later of the virtual time and the finish
tag of the one before; a run raises the tag by the function's mean execution time; the virtual time is the least tag of
the queues that wait; a queue more than a window T (10 s) ahead of it is throttled; of the rest, those warm on the free
GPU come first, and the least tag of them. An emptied queue stays active for a grace period, 2 s or a multiple of its
mean inter-arrival time; the memory of a queue that is no longer active is moved off the GPU, and back when it runs.

**Differs from the paper:**

* There one GPU asks for a queue, with a limit on what runs at once. Here the best pair of queue and device is taken,
  and what fits a device limits it. With several devices, what is ahead is judged per device, by the queues that the
  device could hold: else a queue that fits elsewhere only would let it idle.
* The grace period is always a multiple of the mean time between arrivals; a queue seen once has none.
* Memory is not swapped: a model is in an instance or has to be loaded. Models of inactive queues stay until room is
  needed and are then retired first, the least recently used before others; only then does the engine evict active
  ones. A model starts where it displaces no active one, if it can. Prefetching starts an instance on a device with room
  for which nothing waits; it takes the device while it loads, which asynchronous copies do not. The memory of
  kernels (functions with buffers) is the system's.
* A run is charged its expected warm time on the quickest device, not its cold start. Weights are 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from fairlead.model import Instance, Invocation, Record
from fairlead.policy.base import Action, Policy, Retire, Site, View, Warm
from fairlead.policy.kaas.devices import Devices, Free, Spot, heads, instances_on


@dataclass
class Flow:
    """What is remembered of one function's queue."""

    tag_s: float = 0.0
    is_waiting: bool = False
    arrivals: int = 0
    first_ready: float = 0.0
    last_ready: float = 0.0
    last_served: float = -inf

    @property
    def interval_s(self) -> float:
        """Mean time between arrivals; 0 while it is unknown."""
        return (self.last_ready - self.first_ready) / (self.arrivals - 1) if self.arrivals > 1 else 0.0


@dataclass
class MqfqSticky(Policy):
    """Start a queue whose model is warm on the free device, unless it is too far ahead of its fair share.

    Args:
        window_s: How far a queue may be ahead of the one that had least device time, in seconds of it; finite and not
            negative. At 0 the policy is fair and blind to where models are warm.
        grace: How long an emptied queue stays active, in its mean times between arrivals; finite and not negative.
        prefetch: Whether a model of an active queue that is loaded nowhere is loaded ahead, where there is room.
    """

    paper: ClassVar[str] = "MQFQ-Sticky (Fuerst et al. 2025)"

    window_s: float = 10.0
    grace: float = 2.0
    prefetch: bool = True

    def __post_init__(self) -> None:
        for name in ("window_s", "grace"):
            value = getattr(self, name)
            if not 0 <= value < inf:
                raise ValueError(f"{name} must be finite and not negative; got {value}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._devices = Devices(site)
        self._functions = site.functions
        self._flows = {name: Flow() for name in site.functions}
        self._rank = {name: i for i, name in enumerate(site.functions)}
        self._virtual_s = 0.0  # it never falls

    def observe(self, record: Record) -> None:
        flow = self._flows[record.function]
        flow.last_served = max(flow.last_served, record.end)

    def decide(self, view: View) -> Iterator[Action]:
        up = self._devices.up(view)
        waiting = self._heads(view, up)
        self._welcome(waiting)
        while (best := self._best(view, up, waiting)) is not None:
            head, free = best
            function = head.function
            if not view.is_warm(function, free.configuration, free.spot.node, free.spot.device):
                for instance in self._in_the_way(view, function, free):
                    yield Retire(instance.id)
            yield free.start(head)
            if view.is_waiting(head):
                return  # it was not carried out
            self._serve(view, head)
            waiting = self._heads(view, up)
        if self.prefetch:
            yield from self._load_ahead(view, up, waiting)

    # --- whose turn it is --------------------------------------------------------------------------------------

    def _heads(self, view: View, up: list[Spot]) -> dict[str, Invocation]:
        """The oldest that waits of each function that a device could hold."""
        found: dict[str, Invocation] = {}
        for head in heads(view):
            if head.function in found or self._devices.can_hold(head.function, up):
                found.setdefault(head.function, head)
        return found

    def _welcome(self, waiting: dict[str, Invocation]) -> None:
        """Let queues that return begin at the virtual time: what they did not use is gone."""
        stayed = [self._flows[function].tag_s for function in waiting if self._flows[function].is_waiting]
        self._virtual_s = max(self._virtual_s, min(stayed, default=0.0))
        for function, flow in self._flows.items():
            if function in waiting and not flow.is_waiting:
                flow.tag_s = max(flow.tag_s, self._virtual_s)
            flow.is_waiting = function in waiting

    def _best(self, view: View, up: list[Spot], waiting: dict[str, Invocation]) -> tuple[Invocation, Free] | None:
        """The queue and device to start next: warm ones first, then the least tag; None if none may start."""
        if not waiting:
            return None
        tags = {function: self._flows[function].tag_s for function in waiting}
        self._virtual_s = max(self._virtual_s, min(tags.values()))
        free = {function: {f.spot: f for f in self._devices.free(view, function, up)} for function in waiting}
        is_even = max(tags.values()) - min(tags.values()) <= self.window_s  # then none is ahead on any device
        least = {} if is_even else self._least(view, up, tags, free)
        chosen: dict[tuple[bool, float, int, str], list[Free]] = {}  # the devices of one queue, warm or not
        for function, frees in free.items():
            for spot, one in frees.items():
                if is_even or tags[function] - least[spot] <= self.window_s:
                    is_cold = not view.is_warm(function, one.configuration, spot.node, spot.device)
                    chosen.setdefault((is_cold, tags[function], self._rank[function], function), []).append(one)
        if not chosen:
            return None
        is_cold, _, _, function = key = min(chosen)
        if is_cold and len(chosen[key]) > 1:  # stable: in free-list order
            chosen[key].sort(key=lambda one: self._displaces_active(view, function, one))
        return waiting[function], chosen[key][0]

    def _least(
        self, view: View, up: list[Spot], tags: dict[str, float], free: dict[str, dict[Spot, Free]]
    ) -> dict[Spot, float]:
        """The virtual time of each device: the least tag of the queues that it could serve.

        One that does not fit although nothing runs on the node cannot be waited for (it is scaled, the node drains).
        """
        busy = {device.node for device in view.devices() if device.busy_vgpus > 0}
        busy |= {node.name for node in view.nodes if view.load(node.name) > 0}
        return {
            spot: min(
                (
                    tag_s
                    for function, tag_s in tags.items()
                    if spot in free[function]
                    or (spot.node in busy and self._devices.configuration(function, spot) is not None)
                ),
                default=inf,
            )
            for spot in up
        }

    def _serve(self, view: View, head: Invocation) -> None:
        flow = self._flows[head.function]
        flow.tag_s += self._devices.expected_s(view, head.function)
        flow.is_waiting = view.waiting(function=head.function) > 0
        flow.first_ready = flow.first_ready if flow.arrivals else head.ready
        flow.last_ready = max(flow.last_ready, head.ready)
        flow.arrivals += 1
        flow.last_served = view.now

    # --- what stays on the devices -----------------------------------------------------------------------------

    def is_active(self, view: View, function: str) -> bool:
        """Whether a queue waits, runs, or is expected to be asked again soon."""
        return (
            view.waiting(function=function) > 0
            or self._is_expected(view, function)
            or any(not instance.is_idle for instance in view.instances(function))
        )

    def _is_expected(self, view: View, function: str) -> bool:
        flow = self._flows[function]
        return view.now - flow.last_served <= self.grace * flow.interval_s

    def _in_the_way(self, view: View, function: str, free: Free) -> list[Instance]:
        """The idle instances of inactive queues that make way for a new instance, as far as room is short."""
        short_gb, short_vgpus = self._short(view, function, free)
        retired = []
        for instance in view.idle(free.spot.node):
            if short_gb <= 0 and short_vgpus <= 0:
                break
            memory_gb, vgpus = self._holds(instance)
            is_of_use = (memory_gb > 0 and short_gb > 0) or (vgpus > 0 and short_vgpus > 0)
            if instance.device == free.spot.device and is_of_use and not self.is_active(view, instance.function):
                retired.append(instance)
                short_gb, short_vgpus = short_gb - memory_gb, short_vgpus - vgpus
        return retired

    def _displaces_active(self, view: View, function: str, free: Free) -> bool:
        """Whether a new instance there leaves no room for the models of all active queues."""
        short_gb, short_vgpus = self._short(view, function, free)
        for instance in self._in_the_way(view, function, free):
            memory_gb, vgpus = self._holds(instance)
            short_gb, short_vgpus = short_gb - memory_gb, short_vgpus - vgpus
        return short_gb > 0 or short_vgpus > 0

    def _short(self, view: View, function: str, free: Free) -> tuple[float, float]:
        """How much memory and how many vGPUs a new instance lacks beside all that is on an accelerator, idle or not."""
        if free.spot.device is None:
            return 0.0, 0.0
        device = self._devices.node(free.spot).devices[free.spot.device]
        held = [self._holds(instance) for instance in instances_on(view, self._functions, free.spot)]
        memory_gb = sum(gb for gb, _ in held) + self._functions[function].device_memory_gb
        return memory_gb - device.usable_gb, sum(vgpus for _, vgpus in held) + free.configuration.vgpus - device.vgpus

    def _holds(self, instance: Instance) -> tuple[float, float]:
        """Memory and vGPUs of its device that an instance keeps."""
        function = self._functions[instance.function]
        keeps_slice = not instance.is_idle or function.idle_holds == "slice"
        return function.device_memory_gb, instance.vgpus if keeps_slice else 0.0

    def _load_ahead(self, view: View, up: list[Spot], waiting: dict[str, Invocation]) -> Iterator[Action]:
        """Load the models of active queues that are nowhere, on accelerators that nobody waits for."""
        accelerators = [spot for spot in up if spot.device is not None]
        if not accelerators:
            return
        for function in self._flows:
            is_kernel = bool(self._functions[function].buffers)  # the system manages their memory
            if function in waiting or is_kernel or not self._is_expected(view, function) or view.instances(function):
                continue
            for free in self._devices.free(view, function, accelerators):
                is_wanted = any(self._devices.configuration(other, free.spot) is not None for other in waiting)
                if not is_wanted and max(self._short(view, function, free)) <= 0:
                    yield Warm(function, free.configuration, free.spot.node, free.spot.device)
                    break
