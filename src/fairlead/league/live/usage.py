"""CPU time of this process, of a gateway with its instances, and of all other programs, from /proc."""

import os
from pathlib import Path
from time import monotonic
from typing import Self

import msgspec

_PROC = Path("/proc")


class Process(msgspec.Struct, frozen=True):
    """One line of /proc/PID/stat: CPU times in ticks, `ended` those of its children that have ended."""

    parent: int
    own: int
    ended: int


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """CPU seconds in a span of time. `others` is the share of all CPUs that other programs used, in [0, 1]."""

    gateway_s: float
    instances_s: float
    others: float


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What everything has used until an instant, in ticks."""

    at: float
    busy: int
    processes: dict[int, Process]

    @classmethod
    def take(cls) -> Self:
        """Now."""
        return cls(at=monotonic(), busy=_busy(), processes=_processes())

    def since(self, before: "Snapshot", gateway: int) -> Used:
        """What was used between two snapshots, while the gateway with this process id was alive."""
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        ours = self.tree(os.getpid()) - before.tree(os.getpid())
        whole = self.tree(gateway) - before.tree(gateway)
        alone = self._own(gateway) - before._own(gateway)
        elapsed_s = max(self.at - before.at, tick_s)
        others = (self.busy - before.busy - ours) * tick_s / elapsed_s / (os.cpu_count() or 1)
        return Used(
            gateway_s=max(0, alone) * tick_s,
            instances_s=max(0, whole - alone) * tick_s,
            others=min(1.0, max(0.0, others)),
        )

    def tree(self, root: int) -> int:
        """Ticks of a process and all below it, the ended ones included."""
        children: dict[int, list[int]] = {}
        for pid, process in self.processes.items():
            children.setdefault(process.parent, []).append(pid)
        total, waiting = 0, [root]
        while waiting:
            pid = waiting.pop()
            found = self.processes.get(pid)
            if found is not None:
                total += found.own + found.ended
                waiting += children.get(pid, [])
        return total

    def _own(self, pid: int) -> int:
        found = self.processes.get(pid)
        return 0 if found is None else found.own


def _busy() -> int:
    user, nice, system, _idle, _waiting, irq, soft_irq, steal = map(
        int, (_PROC / "stat").read_text().partition("\n")[0].split()[1:9]
    )
    return user + nice + system + irq + soft_irq + steal


def _processes() -> dict[int, Process]:
    found = {}
    for folder in _PROC.glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        own, ended = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        found[int(folder.name)] = Process(int(fields[1]), own, ended)
    return found
