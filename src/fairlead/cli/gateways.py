"""Gateways that run on this machine: where their state is, and which may be given the token.

`fairlead serve` writes `gateway.json` into its state folder. Other such files may come with an archive, lie in a folder
that others can write to, or be left by a gateway whose port another program has taken since. So a URL from a file is
used only if the file belongs to this user, the URL is of this machine, and the gateway that wrote the file still runs.
"""

import os
import stat
from collections.abc import Iterator
from fcntl import LOCK_NB, LOCK_SH, flock
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from fairlead.cli.asking import Gateway, GatewayError, checked_cacert, environment_token, target_of
from fairlead.cli.errors import UsageError
from fairlead.engine.live.status import Status
from fairlead.load import TLSError

STATE = Path(".fairlead")
STATUS = "/v1/status"
_FILE = "gateway.json"
_LOCK = "gateway.lock"  # a gateway holds it for as long as it runs
_MAX_BYTES = 64 << 10


class _Told(msgspec.Struct):
    url: str
    pid: int
    cacert: str | None = None


def find_gateway(url: str | None, state: Path | None = None, cacert: Path | None = None) -> Gateway:
    """The gateway whose URL was named, or the one that was started last here and still runs.

    Raises:
        UsageError: There is none, or none that may be given the token.
    """
    if url is not None:
        if state is not None:
            raise UsageError("--url and --state each say which gateway is meant; leave one out.")
        return Gateway(url=url, token=environment_token(), cacert=checked_cacert(cacert, url))
    refused = []
    for folder in _newest_first(_folders(state)):
        try:
            told = _read(folder / _FILE)
            return _trusted(told, folder, cacert)
        except _RefusedError as error:
            refused.append(f"{folder / _FILE} is not used: {error}.")
    why = refused[0] if refused else f"there is no {_FILE} in {state or STATE / '*'}."
    raise UsageError(f"No gateway is served from here: {why} Name it with --url.")


def state_folders(state: Path | None, url: str | None, cacert: Path | None = None) -> list[Path]:
    """The state folders that are meant, by name or by the gateway's URL; all in `.fairlead` without either."""
    if url is None and cacert is not None:
        raise UsageError("--cacert is for --url https://...; leave it out.")
    if state is not None and not state.is_dir():
        raise UsageError(f"--state {state}: there is no such folder.")
    return _folders(state) if url is None else _served_at(url, cacert)


def _served_at(url: str, cacert: Path | None) -> list[Path]:
    """The state folder of the gateway at this URL: as it says itself, or, once it has ended, as its file says."""
    gateway = find_gateway(url, cacert=cacert)
    if not target_of(url).is_loopback:
        raise UsageError(f"--url {url}: is not this machine, so its records are elsewhere. Run the command there.")
    try:
        told = gateway.ask(STATUS, Status).state
    except (GatewayError, TLSError) as error:
        if found := [folder for folder in _folders(None) if _url_in(folder) == url.rstrip("/")]:
            return found
        raise UsageError(f"{error} To read the records without it, name its state folder with --state.") from error
    if told is None or not (folder := Path(told)).is_dir():
        where = "does not say where its state folder is" if told is None else f"has its state in {told}, not found here"
        raise UsageError(f"--url {url}: the gateway {where}. Name the folder with --state.")
    return [folder]


def _folders(state: Path | None) -> list[Path]:
    return [state] if state is not None else sorted(path for path in STATE.glob("*") if path.is_dir())


def _newest_first(folders: list[Path]) -> Iterator[Path]:
    """Those with a file of a gateway."""
    found = []
    for folder in folders:
        try:
            found.append(((folder / _FILE).lstat().st_mtime, folder))
        except (OSError, ValueError):
            continue  # nothing was served from there
    yield from (folder for _, folder in sorted(found, reverse=True))


def _url_in(folder: Path) -> str | None:
    """The URL in a file, wherever the file is from: nothing is sent there."""
    try:
        return _read(folder / _FILE).url.rstrip("/")
    except _RefusedError:
        return None


class _RefusedError(Exception):
    """Why a file is not used."""


def _trusted(told: _Told, folder: Path, cacert: Path | None) -> Gateway:
    try:
        address = ip_address(urlsplit(told.url).hostname or "")
    except ValueError:
        raise _RefusedError(f"its URL, {told.url[:200]!r}, has no address of this machine") from None
    url = told.url
    if address.is_unspecified:  # it listens on every address of this machine
        url = url.replace(str(address), "127.0.0.1" if address.version == 4 else "::1", 1)
    elif not address.is_loopback:
        raise _RefusedError(f"its URL, {told.url[:200]!r}, is not of this machine alone")
    if not _runs(told.pid) or not _is_locked(folder / _LOCK):
        raise _RefusedError("the gateway that wrote it has ended")
    given = cacert or (None if told.cacert is None else Path(told.cacert))
    return Gateway(url=url, token=environment_token(), cacert=checked_cacert(given, url), state=folder)


def _read(path: Path) -> _Told:
    with os.fdopen(_open(path), "rb") as file:
        if os.fstat(file.fileno()).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _RefusedError("other users can write to it")
        data = file.read(_MAX_BYTES)
    try:
        return msgspec.json.decode(data, type=_Told)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _RefusedError("it is not as a gateway writes it") from None


def _open(path: Path) -> int:
    """Open a file of this user, or of root."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _RefusedError(f"it cannot be read: {getattr(error, 'strerror', None) or error}") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        why = "it is not a regular file"
    elif found.st_uid not in (os.geteuid(), 0):
        why = "it belongs to another user"
    else:
        return descriptor
    os.close(descriptor)
    raise _RefusedError(why)


def _runs(pid: int) -> bool:
    """Whether there is such a process, and it is one of this user."""
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return pid > 0


def _is_locked(path: Path) -> bool:
    """Whether a gateway holds the lock of its state folder."""
    try:
        descriptor = _open(path)
    except _RefusedError:
        return False
    try:
        flock(descriptor, LOCK_SH | LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)  # gives the lock back, too
    return False
