"""Hardware counters by Intel's Processor Counter Monitor, whose `pcm` command prints a table while it runs.

Cores are those of the node, and memory traffic is that of their own sockets. Everything that PCM does not tell comes
from the kernel's files.
"""

import csv
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from statistics import fmean
from time import monotonic, sleep

import msgspec

from fairlead.monitor.fallback import Fallback
from fairlead.monitor.place import Place
from fairlead.monitor.refusal import RefusedError
from fairlead.monitor.signals import Signals

_CORE = re.compile(r"Core\s*(\d+) \(Socket\s*(\d+)\)")
_SOCKET = re.compile(r"Socket\s*(\d+)\Z")
_START_LIMIT_S = 5.0
_STOP_LIMIT_S = 2.0


class PcmRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table: per core and per socket, each column by its name."""

    cores: dict[int, dict[str, float]]
    sockets: dict[int, dict[str, float]]
    socket_of: dict[int, int]


class PcmTable:
    """Reads `pcm -csv`: a line of groups, a line of columns, then a line per interval.

    Which columns there are depends on the processor; the groups are written once per group by old versions, and once
    per column by new ones.
    """

    def __init__(self) -> None:
        self._groups: list[str] = []
        self._columns: list[str] = []
        self._before: list[str] = []

    def feed(self, line: str) -> PcmRow | None:
        """Take a line; a row once the two lines of headings have passed. What comes before them is talk."""
        cells = [cell.strip() for cell in next(csv.reader([line]), [])]
        if cells[:2] == ["Date", "Time"]:
            self._columns, self._groups = cells, _filled(self._before, len(cells))
            return None
        self._before = cells
        if not self._columns or len(cells) < len(self._columns) - 1:
            return None
        return self._row(cells)

    def _row(self, cells: Sequence[str]) -> PcmRow:
        row = PcmRow(cores={}, sockets={}, socket_of={})
        for group, column, cell in zip(self._groups, self._columns, cells, strict=False):
            try:
                value = float(cell.rstrip("%") or "nan")
            except ValueError:
                continue
            if value != value:  # not a number: "N/A" is written for what the processor does not count
                continue
            if core := _CORE.match(group):
                row.cores.setdefault(int(core[1]), {}).setdefault(column, value)
                row.socket_of[int(core[1])] = int(core[2])
            elif socket := _SOCKET.match(group):
                row.sockets.setdefault(int(socket[1]), {}).setdefault(column, value)
        return row


def counters(row: PcmRow, cpus: Sequence[int], interval_s: float) -> dict[str, float | None]:
    """The seven counters of these CPUs: GB/s, millions of misses per second, and shares."""
    cores = [row.cores[cpu] for cpu in cpus if cpu in row.cores]
    own = {row.socket_of[cpu] for cpu in cpus if cpu in row.socket_of}
    sockets = [row.sockets[i] for i in sorted(own) if i in row.sockets]
    c0, c1 = _mean(cores, "C0res%"), _mean(cores, "C1res%")
    shares = {"c0": None if c0 is None else c0 / 100, "c1": None if c1 is None else c1 / 100}
    return {
        "ipc": _mean(cores, "IPC"),
        "memory_reads": _sum(sockets, "READ", interval_s),
        "memory_writes": _sum(sockets, "WRITE", interval_s),
        "l3_misses": _sum(cores, "L3MISS", interval_s),
        **shares,
        "rest": None if c0 is None or c1 is None else max(0.0, 1 - (c0 + c1) / 100),
    }


class Pcm:
    """Runs `pcm` beside the sampler.

    Args:
        interval_s: How often it prints.
        command: What to run instead.
    """

    name = "pcm"

    def __init__(self, *, interval_s: float = 0.5, command: Sequence[str] | None = None) -> None:
        self._interval_s = interval_s
        self._command = command
        self._base = Fallback(probe_every_s=None)
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._row: PcmRow | None = None
        self._table = PcmTable()
        self._talk: list[str] = []

    def open(self, places: Sequence[Place]) -> None:
        """Start it, and wait for its first row."""
        command = self._command
        if command is None:
            program = shutil.which("pcm")
            if program is None:
                raise RefusedError("the pcm command is not installed (on Debian: apt-get install pcm)")
            command = [program, f"{self._interval_s:g}", "-csv"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise RefusedError(f"{command[0]} cannot be started: {error.strerror}") from error
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        until = monotonic() + _START_LIMIT_S
        while self._row is None:
            has_ended = self._process.poll() is not None
            self._take()
            if self._row is None and (has_ended or monotonic() > until):
                said = self._talk[-1] if self._talk else "nothing"
                self.close()
                raise RefusedError(f"the pcm command gives no table; it says: {said}")
            sleep(0.01)
        try:
            self._base.open(places)
        except RefusedError:
            self.close()
            raise

    def sample(self, place: Place) -> Signals:
        """The last row that was printed."""
        self._take()
        base = self._base.sample(place)
        if self._row is None:
            return base
        found = counters(self._row, place.cpus, self._interval_s)
        if place.cgroup is not None:  # PCM knows cores, not groups
            found["c0"], found["c1"] = base.c0, base.c1
            found["rest"] = None if base.c0 is None or base.c1 is None else max(0.0, 1 - base.c0 - base.c1)
        return msgspec.structs.replace(base, **found)

    def close(self) -> None:
        """Stop it, gently first: it gives the counters back to the kernel."""
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            try:
                process.wait(_STOP_LIMIT_S)
                break
            except subprocess.TimeoutExpired:
                continue
        if process.stdout is not None:
            process.stdout.close()

    def _take(self) -> None:
        if self._process is None or self._process.stdout is None:
            return
        while True:
            try:
                data = os.read(self._process.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                return
            if not data:
                return
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                text = line.decode("utf-8", "replace").strip()
                row = self._table.feed(text)
                self._row = row or self._row
                if row is None and text:
                    self._talk = [*self._talk[-9:], text]


def _filled(groups: Sequence[str], count: int) -> list[str]:
    """An empty name stands for the one before it."""
    found: list[str] = []
    for i in range(count):
        name = groups[i] if i < len(groups) else ""
        found.append(name or (found[-1] if found else ""))
    return found


def _mean(rows: Sequence[dict[str, float]], column: str) -> float | None:
    values = [row[column] for row in rows if column in row]
    return fmean(values) if values else None


def _sum(rows: Sequence[dict[str, float]], column: str, interval_s: float) -> float | None:
    values = [row[column] for row in rows if column in row]
    return sum(values) / interval_s if values else None
