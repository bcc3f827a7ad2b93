"""All workers together: which of them hold a model, how its demand is spread over them, and how soon it can run.

A model's demand is spread over the workers that hold it in inverse proportion to their load. Where a worker's load
exceeds what it can do, 1, the excess is unserved; so is all the demand for a model that no worker holds.
"""

from collections.abc import Mapping
from math import floor, inf

from fairlead.model import Node
from fairlead.policy.base import Site
from fairlead.policy.clockwork.ladder import Ladder, make_ladder
from fairlead.policy.clockwork.worker import Size, Worker

_LEAST_LOAD = 0.01  # an idle worker's load, so that its inverse is finite


class Fleet:
    """The workers of a site, those on lost nodes included."""

    def __init__(self, site: Site, max_batch: int, remember: int, memory_s: float) -> None:
        self._site = site
        self._max_batch = max_batch
        self._remember = remember
        self._memory_s = memory_s
        self._ladders: dict[object, Mapping[str, Ladder]] = {}
        self._on: dict[str, list[Worker]] = {}  # workers by node
        self.holders: dict[str, list[Worker]] = {name: [] for name in site.functions}
        self.able: dict[str, list[Worker]] = {name: [] for name in site.functions}
        self.cold: set[str] = set()  # functions that cannot be kept loaded: every run loads
        self.makes: dict[str, dict[Ladder, None]] = {name: {} for name in site.functions}  # each ladder once
        for node in site.cluster.nodes:
            self.workers_on(node)
        for name, function in site.functions.items():
            if function.keep_alive_s == 0:
                self.make_cold(name)

    def workers_on(self, node: Node) -> list[Worker]:
        """The workers of a node: one per accelerator, and one per vCPU slot for what needs no accelerator."""
        if node.name in self._on:
            return self._on[node.name]
        devices: list[int | None] = list(range(len(node.devices)))
        slots = self._kit(node, None)
        if slots:
            thinnest = min(ladder.least.configuration.vcpus for ladder in slots.values())
            devices += [None] * floor(node.vcpus / thinnest + 1e-9)
        first = sum(map(len, self._on.values()))
        found = [Worker(first + i, node, device, self._kit(node, device)) for i, device in enumerate(devices)]
        self._on[node.name] = found
        for worker in found:
            for function, ladder in worker.ladders.items():
                self.able[function].append(worker)
                self.makes[function][ladder] = None
        return found

    # --- what is loaded --------------------------------------------------------------------------------------------

    def size(self, worker: Worker, function: str, *, is_idle: bool) -> Size:
        """What a model holds of a worker's device; one that is idle may give back its vGPUs."""
        if worker.device is None:
            return Size()
        known = self._site.functions[function]
        vgpus = 0.0 if is_idle and known.idle_holds != "slice" else worker.ladders[function].least.configuration.vgpus
        return Size(known.device_memory_gb, vgpus)

    def hold(self, worker: Worker, function: str) -> None:
        """Note that a model is loaded."""
        if function not in worker.resident:
            worker.resident[function] = Size() if function in self.cold else self.size(worker, function, is_idle=True)
            self.holders[function].append(worker)

    def drop(self, worker: Worker, function: str) -> None:
        """Note that a model is loaded no more."""
        if worker.resident.pop(function, None) is not None:
            self.holders[function].remove(worker)
            worker.last_use.pop(function, None)
            worker.load = max(0.0, worker.load - worker.demands.pop(function, 0.0))

    def make_cold(self, function: str) -> None:
        """Load a function with every run from now on, since it does not stay loaded."""
        self.cold.add(function)
        for worker in self.able[function]:
            self.hold(worker, function)

    def make_warm(self, function: str) -> None:
        """Load a function with its runs no longer, since a scaler keeps replicas of it; where is to be found out."""
        self.cold.discard(function)
        for worker in self.able[function]:
            self.drop(worker, function)

    def is_everywhere(self, function: str) -> bool:
        """Whether every worker that can run a model holds it."""
        return len(self.holders[function]) == len(self.able[function])

    # --- demand ----------------------------------------------------------------------------------------------------

    def slowness(self, worker: Worker, function: str) -> float:
        """How many times as long a model takes on a worker as on the fastest, at least 1."""
        if len(self.makes[function]) == 1:
            return 1.0
        fastest_s = min(make.least.run.seconds for make in self.makes[function])
        return max(1.0, worker.ladders[function].least.run.seconds / max(fastest_s, 1e-9))

    def spread(self, function: str, demand: float) -> None:
        """Share a model's demand out to those that hold it; the same demand is a larger load on a slower worker."""
        holders = self.holders[function]
        others = [max(0.0, worker.load - worker.demands.get(function, 0.0)) for worker in holders]
        slowness = [self.slowness(worker, function) for worker in holders]
        weights = [1 / (max(_LEAST_LOAD, load) * slow) for load, slow in zip(others, slowness, strict=True)]
        whole = sum(weights)
        for worker, load, weight, slow in zip(holders, others, weights, slowness, strict=True):
            worker.demands[function] = share = demand * weight / whole * slow
            worker.load = load + share

    def unserved(self, function: str, demand: float) -> float:
        """How much of a model's demand its holders cannot serve."""
        holders = self.holders[function]
        if not holders:
            return demand
        return sum(
            [
                worker.demands.get(function, 0.0) * (1 - 1 / worker.load) / self.slowness(worker, function)
                for worker in holders
                if worker.load > 1
            ]
        )

    # --- prediction ------------------------------------------------------------------------------------------------

    def soonest(self, function: str, now: float) -> tuple[float, float]:
        """When one more invocation could be done: by those that hold its model, and by loading it elsewhere."""
        held = inf
        cold = function in self.cold
        for worker in self.holders[function]:
            ladder = worker.ladders[function]
            finish = worker.available(now) + ladder.least.run.seconds
            held = min(held, finish + ladder.load.seconds if cold else finish)
        if cold or self.is_everywhere(function):
            return held, inf
        return held, now + min(make.load.seconds + make.least.run.seconds for make in self.makes[function])

    def quickest_s(self, function: str) -> float:
        """How long an invocation takes at the least on a worker that is free."""
        loads = not self.holders[function] or function in self.cold
        makes = self.makes[function]
        return min((m.least.run.seconds + (m.load.seconds if loads else 0.0) for m in makes), default=inf)

    def retry(self, function: str, now: float, target: float) -> bool:
        """Try the least of the last times of a function whose estimate is too long for a target; whether that will do.

        Only where a worker that holds it has nothing to do, and nothing of it runs that will be measured anyway.
        """
        holders = self.holders[function]
        idle = [worker for worker in holders if worker.running is None and not worker.plan]
        if not idle or function in self.cold or any(function in worker.in_use() for worker in holders):
            return False
        runs = [worker.ladders[function].least.run for worker in idle]
        in_time = [run for run in runs if now + run.least_s <= target]
        for run in in_time:
            run.try_least()
        return bool(in_time)

    def forget(self, function: str, now: float) -> None:
        """Forget the measured times of a function that were not measured for too long."""
        for make in self.makes[function]:
            make.load.forget(now - self._memory_s)
            for rung in make.rungs:
                rung.run.forget(now - self._memory_s)

    def _kit(self, node: Node, device: int | None) -> Mapping[str, Ladder]:
        """The ladders of everything that can run on a device, shared by all devices like it."""
        key = (node.kind, node.vcpus, node.memory_gb, None if device is None else node.devices[device])
        if key not in self._ladders:
            self._ladders[key] = {
                name: ladder
                for name, function in self._site.functions.items()
                if (
                    ladder := make_ladder(
                        function, self._site.profiles[name], node, device, self._max_batch, self._remember
                    )
                )
            }
        return self._ladders[key]
