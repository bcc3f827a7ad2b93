"""The journal's file as one thread sees it: every method that writes is one transaction."""

import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

from fairlead.engine.live.journal.age import Age
from fairlead.engine.live.journal.entries import (
    Accept,
    Accepted,
    AcceptOp,
    DeliveryOp,
    Entry,
    FinalOp,
    JournalFullError,
    KeyConflictError,
    Limits,
    Op,
    Pending,
    StartOp,
    Undelivered,
)
from fairlead.errors import FairleadError

COLUMNS = (
    "id, workflow, state, attempts, accepted_at, deadline, request_id, traceparent, callback_url, finished_at, reason, "
    "cost_usd, delivery, delivery_attempts, delivery_note, result"
)

_LOG_BYTES = 4 * 2**20  # the log keeps this size: on a full disk, endings still find room in it
_PRUNED_AT_ONCE = 500
_PRUNED_FOR_SPACE = 16  # at once: results may be large
_LEAST_KEPT_S = 60.0  # a result is not pruned for its size before somebody could fetch it
_VACUUMED_AT_ONCE = 512  # pages
_SPARE_PAGES = 1024  # free pages that are kept for the next requests


def connect(path: Path) -> sqlite3.Connection:
    """A connection that commits only when told to."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=5.0, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


def read_entry(connection: sqlite3.Connection, id: str) -> Entry | None:
    """What is on disk of a request."""
    row = connection.execute(f"SELECT {COLUMNS} FROM requests WHERE id = ?", (id,)).fetchone()
    return None if row is None else Entry(**dict(zip(Entry.__struct_fields__, row, strict=True)))


def read_body(connection: sqlite3.Connection, id: str) -> tuple[bytes, int] | None:
    """The input of a request that has not ended, and its attempts so far."""
    query = "SELECT body, attempts FROM requests WHERE id = ? AND finished_at IS NULL"
    row = connection.execute(query, (id,)).fetchone()
    return None if row is None else (row[0], row[1])


class Written:
    """What a group did, to be told once it is on disk."""

    def __init__(self) -> None:
        self.answers: list[tuple[AcceptOp, Accepted | FairleadError]] = []
        self.finals: list[str] = []  # every ending that was looked at, also an ignored one
        self.unwritten: list[tuple[str, str]] = []  # endings that the disk did not take for now, and why
        self.undelivered: list[Undelivered] = []
        self.accepted = self.ended = self.ignored = self.delivered = 0


class Store:
    """Reads and writes through one connection, and keeps the counts."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, limits: Limits, elapsed: Callable[[], float]
    ) -> None:
        self._db = connection
        self._age = Age(connection, elapsed)
        self._path = path
        self._limits = limits
        self._page_bytes: int = self._one("PRAGMA page_size")
        self.open: int = self._one("SELECT count(*) FROM requests WHERE finished_at IS NULL")
        self.finished: int = self._one("SELECT count(*) FROM requests WHERE finished_at IS NOT NULL")
        self.undelivered: int = self._one("SELECT count(*) FROM requests WHERE delivery = 'pending'")
        self.keys: int = self._one("SELECT count(*) FROM keys")

    def pending(self) -> tuple[Pending, ...]:
        """The requests that have not ended, oldest first."""
        fields = ", ".join(Pending.__struct_fields__)
        rows = self._db.execute(f"SELECT {fields} FROM requests WHERE finished_at IS NULL ORDER BY seq")
        return tuple(Pending(**dict(zip(Pending.__struct_fields__, row, strict=True))) for row in rows)

    def waiting_callbacks(self) -> tuple[Undelivered, ...]:
        """The callbacks that are still to be called, oldest first."""
        query = "SELECT id, callback_url, delivery_attempts FROM requests WHERE delivery = 'pending' ORDER BY seq"
        return tuple(Undelivered(id=i, callback_url=url, attempts=n) for i, url, n in self._db.execute(query))

    def apply(self, group: Sequence[Op]) -> Written:
        """Write a group in one transaction. On an error nothing of it is on disk, and no count has changed."""
        written = Written()
        self._db.execute("BEGIN IMMEDIATE")
        try:
            room = self._limits.max_bytes - self.used_bytes() if any(isinstance(op, AcceptOp) for op in group) else 0
            for op in group:
                if isinstance(op, AcceptOp):
                    answer = self._accept(op, written, room)
                    if isinstance(answer, Accepted) and answer.is_new:
                        room -= len(op.entry.body)
                    written.answers.append((op, answer))
                elif isinstance(op, FinalOp):
                    self._finish(op, written)
                elif isinstance(op, DeliveryOp):
                    self._deliver(op, written)
                else:
                    self._start(op)
            self._db.execute("COMMIT")
        except BaseException:
            self.roll_back()
            raise
        self.open += written.accepted - written.ended
        self.finished += written.ended
        self.undelivered += len(written.undelivered) - written.delivered
        return written

    def roll_back(self) -> None:
        """Leave a transaction that failed; SQLite has often left it by itself."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def prune(self) -> int:
        """Forget at most 500 requests that have ended: the oldest of those too old, or too many, or too large.

        A callback that was not delivered within the retention time is given up with its request; short of that, it
        keeps the request. The key of a request that is forgotten before the retention time is kept.
        """
        now, limits = self._age.now(), self._limits
        oldest = now - limits.retention_s
        doomed = self._oldest("ended_on <= ?", oldest, _PRUNED_AT_ONCE)
        excess = self.finished - self.undelivered - limits.keep_finished
        if not doomed and excess > 0:
            doomed = self._oldest("delivery IS NOT 'pending' AND ended_on < ?", inf, min(excess, _PRUNED_AT_ONCE))
        if not doomed and self._is_large():
            before = now - min(_LEAST_KEPT_S, limits.retention_s)
            doomed = self._oldest("delivery IS NOT 'pending' AND ended_on <= ?", before, _PRUNED_FOR_SPACE)
        if not doomed:
            return 0
        marks = ",".join("?" * len(doomed))
        lost = f"SELECT count(*) FROM requests WHERE delivery = 'pending' AND seq IN ({marks})"
        self._db.execute("BEGIN IMMEDIATE")
        try:
            undelivered = self._one(lost, doomed)
            keys = self._db.execute(
                "INSERT OR REPLACE INTO keys SELECT workflow, key, id, digest, ended_on FROM requests "
                f"WHERE seq IN ({marks}) AND key IS NOT NULL AND ended_on > ?",
                (*doomed, oldest),
            ).rowcount
            self._db.execute(f"DELETE FROM requests WHERE seq IN ({marks})", doomed)
            self._db.execute("COMMIT")
        except BaseException:
            self.roll_back()
            raise
        self.finished -= len(doomed)
        self.undelivered -= undelivered
        self.keys += keys
        return len(doomed)

    def prune_keys(self) -> int:
        """Forget at most 500 keys that have outlived their request: the oldest, if too old, too many, or too large."""
        now, limits = self._age.now(), self._limits
        before, count = now - limits.retention_s, _PRUNED_AT_ONCE
        if self.keys > limits.keep_keys:
            before, count = inf, min(count, self.keys - limits.keep_keys)
        elif self.keys and self._is_large():
            before = now - min(_LEAST_KEPT_S, limits.retention_s)
        oldest = "SELECT workflow, key FROM keys WHERE ended_on <= ? ORDER BY ended_on LIMIT ?"
        delete = f"DELETE FROM keys WHERE (workflow, key) IN ({oldest})"
        forgotten = self._db.execute(delete, (before, count)).rowcount if self.keys else 0
        self.keys -= forgotten
        return forgotten

    def save_age(self) -> None:
        """Note how old the journal is, so that time goes on from here after a restart."""
        self._db.execute("UPDATE clock SET age_s = ?", (self._age.now(),))

    def is_crowded(self) -> bool:
        """Whether ended requests stand in the way of new ones: a whole chunk too many, or too large."""
        kept, limits = self.finished - self.undelivered, self._limits
        if kept >= limits.keep_finished + _PRUNED_AT_ONCE or self.keys >= limits.keep_keys + _PRUNED_AT_ONCE:
            return True
        return kept + self.keys > 0 and self._is_large()

    def give_back(self) -> bool:
        """Return some free pages to the file system, if many are free. Whether it did."""
        free = self._one("PRAGMA freelist_count")
        if free <= max(_SPARE_PAGES, self._one("PRAGMA page_count") // 4):
            return False
        # The pragma frees one page per row that is read from it.
        self._db.execute(f"PRAGMA incremental_vacuum({_VACUUMED_AT_ONCE})").fetchall()
        return True

    def used_bytes(self) -> int:
        """What the requests occupy in the file."""
        return (self._one("PRAGMA page_count") - self._one("PRAGMA freelist_count")) * self._page_bytes

    def file_bytes(self) -> int:
        """What the file and its log occupy on disk."""
        log = self._path.with_name(f"{self._path.name}-wal")
        return sum(path.stat().st_size for path in (self._path, log) if path.exists())

    def close(self) -> None:
        """Bring the log into the file and close it."""
        self._db.close()

    def _accept(self, op: AcceptOp, written: Written, room: int) -> Accepted | FairleadError:
        entry, digest = op.entry, None
        if entry.key is not None:
            digest = hashlib.sha256(entry.body).digest()
            row = None
            for table in ("requests", "keys"):
                query = f"SELECT id, digest FROM {table} WHERE workflow = ? AND key = ?"
                row = row or self._db.execute(query, (entry.workflow, entry.key)).fetchone()
            if row is not None and row[1] != digest:
                return KeyConflictError(entry.workflow, entry.key, row[0])
            if row is not None:
                return Accepted(row[0], False)
        refusal = self._refusal(entry, self.open + written.accepted, room)
        if refusal:
            return JournalFullError(f"{self._path}: {refusal}")
        self._db.execute(
            "INSERT INTO requests (id, workflow, state, accepted_at, deadline, budget_usd, request_id, traceparent, "
            "callback_url, key, digest, body) VALUES (?, ?, 'accepted', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                op.id,
                entry.workflow,
                op.accepted_at,
                entry.deadline,
                entry.budget_usd,
                entry.request_id,
                entry.traceparent,
                entry.callback_url,
                entry.key,
                digest,
                entry.body,
            ),
        )
        written.accepted += 1
        return Accepted(op.id, True)

    def _refusal(self, entry: Accept, open: int, room: int) -> str:
        limits = self._limits
        if open >= limits.max_open:
            return f"{open:,} requests are open, and it holds {limits.max_open:,}. Try again when some have ended."
        if entry.callback_url is not None and self.undelivered >= limits.max_open:
            return f"{self.undelivered:,} callbacks wait to be delivered. Try again later, or without a callback."
        if len(entry.body) > room:
            return (
                f"it has room for {max(room, 0):,} of {limits.max_bytes:,} bytes; this input has {len(entry.body):,}."
            )
        return ""

    def _start(self, op: StartOp) -> None:
        query = "UPDATE requests SET attempts = attempts + 1 WHERE id = ? AND finished_at IS NULL"
        self._db.execute(query, (op.id,))

    def _finish(self, op: FinalOp, written: Written) -> None:
        written.finals.append(op.id)
        query = "SELECT seq, callback_url FROM requests WHERE id = ? AND finished_at IS NULL"
        row = self._db.execute(query, (op.id,)).fetchone()
        if row is None:
            written.ignored += 1
            return
        seq, url = row
        final, delivery = op.final, None if url is None else "pending"
        # The input has served its purpose; its digest stays for the key.
        self._db.execute(
            "UPDATE requests SET state = ?, finished_at = ?, reason = ?, cost_usd = ?, ran_as = ?, result = ?, "
            "delivery = ?, ended_on = ?, body = NULL WHERE seq = ?",
            (
                final.state,
                op.finished_at,
                final.reason,
                final.cost_usd,
                final.ran_as,
                final.result,
                delivery,
                self._age.now(),
                seq,
            ),
        )
        written.ended += 1
        if url is not None:
            written.undelivered.append(Undelivered(id=op.id, callback_url=url, attempts=0))

    def _deliver(self, op: DeliveryOp, written: Written) -> None:
        changed = self._db.execute(
            "UPDATE requests SET delivery = ?, delivery_attempts = delivery_attempts + 1, delivery_note = ? "
            "WHERE id = ? AND delivery = 'pending'",
            (op.delivery, op.note, op.id),
        ).rowcount
        if op.delivery != "pending":
            written.delivered += changed

    def _oldest(self, condition: str, until: float, count: int) -> list[int]:
        query = f"SELECT seq FROM requests WHERE ended_on IS NOT NULL AND {condition} ORDER BY ended_on LIMIT ?"
        return [seq for (seq,) in self._db.execute(query, (until, count))]

    def _is_large(self) -> bool:
        return self.used_bytes() > self._limits.max_bytes * 4 // 5  # so that new ones find room, and are not refused

    def _one(self, query: str, values: Sequence[object] = ()) -> int:
        number = self._db.execute(query, values).fetchone()[0]
        assert isinstance(number, int)
        return number
