"""Control groups of one run in one hierarchy: RUN / node / instance, and the clearing up of runs that died.

A run's group carries the process that owns it in its name, with its start time and its process namespace, so that
nobody takes a living run for a dead one.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep

from fairlead.engine.live.limits.processes import started_at

PREFIX = "fairlead"
CLOSE_LIMIT_S = 2.0


def run_name() -> str:
    """A name for this run's group: fairlead-NAMESPACE-PID-START-RANDOM."""
    pid = os.getpid()
    return f"{PREFIX}-{_namespace()}-{pid}-{started_at(pid)}-{token_hex(4)}"


def is_dead(name: str) -> bool:
    """Whether a group of this name belongs to a run whose process is gone; False where that cannot be told."""
    parts = name.split("-")
    if len(parts) != 5 or parts[0] != PREFIX or parts[1] != _namespace() or not parts[2].isdigit():
        return False
    return str(started_at(int(parts[2]))) != parts[3]


def write(path: Path, text: str) -> None:
    """Set a control file. Raises `OSError`."""
    with path.open("w") as file:
        file.write(text)


def read(path: Path) -> str | None:
    """A control file; None where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def read_field(path: Path, field: str) -> int | None:
    """The number beside a word in a control file of such lines."""
    for line in (read(path) or "").splitlines():
        word, _, number = line.partition(" ")
        if word == field:
            return int(number)
    return None


class Tree:
    """The groups of one run below a base group. Instances are leaves; only leaves hold processes."""

    def __init__(self, base: Path, name: str) -> None:
        self.base = base
        self.run = base / name
        self._leaving: list[Path] = []

    def open(self) -> None:
        """Make the run's group, and clear up those of dead runs. Raises `OSError`."""
        for path in _children(self.base):
            if is_dead(path.name):
                end_group(path)
        self.run.mkdir(exist_ok=True)

    def add(self, *names: str) -> Path:
        """The group below the run's of these names, made where it is not. Raises `OSError`."""
        path = self.run.joinpath(*names)
        with suppress(FileExistsError):
            path.mkdir()
        return path

    def drop(self, path: Path) -> None:
        """Remove a group now, or as soon as the last process in it is gone. Kills what is in it."""
        self._leaving.append(path)
        self.sweep()

    def sweep(self) -> None:
        """Try again to remove what was dropped."""
        self._leaving = [path for path in self._leaving if not _try_end(path)]

    def close(self) -> None:
        """Remove the run's group with all that is in it."""
        self._leaving.clear()
        end_group(self.run)


def end_group(path: Path) -> bool:
    """Kill everything in a group and remove it, which takes a moment; False where something stays."""
    until = monotonic() + CLOSE_LIMIT_S
    while not _try_end(path):
        if monotonic() > until:
            return False
        sleep(0.002)
    return True


def _try_end(path: Path) -> bool:
    """Kill what is in a group and the ones below, and remove those that are empty; whether the group is gone."""
    if not path.is_dir():
        return True
    for child in _children(path):
        _try_end(child)
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # in use still: a killed process leaves its group only when it has been taken apart
        for pid in (read(path / "cgroup.procs") or "").split():
            with suppress(OSError, ValueError):
                if int(pid) not in (0, os.getpid()):  # 0: a process outside this namespace
                    os.kill(int(pid), signal.SIGKILL)
        return False
    return True


def _children(path: Path) -> Iterator[Path]:
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for name in names:
        yield path / name


def _namespace() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"
