"""Servers as processes that are always ended, with all that they started."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

READY = "Serving "
START_LIMIT_S = 120.0
END_LIMIT_S = 25.0
_SET_CHILD_SUBREAPER = 36


class StartError(Exception):
    """A server did not say that it serves."""


def adopt_orphans() -> None:
    """Become the parent of whatever a server leaves behind, so that it can be found and ended (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextmanager
def serving(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The URL of a server that runs until the block ends. What it prints goes to the log."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,  # so that Ctrl-C comes here only, and servers end in order
        )
    try:
        yield _url(process, log)
    finally:
        _end(process)


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    limit = monotonic() + START_LIMIT_S
    while monotonic() < limit:
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(READY) and " at http" in line:
                return line.split()[-1]
        if process.poll() is not None:
            break
        sleep(0.05)
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:])
    raise StartError(f"{' '.join(process.args)} did not start; the end of {log}:\n{tail}")  # type: ignore[arg-type]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, then end whatever is left of what it started."""
    family = descendants(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            family |= descendants(process.pid)
            process.kill()
            process.wait()
    # Only what is still a process of ours: a number may have been given to somebody else since.
    for pid in family & descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _reap()


def descendants(root: int) -> set[int]:
    """Processes below this one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: set[int] = set()
    to_visit = [root]
    while to_visit:
        for child in children.get(to_visit.pop(), []):
            if child not in found:
                found.add(child)
                to_visit.append(child)
    return found


def _reap() -> None:
    """Take leave of adopted processes that have ended."""
    limit = monotonic() + 2.0
    while monotonic() < limit:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                sleep(0.05)
        except ChildProcessError:  # none left
            return
