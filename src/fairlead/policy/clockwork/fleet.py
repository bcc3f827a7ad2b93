"""All workers together: which of them hold a model, and how the demand for it is spread over them.

A model's demand is spread over the workers that hold it in inverse proportion to their load. Where a worker's load
exceeds what it can do, 1, the excess is unserved; so is all the demand for a model that nobody holds.
"""

from collections.abc import Mapping
from math import floor

from fairlead.model import Function, Node
from fairlead.policy.base import Site
from fairlead.policy.clockwork.ladder import Ladder, make_ladder
from fairlead.policy.clockwork.worker import Worker

_LEAST_LOAD = 0.01  # an idle worker's load, so that its inverse is finite


class Fleet:
    """The workers of a site."""

    def __init__(self, site: Site, max_batch: int, remember: int) -> None:
        self._site = site
        self._max_batch = max_batch
        self._remember = remember
        self._ladders: dict[object, Mapping[str, Ladder]] = {}
        self._nodes: set[str] = set()
        self.is_whole = True  # whether every worker is up
        self.workers: list[Worker] = []
        self.holders: dict[str, list[Worker]] = {name: [] for name in site.functions}
        self.able: dict[str, list[Worker]] = {name: [] for name in site.functions}
        self.by_node: dict[str, list[Worker]] = {}
        for node in site.cluster.nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        """Take in a node: a worker per accelerator, and one per vCPU slot for what needs no accelerator."""
        self._nodes.add(node.name)
        devices: list[int | None] = list(range(len(node.devices)))
        slots = self._kit(node, None)
        if slots:
            thinnest = min(ladder.least.configuration.vcpus for ladder in slots.values())
            devices += [None] * floor(node.vcpus / thinnest + 1e-9)
        for device in devices:
            worker = Worker(len(self.workers), node, device, self._kit(node, device))
            self.workers.append(worker)
            self.by_node.setdefault(node.name, []).append(worker)
            for function in worker.ladders:
                self.able[function].append(worker)

    def renew(self, nodes: tuple[Node, ...]) -> list[Worker]:
        """Note which nodes are up; gives the workers that went or came."""
        names = {node.name for node in nodes}
        for node in nodes:
            if node.name not in self._nodes:
                self.add(node)
        changed = [worker for worker in self.workers if worker.is_up != (worker.node in names)]
        for worker in changed:
            worker.is_up = not worker.is_up
        self.is_whole = all(worker.is_up for worker in self.workers)
        return changed

    def hold(self, worker: Worker, function: str, memory_gb: float) -> None:
        """Note that a model is loaded."""
        if function not in worker.resident:
            worker.resident[function] = memory_gb
            self.holders[function].append(worker)

    def drop(self, worker: Worker, function: str) -> None:
        """Note that a model is loaded no more."""
        if worker.resident.pop(function, None) is not None:
            self.holders[function].remove(worker)
            worker.load = max(0.0, worker.load - worker.demands.pop(function, 0.0))

    def spread(self, function: str, demand: float) -> None:
        """Share a model's demand out to those that hold it."""
        holders = self.holders[function]
        others = [max(0.0, worker.load - worker.demands.get(function, 0.0)) for worker in holders]
        weights = [1 / max(_LEAST_LOAD, load) for load in others]
        whole = sum(weights)
        for worker, load, weight in zip(holders, others, weights, strict=True):
            worker.demands[function] = share = demand * weight / whole
            worker.load = load + share

    def unserved(self, function: str, demand: float) -> float:
        """How much of a model's demand its holders cannot serve."""
        holders = self.holders[function]
        if not holders:
            return demand
        excess = [(worker.demands.get(function, 0.0), 1 - 1 / worker.load) for worker in holders if worker.load > 1]
        return sum([share * part for share, part in excess])

    def _kit(self, node: Node, device: int | None) -> Mapping[str, Ladder]:
        """The ladders of everything that can run on a device, shared by all devices like it."""
        key = (node.kind, node.vcpus, node.memory_gb, None if device is None else node.devices[device])
        if key not in self._ladders:
            found = {name: self._ladder(function, node, device) for name, function in self._site.functions.items()}
            self._ladders[key] = {name: ladder for name, ladder in found.items() if ladder is not None}
        return self._ladders[key]

    def _ladder(self, function: Function, node: Node, device: int | None) -> Ladder | None:
        profile = self._site.profiles[function.name]
        return make_ladder(function, profile, node, device, self._max_batch, self._remember)
