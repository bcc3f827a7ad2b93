"""Each client on a fixed fraction of a device, for ever.

N. Pemberton et al., "Kernel-as-a-Service: A Serverless Interface to GPUs" (arXiv 2212.08146, 2022): the policy "Static"
of its worker pool, which stands for a GPU that MPS or MIG splits by hand. Of it we know one sentence: workers hold a
fixed fraction of a GPU (a share of its threads), rounded up to eighths as for MIG. The rest is ours:

**Differs from the paper:**

* There the fraction is measured per model. Here it is what the cheapest configuration of a client's hungriest function
  takes of the device, or `share` if that is more, rounded up to eighths; on a MIG device, in its eight memory slices.
* Workers are placed once, the largest fraction first, each on the first device with room for its fraction and for the
  model with most memory. What fits nowhere is put on the device with least, which its workers then share in turn, the
  oldest invocation first. With `workers` 0 the room that is left is dealt out in rounds, one worker per client.
* A function runs in the largest configuration that the fraction allows. A worker runs one invocation at a time, of any
  function of its client; one that keeps its slice while idle makes way for the next function of the same worker.
* A client that has no worker up for a function (its node was lost) gets one more, placed in the same way.
* Functions that no accelerator can hold get a fraction of a node's vCPUs: what they need, not in eighths.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import numpy as np

from fairlead.model import Configuration, Invocation
from fairlead.model.mig import MIG_EIGHTHS
from fairlead.policy.base import Action, Policy, Retire, Site, Start, View
from fairlead.policy.kaas.devices import Devices, Spot, heads, instances_on

EIGHTHS = 8
_CLOSE = 1e-9


@dataclass(eq=False)
class Worker:
    """A fraction of a device that one client has for itself, and what it last ran there."""

    client: str
    spot: Spot
    functions: tuple[str, ...]
    eighths: float
    vgpus: float
    memory_gb: float
    instance: int = -1
    function: str = ""
    is_busy: bool = False


@dataclass
class Static(Policy):
    """Start the oldest of each client on its own fixed fraction of a device.

    Args:
        share: Least fraction of a device that a worker has, in [0, 1]. At 0 it has what its functions need.
        workers: How many workers each client has, each with its own fraction; not negative. At 0 one each, and more in
            turn while there is room.
    """

    paper: ClassVar[str] = "KaaS (Pemberton et al. 2022)"

    share: float = 0.0
    workers: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be in [0, 1]; got {self.share}.")
        if self.workers < 0:
            raise ValueError(f"workers must not be negative; got {self.workers}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._devices = Devices(site)
        self._declared = site.functions
        self._functions = {name: workflow.functions for name, workflow in site.workflows.items()}
        self._workers: dict[str, list[Worker]] = {name: [] for name in site.workflows}
        self._on: dict[Spot, list[Worker]] = {}
        spots = self._devices.declared
        wanted = [
            (max(self._worker(client, spot, spots).eighths for spot in able), client, function)
            for client, functions in self._functions.items()
            for function in functions
            if (able := self._able(function, spots))
        ]
        placed = []
        for _, client, function in sorted(wanted, key=lambda one: -one[0]):  # stable: in order of declaration
            if not any(function in worker.functions for worker in self._workers[client]):
                self._place(client, function, spots, is_forced=True)
                placed.append((client, function))
        for _ in range(self.workers - 1):
            for client, function in placed:
                self._place(client, function, spots, is_forced=True)
        while self.workers == 0 and sum(self._place(client, function, spots) for client, function in placed):
            pass  # every client gets its turn, whether or not there was room for those before it

    def decide(self, view: View) -> Iterator[Action]:
        up = self._devices.up(view)
        self._release(view)
        while (found := self._next(view, up)) is not None:
            worker, configuration, head = found
            yield from self._make_way(view, worker, head.function)
            yield Start((head,), configuration, worker.spot.node, worker.spot.device)
            if view.is_waiting(head):
                return  # it was not carried out
            self._occupy(view, worker, head.function)

    def _next(self, view: View, up: list[Spot]) -> tuple[Worker, Configuration, Invocation] | None:
        """The oldest that can start on a worker of its client, and how.

        One that finds its device full lets nobody start there before it: else small fractions could keep a large one
        out of a device that they share for ever.
        """
        closed: set[Spot] = set()
        for head in heads(view):
            function = head.function
            own = [w for w in self._workers[head.workflow] if function in w.functions and w.spot in up]
            if not own and self._place(head.workflow, function, up, is_forced=True):
                own = [self._workers[head.workflow][-1]]
            idle = [(w, self._configuration(w, function)) for w in own if not w.is_busy and w.spot not in closed]
            idle.sort(key=lambda one: not view.is_warm(function, one[1], one[0].spot.node, one[0].spot.device))
            for worker, configuration in idle:
                if view.fits(function, configuration, worker.spot.node, worker.spot.device):
                    return worker, configuration, head
            closed.update(worker.spot for worker, _ in idle)
        return None

    def _configuration(self, worker: Worker, function: str) -> Configuration:
        """The largest configuration of a function that a worker's fraction allows; of equals, the cheapest."""
        cheapest = self._devices.configuration(function, worker.spot)
        assert cheapest is not None  # a worker is made for functions that its device can hold
        return max(
            (
                c
                for c in self._devices.configurations(function, worker.spot)
                if self._eighths(c, worker.spot) <= worker.eighths + _CLOSE
            ),
            key=lambda c: (c.vgpus if worker.spot.device is not None else c.vcpus, c == cheapest, -c.vcpus),
        )

    # --- where workers are -------------------------------------------------------------------------------------

    def _able(self, function: str, among: Iterable[Spot]) -> list[Spot]:
        """The devices that could hold a function; vCPUs only where no accelerator can."""
        able = [spot for spot in among if self._devices.configuration(function, spot) is not None]
        return [spot for spot in able if spot.device is not None] or able

    def _place(self, client: str, function: str, among: Iterable[Spot], *, is_forced: bool = False) -> bool:
        """One more worker for a client that can run this function; False if there is no room, and none is forced."""
        spots = list(among)
        able = self._able(function, spots)
        worker = next((w for spot in able if self._has_room(w := self._worker(client, spot, spots))), None)
        if worker is None and is_forced and able:
            least = min(able, key=lambda spot: sum(w.eighths for w in self._on.get(spot, ())))
            worker = self._worker(client, least, spots)
        if worker is None:
            return False
        self._workers[client].append(worker)
        self._on.setdefault(worker.spot, []).append(worker)
        return True

    def _worker(self, client: str, spot: Spot, among: Iterable[Spot]) -> Worker:
        """What a worker of a client would be on a device."""
        spots = list(among)
        functions = tuple(f for f in self._functions[client] if spot in self._able(f, spots))
        cheapest = [c for f in functions if (c := self._devices.configuration(f, spot)) is not None]
        eighths = max(self._eighths(c, spot) for c in cheapest)
        memory_gb = 0.0
        if spot.device is not None:
            eighths = max(eighths, ceil(EIGHTHS * self.share - _CLOSE))
            memory_gb = max(self._declared[f].footprint_gb for f in functions)
        worker = Worker(client, spot, functions, eighths, 0.0, memory_gb)
        worker.vgpus = max(self._configuration(worker, function).vgpus for function in functions)
        return worker

    def _has_room(self, worker: Worker) -> bool:
        spot = worker.spot
        there: list[Worker] = [*self._on.get(spot, ()), worker]
        if sum(w.eighths for w in there) > EIGHTHS + _CLOSE:
            return False
        if spot.device is None:
            return True
        device = self._devices.node(spot).devices[spot.device]
        return sum(w.vgpus for w in there) <= device.vgpus and sum(w.memory_gb for w in there) <= device.usable_gb

    def _eighths(self, configuration: Configuration, spot: Spot) -> float:
        """How many eighths of a device a configuration takes; whole ones, except of vCPUs."""
        node = self._devices.node(spot)
        if spot.device is None:
            return EIGHTHS * configuration.vcpus / node.vcpus
        device = node.devices[spot.device]
        if device.sharing == "mig":
            return MIG_EIGHTHS[int(configuration.vgpus)]
        return ceil(EIGHTHS * configuration.vgpus / device.vgpus - _CLOSE)

    # --- what workers do ---------------------------------------------------------------------------------------

    def _release(self, view: View) -> None:
        """Let the workers whose invocation has ended take the next."""
        busy = [worker for workers in self._workers.values() for worker in workers if worker.is_busy]
        running = {i.id for f in {w.function for w in busy} for i in view.instances(f) if not i.is_idle}
        for worker in busy:
            worker.is_busy = worker.instance in running

    def _occupy(self, view: View, worker: Worker, function: str) -> None:
        """Note on which instance a worker runs: the one that is busy there and nobody else's."""
        others = {w.instance for w in self._on[worker.spot] if w.is_busy}
        started = [i.id for i in instances_on(view, (function,), worker.spot) if not i.is_idle and i.id not in others]
        if started:
            worker.instance, worker.function, worker.is_busy = started[-1], function, True

    def _make_way(self, view: View, worker: Worker, function: str) -> Iterator[Action]:
        """Stop what a worker ran before if that keeps the slice: the fractions of others are not for it to take."""
        last, worker.instance = worker.instance, -1
        if worker.function in ("", function) or self._declared[worker.function].idle_holds != "slice":
            return
        others = {w.instance for w in self._on[worker.spot]}
        for instance in instances_on(view, (worker.function,), worker.spot):
            if instance.id == last and instance.is_idle and last not in others:
                yield Retire(last)
