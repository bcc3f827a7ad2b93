"""What the kernel tells of a process, and limits that need no group: affinity, niceness, data size."""

import os
import resource
from collections.abc import Collection
from contextlib import suppress
from math import ceil, log
from pathlib import Path

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_WEIGHT_PER_NICE = 1.25  # each level of niceness is worth a quarter more or less of a share
_LOWEST_PRIORITY = 19


def started_at(pid: int) -> int | None:
    """When it started, in ticks since boot; None without such a process, or if it has ended and is only remembered.

    Tells a process from a later one of its id.
    """
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def cpu_s(pid: int) -> float | None:
    """CPU time of a process; None without it."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S if fields else None


def memory_bytes(pid: int) -> tuple[int | None, int | None]:
    """What a process holds in memory, and the most it ever held."""
    now = peak = None
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return None, None
    for line in lines:
        if line.startswith("VmRSS:"):
            now = int(line.split()[1]) * 1024
        elif line.startswith("VmHWM:"):
            peak = int(line.split()[1]) * 1024
    return now, peak


def bind(pid: int, cpus: Collection[int]) -> None:
    """Let a process that has just started run on these CPUs only, with all that it starts."""
    with suppress(OSError):  # it has died since
        os.sched_setaffinity(pid, cpus)


def pin(pid: int, cpus: Collection[int], share: float) -> None:
    """Let every thread of a process run on these CPUs only, and give way as one that deserves this share of a CPU."""
    nice = min(_LOWEST_PRIORITY, max(0, ceil(-log(share) / log(_WEIGHT_PER_NICE)))) if share < 1 else 0
    try:
        threads = [int(name) for name in os.listdir(_PROC / str(pid) / "task")]
    except OSError:
        return
    for thread in threads:
        with suppress(OSError):
            os.sched_setaffinity(thread, cpus)
        with suppress(OSError):  # to become less nice again takes a privilege
            os.setpriority(os.PRIO_PROCESS, thread, nice)


def limit_data(pid: int, size_bytes: int) -> None:
    """Refuse a process more private memory than this: allocations then fail, in Python with `MemoryError`."""
    with suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_DATA, (size_bytes, size_bytes))


def _stat(pid: int) -> list[str]:
    """The fields after the name, which may itself hold blanks and brackets."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
