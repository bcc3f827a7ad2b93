"""Shared memory for values that are too large to be copied through a channel: files in one folder, by name.

Whoever makes a value writes it, the gateway deletes it once nobody needs it. A name begins with the process that wrote
it, so that what a dead instance wrote and never told of can be found.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from mmap import ACCESS_READ, mmap
from pathlib import Path

from fairlead.engine.live.values import Value, decode

INLINE_BYTES = 1 << 16
"""Values up to this size travel in the channel itself."""

_SHARED = Path("/dev/shm")


class Store:
    """The values in one folder, as one process sees them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._prefix = f"{os.getpid()}-"
        self._numbers = count()
        self._held: set[str] = set()  # names that somebody may need; kept by the gateway

    @classmethod
    def make(cls) -> "Store":
        """A new folder in shared memory; those of gateways that are dead are removed, as they could not do it."""
        shared = _SHARED if _SHARED.is_dir() else Path(tempfile.gettempdir())
        for folder in shared.glob("fairlead-*-*"):
            if _is_dead(folder.name.split("-")[1]):
                shutil.rmtree(folder, ignore_errors=True)
        return cls(Path(tempfile.mkdtemp(prefix=f"fairlead-{os.getpid()}-", dir=shared)))

    def put(self, data: bytes) -> Value:
        """A value that holds these bytes: themselves, or the name under which they are kept."""
        if len(data) <= INLINE_BYTES:
            return data
        name = f"{self._prefix}{next(self._numbers)}"
        with open(self.folder / name, "xb") as file:
            file.write(data)
        return name

    def read(self, value: Value) -> object:
        """What a value stands for."""
        if isinstance(value, bytes):
            return decode(value)
        if isinstance(value, str):
            with open(self.folder / _checked(value), "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
                return decode(data)
        return [self.read(part) for part in value]

    def hold(self, value: Value) -> None:
        """Note that somebody may need a value."""
        if not isinstance(value, bytes):
            self._held.update(names(value))

    def drop(self, value: Value) -> None:
        """Nobody needs a value any more."""
        if not isinstance(value, bytes):
            for name in names(value):
                self._held.discard(name)
                (self.folder / _checked(name)).unlink(missing_ok=True)

    def forget(self, pid: int) -> None:
        """Remove what a process that is dead wrote and nobody has heard of."""
        for left in self.folder.glob(f"{pid}-*"):
            if left.name not in self._held:
                left.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)


def names(value: Value) -> Iterator[str]:
    """What a value keeps in the store."""
    if isinstance(value, str):
        yield value
    elif not isinstance(value, bytes):
        for part in value:
            yield from names(part)


def _checked(name: str) -> str:
    if not name.replace("-", "").isdigit():
        raise ValueError(f"{name!r} is not the name of a stored value.")
    return name


def _is_dead(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (ValueError, PermissionError, OverflowError):
        return False
    try:  # it may have ended without its parent having taken note
        return Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return False
