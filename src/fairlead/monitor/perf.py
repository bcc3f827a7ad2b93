"""Hardware counters by the kernel's own interface, `perf_event_open`, without a library.

Opens only where the kernel shows a PMU, which most virtual machines do not. Instructions, cycles and cache misses are
counted on the CPUs of the node, for its control group alone where the kernel can; the traffic of the memory controllers
is that of the sockets that these CPUs belong to. Shares of time and everything else come from the kernel's files.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from fairlead.monitor.fallback import Fallback
from fairlead.monitor.files import read
from fairlead.monitor.place import Place, mounts
from fairlead.monitor.refusal import RefusedError
from fairlead.monitor.signals import Signals
from fairlead.monitor.uncore import MemoryEvent, find_memory_events

HARDWARE = 0
CYCLES, INSTRUCTIONS, CACHE_MISSES = 0, 1, 3

_EVENTS = {"cycles": CYCLES, "instructions": INSTRUCTIONS, "cache_misses": CACHE_MISSES}
_SYSCALLS = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "s390x": 331, "riscv64": 241}
_TIMES = 3  # PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING
_OF_CGROUP, _CLOSE_ON_EXEC = 4, 8
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")


class _Attributes(ctypes.Structure):
    """`perf_event_attr` in its first published size, which every kernel takes."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
    )


def open_event(kind: int, config: int, *, cpu: int, pid: int = -1, cgroup: int | None = None) -> int:
    """A descriptor of one counter that runs. Raises `OSError`."""
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"perf_event_open is not known on {platform.machine()}")
    attributes = _Attributes(type=kind, size=ctypes.sizeof(_Attributes), config=config, read_format=_TIMES)
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _CLOSE_ON_EXEC | (0 if cgroup is None else _OF_CGROUP)
    who = pid if cgroup is None else cgroup
    handle = libc.syscall(
        ctypes.c_long(number), ctypes.byref(attributes), ctypes.c_int(who), ctypes.c_int(cpu), -1, ctypes.c_ulong(flags)
    )
    if handle < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(handle)


def read_event(handle: int) -> float:
    """What it counted so far, scaled up where several counters shared the hardware."""
    count, enabled, running = struct.unpack("QQQ", os.read(handle, 24))
    return float(count * enabled / running) if running else 0.0


class Perf:
    """Counts instructions, cycles, cache misses and memory traffic."""

    name = "perf"

    def __init__(self) -> None:
        self._base = Fallback(probe_every_s=None)
        self._counters: dict[str, dict[str, list[int]]] = {}  # by place and event: one per CPU
        self._memory: dict[str, list[tuple[MemoryEvent, int]]] = {}
        self._last: dict[str, dict[str, float]] = {}
        self._at_s: dict[str, float] = {}

    def open(self, places: Sequence[Place]) -> None:
        """Open a counter per event and CPU."""
        try:
            for place in places:
                try:
                    self._open(place)
                except OSError as error:
                    raise RefusedError(_why(error)) from error
            self._base.open(places)
        except BaseException:
            self.close()
            raise

    def sample(self, place: Place) -> Signals:
        """Rates since the last sample; memory traffic in GB/s, misses in millions per second."""
        base = self._base.sample(place)
        before, now = self._last[place.name], self._read(place.name)
        passed_s = base.at_s - self._at_s.get(place.name, base.at_s)
        self._last[place.name], self._at_s[place.name] = now, base.at_s
        grown = {name: max(0.0, now[name] - before.get(name, 0.0)) for name in now}
        rates = {name: value / passed_s for name, value in grown.items()} if passed_s > 0 else {}
        cycles = grown.get("cycles", 0.0)
        misses = rates.get("cache_misses")
        idle = base.c1
        return msgspec.structs.replace(
            base,
            ipc=grown["instructions"] / cycles if cycles > 0 else 0.0,
            l3_misses=None if misses is None else misses / 1e6,
            memory_reads=rates.get("reads"),
            memory_writes=rates.get("writes"),
            rest=None if base.c0 is None or idle is None else max(0.0, 1 - base.c0 - idle),
        )

    def close(self) -> None:
        """Close the counters."""
        handles = [h for events in self._counters.values() for one in events.values() for h in one]
        handles += [handle for events in self._memory.values() for _, handle in events]
        for handle in handles:
            with suppress(OSError):
                os.close(handle)
        self._counters.clear()
        self._memory.clear()
        self._base.close()

    def _open(self, place: Place) -> None:
        folder = _event_group(place)
        group = None if folder is None else os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            events = self._counters.setdefault(place.name, {})
            for name, config in _EVENTS.items():
                handles = events.setdefault(name, [])
                for cpu in place.cpus:
                    handles.append(open_event(HARDWARE, config, cpu=cpu, cgroup=group))
        finally:
            if group is not None:
                os.close(group)
        found = self._memory.setdefault(place.name, [])
        for event in find_memory_events(place.cpus):
            with suppress(OSError):  # without it, the rest is still worth having
                found.append((event, open_event(event.kind, event.config, cpu=event.cpu)))
        self._last[place.name] = self._read(place.name)

    def _read(self, place: str) -> dict[str, float]:
        found = {name: sum(map(read_event, handles)) for name, handles in self._counters[place].items()}
        for event, handle in self._memory[place]:
            found[event.direction] = found.get(event.direction, 0.0) + read_event(handle) * event.gb_per_count
        return found


def _event_group(place: Place) -> Path | None:
    """The node's group where the kernel counts events by group: version 2, or `perf_event` of version 1."""
    if place.cgroup is None:
        return None
    found = list(mounts())
    tails = [place.cgroup.relative_to(mount) for mount, _ in found if place.cgroup.is_relative_to(mount)]
    for mount, controllers in found:
        if tails and (controllers is None or "perf_event" in controllers) and (mount / tails[-1]).is_dir():
            return mount / tails[-1]
    return None


def _why(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        return "the kernel shows no PMU (perf_event_open: no such event), as in most virtual machines"
    if error.errno in (errno.EACCES, errno.EPERM):
        level = (read(_PARANOID) or "?").strip()
        return f"perf_event_open is not allowed (kernel.perf_event_paranoid is {level}); run as root or set it to 0"
    return f"perf_event_open: {error.strerror}"
