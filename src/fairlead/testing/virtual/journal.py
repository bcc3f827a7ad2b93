"""The journal on virtual time: the same file, the same transactions, without the thread that writes."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from fairlead.engine.live.clock import Clock
from fairlead.engine.live.journal import Journal
from fairlead.engine.live.journal.entries import Op
from fairlead.engine.live.journal.store import Store, Written
from fairlead.engine.live.journal.writer import Writer
from fairlead.testing.virtual.loop import VirtualLoop

_TICK_S = 1.0  # as the thread does while nothing is queued


class InlineWriter(Writer):
    """Writes on the loop, a delay after something was queued: until then it is not on disk.

    Args:
        store: See `Writer`.
        told: See `Writer`.
        loop: Where commits run.
        commit_s: Gives the time from an operation to its commit.
    """

    def __init__(
        self, store: Store, told: Callable[[Written], None], *, loop: VirtualLoop, commit_s: Callable[[], float]
    ) -> None:
        super().__init__(store, told, loop.time)
        self._loop = loop
        self._commit_s = commit_s
        self._is_due = False
        self._is_closed = False

    def start(self) -> None:
        """Begin to write."""
        self._loop.call_later(_TICK_S, self._tick)

    def put(self, op: Op) -> None:
        """Queue an operation."""
        super().put(op)
        self._plan(self._commit_s())

    def close(self, timeout_s: float) -> int:
        """Write what is queued, at once; virtual time cannot wait here for a disk that refuses."""
        self._is_closed = True
        self._close_by = self._elapsed()
        self._queue.put(None)
        self._guard(self._run)
        return len(self._held)

    def _first(self, wait_s: float) -> Op | None:
        return self._queue.get_nowait()

    def _plan(self, delay_s: float) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_later(delay_s, self._commit)

    def _commit(self) -> None:
        self._is_due = False
        if self._is_closed or self.death is not None:
            return
        self._guard(self._write_once)
        if self._held:
            self._plan(max(self._try_at - self._elapsed(), 0.001))
        elif not self._queue.empty():
            self._plan(self._commit_s())

    def _write_once(self) -> None:
        self._write_queued(is_closing=False)

    def _tick(self) -> None:
        if not self._is_closed and self.death is None:
            if not self._is_due:
                self._commit()
            self._loop.call_later(_TICK_S, self._tick)


class VirtualJournal(Journal):
    """A journal whose commits are steps of the loop.

    Args:
        path: The file. Fast where that is memory (`/dev/shm`).
        loop: Where commits run.
        clock: Where instants come from.
        commit_s: Gives the time from an operation to its commit; without it, a millisecond.
        new_id: Names requests.
        writer: What writes, for tests that put another in its place.
        retention_s: As for `Journal`, like the limits after it.
    """

    def __init__(
        self,
        path: Path,
        *,
        loop: VirtualLoop,
        clock: Clock,
        new_id: Callable[[], str],
        commit_s: Callable[[], float] = lambda: 0.001,
        writer: type[InlineWriter] = InlineWriter,
        retention_s: float = 3600.0,
        max_open: int = 100_000,
        max_attempts: int = 100,
    ) -> None:
        super().__init__(
            path,
            clock=clock.wall,
            elapsed=clock.now,
            writer=partial(writer, loop=loop, commit_s=commit_s),
            new_id=new_id,
            retention_s=retention_s,
            max_open=max_open,
            max_attempts=max_attempts,
        )

    def crash(self) -> None:
        """Let go of the file as a process does that dies: what was not committed is lost."""
        if self._writer is None:  # it was not open, or is closed
            return
        self._writer = None
        with suppress(AttributeError):  # it died while it opened the file
            self._reader.close()
            self._store.close()
            self._lock.release()
