"""The state folder belongs to one user, and to one gateway at a time.

A lock that other users can open is a lock that they can hold: a gateway could be kept from starting again by anybody on
the machine. So the lock's file, and the folder where it is new or was made by an earlier version, are its owner's only.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import ELOOP
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from time import monotonic, sleep

from fairlead.errors import ConfigError, Fault

LOCK = "gateway.lock"

_LOCK_WAIT_S = 3.0
_OTHERS = 0o077
_OURS = frozenset({LOCK, "apps.json", "journal.sqlite"})  # what a folder has that a gateway has used before


@contextmanager
def sole_user(state: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Take the state folder before anything in it is touched; ConfigError if another gateway has it."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        _close_to_others(state, say)
        lock = os.open(state / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if isinstance(error, PermissionError) or error.errno == ELOOP:
            raise _refusal(state / LOCK, f"cannot be opened: {error.strerror}. {_ADVICE}") from None
        # A full disk must not keep an app from being served; the journal has a lock of its own.
        say(f"the state folder cannot be locked: {error}")
        yield
        return
    try:
        found = os.fstat(lock)
        if found.st_uid != os.geteuid():
            raise _refusal(state / LOCK, f"belongs to user {found.st_uid}, who could hold it for ever. {_ADVICE}")
        if found.st_mode & _OTHERS:
            os.fchmod(lock, 0o600)
        _take(lock, state)
        yield
    finally:
        os.close(lock)


def _take(lock: int, state: Path) -> None:
    last = monotonic() + _LOCK_WAIT_S  # the gateway before may be about to end
    while True:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
            return
        except OSError:
            if monotonic() > last:
                what = "is in use by another gateway; stop that one, or choose another folder with --state."
                raise _refusal(state, what) from None
            sleep(0.05)


def _close_to_others(state: Path, say: Callable[[str], None]) -> None:
    """Take other users' rights to a folder that is only ours; a folder with other things in it is left as it is."""
    found = state.stat()
    if found.st_uid != os.geteuid() or not found.st_mode & _OTHERS:
        return
    names = set(os.listdir(state))
    if not names or names & _OURS:
        os.chmod(state, found.st_mode & ~_OTHERS & 0o7777)
    elif found.st_mode & 0o022:
        say(f"other users can write into the state folder {state}, which has other files too; choose one of its own")


_ADVICE = "Delete it if no gateway runs there, or choose another folder with --state."


def _refusal(path: Path, what: str) -> ConfigError:
    return ConfigError(str(path), [Fault("", what)])
