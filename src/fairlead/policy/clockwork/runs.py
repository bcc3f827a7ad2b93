"""INFER: which batch a worker runs next, planned ahead, and begun when its turn comes."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from fairlead.policy.base import Action, Plan, Start, View
from fairlead.policy.clockwork.board import Board
from fairlead.policy.clockwork.queue import Entry, ModelQueue
from fairlead.policy.clockwork.worker import Infer, Worker


@dataclass
class Runs:
    """Fills the plans of workers with batches, and starts them."""

    board: Board
    horizon_s: float
    latest_start_s: float
    _running: dict[int, tuple[Worker, Infer]] = field(default_factory=dict)  # by invocation

    @property
    def is_busy(self) -> bool:
        """Whether any batch runs."""
        return bool(self._running)

    def learn(self, view: View) -> None:
        """Take in what ended: measured times, and the workers that are free for it."""
        for record in view.changes.ended:
            worker, action = self._running.pop(record.invocation, (None, None))
            if worker is None or action is None:
                continue
            self.board.reserves[record.workflow].waited(record.stage, record.start - record.ready, record.end)
            if record.outcome == "done" and not action.is_measured:
                action.is_measured = True
                ladder = worker.ladders[record.function]
                run_s = record.end - record.start - record.cold_s - record.transfer_s
                ladder.holding(record.batch_size).run.learn(run_s, record.end)
                if record.cold_s > 0:
                    ladder.load.learn(record.cold_s, record.end)
            action.left -= 1
            if not action.left:
                self.board.dirty.add(worker)
                if worker.running is action:
                    worker.running = None

    def fill(self, view: View, worker: Worker) -> Iterator[Action]:
        """Plan batches until the worker has enough to do up to the horizon."""
        board, now = self.board, view.now
        late: list[str] = []  # what this worker cannot do in time, but another may
        while worker.is_up and (start := worker.available(now)) <= now + self.horizon_s:
            function = worker.agenda.take()
            if function is None:
                break
            if function in board.fleet.cold and view.scaled(function) is not None:
                board.fleet.make_warm(function)
                board.changed(function, now)
            if function not in worker.resident:
                continue
            queue, ladder = board.queues[function], worker.ladders[function]
            if queue and not board.is_there(view, worker, function):
                board.lose(worker, function, now)
                continue
            extra_s = ladder.load.seconds if function in board.fleet.cold else 0.0
            yield from self.give_up(view, function, start + extra_s + ladder.least.run.seconds)
            if not queue:
                continue
            extra_s += board.transfer_s(view, worker, [queue.head])
            strategy = queue.best(ladder.allowed(board.max_run_s), start, extra_s)
            if strategy is None:
                late.append(function)
            elif not worker.agenda.is_first(strategy.priority):
                worker.agenda.offer(function, strategy.priority)
            else:
                yield from self._plan(view, worker, queue, queue.take(strategy), start)
        for function in late:
            if board.queues[function]:
                worker.agenda.offer(function, board.queues[function].head.target)
                board.want(function, now)

    def give_up(self, view: View, function: str, possible: float) -> Iterator[Action]:
        """Drop the requests that no worker can do in time any more; none, if the first can be done by `possible`."""
        queue = self.board.queues[function]
        if not queue or queue.head.target >= possible:
            return
        soonest = min(self.board.fleet.soonest(function, view.now))
        while queue and queue.head.target < soonest:
            action = self.board.refuse(view, queue.head)
            if action is not None:
                yield action
        self.board.fleet.spread(function, queue.demand)

    def _plan(
        self, view: View, worker: Worker, queue: ModelQueue, entries: list[Entry], start: float
    ) -> Iterator[Action]:
        """Give a batch to a worker, those of these that still wait, and promise when they will be done."""
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
            if function in board.fleet.cold:
                extra_s += ladder.load.seconds
            rung = ladder.holding(len(entries))
            action = Infer(function, rung, entries, start, start + extra_s + rung.run.seconds)
            worker.plan.append(action)
            worker.used(function, view.now)
        board.fleet.spread(function, queue.demand)
        if queue:
            board.offer(worker, function)
        for entry in entries:
            invocation = entry.invocation
            steps = (invocation.stage, f"x{len(entries)} on {worker}")
            yield Plan(invocation.request, steps, action.finish + board.rest_s(invocation))

    def start(self, view: View, worker: Worker, action: Infer) -> Iterator[Action]:
        """Start the first action of a worker's plan; what cannot start as planned leaves the plan instead.

        A plan that starts too late is void: its invocations wait again, and those that are too late now are dropped.
        """
        board, now, function = self.board, view.now, action.function
        action.entries = [entry for entry in action.entries if view.is_waiting(entry.invocation)]
        is_there = board.is_there(view, worker, function)
        if now > action.start + self.latest_start_s or not is_there:
            worker.plan.popleft()
            if not is_there:
                board.fleet.drop(worker, function)
            board.put(action.entries, function, now)
            return
        run_s = action.finish - action.start
        for entry in action.entries:
            if now + run_s > entry.invocation.deadline - board.rest_s(entry.invocation):  # without the margin
                refusal = board.refuse(view, entry)
                if refusal is not None:
                    yield refusal
        batch = tuple([entry.invocation for entry in action.entries if view.is_waiting(entry.invocation)])
        if not batch:
            worker.plan.popleft()
        elif view.fits(function, action.rung.configuration, worker.node, worker.device):
            yield Start(batch, action.rung.configuration, worker.node, worker.device)
            worker.plan.popleft()
            worker.running = action
            action.start, action.finish = now, now + run_s
            action.left = len(batch)
            self._running.update((invocation.id, (worker, action)) for invocation in batch)
