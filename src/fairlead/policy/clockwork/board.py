"""What the controller of Clockwork keeps between two decisions: the queues, the workers, and what to look at next."""

from heapq import heappop, heappush
from math import inf

from fairlead.model import Invocation
from fairlead.policy.base import Reject, Site, View
from fairlead.policy.clockwork.fleet import Fleet
from fairlead.policy.clockwork.queue import NO_DEADLINE_S, Entry, ModelQueue
from fairlead.policy.clockwork.remaining import least_after, waits_after
from fairlead.policy.clockwork.worker import Infer, Worker


class Board:
    """Queues and workers, kept in step with each other."""

    def __init__(self, site: Site, fleet: Fleet, margin_s: float, max_run_s: float, wait_s: float) -> None:
        self.fleet = fleet
        self.queues = {name: ModelQueue(name) for name in site.functions}
        self.cold: set[str] = set()  # functions that cannot be kept loaded: every run loads
        self.dirty: dict[int, Worker] = {}  # workers for which there may be something to do
        self.is_suspect = False  # whether nodes may have come or gone
        self.max_run_s = max_run_s
        self._margin_s = margin_s
        self._memory_gb = {name: function.device_memory_gb for name, function in site.functions.items()}
        self._wanted: list[tuple[float, str]] = []
        self._wishes: dict[str, float] = {}
        # One ladder of each make, by function: there are few makes, and many workers.
        self._makes = {
            name: list({id(ladder): ladder for w in able for ladder in (w.ladders[name],)}.values())
            for name, able in fleet.able.items()
        }
        fastest_s = {
            name: min((rung.run.seconds for make in makes for rung in make.rungs), default=0.0)
            for name, makes in self._makes.items()
        }
        self.rest_s = {
            (workflow.name, stage): seconds
            for workflow in site.workflows.values()
            for stage, seconds in least_after(workflow, fastest_s).items()
        }
        self._waits_s = {
            (workflow.name, stage): seconds
            for workflow in site.workflows.values()
            for stage, seconds in waits_after(workflow, fastest_s, wait_s, margin_s).items()
        }
        self._mb_per_s = site.cluster.bandwidth_gbps * 125
        self._moves = self._mb_per_s < inf and any(function.output_mb for function in site.functions.values())
        for name, function in site.functions.items():
            if function.keep_alive_s == 0:
                self.make_cold(name)

    # --- what waits ------------------------------------------------------------------------------------------------

    def target(self, invocation: Invocation) -> float:
        """When an invocation should be done, so that what follows can wait its turn and be done before the deadline."""
        if invocation.deadline == inf:
            return invocation.ready + NO_DEADLINE_S
        stage = (invocation.workflow, invocation.stage)
        return invocation.deadline - self.rest_s[stage] - self._waits_s[stage] - self._margin_s

    def add(self, invocation: Invocation, now: float) -> None:
        """Let an invocation wait for its model."""
        function = invocation.function
        self.queues[function].add(invocation, self.target(invocation), self._size_s(function), now)
        self.changed(function, now)

    def miss(self, invocation: Invocation, now: float) -> None:
        """Note that an invocation has to be refused, so that its model is loaded for those to come."""
        function = invocation.function
        self.queues[function].miss(invocation, self.target(invocation), self._size_s(function), now)
        self.want(function, now)

    def _size_s(self, function: str) -> float:
        return min(make.least.run.seconds for make in self._makes[function])

    def put_back(self, entries: list[Entry], function: str, now: float) -> None:
        """Let what was planned wait again."""
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
        worker.offer(function, self.queues[function].urgency(worker.ladders[function].allowed(self.max_run_s)))
        self.dirty[worker.index] = worker

    def refuse(self, view: View, entry: Entry, reason: str, retry_after_s: float | None = None) -> Reject | None:
        """Forget all that waits of a request; gives the action that drops it, unless it is gone already."""
        invocation = entry.invocation
        siblings = view.waiting_of(invocation.request)
        for sibling in (invocation, *siblings):
            self.queues[sibling.function].discard(sibling.id)
        return Reject(invocation.request, reason, retry_after_s) if siblings else None

    # --- prediction ------------------------------------------------------------------------------------------------

    def soonest(self, function: str, now: float) -> tuple[float, float]:
        """When one more invocation could be done: by those that hold its model, and by loading it elsewhere."""
        held = inf
        cold = function in self.cold
        for worker in self.fleet.holders[function]:
            ladder = worker.ladders[function]
            finish = worker.available(now) + ladder.least.run.seconds
            held = min(held, finish + ladder.load.seconds if cold else finish)
        if cold or len(self.fleet.holders[function]) == len(self.fleet.able[function]):
            return held, inf
        return held, now + min(make.load.seconds + make.least.run.seconds for make in self._makes[function])

    def quickest_s(self, function: str) -> float:
        """How long an invocation takes at the least on a worker that is free."""
        load = not self.fleet.holders[function] or function in self.cold
        return min(
            (make.least.run.seconds + (make.load.seconds if load else 0.0) for make in self._makes[function]),
            default=inf,
        )

    def transfer_s(self, view: View, worker: Worker, entries: list[Entry]) -> float:
        """How long the input of a batch takes to come from other nodes."""
        if not self._moves:
            return 0.0
        return (
            sum(mb for e in entries for node, mb in view.inputs(e.invocation) if node != worker.node) / self._mb_per_s
        )

    # --- what is loaded --------------------------------------------------------------------------------------------

    def is_there(self, view: View, worker: Worker, function: str) -> bool:
        """Whether a worker can run a model without loading it; asked of the view, which knows of what expired."""
        if function in self.cold or (worker.running is not None and worker.running.function == function):
            return True
        return view.is_warm(function, worker.ladders[function].least.configuration, worker.node, worker.device)

    def hold(self, worker: Worker, function: str, now: float) -> None:
        """Note that a worker has a model loaded."""
        self.fleet.hold(worker, function, self._memory_gb[function] if worker.device is not None else 0.0)
        self.changed(function, now)

    def lose(self, worker: Worker, function: str, now: float) -> None:
        """Note that a worker has a model loaded no more."""
        self.fleet.drop(worker, function)
        self.changed(function, now)

    def make_cold(self, function: str) -> None:
        """Load a function with every run from now on, since it does not stay loaded."""
        self.cold.add(function)
        for worker in self.fleet.able[function]:
            self.fleet.hold(worker, function, 0.0)

    def memory_gb(self, function: str) -> float:
        """Device memory of a model."""
        return self._memory_gb[function]

    def welcome(self, worker: Worker) -> None:
        """Let a worker that is back, with nothing loaded, consider what needs no load of its own."""
        for function in worker.resident:
            if self.queues[function]:
                self.offer(worker, function)

    def abandon(self, worker: Worker, now: float) -> None:
        """Forget all about a worker that is gone, and plan elsewhere what was planned there."""
        actions = list(worker.plan)
        while worker.plan:
            worker.pop()
        worker.running = worker.loading = None
        held = [function for function in worker.resident if function not in self.cold]
        for function in held:
            self.fleet.drop(worker, function)
        for action in actions:
            if isinstance(action, Infer):
                self.put_back(action.entries, action.function, now)
        for function in {*held, *(action.function for action in actions)}:
            self.changed(function, now)

    # --- what should be loaded -------------------------------------------------------------------------------------

    def unserved(self, function: str, now: float) -> float:
        """Demand for a model that those who hold it cannot serve; all of it, if its most urgent would be late."""
        queue = self.queues[function]
        if function in self.cold:
            return 0.0
        missed = queue.missed(now)
        if not queue:
            return missed
        if queue.head.target < self.soonest(function, now)[0]:
            return missed + queue.demand
        return missed + self.fleet.unserved(function, queue.demand)

    def want(self, function: str, now: float) -> None:
        """Consider loading a model, the sooner the more of its demand is unserved."""
        if len(self.fleet.holders[function]) == len(self.fleet.able[function]):
            return
        unserved = self.unserved(function, now)
        if unserved > self._wishes.get(function, 0.0):
            self._wishes[function] = unserved
            heappush(self._wanted, (-unserved, function))

    def next_wish(self) -> tuple[float, str] | None:
        """Take out the model that was wanted most when it was last considered."""
        while self._wanted:
            unserved, function = heappop(self._wanted)
            if self._wishes.get(function) == -unserved:
                del self._wishes[function]
                return -unserved, function
        return None

    def is_wanted_most(self, unserved: float) -> bool:
        """Whether no other model is wanted more than this."""
        while self._wanted and self._wishes.get(self._wanted[0][1]) != -self._wanted[0][0]:
            heappop(self._wanted)
        return not self._wanted or unserved >= -self._wanted[0][0]
