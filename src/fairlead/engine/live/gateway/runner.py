"""Asynchronous requests: from the journal into the runtime, and their ends back into the journal.

A request is in the journal before it is known here, and stays there until its end is written; so whatever happens to
this process, the next one finds it and runs it again.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from time import time

import msgspec

from fairlead.engine.live.gateway.bodies import off_loop
from fairlead.engine.live.gateway.intake import Intake
from fairlead.engine.live.gateway.served import Accepted
from fairlead.engine.live.journal import Final, Journal, JournalFullError, Pending
from fairlead.engine.live.values import Ending
from fairlead.errors import FairleadError

_LONGEST_PAUSE_S = 30.0
_FIRST_WINDOW = 32  # requests that run at once before any has come back
_MOST_HELD_BYTES = 256 << 20  # inputs of what runs; the others stay on disk
_READS_AT_ONCE = 4
_log = logging.getLogger("fairlead.gateway")


_BY_CLIENT = Final(state="cancelled", reason="cancelled by the client")


class Job(msgspec.Struct, frozen=True):
    """An accepted request. Its input is in the journal."""

    id: str
    workflow: str
    deadline: float | None
    budget_usd: float | None


class _Run:
    """A job that was taken up."""

    __slots__ = ("is_cancelled", "ran_as", "resume_now", "state", "task", "ticket")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.ticket: Accepted | None = None
        self.ran_as: str | None = None  # its name in the records of the run
        self.is_cancelled = False
        self.state: str | None = None  # how it ended
        self.resume_now = asyncio.Event()  # ends a pause


class Runner:
    """Runs accepted requests, so many at once, oldest first.

    It begins with a few, and takes one more for each that comes back. A request that is in work when its gateway dies
    is suspected of having killed it, and is not tried for ever: so those that would only stand in line are not begun.
    """

    def __init__(self, journal: Journal, intake: Intake, max_running: int) -> None:
        self.journal = journal
        self.intake = intake
        self._max_running = max_running
        self._window = min(max_running, _FIRST_WINDOW)
        self._waiting: OrderedDict[str, Job] = OrderedDict()
        self._running: dict[str, _Run] = {}
        self._is_stopping = False
        self._held_bytes = 0
        self._has_room = asyncio.Event()
        self._reads = asyncio.Semaphore(_READS_AT_ONCE)

    @property
    def waiting(self) -> int:
        """Jobs that wait for their turn."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Jobs that the runtime has, or that pause before they are handed over again."""
        return len(self._running)

    def resume(self, pending: Sequence[Pending]) -> None:
        """Take up what an earlier process left: first what was tried least, so that one that kills holds none up."""
        for entry in sorted(pending, key=lambda entry: entry.attempts):
            self._waiting[entry.id] = Job(entry.id, entry.workflow, entry.deadline, entry.budget_usd)
        self._pump()

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
        """End a request; how it ended, which may be otherwise if it was about to. None if it is not here."""
        if self._waiting.pop(id, None) is not None:
            self.journal.finish(id, _BY_CLIENT)
            return _BY_CLIENT.state
        run = self._running.get(id)
        if run is None or run.task is None:
            return None
        run.is_cancelled = True
        run.resume_now.set()
        if run.ticket is not None:
            self.intake.host.cancel(run.ticket)
        await asyncio.wait([run.task])
        return run.state

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
            self._start(job, None)

    def _start(self, job: Job, body: bytes | None) -> None:
        run = self._running[job.id] = _Run()
        run.task = asyncio.get_running_loop().create_task(self._guarded(job, run, body))

    async def _guarded(self, job: Job, run: _Run, body: bytes | None) -> None:
        held = 0
        try:
            if body is None:
                body = await self._read(job)
            if body is not None:
                held = len(body)
                self._held_bytes += held
                self.journal.started(job.id)
                await self._work(job, run, body)
        except FairleadError as error:  # its workflow is gone
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
        while not self._is_stopping:
            if run.is_cancelled:
                self._end(job, run, _BY_CLIENT)
                return
            left_s = None if job.deadline is None else job.deadline - time()
            if left_s is not None and left_s <= 0:
                self._end(job, run, Final(state="dropped", reason="its deadline passed before it could run"))
                return
            ending = await self._once(job, run, body, left_s)
            if self._window < self._max_running:
                self._window += 1
                self._pump()
            pause_s = _pause_s(ending, left_s)
            if pause_s is None or run.is_cancelled:
                await self._finish(job, run, ending)
                return
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

        ticket = self.intake.start(job.workflow, body, deadline_s=left_s, budget_usd=job.budget_usd, done=done)
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
                result = await off_loop(host.size_bytes(ending.value), host.encoded, ending.value)
            finally:
                host.release(ending.value)
        final = Final(
            state=ending.outcome, result=result, reason=ending.reason, cost_usd=ending.cost_usd, ran_as=run.ran_as
        )
        self._end(job, run, final)

    def _end(self, job: Job, run: _Run, final: Final) -> None:
        run.state = final.state
        self.journal.finish(job.id, final)


def _pause_s(ending: Ending, left_s: float | None) -> float | None:
    """How long to wait before a refused request is handed over again; None if it has ended for good.

    Somebody who does not wait for the answer would rather have it later than not at all.
    """
    if ending.outcome != "rejected" or left_s is None:
        return None
    pause_s = 1.0 if ending.retry_after_s is None else max(0.05, ending.retry_after_s)
    return min(pause_s, _LONGEST_PAUSE_S) if pause_s < left_s else None
