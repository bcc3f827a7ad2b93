"""Asynchronous requests: from the journal into the runtime, and their ends back into the journal.

A request is in the journal before it is known here, and stays there until its end is written; so whatever happens to
this process, the next one finds it and runs it again. A request whose workflow is not served waits until it is, or
until its app is removed.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from math import inf

import msgspec

from fairlead.engine.live.clock import REAL, Clock
from fairlead.engine.live.gateway.bodies import off_loop, reading_bytes
from fairlead.engine.live.gateway.intake import Intake
from fairlead.engine.live.gateway.served import Accepted
from fairlead.engine.live.journal import Final, Journal, JournalFullError, Pending
from fairlead.engine.live.transit import Origin
from fairlead.engine.live.values import Ending, LostValueError
from fairlead.errors import FairleadError, UnknownNameError

_LONGEST_PAUSE_S = 30.0
_MOST_LOSSES = 3  # runs of a request anew because a value was lost with its node
_LOSS_PAUSE_S = 0.1
_FIRST_WINDOW = 32  # requests that run at once before any has come back
_MOST_HELD_BYTES = 256 << 20  # inputs of what runs; the others stay on disk
_READS_AT_ONCE = 4
_log = logging.getLogger("fairlead.gateway")


_BY_CLIENT = Final(state="cancelled", reason="cancelled by the client")


class Job(msgspec.Struct, frozen=True):
    """An accepted request. Its input is in the journal.

    `deadline` is an instant of the monotonic clock, so that a jump of the wall clock drops nothing. None is the
    workflow's own, from its hand-over; infinity is none.
    """

    id: str
    workflow: str
    deadline: float | None
    budget_usd: float | None
    trace: str | None = None  # W3C `traceparent` of whoever asked

    @property
    def app(self) -> str:
        """The app that its workflow belongs to."""
        return self.workflow.partition(".")[0]


def job_of(entry: Pending, clock: Clock = REAL) -> Job:
    """A request of an earlier process. Both know the wall clock only; it never gives more time than was asked for."""
    deadline = entry.deadline
    if deadline is not None and deadline < inf:
        deadline = clock.now() + min(deadline - clock.wall(), deadline - entry.accepted_at)
    return Job(entry.id, entry.workflow, deadline, entry.budget_usd, entry.traceparent)


class _Run:
    """A job that was taken up."""

    __slots__ = ("is_cancelled", "is_reading", "is_started", "ran_as", "resume_now", "state", "task", "ticket")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.ticket: Accepted | None = None
        self.ran_as: str | None = None  # its name in the records of the run
        self.is_started = False
        self.is_cancelled = False
        self.is_reading = False
        self.state: str | None = None  # how it ended
        self.resume_now = asyncio.Event()  # ends a pause


class Runner:
    """Runs accepted requests, a bounded number at once, oldest first.

    It begins with a few, and takes one more for each that comes back. A request that is in work when its gateway dies
    is suspected of having killed it, and is not tried for ever: so those that would only stand in line are not begun.
    """

    def __init__(self, journal: Journal, intake: Intake, max_running: int) -> None:
        self.journal = journal
        self.intake = intake
        self._max_running = max_running
        self._window = min(max_running, _FIRST_WINDOW)
        self._waiting: OrderedDict[str, Job] = OrderedDict()
        self._unserved: dict[str, Job] = {}  # their workflows are not served now
        self._removed: set[str] = set()  # apps that were removed, and not deployed again
        self._running: dict[str, _Run] = {}
        self._is_stopping = False
        self._held_bytes = 0
        self._has_room = asyncio.Event()
        self._reads = asyncio.Semaphore(_READS_AT_ONCE)

    @property
    def waiting(self) -> int:
        """Jobs that wait for their turn, or for their workflow to be served."""
        return len(self._waiting) + len(self._unserved)

    @property
    def running(self) -> int:
        """Jobs that the runtime has, or that pause before they are handed over again."""
        return len(self._running)

    def resume(self, pending: Sequence[Pending]) -> None:
        """Take up what an earlier process left: first what was tried least, so that one that kills holds none up."""
        for entry in sorted(pending, key=lambda entry: entry.attempts):
            self._waiting[entry.id] = job_of(entry, self.intake.clock)
        self._pump()
        if self._unserved:
            workflows = sorted({job.workflow for job in self._unserved.values()})
            _log.warning("%d accepted requests wait for what is not served: %s", len(self._unserved), workflows)

    def add(self, job: Job, body: bytes) -> None:
        """Take up a request that has just come into the journal.

        Its input is dropped if it has to wait: there may be very many, and the journal has them.
        """
        is_full = len(self._running) >= self._window or self._held_bytes >= _MOST_HELD_BYTES
        if self._waiting or is_full or self._is_stopping:
            self._waiting[job.id] = job
            self._pump()
        else:
            self._start(job, body)

    async def cancel(self, id: str) -> str | None:
        """End a request; how it ended, which may be otherwise if it was about to. None if it is unknown.

        The end is on disk when this returns: a request that was cancelled never runs again. Raises JournalFullError
        where it cannot be written now.
        """
        run = self._running.get(id)
        if run is not None and run.task is not None:
            run.is_cancelled = True
            run.resume_now.set()
            if run.ticket is not None:
                self.intake.host.cancel(run.ticket)
            if run.is_reading:
                run.task.cancel()  # it has not begun, and may wait long for the disk or for room
            await asyncio.wait([run.task])
        self._waiting.pop(id, None)
        self._unserved.pop(id, None)
        if run is None or run.state is None:
            self.journal.finish(id, _BY_CLIENT)  # ignored if it has ended meanwhile
        entry = await self.journal.settled(id)
        return None if entry is None else entry.state

    def deployed(self, app: str) -> None:
        """An app is served: what waits for one of its workflows goes on."""
        self._removed.discard(app)
        for id in [id for id, job in self._unserved.items() if self._is_served(job)]:
            self._waiting[id] = self._unserved.pop(id)
        self._pump()

    def waits_for(self, app: str) -> bool:
        """Whether a request waits for this app."""
        return any(job.app == app for jobs in (self._waiting, self._unserved) for job in jobs.values())

    async def removed(self, app: str) -> None:
        """An operator removed an app: what waits for it ends, on disk. What the runtime has is finished there.

        Raises JournalFullError where the ends cannot be written now.
        """
        self._removed.add(app)
        ended = []
        for jobs in (self._waiting, self._unserved):
            for id in [id for id, job in jobs.items() if job.app == app]:
                self.journal.finish(id, _of_removed(jobs.pop(id)))
                ended.append(id)
        for id in ended:
            await self.journal.settled(id)

    def begin_stop(self) -> None:
        """Hand over nothing more. What the runtime has goes on."""
        self._is_stopping = True
        self._waiting.clear()
        for run in self._running.values():
            run.resume_now.set()

    async def stop(self) -> None:
        """Leave everything as it is: what has not ended stays in the journal, for the next process."""
        self.begin_stop()
        tasks = [run.task for run in self._running.values() if run.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _pump(self) -> None:
        while self._waiting and len(self._running) < self._window and not self._is_stopping:
            _, job = self._waiting.popitem(last=False)
            if self._is_served(job):
                self._start(job, None)
            else:
                self._set_aside(job)

    def _is_served(self, job: Job) -> bool:
        try:
            self.intake.host.workflow(job.workflow)
        except UnknownNameError:
            return False
        return True

    def _set_aside(self, job: Job) -> None:
        """Keep a job until its workflow is served again; end it where its app was removed."""
        if job.app in self._removed:
            self.journal.finish(job.id, _of_removed(job))
        else:
            self._unserved[job.id] = job

    def _start(self, job: Job, body: bytes | None) -> None:
        run = self._running[job.id] = _Run()
        run.task = asyncio.get_running_loop().create_task(self._guarded(job, run, body))

    async def _guarded(self, job: Job, run: _Run, body: bytes | None) -> None:
        held = 0
        try:
            if body is None:
                run.is_reading = True
                body = await self._read(job)
                run.is_reading = False
            if body is not None:
                held = len(body)
                self._held_bytes += held
                await self._work(job, run, body)
        except UnknownNameError:  # its workflow is gone
            self._set_aside(job)
        except FairleadError as error:
            self._end(job, run, Final(state="failed", reason=str(error)))
        except Exception:
            _log.exception("request %s", job.id)
            self._end(job, run, Final(state="failed", reason="the gateway failed on it; its log has the cause"))
        finally:
            self._held_bytes -= held
            self._has_room.set()
            del self._running[job.id]
            self._pump()

    async def _read(self, job: Job) -> bytes | None:
        async with self._reads:
            while self._held_bytes >= _MOST_HELD_BYTES:
                self._has_room.clear()
                await self._has_room.wait()
            while True:
                try:
                    return await self.journal.resume(job.id)
                except JournalFullError as error:  # the disk cannot be read just now: the request is still there
                    _log.warning("request %s: %s", job.id, error)
                    await asyncio.sleep(error.retry_after_s)

    async def _work(self, job: Job, run: _Run, body: bytes) -> None:
        losses = 0
        while not self._is_stopping:
            if run.is_cancelled:
                self._end(job, run, _BY_CLIENT)
                return
            left_s = None if job.deadline is None else job.deadline - self.intake.clock.now()
            if left_s is not None and left_s <= 0:
                self._end(job, run, Final(state="dropped", reason="its deadline passed before it could run"))
                return
            ending = await self._once(job, run, body, left_s)
            if self._window < self._max_running:
                self._window += 1
                self._pump()
            pause_s = _pause_s(ending, left_s)
            if ending.code == "value_lost" and losses < _MOST_LOSSES:
                losses, pause_s = losses + 1, _LOSS_PAUSE_S
            if pause_s is None or run.is_cancelled:
                try:
                    await self._finish(job, run, ending)
                    return
                except LostValueError:  # the answer was lost with its node before it was read
                    if losses >= _MOST_LOSSES:
                        raise
                    losses, pause_s = losses + 1, _LOSS_PAUSE_S
            run.resume_now.clear()
            timer = asyncio.get_running_loop().call_later(pause_s, run.resume_now.set)
            try:
                await run.resume_now.wait()
            finally:
                timer.cancel()

    async def _once(self, job: Job, run: _Run, body: bytes, left_s: float | None) -> Ending:
        ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()

        def done(ending: Ending) -> None:
            if not ended.done():
                ended.set_result(ending)
            elif ending.value is not None:
                self.intake.host.release(ending.value)

        if not run.is_started:
            self.intake.host.workflow(job.workflow)  # an attempt counts only where there is something to try
            self.journal.started(job.id)
            run.is_started = True
        ticket = self.intake.start(
            job.workflow,
            body,
            deadline_s=left_s,
            budget_usd=job.budget_usd,
            done=done,
            origin=Origin(job.id, job.trace),
        )
        run.ticket, run.ran_as = ticket, f"{ticket.app}-{ticket.generation}-{ticket.request}"
        try:
            return await ended
        finally:
            run.ticket = None

    async def _finish(self, job: Job, run: _Run, ending: Ending) -> None:
        host = self.intake.host
        if ending.outcome == "cancelled" and not run.is_cancelled and (self._is_stopping or host.is_draining):
            return  # the runtime ends, not the request
        result = None
        if ending.value is not None:
            try:
                result = await off_loop(reading_bytes(host, ending.value), host.encoded, ending.value)
            finally:
                host.release(ending.value)
        final = Final(
            state=ending.outcome, result=result, reason=ending.reason, cost_usd=ending.cost_usd, ran_as=run.ran_as
        )
        self._end(job, run, final)

    def _end(self, job: Job, run: _Run, final: Final) -> None:
        run.state = final.state
        self.journal.finish(job.id, final)


def _of_removed(job: Job) -> Final:
    return Final(state="failed", reason=f"the app {job.app!r} was removed before the request could run")


def _pause_s(ending: Ending, left_s: float | None) -> float | None:
    """How long to wait before a refused request is handed over again; None if it has ended for good.

    A client that does not wait for the answer would rather have it later than not at all.
    """
    if ending.outcome != "rejected" or left_s is None:
        return None
    pause_s = 1.0 if ending.retry_after_s is None else max(0.05, ending.retry_after_s)
    return min(pause_s, _LONGEST_PAUSE_S) if pause_s < left_s else None
