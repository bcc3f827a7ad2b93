"""The journal as the event loop sees it. Every method is called on the loop's thread."""

import asyncio
import secrets
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from fairlead.engine.live.journal.entries import (
    ID_PATTERN,
    Accept,
    Accepted,
    AcceptOp,
    DeliveryOp,
    Entry,
    Final,
    FinalOp,
    JournalFullError,
    JournalStats,
    Limits,
    Pending,
    StartOp,
    Undelivered,
)
from fairlead.engine.live.journal.opening import Lock, open_file
from fairlead.engine.live.journal.store import Store, Written, connect, read_body, read_entry
from fairlead.engine.live.journal.writer import Writer
from fairlead.errors import FairleadError

T = TypeVar("T")

_QUEUED_BYTES = 256 * 2**20  # inputs, and endings, that wait for the disk


def _random_id() -> str:
    return secrets.token_hex(16)


class Journal:
    """Accepted requests and how they ended, on disk.

    What `accept` has answered survives the death of any process, and of the machine as far as its disk keeps what was
    synced. A request ends once: its first ending that reaches the disk is final, and nothing else is ever shown.
    """

    def __init__(
        self,
        path: Path,
        *,
        retention_s: float = 3600.0,
        keep_finished: int = 100_000,
        keep_keys: int = 4_000_000,
        max_open: int = 100_000,
        max_bytes: int = 4 * 2**30,
        max_attempts: int = 100,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
        writer: Callable[[Store, Callable[[Written], None]], Writer] = Writer,
        new_id: Callable[[], str] = _random_id,
    ) -> None:
        self._path = path
        self._limits = Limits(
            retention_s=retention_s,
            keep_finished=keep_finished,
            keep_keys=keep_keys,
            max_open=max_open,
            max_bytes=max_bytes,
            max_attempts=max_attempts,
        )
        self._clock = clock
        self._elapsed = elapsed
        self._make_writer = writer
        self._new_id = new_id
        self._queued_bytes = 0
        self._unwritten: dict[str, int] = {}  # endings on their way to the disk, with their size
        self._unwritten_bytes = 0
        self._ignored = 0
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._settling: dict[str, list[asyncio.Future[None]]] = {}
        self._on_undelivered: Callable[[Undelivered], None] | None = None
        self._writer: Writer | None = None
        self.notices: tuple[str, ...] = ()  # what the operator should know of the file; known when it is open

    async def open(self, *, lock_wait_s: float = 2.0) -> tuple[Pending, ...]:
        """Take the file for this process; the requests that have not ended, oldest first.

        Raises ConfigError where the file is in use or is not a journal, JournalFullError where the disk has no room.
        """
        self._loop = asyncio.get_running_loop()
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="fairlead-journal-reader")
        try:
            return await self._loop.run_in_executor(self._readers, self._open, lock_wait_s)
        except BaseException:
            self._readers.shutdown()
            raise

    def _open(self, lock_wait_s: float) -> tuple[Pending, ...]:
        self._lock = Lock(self._path, lock_wait_s)
        try:
            connection, self.notices = open_file(self._path)
            try:
                self._store = store = Store(connection, self._path, self._limits, self._elapsed)
                pending = store.pending()
                self._undelivered_at_start = list(store.waiting_callbacks())
                self._reader = connect(self._path)
            except BaseException:
                connection.close()
                raise
        except BaseException:
            self._lock.release()
            raise
        self._writer = self._make_writer(store, self._tell)
        self._writer.start()
        return pending

    async def accept(self, entry: Accept, *, then: Callable[[Accepted], None] | None = None) -> Accepted:
        """Keep a request; it is on disk when this returns.

        `then` is called for a new request as soon as it is on disk, also when whoever awaits this has been cancelled
        meanwhile. Handing the request over there, and not after the await, is what keeps it from being left behind
        until the next start. Raises KeyConflictError, and JournalFullError where it cannot be kept.
        """
        writer = self._writer
        if writer is None:
            raise JournalFullError(f"{self._path}: the journal is closed. The request was not accepted.")
        if writer.death is not None:
            raise JournalFullError(f"The journal cannot be written: {writer.death}. The request was not accepted.")
        size = len(entry.body)
        if self._queued_bytes + size > _QUEUED_BYTES:
            raise JournalFullError("Too many bytes wait to be written to the journal. The request was not accepted.")
        waiter: asyncio.Future[Accepted] = self._loop.create_future()

        def answer(result: Accepted | FairleadError) -> None:
            self._queued_bytes -= size
            if isinstance(result, Accepted) and result.is_new and then is not None:
                self._loop.call_soon(then, result)
            if waiter.done():
                return
            if isinstance(result, Accepted):
                waiter.set_result(result)
            else:
                waiter.set_exception(result)

        self._queued_bytes += size
        writer.put(AcceptOp(self._new_id(), entry, self._clock(), answer))
        return await waiter

    def started(self, id: str) -> None:
        """Count an attempt: work on the request begins. Not awaited."""
        if self._writer is not None:
            self._writer.put(StartOp(id))

    async def resume(self, id: str) -> bytes | None:
        """The input of a request of an earlier process; None where nothing is left to do.

        A request that was in work `max_attempts` times without an end ends here, as failed: it may be what kills the
        gateway.
        """
        found = await self._read(read_body, id)
        if found is None or id in self._unwritten:
            return None
        body, attempts = found
        if attempts >= self._limits.max_attempts:
            reason = f"Given up: {attempts} attempts were begun, and none came to an end."
            self.finish(id, Final(state="failed", reason=reason))
            return None
        return body

    def finish(self, id: str, final: Final) -> None:
        """End a request. The first ending counts; later ones are ignored and counted.

        Not awaited: it is durable a moment later, and not shown before. After a crash in between, the request is
        pending again and is done again. Where the disk is full the ending waits in memory; past 256 MB of them the
        result is given up, and the request ends as failed.
        """
        if id in self._unwritten or self._writer is None:
            self._ignored += 1
            return
        size = len(final.result or b"")
        if self._unwritten_bytes + size > _QUEUED_BYTES:
            reason = f"Its result of {size:,} bytes could not be kept: too much waits to be written to the journal."
            final, size = Final(state="failed", reason=reason, cost_usd=final.cost_usd), 0
        self._unwritten[id] = size
        self._unwritten_bytes += size
        self._writer.put(FinalOp(id, final, self._clock()))

    async def settled(self, id: str, timeout_s: float = 5.0) -> Entry | None:
        """What is on disk of a request once an ending that is on its way is there too.

        Raises JournalFullError where the disk does not take the ending now, or not in time. It stays in memory then,
        and is written when there is room; after a crash before that, the request is done again.
        """
        if id in self._unwritten:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._settling.setdefault(id, []).append(waiter)
            try:
                await asyncio.wait_for(waiter, timeout_s)
            except TimeoutError:
                what = f"The end of request {id} has not reached the disk within {timeout_s:g} s."
                raise JournalFullError(what) from None
        return await self.get(id)

    @property
    def death(self) -> str | None:
        """Why the journal's thread has ended by itself; None while it lives, and before and after its time."""
        return None if self._writer is None else self._writer.death

    async def get(self, id: str) -> Entry | None:
        """What is on disk of a request; None if it is unknown, or was forgotten."""
        return await self._read(read_entry, id)

    async def wait(self, id: str, timeout_s: float) -> Entry | None:
        """The same, once the request has ended or the time is over."""
        event = asyncio.Event()
        self._watchers.setdefault(id, set()).add(event)
        try:
            entry = await self.get(id)
            if entry is None or entry.is_final:
                return entry
            try:
                await asyncio.wait_for(event.wait(), timeout_s)
            except TimeoutError:
                return entry
            return await self.get(id)
        finally:
            self._watchers[id].discard(event)
            if not self._watchers[id]:
                del self._watchers[id]

    def watch_undelivered(self, call: Callable[[Undelivered], None]) -> tuple[Undelivered, ...]:
        """Be called for each request with a callback once its end is on disk; those that wait already are returned."""
        self._on_undelivered = call
        waiting, self._undelivered_at_start = tuple(self._undelivered_at_start), []
        return waiting

    def delivered(self, id: str) -> None:
        """Note that the callback was called. Not awaited."""
        self._note_delivery(DeliveryOp(id, "delivered", None))

    def delivery_failed(self, id: str, note: str, *, is_final: bool) -> None:
        """Note that the callback failed, once more or for good. Not awaited."""
        self._note_delivery(DeliveryOp(id, "failed" if is_final else "pending", note))

    def stats(self) -> JournalStats:
        """Counts for metrics."""
        writer, store = self._writer, self._store
        if writer is None:
            writer = self._closed
        return JournalStats(
            open=store.open,
            finished=store.finished,
            keys=store.keys,
            undelivered=store.undelivered,
            unwritten=len(self._unwritten),
            bytes=writer.file_bytes,
            commits=writer.commits,
            operations=writer.operations,
            errors=writer.errors,
            ignored=writer.ignored + self._ignored,
            pruned=writer.pruned,
            last_commit_s=writer.last_commit_s,
            fault=writer.fault,
        )

    async def close(self, *, timeout_s: float = 5.0) -> int:
        """Write all that is queued. How much could not be, on a disk that is full: it is done again after a restart."""
        if self._writer is None:
            return 0
        self._closed, self._writer = self._writer, None
        left = await self._loop.run_in_executor(self._readers, self._close, timeout_s)
        self._readers.shutdown()
        return left

    def _close(self, timeout_s: float) -> int:
        self._reader.close()  # before the writer: the last to close brings the log into the file
        left = self._closed.close(timeout_s)
        self._lock.release()
        return left

    async def _read(self, query: Callable[[sqlite3.Connection, str], T], id: str) -> T | None:
        if self._writer is None:
            raise JournalFullError(f"{self._path}: the journal is closed.")
        if not ID_PATTERN.fullmatch(id):
            return None
        try:
            return await self._loop.run_in_executor(self._readers, query, self._reader, id)
        except sqlite3.Error as error:
            raise JournalFullError(f"{self._path}: the journal cannot be read: {error}.") from error

    def _note_delivery(self, op: DeliveryOp) -> None:
        if self._writer is not None:
            self._writer.put(op)

    def _tell(self, written: Written) -> None:
        """Called on the writer's thread: one call into the loop for all that one commit did."""
        with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self._told, written)

    def _told(self, written: Written) -> None:
        for op, result in written.answers:
            op.answer(result)
        for id in written.finals:
            self._unwritten_bytes -= self._unwritten.pop(id, 0)
            for event in self._watchers.get(id, ()):
                event.set()
            for waiter in self._settling.pop(id, ()):
                if not waiter.done():
                    waiter.set_result(None)
        for id, why in written.unwritten:
            for waiter in self._settling.pop(id, ()):
                if not waiter.done():
                    waiter.set_exception(JournalFullError(f"The end of request {id} cannot be written: {why}."))
        for undelivered in written.undelivered:
            if self._on_undelivered is None:
                self._undelivered_at_start.append(undelivered)
            else:
                self._loop.call_soon(self._on_undelivered, undelivered)
