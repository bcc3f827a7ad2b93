"""Opening the journal's file: one process at a time, whatever state the file is in.

A damaged file is never deleted and never stops the gateway: it is moved aside, and what can still be read of it is
copied into a new one. A file that belongs to somebody else is left alone, and refused.
"""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from fairlead.engine.live.journal.entries import ID_PATTERN, JournalFullError
from fairlead.engine.live.journal.schema import APPLICATION_ID, VERSION, bring_up_to_date, create
from fairlead.engine.live.journal.store import connect
from fairlead.errors import ConfigError, Fault

_CHECKED_BYTES = 256 * 2**20  # a larger file is not read through at each start: that would take seconds
_POLL_S = 0.02
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


class Lock:
    """The right to be the only one that has the journal open. Ends with the process, however that dies."""

    def __init__(self, journal: Path, wait_s: float) -> None:
        path = journal.with_name(f"{journal.name}.lock")
        try:
            journal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(journal, f"cannot be opened: {error.strerror}.") from error
        try:
            self._take(journal, time.monotonic() + wait_s)
        except BaseException:
            os.close(self._file)
            raise
        with suppress(OSError):  # a full disk: the lock holds, only the note of who has it is missing
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def _take(self, journal: Path, until: float) -> None:
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= until:
                    holder = os.pread(self._file, 20, 0).decode("ascii", "replace").strip() or "unknown"
                    message = (
                        f"is in use by process {holder}. Stop that gateway first, or choose another --state folder."
                    )
                    raise _unusable(journal, message) from None
                time.sleep(_POLL_S)

    def release(self) -> None:
        """Let the next one have it."""
        os.close(self._file)


def open_file(path: Path) -> tuple[sqlite3.Connection, tuple[str, ...]]:
    """A connection to a sound journal at this path, and what the operator should know of it."""
    rebuilt = path.with_name(f"{path.name}.rebuilt")
    try:
        if rebuilt.exists() and not path.exists():  # an earlier start died between the two renames below
            rebuilt.rename(path)
        try:
            return _open_sound(path), ()
        except sqlite3.DatabaseError as error:
            if _primary(error) not in _DAMAGED:
                raise
        # The copy is complete before the damaged file leaves its place: whatever happens here can be done again.
        kept = _rebuild(path, rebuilt)
        aside = _move_aside(path)
        rebuilt.rename(path)
        connection = _open_sound(path)
    except sqlite3.DatabaseError as error:
        raise _no_room(path, error) from error
    except OSError as error:
        raise _unusable(path, f"cannot be opened: {error.strerror}.") from error
    notice = f"{path} was damaged. It is now {aside.name}; {kept:,} requests could be read from it and are kept."
    return connection, (notice,)


def _open_sound(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # its log gets the same mode
    connection = connect(path)
    try:
        _check(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(path: Path, connection: sqlite3.Connection) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables == 0 and application in (0, APPLICATION_ID):
        create(connection)
        return
    if application != APPLICATION_ID:
        raise _unusable(path, "is a database of another program. Choose another --state folder.")
    if version not in range(1, VERSION + 1):
        message = f"has format {version}, and this version reads format {VERSION}. Choose another --state folder."
        raise _unusable(path, message)
    if path.stat().st_size <= _CHECKED_BYTES:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise _Damaged(verdict)
    bring_up_to_date(connection, version)


class _Damaged(sqlite3.DatabaseError):
    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def _rebuild(damaged: Path, into: Path) -> int:
    """A new journal, closed, with every request that can be read; the number of them."""
    log = into.with_name(f"{into.name}-wal")
    for left in (into, log, into.with_name(f"{into.name}-shm")):
        left.unlink(missing_ok=True)
    with closing(_open_sound(into)) as connection:
        kept = _salvage(damaged, connection)
    if log.exists():  # closing brings it into the file, unless there is no room
        raise JournalFullError(f"{damaged}: is damaged, and there is no room for a copy. Is the disk full?")
    return kept


def _move_aside(path: Path) -> Path:
    stem, count = f"{path.name}.damaged-{int(time.time())}", 0
    while (aside := path.with_name(f"{stem}-{count}" if count else stem)).exists():
        count += 1
    for suffix in ("-wal", ""):  # the log goes with the file: it may hold the newest requests
        old = path.with_name(f"{path.name}{suffix}")
        if old.exists():
            old.rename(aside.with_name(f"{aside.name}{suffix}"))
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    return aside


def _salvage(damaged: Path, into: sqlite3.Connection) -> int:
    """Copy every request that can be read; the number of them."""
    # Without the column of ages, which an earlier format lacks: they begin anew.
    names = [name for _, name, *_ in into.execute("PRAGMA table_info(requests)") if name not in ("seq", "ended_on")]
    columns, marks = ", ".join(names), ", ".join("?" * len(names))
    kept = 0
    into.execute("BEGIN IMMEDIATE")
    for row in _readable(damaged, "requests", columns, "seq"):
        fields = dict(zip(names, row, strict=True))
        is_open = fields["finished_at"] is None
        if not (
            isinstance(fields["id"], str)
            and ID_PATTERN.fullmatch(fields["id"])
            and is_open == (fields["state"] == "accepted") == isinstance(fields["body"], bytes)
        ):
            continue
        try:
            kept += into.execute(f"INSERT OR IGNORE INTO requests ({columns}) VALUES ({marks})", row).rowcount
        except sqlite3.IntegrityError:  # a column is missing: half a row
            continue
    into.execute("UPDATE requests SET ended_on = 0 WHERE finished_at IS NOT NULL")
    for key in _readable(damaged, "keys", "workflow, key, id, digest", "key"):
        with suppress(sqlite3.IntegrityError):
            into.execute("INSERT OR IGNORE INTO keys VALUES (?, ?, ?, ?, 0)", key)
    into.execute("COMMIT")
    return kept


def _readable(damaged: Path, table: str, columns: str, by: str) -> Iterator[tuple[object, ...]]:
    """Rows from the front up to the damage, and from the back up to the damage."""
    for order in ("ASC", "DESC"):
        try:
            connection = connect(damaged)
        except sqlite3.DatabaseError:
            return
        try:
            yield from connection.execute(f"SELECT {columns} FROM {table} ORDER BY {by} {order}")
            return
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            continue
        finally:
            connection.close()


def _primary(error: sqlite3.DatabaseError) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _no_room(path: Path, error: sqlite3.DatabaseError) -> JournalFullError | ConfigError:
    if _primary(error) in _FULL:
        return JournalFullError(f"{path}: cannot be opened: {error}. Is the disk full?")
    return _unusable(path, f"cannot be opened: {error}.")


def _unusable(path: Path, message: str) -> ConfigError:
    return ConfigError(str(path), [Fault("", message)])
