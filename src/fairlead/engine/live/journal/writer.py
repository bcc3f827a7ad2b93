"""The thread that writes: all that is queued goes into one transaction, with one fsync for all who wait.

When the disk fails or is full, accepts are refused at once, and nothing of them stays; endings are kept in memory and
written again, with back-off, until they are on disk.
"""

import logging
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic

from fairlead.engine.live.journal.entries import AcceptOp, DeliveryOp, FinalOp, JournalFullError, Kept, Op
from fairlead.engine.live.journal.store import Store, Written

logger = logging.getLogger(__name__)

_GROUP_OPERATIONS = 1024
_GROUP_BYTES = 16 * 2**20
_TICK_S = 1.0  # how often an idle journal looks for what is too old
_BACK_OFF_S = (0.05, 2.0)
_CHUNK = 32  # operations tried at a time while the disk is full: a few may fit where all do not


class Writer:
    """Owns the store from the moment it is started. `told` is called on this thread after each commit."""

    def __init__(self, store: Store, clock: Callable[[], float], told: Callable[[Written], None]) -> None:
        self._store = store
        self._clock = clock
        self._told = told
        self._queue: queue.SimpleQueue[Op | None] = queue.SimpleQueue()
        self._held: deque[Kept] = deque()
        self._back_off_s = 0.0
        self._try_at = 0.0
        self._close_by: float | None = None
        self._thread = threading.Thread(target=self._run, name="fairlead-journal", daemon=True)
        self.commits = self.operations = self.errors = self.ignored = self.pruned = 0
        self.last_commit_s = 0.0
        self.fault: str | None = None
        self.file_bytes = store.file_bytes()

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, op: Op) -> None:
        """Queue an operation."""
        self._queue.put(op)

    def close(self, timeout_s: float) -> int:
        """Write what is queued, for at most this long where the disk refuses. How many operations were given up."""
        self._close_by = monotonic() + timeout_s
        self._queue.put(None)
        self._thread.join()
        return len(self._held)

    def _run(self) -> None:
        is_closing = False
        while not is_closing or (self._held and self._may_retry()):
            group, saw_end = self._gather(is_closing)
            is_closing |= saw_end
            if self._held or self.fault:
                self._write_guarded(group)
            elif group:
                self._write_together(group)
            if not is_closing:
                self._tidy(is_idle=not group)
        self._store.close()

    def _may_retry(self) -> bool:
        return self._close_by is not None and monotonic() < self._close_by

    def _gather(self, is_closing: bool) -> tuple[list[Op], bool]:
        group: list[Op] = []
        size = 0
        wait_s = max(self._try_at - monotonic(), 0.001) if self._held else 0.0 if is_closing else _TICK_S
        try:
            op = self._queue.get(timeout=wait_s)
            while op is not None:
                group.append(op)
                size += _size(op)
                if len(group) >= _GROUP_OPERATIONS or size >= _GROUP_BYTES:
                    return group, False
                op = self._queue.get_nowait()
        except queue.Empty:
            return group, False
        return group, True

    def _write_together(self, group: Sequence[Op]) -> None:
        """The normal case: one transaction for all."""
        error = self._try(group)
        if error is not None:
            self._hold(group)
            self._refuse([op for op in group if isinstance(op, AcceptOp)], error)

    def _write_guarded(self, group: Sequence[Op]) -> None:
        """After an error: what has been promised first, in small steps; then what is new."""
        self._hold(group)
        error = None
        if monotonic() >= self._try_at:
            while self._held and error is None:
                chunk = [self._held[i] for i in range(min(_CHUNK, len(self._held)))]
                error = self._try(chunk)
                if error is None:
                    for _ in chunk:
                        self._held.popleft()
        accepts = [op for op in group if isinstance(op, AcceptOp)]
        if accepts:
            error = self._try(accepts)
            if error is not None:
                self._refuse(accepts, error)

    def _hold(self, group: Sequence[Op]) -> None:
        self._held.extend(op for op in group if isinstance(op, FinalOp | DeliveryOp))

    def _try(self, group: Sequence[Op]) -> Exception | None:
        began = monotonic()
        try:
            written = self._store.apply(group)
        except Exception as error:  # anything: a thread that dies would leave all who wait without an answer
            self._note_error(error)
            return error
        self.last_commit_s = monotonic() - began
        self.commits += 1
        self.operations += len(group)
        self.ignored += written.ignored
        self._back_off_s = 0.0
        if self.fault is not None:
            logger.warning("The journal can be written again.")
            self.fault = None
        self._told(written)
        return None

    def _note_error(self, error: Exception) -> None:
        self.errors += 1
        shortest_s, longest_s = _BACK_OFF_S
        self._back_off_s = min(max(self._back_off_s * 2, shortest_s), longest_s)
        self._try_at = monotonic() + self._back_off_s
        if self.fault is None:
            is_foreseen = isinstance(error, sqlite3.Error)
            logger.warning("The journal cannot be written: %s.", error, exc_info=None if is_foreseen else error)
        self.fault = str(error) or type(error).__name__

    def _refuse(self, accepts: Sequence[AcceptOp], error: Exception) -> None:
        told = Written()
        for op in accepts:
            refusal = JournalFullError(f"The journal cannot be written: {error}. The request was not accepted.")
            told.answers.append((op, refusal))
        self._told(told)

    def _tidy(self, *, is_idle: bool) -> None:
        """Forget what is too old or too many, in steps that no waiter notices."""
        try:
            if is_idle or (self.fault is None and self._store.is_crowded()):
                self._prune()
        except sqlite3.Error as error:
            self._note_error(error)
        self.file_bytes = self._store.file_bytes()

    def _prune(self) -> None:
        while pruned := self._store.prune(self._clock()):
            self.pruned += pruned
            self._store.give_back()
            if not self._queue.empty() and not self._store.is_crowded():
                return
        while self._queue.empty() and self._store.give_back():
            pass


def _size(op: Op) -> int:
    if isinstance(op, AcceptOp):
        return len(op.entry.body)
    return len(op.final.result or b"") if isinstance(op, FinalOp) else 0
