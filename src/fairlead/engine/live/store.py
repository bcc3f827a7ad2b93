"""Shared memory for values that are too large to be copied through a channel: files in one folder, by name.

The process that makes a value writes it; it is deleted once no stage needs it. Where shared memory is full, the value
goes to a second folder on disk, and where that is full too, it stays in the message that carries it. A name contains
the id of the process that wrote it, so that what a dead instance wrote and never reported can be found.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from itertools import count
from mmap import ACCESS_READ, mmap
from pathlib import Path
from time import perf_counter
from typing import Protocol

from fairlead.engine.live.values import LostValueError, Reference, Value, array_head, decode, reference

INLINE_BYTES = 1 << 16
"""Values up to this size travel in the channel itself."""

_SHARED = Path("/dev/shm")
_ON_DISK = "disk-"
_OURS = re.compile(r"fairlead-\d+-[a-z0-9_]{8}")  # a folder of a store: the process that made it, and what mkdtemp adds


class Elsewhere(Protocol):
    """Reads values that other nodes hold."""

    def __call__(self, wanted: Reference, /) -> bytes | bytearray:
        """All bytes of a value. Raises LostValueError."""
        ...


class Store:
    """The values in two folders, as one process sees them.

    Args:
        folder: Where values go, in shared memory.
        spill: A folder on disk, for what does not fit into shared memory; None if there is none.
        home: The end of references to values of this store; see `Reference`.
        elsewhere: Reads the values of other stores; None where there are none.
    """

    def __init__(
        self, folder: Path, spill: Path | None = None, home: str = "", elsewhere: Elsewhere | None = None
    ) -> None:
        self.folder = folder
        self.spill = spill
        self.home = home
        self.elsewhere = elsewhere
        self.fetched_s = 0.0  # spent on reading from elsewhere, by all threads together
        self._prefix = f"{os.getpid()}-"
        self._numbers = count()
        self._held: set[str] = set()  # names that a request may still need; kept by the gateway
        self._locks: list[int] = []

    @classmethod
    def make(cls, disk: Path | None = None, shared: Path = _SHARED) -> "Store":
        """A store with new folders in shared memory and in `disk` (without it, where temporary files go).

        Folders that dead gateways left in the same places are removed. A gateway holds a lock on its folders while it
        lives, so this is right across PID namespaces that share the places.
        """
        temporary = Path(tempfile.gettempdir())
        disk = disk or temporary
        try:
            folder, lock = _new_folder(shared if shared.is_dir() else temporary)
        except OSError:  # not even a folder: full, or not ours to write to
            folder, lock = _new_folder(disk)
        store = cls(folder)
        store._locks.append(lock)
        with suppress(OSError):  # a full disk must not keep an app from being served
            store.spill, lock = _new_folder(disk)
            store._locks.append(lock)
        return store

    def put(self, data: bytes) -> Value:
        """A value that holds these bytes: themselves, or a reference to the file that keeps them."""
        if len(data) <= INLINE_BYTES:
            return data
        name = f"{self._prefix}{next(self._numbers)}"
        for stored in (name, _ON_DISK + name):
            path = self._path(stored)
            if path is not None and _write(path, data):
                return f"{stored}:{len(data)}{self.home}"
        return data

    def read(self, value: Value) -> object:
        """What a value stands for. May be called from any thread."""
        if isinstance(value, bytes):
            return decode(value)
        if isinstance(value, str):
            wanted = reference(value)
            if wanted.home != self.home:
                return decode(self._fetch(wanted))
            try:
                with open(self.file(wanted.name), "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
                    return decode(data)
            except FileNotFoundError:
                raise LostValueError(f"the stored value {wanted.name} does not exist any more", wanted.node) from None
        return [self.read(part) for part in value]

    def encoded(self, value: Value) -> bytes:
        """The bytes that `read` would decode. May be called from any thread."""
        if isinstance(value, bytes):
            return value
        if isinstance(value, str):
            wanted = reference(value)
            if wanted.home != self.home:
                return bytes(self._fetch(wanted))
            try:
                return self.file(wanted.name).read_bytes()
            except FileNotFoundError:
                raise LostValueError(f"the stored value {wanted.name} does not exist any more", wanted.node) from None
        return b"".join([array_head(len(value)), *map(self.encoded, value)])

    def copy(self, value: Value) -> Value | None:
        """The same value once more, to be dropped by itself; None where its bytes are not here. Copies no bytes."""
        if isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return self._link(reference(value))
        parts: list[Value] = []
        for part in value:
            copied = self.copy(part)
            if copied is None:
                self.drop(parts)
                return None
            parts.append(copied)
        return parts

    def _link(self, found: Reference) -> str | None:
        """A reference to a further name of the file of a value."""
        if found.home != self.home:
            return None
        name = f"{_ON_DISK if self.is_on_disk(found.name) else ''}{self._prefix}{next(self._numbers)}"
        try:
            os.link(self.file(found.name), self.file(name))
        except OSError:
            return None
        return f"{name}:{found.size}{self.home}"

    def size_bytes(self, value: Value) -> int:
        """How large a value is, wherever it is kept. Needs no I/O."""
        if isinstance(value, bytes):
            return len(value)
        if isinstance(value, str):
            return reference(value).size
        return len(array_head(len(value))) + sum(map(self.size_bytes, value))

    def hold(self, value: Value) -> None:
        """Note that a request may need a value."""
        if not isinstance(value, bytes):
            for text in names(value):
                found = reference(text)
                if found.home == self.home:
                    self._held.add(found.name)

    def drop(self, value: Value) -> None:
        """No request needs a value any more. What other stores hold is left to them."""
        if not isinstance(value, bytes):
            for text in names(value):
                found = reference(text)
                if found.home == self.home:
                    self.delete(found.name)

    def delete(self, name: str) -> None:
        """Remove the value of this name, if it is there. Raises ValueError for what is no name."""
        self._held.discard(name)
        self.file(name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all values."""
        self._held.clear()
        for folder in (self.folder, self.spill):
            for path in [] if folder is None else folder.iterdir():
                path.unlink(missing_ok=True)

    def is_on_disk(self, name: str) -> bool:
        """Whether the value of this name is kept on disk, where reading it may take long."""
        return name.startswith(_ON_DISK)

    def open_file(self, name: str) -> int:
        """A descriptor of the file of a value, to be closed. Raises OSError, and ValueError for what is no name."""
        return os.open(self.file(name), os.O_RDONLY | os.O_CLOEXEC)

    def forget(self, pid: int, keep: Collection[str] = ()) -> None:
        """Remove what a dead process wrote and did not report; `keep` has names that were reported elsewhere."""
        left = [*self.folder.glob(f"{pid}-*"), *(self.spill.glob(f"{_ON_DISK}{pid}-*") if self.spill else ())]
        for path in left:
            if path.name not in self._held and path.name not in keep:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove everything."""
        for folder in (self.folder, self.spill):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()

    def _fetch(self, wanted: Reference) -> bytes | bytearray:
        if self.elsewhere is None:
            where = wanted.node or "the gateway"
            raise LostValueError(f"the value {wanted.name} of {where} cannot be read from here", wanted.node)
        began = perf_counter()
        try:
            return self.elsewhere(wanted)
        finally:
            self.fetched_s += perf_counter() - began

    def _path(self, name: str) -> Path | None:
        """Where a value of this name is kept; None for one on disk where there is no such folder."""
        folder = self.spill if name.startswith(_ON_DISK) else self.folder
        return None if folder is None else folder / name

    def file(self, name: str) -> Path:
        """The file of the value of this name. Raises ValueError for what is no name."""
        path = self._path(name) if name.removeprefix(_ON_DISK).replace("-", "").isdigit() else None
        if path is None:
            raise ValueError(f"{name!r} is not the name of a stored value.")
        return path


def names(value: Value) -> Iterator[str]:
    """The references in a value."""
    if isinstance(value, str):
        yield value
    elif not isinstance(value, bytes):
        for part in value:
            if not isinstance(part, bytes):
                yield from names(part)


def is_elsewhere(value: Value) -> bool:
    """Whether a part of a value may lie on another node, so that reading it takes a network."""
    return not isinstance(value, bytes) and any("@" in text for text in names(value))


def is_cheap(value: Value) -> bool:
    """Whether a value can be read without a disk or a network: it is in memory, shared or not."""
    return isinstance(value, bytes) or not any("@" in text or text.startswith(_ON_DISK) for text in names(value))


def _write(path: Path, data: bytes) -> bool:
    """Write a new file; False, and no file, if there is no room for it or the folder is gone."""
    try:
        with open(path, "xb", buffering=0) as file:
            rest = memoryview(data)
            while rest:  # what fills a disk is written in part, without an error
                rest = rest[file.write(rest) or 0 :]
    except OSError:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return False
    return True


def _new_folder(parent: Path) -> tuple[Path, int]:
    """A new folder and the descriptor that locks it; folders whose lock can be had are stale, and are removed."""
    parent.mkdir(parents=True, exist_ok=True)
    for stale in parent.glob("fairlead-*-*"):
        lock = _lock(stale, LOCK_EX | LOCK_NB) if _OURS.fullmatch(stale.name) else None
        if lock is not None:
            shutil.rmtree(stale, ignore_errors=True)
            os.close(lock)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"fairlead-{os.getpid()}-", dir=parent))
        lock = _lock(folder, LOCK_EX)
        if lock is not None:
            return folder, lock


def _lock(folder: Path, how: int) -> int | None:
    """A descriptor that holds the folder's lock; None if it cannot be had, or the folder is gone by then."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        flock(descriptor, how)
        if os.path.samestat(os.fstat(descriptor), os.stat(folder)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
