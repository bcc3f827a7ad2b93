"""Workers as the controller of Clockwork sees them: what is loaded, what runs, what is planned, and until when.

A worker is one accelerator, or one of the vCPU slots of a node. It runs one batch at a time.
"""

from collections import deque
from collections.abc import Mapping
from heapq import heappop, heappush
from math import inf

from fairlead.model import Node
from fairlead.policy.clockwork.ladder import Ladder, Rung, widest
from fairlead.policy.clockwork.queue import Entry

_STEP_S = 1e-9  # priorities this close are the same


class Infer:
    """A batch that is planned or runs: `start` and `finish` are what the controller predicts."""

    __slots__ = ("entries", "finish", "function", "left", "rung", "start")

    def __init__(self, function: str, rung: Rung, entries: list[Entry], start: float, finish: float) -> None:
        self.function = function
        self.rung = rung
        self.entries = entries
        self.start = start
        self.finish = finish
        self.left = 0  # of those that run, how many have not been heard of


class Load:
    """A model that is to be loaded, or is being loaded."""

    __slots__ = ("finish", "function", "is_under_way", "start")

    def __init__(self, function: str, start: float, finish: float) -> None:
        self.function = function
        self.start = start
        self.finish = finish
        self.is_under_way = False


class Worker:
    """One executor, and the controller's memory of it."""

    __slots__ = (
        "_capacity_gb",
        "_heap",
        "_listed",
        "_plan_s",
        "_room",
        "demands",
        "device",
        "index",
        "is_up",
        "kind",
        "ladders",
        "load",
        "loading",
        "node",
        "plan",
        "resident",
        "running",
    )

    def __init__(self, index: int, node: Node, device: int | None, ladders: Mapping[str, Ladder]) -> None:
        self.index = index
        self.node = node.name
        self.kind = node.kind
        self.device = device
        self.ladders = ladders
        self.is_up = True
        self.resident: dict[str, float] = {}  # device memory by function, least recently used first
        self.running: Infer | Load | None = None
        self.loading: Load | None = None  # planned or under way, perhaps beside what runs
        self.plan: deque[Infer | Load] = deque()
        self.demands: dict[str, float] = {}  # by function, the share of its demand that is meant for this worker
        self.load = 0.0  # their sum
        self._plan_s = 0.0
        self._capacity_gb = inf if device is None else node.devices[device].memory_gb
        vcpus, vgpus = widest(tuple(ladders.values()))
        free_vgpus = 0.0 if device is None else node.devices[device].vgpus - vgpus
        self._room = (node.vcpus - vcpus * max(1, len(node.devices)), free_vgpus)
        self._heap: list[tuple[float, str]] = []
        self._listed: dict[str, float] = {}

    def __repr__(self) -> str:
        return self.node if self.device is None else f"{self.node}/{self.device}"

    # --- time ------------------------------------------------------------------------------------------------------

    def available(self, now: float) -> float:
        """When it is predicted to have done all that it was given."""
        until = now if self.running is None or self.running.finish < now else self.running.finish
        return until + self._plan_s

    def append(self, action: Infer | Load) -> None:
        """Plan an action after all others."""
        self.plan.append(action)
        self._plan_s += action.finish - action.start

    def pop(self) -> None:
        """Take the first action out of the plan."""
        action = self.plan.popleft()
        self._plan_s = self._plan_s - (action.finish - action.start) if self.plan else 0.0

    def loads_beside(self, function: str) -> bool:
        """Whether there is always room to load this function while another runs."""
        size = self.ladders[function].least.configuration
        return self.device is not None and size.vcpus <= self._room[0] and size.vgpus <= self._room[1]

    # --- memory ----------------------------------------------------------------------------------------------------

    def used(self, function: str) -> None:
        """Note a use, for the order of eviction."""
        if function in self.resident:
            self.resident[function] = self.resident.pop(function)

    def in_the_way(self, memory_gb: float) -> list[str] | None:
        """What must be unloaded so that so much more can be loaded, least recently used first; None if it cannot.

        What runs, is being loaded or is planned here stays.
        """
        busy = {action.function for action in (self.running, self.loading, *self.plan) if action is not None}
        missing_gb = sum(self.resident.values()) + memory_gb - self._capacity_gb
        found: list[str] = []
        for other, size_gb in self.resident.items():
            if missing_gb <= 1e-9:
                break
            if size_gb and other not in busy:
                found.append(other)
                missing_gb -= size_gb
        return found if missing_gb <= 1e-9 else None

    # --- strategies, most urgent first -----------------------------------------------------------------------------

    def offer(self, function: str, priority: float) -> None:
        """Say that a function may have a strategy as urgent as this."""
        if function not in self._listed or priority < self._listed[function]:
            self._listed[function] = priority
            heappush(self._heap, (priority, function))

    def next_offer(self) -> tuple[float, str] | None:
        """Take out the function with the most urgent strategy there may be."""
        heap = self._heap
        while heap:
            priority, function = heappop(heap)
            if self._listed.get(function) == priority:
                del self._listed[function]
                if function in self.resident:
                    return priority, function
        return None

    def is_urgent(self, priority: float) -> bool:
        """Whether nothing that is still offered comes before this."""
        while self._heap and self._listed.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return not self._heap or priority <= self._heap[0][0] + _STEP_S
