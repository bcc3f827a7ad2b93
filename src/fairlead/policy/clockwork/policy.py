"""Predict every action, and run nothing that would be late.

A. Gujarati et al., "Serving DNNs like Clockwork: Performance Predictability from the Bottom Up" (OSDI 2020), the
controller of sections 5 and 6. What runs on a device is left no choice: one batch at a time, in the order and at the
instant that a central controller planned. So the start and the finish of every action can be predicted, and
what would be late is dropped before it costs anything.

**Differs from the paper:**

* Put together from a description of the controller and its defaults. A public copy of its scheduler was read to find
  out when it drops a request; no code was taken.
* There is no network between controller and workers, so an action may start at once (there: 1 ms later), and nothing
  has to be sent ahead. The plan up to the horizon is the controller's own; it is filled whenever it is asked.
* In a single order by target, the queue of a (model, batch size) is what follows one binary search.
* If the most urgent strategy of a model would make a larger batch of the same model too late, the larger batch goes
  first. Otherwise, under overload, every head is nearly late, only batches of one fit, and throughput collapses.
* A model whose smallest batch takes longer than `max_exec_s` runs in that one; in the paper all models are quicker.
* A device that cannot hold a load beside a run (an instance that starts holds its slice) takes turns: the load is an
  action in the same plan. The paper has a separate executor for loads.
* A model that is held somewhere is loaded elsewhere only onto a worker with less load than all that hold it; where
  every worker has too much to do, copies would only evict each other. No more workers load a model at once than its
  unserved demand needs. The paper's GPUs are alike; here a slower worker takes less of a model's demand and is loaded
  last.
* A model that was used within the time that its load takes is unloaded only for requests that can still be served in
  time. The paper's loads take milliseconds; models that take seconds would displace each other and never run. An idle
  instance that holds its slice takes up vGPUs as well as memory.
* A request that only the greatest of the last measurements makes late is admitted where a worker idles and nothing of
  its function runs, if the least of them is in time. The paper relies on times that do not vary; where they do and the
  objective is tight, one slow run would refuse all requests until it is forgotten, on idle workers.
* Measurements of a batch size or a load that are older than `memory_s` are forgotten except for the least. The paper
  relies on times that do not vary: there, too, a function that was once slower than its objective would be
  dropped for ever, since only runs are measured.
* A request that is refused at its arrival still counts as demand for as long as it would have waited. Otherwise a
  model that takes longer to load than its requests may wait would never be loaded.
* If those that hold a model would be late for its most urgent request, all its demand counts as unserved.
* A request's demand is fixed when it begins to wait. Its size is that of a batch of one; a worker's capacity is 1.
* Workflows: each stage is scheduled like a request of its own, whose deadline is the request's minus the least time
  of what must follow, and minus the time for which later stages are expected to wait: as long as the longest of the
  last `measurements` waits of later stages, at most `horizon_s` + `max_exec_s` each, and at most an even share of the
  time to spare. Clockwork knows only single models.
* The margin before the deadline is at most an even share of the time that the objective spares. The paper's objectives
  are many times a run; within 1.2 times, its margin would refuse every request on idle workers.
* Each vCPU slot of a node is a worker too. There functions run in their cheapest configuration, on a device in their
  fastest; every batch size in the same share.
* A function that does not stay loaded (no keep-alive) is loaded by every run of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import ClassVar

import numpy as np

from fairlead.model import Invocation
from fairlead.policy.base import Action, Policy, Reject, Site, View
from fairlead.policy.clockwork.board import TOO_LATE, Board
from fairlead.policy.clockwork.fleet import Fleet
from fairlead.policy.clockwork.loads import Loads
from fairlead.policy.clockwork.reserve import Reserve
from fairlead.policy.clockwork.runs import Runs
from fairlead.policy.clockwork.worker import Infer, Worker


@dataclass
class Clockwork(Policy):
    """Plan every run and every load ahead, by predicted times, and drop what would be late.

    Args:
        deadline_margin_s: Plans aim to be done this long before the deadline; not negative.
        horizon_s: How far ahead a worker's plan is filled; not negative.
        latest_start_s: A planned batch that could only start later than this after its time is void; not negative.
        max_exec_s: Batches that are expected to take longer are not formed, except the smallest; positive.
        max_batch: The largest batch, at least 1.
        max_load_wait_s: A load that cannot begin within this time is not planned, or given up; not negative.
        measurements: An estimate is the greatest of this number of last measurements, at least 1.
        memory_s: Times of a batch size that were not measured for this long are forgotten; positive.
    """

    paper: ClassVar[str] = "Clockwork (OSDI 2020)"

    deadline_margin_s: float = 0.005
    horizon_s: float = 0.010
    latest_start_s: float = 0.010
    max_exec_s: float = 0.025
    max_batch: int = 16
    max_load_wait_s: float = 0.025
    measurements: int = 10
    memory_s: float = 1.0

    def __post_init__(self) -> None:
        for name in ("deadline_margin_s", "horizon_s", "latest_start_s", "max_load_wait_s"):
            value = getattr(self, name)
            if not 0 <= value < inf:
                raise ValueError(f"{name} must be finite and not negative; got {value}.")
        for name in ("max_exec_s", "memory_s"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name} must be positive and finite; got {getattr(self, name)}.")
        for name in ("max_batch", "measurements"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        fleet = Fleet(site, self.max_batch, self.measurements, self.memory_s)
        most_s = self.horizon_s + self.max_exec_s  # the longest wait behind what a worker has planned
        reserve = partial(Reserve, margin_s=self.deadline_margin_s, most_s=most_s, remember=self.measurements)
        self._board = Board(site, fleet, self.max_exec_s, reserve)
        self._runs = Runs(self._board, self.horizon_s, self.latest_start_s)
        self._loads = Loads(self._board, self._runs, self.max_load_wait_s)
        self._blocked: list[Worker] = []  # those whose next action does not fit yet
        self._roused = False  # whether all holders were looked at in this decision

    def decide(self, view: View) -> Iterator[Action]:
        board = self._board
        board.dirty.update(self._blocked)
        self._blocked.clear()
        self._learn(view)
        self._roused = False
        fresh = {request.id for request in view.fresh}
        for invocation in sorted(view.changes.ready, key=lambda i: i.request not in fresh):
            if view.is_waiting(invocation):
                yield from self._admit(view, invocation)
        while True:
            while board.dirty:
                yield from self._work(view)
            yield from self._loads.choose(view)
            if not board.dirty and not self._rouse(view):
                break
        self._loads.was_asked = view.waiting() > 0

    def _rouse(self, view: View) -> bool:
        """Look at all that hold what waits, once per decision, if no worker does anything; whether there are any.

        A worker is looked at when something changes for it. One whose load reaches beyond the horizon plans no run
        behind it, and if that load is given up, nothing more changes: what waits would wait for ever.
        """
        if self._roused or not view.waiting() or self._blocked or self._runs.is_busy or self._loads.is_busy:
            return False
        self._roused = True
        board = self._board
        for function, queue in board.queues.items():
            if queue:
                for worker in board.fleet.holders[function]:
                    board.offer(worker, function)
        return bool(board.dirty)

    def _learn(self, view: View) -> None:
        """Take in what has changed: what ended, which nodes are up, and what was loaded."""
        board, changes = self._board, view.changes
        self._runs.learn(view)
        for change in changes.nodes:
            if change.what != "changed":
                for worker in board.fleet.workers_on(change.node):
                    board.leave(worker, view.now)
                    if change.what == "joined":
                        board.join(worker)
        self._loads.learn(view)

    def _work(self, view: View) -> Iterator[Action]:
        """Plan for the workers that may have something to do, the first to be free first, and let them begin."""
        board, now = self._board, view.now
        workers = sorted(board.dirty, key=lambda worker: (worker.available(now), worker.index))
        board.dirty.clear()
        for worker in workers:
            yield from self._runs.fill(view, worker)
            while worker.running is None and worker.plan:
                action = worker.plan[0]
                if isinstance(action, Infer):
                    yield from self._runs.start(view, worker, action)
                else:
                    yield from self._loads.start(view, worker, action)
                if worker.running is None and worker.plan and worker.plan[0] is action:
                    self._blocked.append(worker)
                    break

    def _admit(self, view: View, invocation: Invocation) -> Iterator[Action]:
        """Let an invocation wait, or refuse its request if it would be late even if it were next."""
        board, now, function = self._board, view.now, invocation.function
        if not board.fleet.able[function]:
            yield Reject(invocation.request, f"no worker can run {function}")
            return
        entry = board.entry(invocation, now)
        board.fleet.forget(function, now)
        reserve = board.reserves[invocation.workflow]
        reserve.wait.forget(now - self.memory_s)
        finish = min(board.fleet.soonest(function, now))
        if finish <= entry.target or board.fleet.retry(function, now, entry.target):
            board.put([entry], function, now)
            return
        # Sent again when the workers have that much less to do, it could be done; not, if it is too long by itself.
        later_s = finish - entry.target if now + board.fleet.quickest_s(function) <= entry.target else None
        reserve.dropped(invocation, now)
        board.queues[function].miss(entry)  # its model is loaded for those to come
        board.want(function, now)
        arrival = view.request(invocation.request).arrival
        offer_s = finish + (invocation.deadline - entry.target) - arrival  # with all that has to come after
        yield Reject(invocation.request, TOO_LATE, later_s, offer_latency_s=offer_s)
