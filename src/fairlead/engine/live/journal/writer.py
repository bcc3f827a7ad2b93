"""The thread that writes: all that is queued goes into one transaction, with one fsync for all who wait.

When the disk fails or is full, accepts are refused at once, and nothing of them stays; endings are kept in memory and
written again, with back-off, until they are on disk. An operation that SQLite cannot store is set apart from the
others, and brought into a form that it can store.
"""

import logging
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from time import monotonic

import msgspec

from fairlead.engine.live.journal.entries import AcceptOp, DeliveryOp, Final, FinalOp, JournalFullError, Kept, Op
from fairlead.engine.live.journal.store import Store, Written

logger = logging.getLogger(__name__)

_GROUP_OPERATIONS = 1024
_GROUP_BYTES = 16 * 2**20
_TICK_S = 1.0  # how often an idle journal looks for what is too old
_AGE_SAVED_S = 60.0  # how often it notes its age, while it has something to forget
_BACK_OFF_S = (0.05, 2.0)
_CHUNK = 32  # operations tried at a time while the disk is full: a few may fit where all do not
_UNSTORABLE = (
    UnicodeError,
    OverflowError,
    TypeError,
    ValueError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)


class Writer:
    """Owns the store from the moment it is started. `told` is called on this thread after each commit.

    `death` says why the thread ended by itself, which it never should. From then on everything is refused.
    """

    def __init__(self, store: Store, told: Callable[[Written], None], elapsed: Callable[[], float] = monotonic) -> None:
        self._elapsed = elapsed
        self._store = store
        self._told = told
        self._group: list[Op] = []  # what is being written
        self._putting = threading.Lock()
        self._age_saved_at = self._elapsed()
        self.death: str | None = None
        self._queue: queue.SimpleQueue[Op | None] = queue.SimpleQueue()
        self._held: deque[Kept] = deque()
        self._back_off_s = 0.0
        self._try_at = 0.0
        self._close_by: float | None = None
        self._thread = threading.Thread(target=self._guarded, name="fairlead-journal", daemon=True)
        self.commits = self.operations = self.errors = self.ignored = self.pruned = 0
        self.last_commit_s = 0.0
        self.fault: str | None = None
        self.file_bytes = store.file_bytes()

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, op: Op) -> None:
        """Queue an operation; after the thread's death it is refused."""
        with self._putting:
            if self.death is None:
                self._queue.put(op)
                return
        self._refuse_all([op], self.death)

    def close(self, timeout_s: float) -> int:
        """Write what is queued, for at most this long where the disk refuses. How many operations were given up."""
        self._close_by = self._elapsed() + timeout_s
        self._queue.put(None)
        self._thread.join()
        return len(self._held)

    def _guarded(self) -> None:
        self._guard(self._run)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # a fault of ours, or something injected: callers must not wait for ever
            left = [*self._group, *self._held]
            with self._putting:
                self.death = f"{type(error).__name__}: {error}"
                while not self._queue.empty():
                    op = self._queue.get_nowait()
                    if op is not None:
                        left.append(op)
            logger.critical("The journal's thread has ended: %s.", self.death, exc_info=error)
            self._refuse_all(left, self.death)

    def _run(self) -> None:
        is_closing = False
        while not is_closing or (self._held and self._may_retry()):
            is_closing |= self._write_queued(is_closing)
        with suppress(sqlite3.Error):  # a full disk: what is kept is a little younger than it is
            self._save_age()
        self._store.close()

    def _write_queued(self, is_closing: bool) -> bool:
        """Write what is queued, or tidy if nothing is; whether the end was queued too."""
        self._group, saw_end = self._gather(is_closing)
        if self._held or self.fault:
            self._write_guarded(self._group)
        elif self._group:
            self._write_together(self._group)
        is_idle, self._group = not self._group, []
        if not is_closing and not saw_end:
            self._tidy(is_idle=is_idle)
        return saw_end

    def _may_retry(self) -> bool:
        return self._close_by is not None and self._elapsed() < self._close_by

    def _gather(self, is_closing: bool) -> tuple[list[Op], bool]:
        group: list[Op] = []
        size = 0
        wait_s = max(self._try_at - self._elapsed(), 0.001) if self._held else 0.0 if is_closing else _TICK_S
        try:
            op = self._first(wait_s)
            while op is not None:
                group.append(op)
                size += _size(op)
                if len(group) >= _GROUP_OPERATIONS or size >= _GROUP_BYTES:
                    return group, False
                op = self._queue.get_nowait()
        except queue.Empty:
            return group, False
        return group, True

    def _first(self, wait_s: float) -> Op | None:
        """What was queued first; waits for it. queue.Empty if nothing came in time."""
        return self._queue.get(timeout=wait_s)

    def _write_together(self, group: Sequence[Op]) -> None:
        """The normal case: one transaction for all."""
        error = self._try(group)
        if isinstance(error, _UNSTORABLE):
            self._write_apart(group)
        elif error is not None:
            self._hold(group, error)
            self._refuse([op for op in group if isinstance(op, AcceptOp)], str(error))

    def _write_guarded(self, group: Sequence[Op]) -> None:
        """After an error: what has been promised first, in small steps; then what is new."""
        self._held.extend(op for op in group if isinstance(op, FinalOp | DeliveryOp))
        error = None
        if self._elapsed() >= self._try_at:
            while self._held and error is None:
                chunk = [self._held.popleft() for _ in range(min(_CHUNK, len(self._held)))]
                error = self._try(chunk)
                if isinstance(error, _UNSTORABLE):
                    error = self._write_apart(chunk)
                elif error is not None:
                    self._held.extendleft(reversed(chunk))
        self._tell_unwritten(group, self.fault or "earlier endings go first")
        accepts = [op for op in group if isinstance(op, AcceptOp)]
        if accepts:
            self._write_together(accepts)

    def _write_apart(self, group: Sequence[Op]) -> Exception | None:
        """One of these cannot be stored: each goes alone, and that one in another form. The last fault of the disk."""
        fault = None
        for op in group:
            error = self._try([op])
            for form in _storable(op, error) if isinstance(error, _UNSTORABLE) else ():
                logger.warning("%s of request %s cannot be stored: %s.", type(op).__name__, op.id, ascii(error))
                error = self._try([form])
                if not isinstance(error, _UNSTORABLE):
                    break
            if isinstance(error, _UNSTORABLE):
                self._refuse_all([op], ascii(error))
            elif error is not None:
                fault = error
                self._hold([op], error)
                self._refuse([op] if isinstance(op, AcceptOp) else [], str(error))
        return fault

    def _hold(self, group: Sequence[Op], why: Exception) -> None:
        """Keep what was promised, and tell those who wait for it that it is not on disk."""
        self._held.extend(op for op in group if isinstance(op, FinalOp | DeliveryOp))
        self._tell_unwritten(group, str(why))

    def _tell_unwritten(self, group: Sequence[Op], why: str) -> None:
        """Tell of what is held of a group, which came last."""
        told, those = Written(), set(map(id, group))
        newest = islice(reversed(self._held), len(group))
        told.unwritten += [(op.id, why) for op in newest if isinstance(op, FinalOp) and id(op) in those]
        if told.unwritten:
            self._told(told)

    def _try(self, group: Sequence[Op]) -> Exception | None:
        began = self._elapsed()
        try:
            written = self._store.apply(group)
        except _UNSTORABLE as error:
            self.errors += 1
            return error
        except Exception as error:  # anything: a thread that dies would leave all who wait without an answer
            self._note_error(error)
            return error
        self.last_commit_s = self._elapsed() - began
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
        self._try_at = self._elapsed() + self._back_off_s
        if self.fault is None:
            is_foreseen = isinstance(error, sqlite3.Error)
            logger.warning("The journal cannot be written: %s.", error, exc_info=None if is_foreseen else error)
        self.fault = str(error) or type(error).__name__

    def _refuse(self, accepts: Sequence[AcceptOp], why: str) -> None:
        told = Written()
        for op in accepts:
            refusal = JournalFullError(f"The journal cannot be written: {why}. The request was not accepted.")
            told.answers.append((op, refusal))
        self._told(told)

    def _refuse_all(self, group: Sequence[Op], why: str) -> None:
        """Answer those who wait for operations that will not be written."""
        self._refuse([op for op in group if isinstance(op, AcceptOp)], why)
        told = Written()
        told.unwritten += [(op.id, why) for op in group if isinstance(op, FinalOp)]
        self._told(told)

    def _tidy(self, *, is_idle: bool) -> None:
        """Forget what is too old or too many, in steps that no waiter notices."""
        try:
            if is_idle or (self.fault is None and self._store.is_crowded()):
                self._prune()
            if is_idle and self.fault is None and self._elapsed() >= self._age_saved_at + _AGE_SAVED_S:
                self._save_age()
        except sqlite3.Error as error:
            self._note_error(error)
        self.file_bytes = self._store.file_bytes()

    def _save_age(self) -> None:
        if self._store.finished or self._store.keys:  # otherwise nothing grows old
            self._store.save_age()
        self._age_saved_at = self._elapsed()

    def _prune(self) -> None:
        while (pruned := self._store.prune()) or self._store.prune_keys():
            self.pruned += pruned
            self._store.give_back()
            if not self._queue.empty() and not self._store.is_crowded():
                return
        while self._queue.empty() and self._store.give_back():
            pass


def _storable(op: Op, error: Exception) -> Iterator[Op]:
    """Other forms of an operation that SQLite refuses, best first: with plain texts, then as a failure."""
    if isinstance(op, FinalOp):
        final = op.final
        plain = msgspec.structs.replace(final, reason=_plain(final.reason), ran_as=_plain(final.ran_as))
        if plain != final:
            yield FinalOp(op.id, plain, op.finished_at)
        reason = f"The request was {final.state}, but how it ended cannot be stored: {error!a}."
        yield FinalOp(op.id, Final(state="failed", reason=reason), op.finished_at)
    elif isinstance(op, DeliveryOp):
        yield DeliveryOp(op.id, op.delivery, _plain(op.note))


def _plain(text: str | None) -> str | None:
    """A text that can be encoded: what cannot be is escaped, such as half of a surrogate pair."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def _size(op: Op) -> int:
    if isinstance(op, AcceptOp):
        return len(op.entry.body)
    return len(op.final.result or b"") if isinstance(op, FinalOp) else 0
