"""Worker processes that do runs, each run with a limit on its wall-clock time.

A worker that exceeds the limit is killed and replaced: no policy can be trusted to look at a clock. Workers ignore
interrupts, which are for the process that started them; they end when that does.
"""

import os
import signal
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from threading import Thread, current_thread, main_thread
from time import monotonic

from fairlead.errors import FairleadError
from fairlead.league.figures import Outcome, run
from fairlead.workload import Scenario

_READY = "ready"
_START_LIMIT_S = 120.0  # for a worker to load its code, on a busy machine


@dataclass(frozen=True, kw_only=True)
class Work:
    """One run to do: a scenario whose own policy decides, and a seed."""

    scenario: Scenario
    seed: int


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerError(FairleadError):
    """No worker process can be started."""


def run_in_workers(works: Sequence[Work], jobs: int, limit_s: float) -> Generator[tuple[int, Outcome], None, None]:
    """Do every run in the order given, `jobs` at a time; yields the position and outcome of each as it ends.

    When the iteration is left early, the workers are ended at once.
    """
    crew: list[_Worker] = []
    try:
        while len(crew) < min(jobs, len(works)):
            crew.append(_Worker())
        waiting = iter(enumerate(works))
        left = len(works)
        while left:
            for worker in crew:
                if worker.is_free and (nxt := next(waiting, None)) is not None:
                    worker.begin(*nxt, limit_s)
            due = min(worker.due for worker in crew)
            wait([worker.pipe for worker in crew], timeout=max(0.0, due - monotonic()))
            for place, worker in enumerate(crew):
                ended = worker.look(limit_s)
                if ended is not None:
                    left -= 1
                    yield ended
                if worker.is_gone:
                    worker.end()
                    crew[place] = _Worker() if left else worker
    finally:
        for worker in crew:
            worker.end()


class _Worker:
    """One process, and what it is doing."""

    def __init__(self) -> None:
        context = get_context("spawn")  # a fork would copy the locks of the table library's threads
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        with _deaf_to_interrupts():
            self._process.start()
        theirs.close()
        self._is_ready = False
        self._position: int | None = None
        self._began = monotonic()
        self.due = self._began + _START_LIMIT_S
        self.is_gone = False

    @property
    def is_free(self) -> bool:
        return self._is_ready and self._position is None and not self.is_gone

    def begin(self, position: int, work: Work, limit_s: float) -> None:
        self._position, self._began = position, monotonic()
        self.due = self._began + limit_s
        self.pipe.send((work.scenario, work.seed))

    def look(self, limit_s: float) -> tuple[int, Outcome] | None:
        """The run that has ended since the last look, if one has."""
        if self.is_gone:
            return None
        try:
            if self.pipe.poll():
                told = self.pipe.recv()
                self.due = float("inf")
                if not self._is_ready:
                    self._is_ready = True
                    return None
                return self._ended(told)
        except (EOFError, OSError):
            self.is_gone = True
            self._process.join(5)
            if self._position is None:
                raise WorkerError(
                    f"A worker process ended (exit code {self._process.exitcode}) before its first run."
                ) from None
            reason = f"its process ended with code {self._process.exitcode}, perhaps for want of memory"
            return self._ended(Outcome(status="error", reason=reason))
        if monotonic() >= self.due:
            self.is_gone = True
            if self._position is None:
                raise WorkerError(f"A worker process was not ready within {_START_LIMIT_S:g} s.")
            return self._ended(Outcome(status="too slow", limit_s=limit_s, wall_s=monotonic() - self._began))
        return None

    def _ended(self, outcome: Outcome) -> tuple[int, Outcome]:
        assert self._position is not None
        position, self._position = self._position, None
        return position, outcome

    def end(self) -> None:
        self.pipe.close()
        if self._process.is_alive():
            self._process.kill()
        self._process.join(5)


def _serve(pipe: Connection) -> None:
    """Do the runs that come through the pipe until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        pipe.send(_READY)
        while True:
            scenario, seed = pipe.recv()
            pipe.send(run(scenario, seed))


def _end_with_parent() -> None:
    """End this process as soon as the one that started it is gone, killed ones included."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """A process started in here does not hear interrupts from its first instruction on."""
    if sys.platform == "win32" or current_thread() is not main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
