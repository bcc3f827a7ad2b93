"""Signals of any Linux machine: shares of CPU time, pressure stall information, waiting, steal, and probes.

They stand in for hardware counters, slot by slot and in the same direction: `ipc` falls and `memory_reads` and
`l3_misses` rise where something disturbs the node. A node with a control group is judged by what its group was
promised: on half a core, a busy share of 1 is half a core.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic

import msgspec

from fairlead.monitor.files import CpuTimes, context_switches, cpu_times, known, read, read_number, share, stalled_s
from fairlead.monitor.place import (
    Groups,
    Place,
    cpu_s,
    groups_of,
    holders_of,
    inner_groups,
    periods,
    room_cpus,
    threads_in,
)
from fairlead.monitor.probes import Probes
from fairlead.monitor.refusal import RefusedError
from fairlead.monitor.signals import Signals
from fairlead.monitor.waits import Waits

_RESOURCES = ("cpu", "memory", "io")


class _Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What only grows, at one instant."""

    at_s: float
    cpus: CpuTimes | None
    idle_states_s: float | None
    used_s: dict[str, float]  # by group: the node's own, and those that hold a part of it
    periods: tuple[int, int] | None
    stalled_s: dict[str, float | None]
    switches: int | None


class Fallback:
    """Reads procfs and sysfs.

    Args:
        probe_every_s: How often the probes run, at most with every sample; None for never.
        proc: Where procfs is.
        cpu_folder: Where the CPUs are in sysfs.
    """

    name = "fallback"

    def __init__(
        self,
        *,
        probe_every_s: float | None = 2.0,
        proc: Path = Path("/proc"),
        cpu_folder: Path = Path("/sys/devices/system/cpu"),
    ) -> None:
        self._proc = proc
        self._cpu_folder = cpu_folder
        self._probes = None if probe_every_s is None else Probes(probe_every_s)
        self._groups: dict[str, Groups] = {}
        self._last: dict[str, _Reading] = {}
        self._waits: dict[str, Waits] = {}
        self._idle_files: dict[tuple[int, ...], list[str]] = {}

    def open(self, places: Sequence[Place]) -> None:
        """Take the first reading of each place."""
        if self._probes is not None:
            self._probes.prepare()
        for place in places:
            if place.cgroup is not None:
                if not place.cgroup.is_dir():
                    raise RefusedError(f"{place.cgroup}: there is no such control group")
                self._groups[place.name] = groups_of(place.cgroup, self._proc / "self" / "mountinfo")
            reading = self._read(place)
            if reading.cpus is None:
                raise RefusedError(f"{self._proc / 'stat'} does not tell of CPUs {', '.join(map(str, place.cpus))}")
            self._last[place.name] = reading
            self._waits[place.name] = Waits(self._proc)
            self._waits[place.name].share(self._threads(place))

    def sample(self, place: Place) -> Signals:
        """Shares of the time since the last sample; a probe's value is that of its last run."""
        before, after = self._last[place.name], self._read(place)
        self._last[place.name] = after
        passed_s = after.at_s - before.at_s
        extras = self._extras(place, before, after, passed_s)
        busy = extras.get("busy")
        if place.cgroup is None:
            c1 = share(after.idle_states_s, before.idle_states_s, passed_s * len(place.cpus))
        else:
            c1 = None if busy is None else 1 - busy  # a group has no idle states: what it did not use
        rest = min(1.0, extras.get("steal", 0.0) + extras.get("psi_cpu", 0.0))
        slow = {} if self._probes is None else self._probes.slowdowns(place.cpus, after.at_s)
        return Signals(
            at_s=after.at_s,
            ipc=1 / slow["compute"] if "compute" in slow else None,
            memory_reads=slow.get("stream"),
            memory_writes=extras.get("psi_memory"),
            l3_misses=slow.get("gather"),
            c0=busy,
            c1=c1,
            rest=rest,
            extras=extras,
        )

    def close(self) -> None:
        """Nothing is held."""
        self._last.clear()

    def _extras(self, place: Place, before: _Reading, after: _Reading, passed_s: float) -> dict[str, float]:
        found: dict[str, float | None] = {
            f"psi_{name}": share(after.stalled_s[name], before.stalled_s[name], passed_s) for name in _RESOURCES
        }
        host_busy = None
        if before.cpus is not None and after.cpus is not None:
            busy, idle = after.cpus.busy_s - before.cpus.busy_s, after.cpus.idle_s - before.cpus.idle_s
            stolen = after.cpus.steal_s - before.cpus.steal_s
            total = busy + idle + stolen  # in ticks of 10 ms, so coarser than the clock
            host_busy = busy / total if total > 0 else 0.0
            found["steal"] = stolen / total if total > 0 else 0.0
        if place.cgroup is None:
            found["busy"] = host_busy
        else:
            room = room_cpus(place.cgroup) or float(len(place.cpus))
            used_s = _grown(before.used_s, after.used_s)
            found["busy"] = min(1.0, used_s / (passed_s * room)) if after.used_s and passed_s > 0 else None
            found["host_busy"] = host_busy
        if before.periods is not None and after.periods is not None:
            passed = after.periods[0] - before.periods[0]
            # No period passes where nothing wanted to run.
            found["throttled"] = (after.periods[1] - before.periods[1]) / passed if passed > 0 else 0.0
        if before.switches is not None and after.switches is not None and passed_s > 0:
            found["context_switches_per_s"] = (after.switches - before.switches) / passed_s
        found["wait_share"] = self._waits[place.name].share(self._threads(place))
        return known(found)

    def _read(self, place: Place) -> _Reading:
        groups = self._groups.get(place.name)
        stat = read(self._proc / "stat")
        return _Reading(
            at_s=monotonic(),
            cpus=cpu_times(stat, place.cpus),
            idle_states_s=self._idle_states_s(place.cpus) if groups is None else None,
            used_s=_used_s(groups),
            periods=None if groups is None else periods(groups.limit),
            stalled_s={name: self._stalled_s(groups, name) for name in _RESOURCES},
            switches=context_switches(stat),
        )

    def _stalled_s(self, groups: Groups | None, resource: str) -> float | None:
        if groups is None:
            return stalled_s(read(self._proc / "pressure" / resource))
        return None if groups.pressure is None else stalled_s(read(groups.pressure / f"{resource}.pressure"))

    def _idle_states_s(self, cpus: tuple[int, ...]) -> float | None:
        """Time in the first state that is no polling, which is C1 or what takes its place in a guest."""
        if cpus not in self._idle_files:
            files = [self._cpu_folder / f"cpu{cpu}" / "cpuidle" / "state1" / "time" for cpu in cpus]
            self._idle_files[cpus] = [str(file) for file in files if file.exists()]
        times = [read_number(file) for file in self._idle_files[cpus]]
        found = [micros / 1e6 for micros in times if micros is not None]
        return sum(found) if found else None

    def _threads(self, place: Place) -> list[int]:
        """Of the instances, not of what disturbs them; without a group nobody knows whose threads are whose."""
        if place.cgroup is None:
            return []
        groups = [place.cgroup, *inner_groups(place.cgroup)]
        return [thread for group in groups for thread in threads_in(group)]


def _used_s(groups: Groups | None) -> dict[str, float]:
    """A node is as busy as its core would be: what third parties do there counts."""
    if groups is None or groups.usage is None:
        return {}
    times = {group.name: cpu_s(group) for group in (groups.usage, *holders_of(groups.usage))}
    return known(times)


def _grown(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """What was used since; a group that is new was used since it was made."""
    return sum(max(0.0, used_s - before.get(name, 0.0)) for name, used_s in after.items())
