"""What the kernel says in its small text files, as numbers. What cannot be read is None: hosts differ."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class CpuTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds since boot, summed over some CPUs."""

    busy_s: float
    idle_s: float
    steal_s: float


def read(path: Path | str) -> str | None:
    """A file's text; None where it cannot be read."""
    try:  # not Path.read_text: this is most of what a sample costs
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = []
        while part := os.read(handle, 65536):
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(handle)
    return b"".join(parts).decode("utf-8", "replace")


def read_number(path: Path | str) -> int | None:
    """A file that holds one number."""
    text = read(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def fields(text: str | None) -> dict[str, int]:
    """Lines of a word and a number, such as `cpu.stat`; others are left out."""
    found = {}
    for line in (text or "").splitlines():
        word, _, number = line.partition(" ")
        if number.strip().isdigit():
            found[word] = int(number)
    return found


def stalled_s(text: str | None) -> float | None:
    """The time in which some task waited, of a pressure file: the `total` of its `some` line."""
    for line in (text or "").splitlines():
        if line.startswith("some "):
            total = line.rpartition("total=")[2]
            return int(total) / 1e6 if total.isdigit() else None
    return None


def cpu_times(text: str | None, cpus: Collection[int]) -> CpuTimes | None:
    """Of these CPUs, from `/proc/stat`; None where one of them is not in there."""
    wanted = {f"cpu{cpu}" for cpu in cpus}
    busy = idle = steal = 0
    for line in (text or "").splitlines():
        name, *numbers = line.split()
        if name in wanted:
            wanted.discard(name)
            user, nice, system, idle_, iowait, irq, soft, stolen = (*map(int, numbers[:8]), *(0,) * (8 - len(numbers)))
            busy += user + nice + system + irq + soft
            idle += idle_ + iowait
            steal += stolen
    if wanted or not cpus:
        return None
    return CpuTimes(busy_s=busy / TICKS_PER_S, idle_s=idle / TICKS_PER_S, steal_s=steal / TICKS_PER_S)


def context_switches(text: str | None) -> int | None:
    """Of the whole machine, from `/proc/stat`."""
    return fields(text).get("ctxt")


def run_and_wait_s(text: str | None) -> tuple[float, float] | None:
    """How long a thread ran, and how long it waited for a CPU, from its `schedstat`."""
    numbers = (text or "").split()
    if len(numbers) < 2 or not all(number.isdigit() for number in numbers[:2]):
        return None
    return int(numbers[0]) / 1e9, int(numbers[1]) / 1e9


def rss_bytes(text: str | None) -> int | None:
    """What a process holds in memory, from its `statm`."""
    numbers = (text or "").split()
    return int(numbers[1]) * os.sysconf("SC_PAGE_SIZE") if len(numbers) > 1 and numbers[1].isdigit() else None


def parse_cpus(text: str) -> tuple[int, ...]:
    """A list of CPUs as the kernel writes it, such as `0-3,6`. Raises `ValueError`."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise ValueError(f"CPUs are written as 0-3,6; got {text!r}.")
        found.update(range(int(first), int(last if dash else first) + 1))
    return tuple(sorted(found))


def share(after: float | None, before: float | None, over: float) -> float | None:
    """How much of something passed, as a share; None where either is unknown."""
    if after is None or before is None or over <= 0:
        return None
    return min(1.0, max(0.0, (after - before) / over))


def known(values: Mapping[str, float | None]) -> dict[str, float]:
    """Those that are known."""
    return {name: value for name, value in values.items() if value is not None}
