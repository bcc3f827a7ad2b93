"""Limits that always work: CPUs by affinity, shares by niceness, memory by the size of the data segment.

Coarse, and meant for machines where no control group may be made: a share below one CPU counts only while others want
the same CPU, so an emulated node of half the speed is not slow on an idle machine. Memory counts what is reserved, not
what is used.
"""

import os
from collections.abc import Mapping, Sequence
from math import ceil

from fairlead.engine.live.limits.base import Usage
from fairlead.engine.live.limits.processes import cpu_s, limit_data, memory_bytes, pin
from fairlead.model import Node
from fairlead.monitor import Place

_EPSILON = 1e-9


class Affinity:
    """Pins each instance to the least used CPUs of its node."""

    kind = "affinity"

    def __init__(self) -> None:
        self._cpus: dict[str, tuple[int, ...]] = {}
        self._speed: dict[str, float] = {}
        self._load: dict[int, float] = {}
        self._admitted: dict[int, tuple[int, str]] = {}
        self._pinned: dict[int, tuple[tuple[int, ...], float]] = {}

    def open(
        self, nodes: Sequence[Node], *, cpus: Mapping[str, tuple[int, ...]] = {}, is_reserved: bool = False
    ) -> None:
        """Deal the CPUs of this machine to the nodes, in turn; where there are too few, nodes share them.

        Nobody can be kept away from them, so nothing is reserved.
        """
        there = sorted(os.sched_getaffinity(0))
        self._load = dict.fromkeys(there, 0.0)
        first = 0
        for node in nodes:
            self._speed[node.name] = node.speed
            if node.name in cpus:
                self._cpus[node.name] = cpus[node.name]
                continue
            count = min(len(there), max(1, ceil(node.vcpus * node.speed - _EPSILON)))
            self._cpus[node.name] = tuple(there[(first + i) % len(there)] for i in range(count))
            first = (first + count) % len(there)

    def place(self, node: str) -> Place:
        """Its CPUs, which others may use too."""
        return Place(name=node, cpus=self._cpus[node])

    def admit(self, instance: int, pid: int, node: str, vcpus: float, memory_gb: float) -> None:
        """Pin it, and limit its data segment."""
        self._admitted[instance] = (pid, node)
        self._pin(instance, vcpus)
        if memory_gb > 0:
            limit_data(pid, int(memory_gb * 2**30))

    def resize(self, instance: int, vcpus: float) -> None:
        """Pin it to another number of CPUs."""
        if instance in self._admitted:
            self._unpin(instance)
            self._pin(instance, vcpus)

    def usage(self, instance: int) -> Usage:
        """CPU time and memory of its own process."""
        if instance not in self._admitted:
            return Usage()
        pid, _ = self._admitted[instance]
        now, peak = memory_bytes(pid)
        return Usage(cpu_s=self.cpu_s(instance), memory_bytes=now, peak_bytes=peak)

    def cpu_s(self, instance: int) -> float | None:
        """Of its own process."""
        return cpu_s(self._admitted[instance][0]) if instance in self._admitted else None

    def remove(self, instance: int) -> None:
        """Forget it. What it may have started is not known here."""
        if instance in self._admitted:
            self._unpin(instance)
            del self._admitted[instance]

    def pressure(self, node: str) -> float | None:
        """Not known."""
        return None

    def close(self) -> None:
        """Forget everything."""
        self._admitted.clear()
        self._pinned.clear()
        self._load = dict.fromkeys(self._load, 0.0)

    def _pin(self, instance: int, vcpus: float) -> None:
        pid, node = self._admitted[instance]
        share = vcpus * self._speed[node]
        cpus = self._cpus[node]
        count = min(len(cpus), max(1, ceil(share - _EPSILON)))
        chosen = tuple(sorted(cpus, key=lambda cpu: (self._load[cpu], cpu))[:count])
        self._pinned[instance] = chosen, share / count
        for cpu in chosen:
            self._load[cpu] += share / count
        pin(pid, chosen, share / count)

    def _unpin(self, instance: int) -> None:
        chosen, share = self._pinned.pop(instance)
        for cpu in chosen:
            self._load[cpu] -= share
