"""Signals of single instances: by their control group, or by their process alone."""

from pathlib import Path
from time import monotonic

import msgspec

from fairlead.monitor.files import TICKS_PER_S, read, rss_bytes
from fairlead.monitor.place import Place, cpu_s, groups_of, inner_groups, periods, processes_in, threads_in
from fairlead.monitor.signals import InstanceSignals
from fairlead.monitor.waits import Waits


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A process, and the group that it is in with all that it starts."""

    name: str
    pid: int
    cgroup: Path | None = None


def instances_in(place: Place) -> list[Instance]:
    """The instances of an emulated node: its inner groups that hold a process."""
    found = []
    for group in inner_groups(place.cgroup) if place.cgroup is not None else []:
        processes = processes_in(group)
        if processes:
            found.append(Instance(name=group.name, pid=processes[0], cgroup=group))
    return found


class InstanceReader:
    """Follows one instance."""

    def __init__(self, instance: Instance, proc: Path = Path("/proc")) -> None:
        self.instance = instance
        self._proc = proc
        group = instance.cgroup
        self._usage = None if group is None else groups_of(group, proc / "self" / "mountinfo").usage
        self._waits = Waits(proc)
        self._at_s = monotonic()
        self._cpu_s = self._used_s()
        self._periods = None if group is None else periods(group)
        self._waits.share(self._threads())

    def sample(self) -> InstanceSignals:
        """What it did since the last call; all unknown once it is gone."""
        now, used, group = monotonic(), self._used_s(), self.instance.cgroup
        passed_s = now - self._at_s
        busy = None if used is None or self._cpu_s is None or passed_s <= 0 else (used - self._cpu_s) / passed_s
        throttled, counted = None, None if group is None else periods(group)
        if counted is not None and self._periods is not None:
            passed = counted[0] - self._periods[0]
            throttled = (counted[1] - self._periods[1]) / passed if passed > 0 else 0.0
        self._at_s, self._cpu_s, self._periods = now, used, counted
        return InstanceSignals(
            at_s=now,
            cpu_s=used,
            busy_cores=busy,
            wait_share=self._waits.share(self._threads()),
            throttled=throttled,
            rss_bytes=rss_bytes(read(self._proc / str(self.instance.pid) / "statm")),
        )

    def _used_s(self) -> float | None:
        if self._usage is not None:
            return cpu_s(self._usage)
        numbers = (read(self._proc / str(self.instance.pid) / "stat") or "").rpartition(")")[2].split()
        return (int(numbers[11]) + int(numbers[12])) / TICKS_PER_S if len(numbers) > 12 else None

    def _threads(self) -> list[int]:
        if self.instance.cgroup is not None:
            return threads_in(self.instance.cgroup)
        try:
            return [int(path.name) for path in (self._proc / str(self.instance.pid) / "task").iterdir()]
        except OSError:
            return []
