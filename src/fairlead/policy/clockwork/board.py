"""What the controller of Clockwork keeps between two decisions: the queues, the workers, and what to look at next."""

from collections.abc import Callable
from math import inf

from fairlead.model import Invocation
from fairlead.policy.base import Reject, Site, View
from fairlead.policy.clockwork.fleet import Fleet
from fairlead.policy.clockwork.queue import Entry, ModelQueue
from fairlead.policy.clockwork.reserve import Reserve
from fairlead.policy.clockwork.worker import Infer, Worker
from fairlead.policy.kit.agenda import Agenda

TOO_LATE = "it can no longer be answered in time"

_NO_DEADLINE_S = 1e9  # the target without a deadline is this long after it became ready: the order of arrival
_LEAST_RUN_S = 1e-6  # so that a model that takes no time is loaded too


class Board:
    """Queues and workers, kept in step with each other."""

    def __init__(self, site: Site, fleet: Fleet, max_run_s: float, reserve: Callable[..., Reserve]) -> None:
        self.fleet = fleet
        self.queues = {name: ModelQueue(name) for name in site.functions}
        self.wishes = Agenda()  # models to load, the one with the most unserved demand first
        self.dirty: set[Worker] = set()  # workers for which there may be something to do
        self.max_run_s = max_run_s
        fastest_s = {
            name: min((rung.run.seconds for make in makes for rung in make.rungs), default=0.0)
            for name, makes in fleet.makes.items()
        }
        self.reserves = {name: reserve(workflow, fastest_s) for name, workflow in site.workflows.items()}
        self._mb_per_s = site.cluster.bandwidth_gbps * 125
        self._moves = self._mb_per_s < inf and any(function.output_mb for function in site.functions.values())

    # --- what waits ------------------------------------------------------------------------------------------------

    def rest_s(self, invocation: Invocation) -> float:
        """The least time that what must follow an invocation takes."""
        return self.reserves[invocation.workflow].rest_s[invocation.stage]

    def entry(self, invocation: Invocation, now: float) -> Entry:
        """An invocation with its target, the instant by which it should be done, and its demand.

        The demand is its size, the time of a batch of one, over the time it has left.
        """
        if invocation.deadline == inf:
            return Entry(invocation.ready + _NO_DEADLINE_S, invocation.id, invocation, 1.0)
        size_s = max(min(make.least.run.seconds for make in self.fleet.makes[invocation.function]), _LEAST_RUN_S)
        target = invocation.deadline - self.reserves[invocation.workflow].seconds(invocation.stage)
        return Entry(target, invocation.id, invocation, size_s / max(target - now, size_s))

    def put(self, entries: list[Entry], function: str, now: float) -> None:
        """Let invocations wait for their model, perhaps again."""
        for entry in entries:
            self.queues[function].put(entry)
        self.changed(function, now)

    def changed(self, function: str, now: float) -> None:
        """More waits for a model, or others hold it: tell them, and consider loading it elsewhere."""
        queue = self.queues[function]
        self.fleet.spread(function, queue.demand)
        if not queue:
            return
        for worker in self.fleet.holders[function]:
            self.offer(worker, function)
        self.want(function, now)

    def offer(self, worker: Worker, function: str) -> None:
        """Let a worker consider a model of which something waits."""
        allowed = worker.ladders[function].allowed(self.max_run_s)
        worker.agenda.offer(function, self.queues[function].urgency(allowed))
        self.dirty.add(worker)

    def refuse(self, view: View, entry: Entry) -> Reject | None:
        """Forget all that waits of a request; gives the action that drops it, unless it is gone already."""
        invocation = entry.invocation
        siblings = view.waiting_of(invocation.request)
        self.reserves[invocation.workflow].dropped(invocation, view.now)
        for sibling in (invocation, *siblings):
            self.queues[sibling.function].discard(sibling.id)
        return Reject(invocation.request, TOO_LATE) if siblings else None

    def transfer_s(self, view: View, worker: Worker, entries: list[Entry]) -> float:
        """How long the input of a batch takes to come from other nodes."""
        if not self._moves:
            return 0.0
        inputs = (found for entry in entries for found in view.inputs(entry.invocation))
        return sum(mb for node, mb in inputs if node != worker.node) / self._mb_per_s

    # --- what is loaded --------------------------------------------------------------------------------------------

    def is_there(self, view: View, worker: Worker, function: str) -> bool:
        """Whether a worker can run a model without loading it; the view knows what expired or was evicted."""
        if function in self.fleet.cold or (worker.running is not None and worker.running.function == function):
            return True
        return view.is_warm(function, worker.ladders[function].least.configuration, worker.node, worker.device)

    def hold(self, worker: Worker, function: str, now: float) -> None:
        """Note that a worker has a model loaded."""
        self.fleet.hold(worker, function)
        worker.used(function, now)
        self.changed(function, now)

    def lose(self, worker: Worker, function: str, now: float) -> None:
        """Note that a worker has a model loaded no more."""
        self.fleet.drop(worker, function)
        self.changed(function, now)

    def join(self, worker: Worker) -> None:
        """Let a worker that is back, with nothing loaded, consider what needs no load of its own."""
        worker.is_up = True
        for function in worker.resident:
            if self.queues[function]:
                self.offer(worker, function)

    def leave(self, worker: Worker, now: float) -> None:
        """Forget all about a worker that is gone, and plan elsewhere what was planned there."""
        actions, loading = list(worker.plan), worker.loading
        worker.plan.clear()
        worker.is_up = False
        worker.running = worker.loading = None
        held = [function for function in worker.resident if function not in self.fleet.cold]
        for function in held:
            self.fleet.drop(worker, function)
        for action in actions:
            self.put(action.entries if isinstance(action, Infer) else [], action.function, now)
        for function in held:
            self.changed(function, now)
        if loading is not None:
            self.want(loading.function, now)

    # --- what should be loaded -------------------------------------------------------------------------------------

    def unserved(self, function: str, now: float) -> float:
        """Demand for a model that those who hold it cannot serve; all of it, if its most urgent would be late."""
        queue = self.queues[function]
        if function in self.fleet.cold:
            return 0.0
        missed = queue.missed(now)
        if not queue:
            return missed
        if queue.head.target < self.fleet.soonest(function, now)[0]:
            return missed + queue.demand
        return missed + self.fleet.unserved(function, queue.demand)

    def want(self, function: str, now: float) -> None:
        """Consider loading a model, the sooner the more of its demand is unserved."""
        if not self.fleet.is_everywhere(function) and (unserved := self.unserved(function, now)) > 0:
            self.wishes.offer(function, -unserved)
