"""LOAD and UNLOAD: which model is loaded where, and what makes way for it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from fairlead.policy.base import Action, Changes, Retire, View, Wake, Warm
from fairlead.policy.clockwork.board import Board
from fairlead.policy.clockwork.runs import Runs
from fairlead.policy.clockwork.worker import Load, Worker

NO_CHANGES = Changes()


@dataclass
class Loads:
    """Loads the model with the most unserved demand onto the least loaded worker that has room."""

    board: Board
    runs: Runs
    max_wait_s: float
    is_blocked: bool = False  # at this instant, there is no place for what is wanted most
    _loaders: list[Worker] = field(default_factory=list)  # those that load something, or will
    _loaded: dict[tuple[str, str], float] = field(default_factory=dict)  # when a function was last loaded on a node
    _looked: float = -1.0  # when it last looked for places
    _wake: float = 0.0  # when it asked to be called; 0 if not
    was_asked: bool = False  # whether something waited when the last decision was made

    @property
    def is_busy(self) -> bool:
        """Whether anything is being loaded, or will be."""
        return bool(self._loaders)

    def learn(self, view: View) -> None:
        """Note which loads are done.

        The time of a load is known only if a decision was made at the instant at which it was done, which is so if
        something waited all the time since the last one.
        """
        if view.now > self._looked or view.changes != NO_CHANGES:
            self._looked, self.is_blocked = view.now, False
        ready = {instance.id for instance in view.changes.started}
        gone = {stopped.instance.id for stopped in view.changes.stopped}
        for worker in list(self._loaders):
            load = worker.loading
            if load is None:
                self._loaders.remove(worker)  # its node was lost
                continue
            if load.instance in gone or load.instance in ready:
                self.board.dirty.add(worker)
            if load.instance in gone:
                self._forget(worker, load)
                self.board.fleet.make_cold(load.function)  # it was loaded and did not stay
                self.board.changed(load.function, view.now)
            elif load.instance in ready:
                if self.was_asked:
                    worker.ladders[load.function].load.learn(view.now - load.start, view.now)
                self._forget(worker, load)
                self._loaded[worker.node, load.function] = view.now
                self.board.hold(worker, load.function, view.now)

    def choose(self, view: View) -> Iterator[Action]:
        """Load what is wanted most, as long as there is a place for it.

        A scaled function that waits for a replica takes no place, so it keeps none of the others from being loaded.
        """
        board, now = self.board, view.now
        scaled: list[str] = []  # those without a free replica
        while not self.is_blocked and (function := board.wishes.take()) is not None:
            queue = board.queues[function]
            yield from self.runs.give_up(view, function, now + board.fleet.quickest_s(function))
            unserved = board.unserved(function, now)
            if unserved <= sum(
                worker.loading is not None and worker.loading.function == function for worker in self._loaders
            ):
                continue  # each of those that load it, or will, can serve a demand of 1
            if not board.wishes.is_first(-unserved):
                board.want(function, now)
                continue
            worker = self._place(view, function)
            if worker is not None:
                yield from self._load(view, worker, function)
                board.want(function, now)  # one worker may not be enough
                continue
            if queue and not board.fleet.holders[function] and not now < self._wake <= queue.head.target:
                self._wake = queue.head.target  # when it can be dropped at the latest
                yield Wake(self._wake)
            if view.scaled(function) is None:
                board.want(function, now)
                self.is_blocked = True
            else:
                scaled.append(function)
        for function in scaled:
            board.want(function, now)

    def start(self, view: View, worker: Worker, load: Load) -> Iterator[Action]:
        """Start a planned load whose turn has come; one that waited too long, or is up to a scaler now, is given up."""
        makes_way = self._makes_way(view, worker, load.function)
        is_void = view.now > load.start + self.max_wait_s or view.scaled(load.function) is not None
        if is_void or makes_way is None:
            worker.plan.popleft()
            self._forget(worker, load)
            self.board.want(load.function, view.now)
        elif self._fits(view, worker, load.function):
            yield from self._warm(view, worker, load, makes_way)
            worker.plan.popleft()
            worker.running = load

    def _place(self, view: View, function: str) -> Worker | None:
        """The least loaded worker that could load a model soon; one that relieves those that hold it already.

        A scaled function is loaded by its scaler alone, so its place is a worker with a free replica. What has no
        deadline is never dropped, so it must not wait for ever for a worker that has nothing to do and yet no room,
        since something else on its node holds it: such a worker is its last choice.
        """
        fleet, now = self.board.fleet, view.now
        limit = min((worker.load for worker in fleet.holders[function]), default=None)
        queue = self.board.queues[function]
        if queue.missed(now) or (queue and queue.head.target < fleet.soonest(function, now)[0]):
            limit = None  # those that hold it would be late, whatever their load
        free = [
            worker
            for worker in fleet.able[function]
            if worker.is_up
            and worker.loading is None
            and function not in worker.resident
            and (limit is None or worker.load < limit)
        ]
        demand = self.board.unserved(function, now)

        def merit(worker: Worker) -> tuple[float, int, int]:
            return worker.load + demand * fleet.slowness(worker, function), len(worker.resident), worker.index

        last: Worker | None = None
        is_scaled = view.scaled(function) is not None
        is_endless = bool(queue) and queue.head.invocation.deadline == inf
        for worker in sorted(free, key=merit):
            if is_scaled:
                if self._is_warm(view, worker, function):
                    return worker
                continue
            if self._makes_way(view, worker, function) is None:
                continue
            if worker.loads_beside(function):
                if self._fits(view, worker, function):
                    return worker
            elif (free_at := worker.available(now)) <= now + self.max_wait_s:
                if not is_endless or free_at > now or self._fits(view, worker, function):
                    return worker
                last = last or worker
        return last

    def _load(self, view: View, worker: Worker, function: str) -> Iterator[Action]:
        """Load a model beside what runs, or plan the load behind it."""
        board, now = self.board, view.now
        ladder = worker.ladders[function]
        if self._is_warm(view, worker, function):
            board.hold(worker, function, now)  # there is an instance that will do
            return
        beside = worker.loads_beside(function)
        start = now if beside else worker.available(now)
        load = Load(function, start, start + ladder.load.seconds)
        if beside:
            yield from self._warm(view, worker, load, self._makes_way(view, worker, function) or [])
        else:
            worker.plan.append(load)
            board.dirty.add(worker)
        worker.loading = load
        self._loaders.append(worker)

    def _warm(self, view: View, worker: Worker, load: Load, makes_way: list[str]) -> Iterator[Action]:
        for function in makes_way:
            for instance in view.instances(function):
                if instance.node == worker.node and instance.device == worker.device and instance.is_idle:
                    yield Retire(instance.id)
            self.board.lose(worker, function, view.now)
        ladder = worker.ladders[load.function]
        yield Warm(load.function, ladder.least.configuration, worker.node, worker.device)
        load.instance = view.instances(load.function)[-1].id
        load.start, load.finish = view.now, view.now + ladder.load.seconds

    def _makes_way(self, view: View, worker: Worker, function: str) -> list[str] | None:
        """What must be unloaded to load a model; None if it cannot be loaded now.

        A model that was used within the time of loading it again makes way only for requests that can still be served
        in time. Otherwise models that take longer to load than requests may wait would displace each other for ever.
        """
        queue, ladder = self.board.queues[function], worker.ladders[function]
        kept = worker.in_use()
        if not queue or view.now + ladder.load.seconds + ladder.least.run.seconds > queue.head.target:
            kept |= worker.recent(view.now)
        return worker.in_the_way(self.board.fleet.size(worker, function, is_idle=False), kept)

    def _is_warm(self, view: View, worker: Worker, function: str) -> bool:
        return view.is_warm(function, worker.ladders[function].least.configuration, worker.node, worker.device)

    def _fits(self, view: View, worker: Worker, function: str) -> bool:
        """Whether a load can start now; a view also says yes to a run that would wait for an instance to start.

        Where loads take no time, one on a vCPU slot must not displace what was loaded at this very instant: functions
        would displace each other without end.
        """
        configuration = worker.ladders[function].least.configuration
        if not view.fits(function, configuration, worker.node, worker.device) or any(
            not instance.is_ready and instance.node == worker.node for instance in view.instances(function)
        ):
            return False
        takes_time = worker.device is not None or worker.ladders[function].load.seconds > 0
        if takes_time or view.fits(function, configuration, worker.node, evicts=False):
            return True
        first = next(iter(view.idle(worker.node)), None)  # it would be evicted
        return first is None or self._loaded.get((worker.node, first.function)) != view.now

    def _forget(self, worker: Worker, load: Load) -> None:
        self._loaders.remove(worker)
        worker.loading = None
        if worker.running is load:
            worker.running = None
