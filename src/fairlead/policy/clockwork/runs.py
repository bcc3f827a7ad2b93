"""INFER: which batch a worker runs next, planned ahead, and begun when its turn comes."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from fairlead.model import Record
from fairlead.policy.base import Action, Plan, Start, View
from fairlead.policy.clockwork.board import Board
from fairlead.policy.clockwork.queue import Entry, ModelQueue
from fairlead.policy.clockwork.worker import Infer, Worker

TOO_LATE = "it can no longer be answered in time"


@dataclass
class Runs:
    """Fills the plans of workers with batches, and starts them."""

    board: Board
    horizon_s: float
    latest_start_s: float
    _running: dict[tuple[str, int, int, str], list[tuple[Worker, Infer]]] = field(default_factory=dict)

    def fill(self, view: View, worker: Worker) -> Iterator[Action]:
        """Plan batches until the worker has enough to do up to the horizon."""
        board, now = self.board, view.now
        late: list[str] = []  # what this worker cannot do in time, but another may
        while worker.is_up and (start := worker.available(now)) <= now + self.horizon_s:
            offer = worker.next_offer()
            if offer is None:
                break
            function = offer[1]
            queue, ladder = board.queues[function], worker.ladders[function]
            if queue and not board.is_there(view, worker, function):
                board.lose(worker, function, now)
                continue
            extra_s = ladder.load.seconds if function in board.cold else 0.0
            yield from self.give_up(view, function, start + extra_s + ladder.least.run.seconds)
            if not queue:
                continue
            extra_s += board.transfer_s(view, worker, [queue.head])
            strategy = queue.best(ladder.allowed(board.max_run_s), start, extra_s)
            if strategy is None:
                late.append(function)
            elif not worker.is_urgent(strategy.priority):
                worker.offer(function, strategy.priority)
            else:
                yield from self._plan(view, worker, queue, queue.take(strategy), start)
        for function in late:
            if board.queues[function]:
                worker.offer(function, board.queues[function].head.target)
                board.want(function, now)

    def give_up(self, view: View, function: str, possible: float) -> Iterator[Action]:
        """Drop the requests that no worker can do in time any more; none, if the first can be done by `possible`."""
        queue = self.board.queues[function]
        if not queue or queue.head.target >= possible:
            return
        soonest = min(self.board.soonest(function, view.now))
        while queue and queue.head.target < soonest:
            action = self.board.refuse(view, queue.head, TOO_LATE)
            if action is not None:
                yield action
        self.board.fleet.spread(function, queue.demand)

    def _plan(
        self, view: View, worker: Worker, queue: ModelQueue, entries: list[Entry], start: float
    ) -> Iterator[Action]:
        """Give a batch to a worker, as many of these as still wait, and promise when they will be done."""
        board, function = self.board, queue.function
        ladder = worker.ladders[function]
        entries = [entry for entry in entries if view.is_waiting(entry.invocation)]
        if entries:
            extra_s = board.transfer_s(view, worker, entries)
            if len(entries) > 1 and start + ladder.holding(len(entries)).run.seconds + extra_s > entries[0].target:
                for entry in entries[1:]:  # their input takes too long together
                    queue.put(entry)
                entries = entries[:1]
                extra_s = board.transfer_s(view, worker, entries)
            if function in board.cold:
                extra_s += ladder.load.seconds
            rung = ladder.holding(len(entries))
            action = Infer(function, rung, entries, start, start + extra_s + rung.run.seconds)
            worker.append(action)
            worker.used(function)
        board.fleet.spread(function, queue.demand)
        if queue:
            board.offer(worker, function)
        if entries:
            where = f"x{len(entries)} on {worker}"
            for entry in entries:
                rest_s = board.rest_s[entry.invocation.workflow, entry.invocation.stage]
                yield Plan(entry.invocation.request, (entry.invocation.stage, where), action.finish + rest_s)

    def start(self, view: View, worker: Worker, action: Infer) -> Iterator[Action]:
        """Start the first action of a worker's plan; what cannot start as planned leaves the plan instead.

        A plan that starts too late is void: its invocations wait again, and those that are too late now are dropped.
        """
        board, now = self.board, view.now
        if now > action.start + self.latest_start_s or not board.is_there(view, worker, action.function):
            worker.pop()
            if not board.is_there(view, worker, action.function):
                board.fleet.drop(worker, action.function)
            board.put_back([e for e in action.entries if view.is_waiting(e.invocation)], action.function, now)
            return
        run_s = action.finish - action.start
        action.entries = [entry for entry in action.entries if view.is_waiting(entry.invocation)]
        for entry in action.entries:
            if now + run_s > self._last(entry):
                refusal = board.refuse(view, entry, TOO_LATE)
                if refusal is not None:
                    yield refusal
        batch = tuple([entry.invocation for entry in action.entries if view.is_waiting(entry.invocation)])
        if not batch:
            worker.pop()
            return
        configuration = action.rung.configuration
        if not view.fits(action.function, configuration, worker.node, worker.device):
            board.is_suspect = True
            return
        yield Start(batch, configuration, worker.node, worker.device)
        worker.pop()
        worker.running = action
        action.start, action.finish = now, now + run_s
        action.left = len(batch)
        for invocation in batch:
            key = (worker.node, -1 if worker.device is None else worker.device, invocation.request, invocation.stage)
            self._running.setdefault(key, []).append((worker, action))

    def _last(self, entry: Entry) -> float:
        """The deadline itself, without the margin that plans keep."""
        invocation = entry.invocation
        return invocation.deadline - self.board.rest_s[invocation.workflow, invocation.stage]

    def ended(self, record: Record) -> Worker | None:
        """Learn from an invocation that ended, and give the worker that is free for it."""
        key = (record.node, record.device, record.request, record.stage)
        found = self._running.get(key)
        if not found:
            return None
        worker, action = found.pop(0)
        if not found:
            del self._running[key]
        if record.outcome == "done":
            ladder = worker.ladders[record.function]
            batch = (record.node, record.device, record.start, record.end)
            ladder.holding(record.batch_size).learn(
                batch, record.end - record.start - record.cold_s - record.transfer_s
            )
            if record.cold_s > 0:
                ladder.load.learn(record.cold_s)
        action.left -= 1
        if action.left > 0:
            return None
        if worker.running is action:
            worker.running = None
        return worker
