"""Limits by control groups, in the words of version 1 and of version 2.

A CPU limit is a quota per period. The period is short, ten milliseconds where the kernel's customary one is a hundred,
because a throttled process stands still until the next one: with half a CPU, work of 8 ms takes 17 ms in a short
period, and in a long one 8 ms or 54 ms. So a slow node looks slow, not jerky.
"""

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import EINVAL
from math import ceil, inf
from pathlib import Path

from fairlead.engine.live.limits.base import Usage
from fairlead.engine.live.limits.groups import Tree, read, read_field, run_name, write
from fairlead.engine.live.limits.processes import bind, cpu_s, limit_data, memory_bytes
from fairlead.model import Node
from fairlead.monitor import Place

PERIOD_US = 10_000
LEAST_QUOTA_US = 2_000  # shorter than this, the kernel's own bookkeeping takes a part of it

RESERVED = 64
"""How many times its due a reserved run weighs against all else on the machine. Its quotas bound what that costs."""

_GROUP_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CONTROL_FILES = ("notify_on_release", "release_agent", "tasks")

_log = logging.getLogger(__name__)


class Cgroups(ABC):
    """What both versions have in common: the groups, and who is in which."""

    kind: str

    def __init__(self, trees: Mapping[str, Tree]) -> None:
        self._trees = trees  # by what they are for; several uses may share a tree
        self._names: dict[str, str] = {}
        self._nodes: dict[str, Node] = {}
        self._cpus: Mapping[str, tuple[int, ...]] = {}
        self._admitted: dict[int, tuple[int, str]] = {}
        self._unlimited: dict[int, float] = {}  # instances that wait for a limit of their own, with their vCPUs
        self._has_complained = False

    def open(
        self, nodes: Sequence[Node], *, cpus: Mapping[str, tuple[int, ...]] = {}, is_reserved: bool = False
    ) -> None:
        """Make a group per node in every hierarchy. Raises `OSError`."""
        self._nodes = {node.name: node for node in nodes}
        self._names = {node.name: group_name(node.name, i) for i, node in enumerate(nodes)}
        self._cpus = cpus
        for tree in self._distinct():
            tree.open()
            self._delegate(tree.run)
        due = sum(node.vcpus * node.speed for node in nodes)
        self._weigh(self._trees["cpu"].run, due * RESERVED if is_reserved else due)
        for node in nodes:
            for tree in self._distinct():
                self._delegate(tree.add(self._names[node.name]))
            group = self._group("cpu", node.name)
            self._limit_cpu(group, node.vcpus * node.speed, ceil)
            self._weigh(group, node.vcpus * node.speed)
            if "memory" in self._trees and node.memory_gb < inf:
                with self._tolerance():
                    self._limit_memory(self._group("memory", node.name), node.memory_gb)

    def admit(self, instance: int, pid: int, node: str, vcpus: float, memory_gb: float) -> None:
        """Move a process into a group of its own."""
        self._limit_the_unlimited()
        self._admitted[instance] = (pid, node)
        if node in self._cpus:
            bind(pid, self._cpus[node])
        with self._tolerance():
            self._make(instance, vcpus, memory_gb)
        if memory_gb > 0 and "memory" not in self._trees:
            limit_data(pid, int(memory_gb * 2**30))
        for tree in self._distinct():
            tree.sweep()
            with self._tolerance():
                write(self._leaf(tree, instance) / "cgroup.procs", str(pid))

    def place(self, node: str) -> Place:
        """The group that limits its CPU time."""
        cpus = self._cpus.get(node) or tuple(sorted(os.sched_getaffinity(0)))
        return Place(name=node, cpus=cpus, cgroup=self._group("cpu", node))

    def holds(self, instance: int) -> bool:
        """Whether its process is where it belongs, in every hierarchy."""
        pid, _ = self._admitted[instance]
        return all(str(pid) in (read(self._leaf(t, instance) / "cgroup.procs") or "").split() for t in self._distinct())

    def resize(self, instance: int, vcpus: float) -> None:
        """Write another quota."""
        if instance in self._admitted:
            self._limit_the_unlimited()
            with self._tolerance():
                self._limit_instance(instance, vcpus)

    def usage(self, instance: int) -> Usage:
        """Of the whole group, what it started included; the peak is of its first process."""
        if instance not in self._admitted:
            return Usage()
        pid, node = self._admitted[instance]
        now, peak = memory_bytes(pid)
        cpu = self._group("cpu", node, instance)
        memory, kills = now, None
        if "memory" in self._trees:
            group = self._group("memory", node, instance)
            held, kills = self._memory_bytes(group), self._oom_kills(group)
            memory = now if held is None else held
        return Usage(
            cpu_s=self.cpu_s(instance),
            throttled_s=self._throttled_s(cpu),
            memory_bytes=memory,
            peak_bytes=peak,
            oom_kills=kills,
        )

    def cpu_s(self, instance: int) -> float | None:
        """Of the whole group; of its first process where groups do not tell."""
        if instance not in self._admitted:
            return None
        pid, node = self._admitted[instance]
        used = None if "usage" not in self._trees else self._cpu_s(self._group("usage", node, instance))
        return cpu_s(pid) if used is None else used

    def remove(self, instance: int) -> None:
        """Kill what is left in its groups and remove them, later where they are still in use."""
        if instance in self._admitted:
            for tree in self._distinct():
                tree.drop(self._leaf(tree, instance))
            del self._admitted[instance]
            self._unlimited.pop(instance, None)
            self._limit_the_unlimited()

    def pressure(self, node: str) -> float | None:
        """The kernel's own ten-second average for the node's group."""
        if "pressure" not in self._trees:
            return None
        line = (read(self._group("pressure", node) / "cpu.pressure") or "").partition("\n")[0]
        fields = dict(part.split("=", 1) for part in line.split()[1:])
        return float(fields["avg10"]) / 100 if "avg10" in fields else None

    def close(self) -> None:
        """Remove all groups of this run."""
        for tree in self._distinct():
            tree.close()
        self._admitted.clear()
        self._unlimited.clear()

    def _make(self, instance: int, vcpus: float, memory_gb: float) -> None:
        _, node = self._admitted[instance]
        for tree in self._distinct():
            tree.add(self._names[node], str(instance))
        self._limit_instance(instance, vcpus)
        if memory_gb > 0 and "memory" in self._trees:
            self._limit_memory(self._group("memory", node, instance), memory_gb)

    def _limit_instance(self, instance: int, vcpus: float) -> None:
        _, name = self._admitted[instance]
        node, group = self._nodes[name], self._group("cpu", name, instance)
        self._weigh(group, vcpus)
        self._unlimited.pop(instance, None)
        try:
            # Version 1 refuses a group more than the one above it has: rounded down below, rounded up above.
            self._limit_cpu(group, min(vcpus, node.vcpus) * node.speed, int)
        except OSError as error:
            if error.errno != EINVAL:
                raise
            # A third party holds a part of the node, whose own limit is less meanwhile: that one must do.
            self._unlimited[instance] = vcpus
            self._limit_cpu(group, inf, int)

    def _limit_the_unlimited(self) -> None:
        """Give those their limit that could not have it before.

        Tried whenever an instance comes, goes or is resized. Until then only their node's limit holds them, also after
        the third party is gone: nobody tells of that.
        """
        for instance, vcpus in list(self._unlimited.items()):
            with self._tolerance():
                self._limit_instance(instance, vcpus)

    def _distinct(self) -> list[Tree]:
        return list({id(tree): tree for tree in self._trees.values()}.values())

    def _group(self, use: str, node: str, instance: int | None = None) -> Path:
        group = self._trees[use].run / self._names[node]
        return group if instance is None else group / str(instance)

    def _leaf(self, tree: Tree, instance: int) -> Path:
        return tree.run / self._names[self._admitted[instance][1]] / str(instance)

    @contextmanager
    def _tolerance(self) -> Iterator[None]:
        """What goes on although a limit could not be set, which is said once."""
        try:
            yield
        except ProcessLookupError:  # it has died since
            return
        except OSError as error:
            if not self._has_complained:
                _log.warning("A limit could not be set, and others may not be either: %s.", error)
            self._has_complained = True

    @abstractmethod
    def _delegate(self, group: Path) -> None:
        """Let the groups below this one have limits."""

    @abstractmethod
    def _limit_cpu(self, group: Path, cpus: float, rounding: Callable[[float], int]) -> None:
        """Never more than so many CPUs."""

    @abstractmethod
    def _weigh(self, group: Path, vcpus: float) -> None:
        """What it gets of a CPU that others want too."""

    @abstractmethod
    def _limit_memory(self, group: Path, memory_gb: float) -> None: ...

    @abstractmethod
    def _cpu_s(self, group: Path) -> float | None: ...

    @abstractmethod
    def _throttled_s(self, group: Path) -> float | None: ...

    @abstractmethod
    def _memory_bytes(self, group: Path) -> int | None:
        """Without files that only happen to be cached."""

    @abstractmethod
    def _oom_kills(self, group: Path) -> int | None: ...


class CgroupV1(Cgroups):
    """One hierarchy per controller; version 2 beside it, without controllers, tells the pressure."""

    kind = "cgroup-v1"

    def __init__(self, bases: Mapping[str, Path]) -> None:
        name = run_name()
        trees = {base: Tree(base, name) for base in bases.values()}
        super().__init__({use: trees[base] for use, base in bases.items()})

    def _delegate(self, group: Path) -> None:
        return

    def _limit_cpu(self, group: Path, cpus: float, rounding: Callable[[float], int]) -> None:
        limit = quota(cpus, rounding)
        if limit is None:
            write(group / "cpu.cfs_quota_us", "-1")
            return
        quota_us, period_us = limit
        if read(group / "cpu.cfs_period_us") != str(period_us):
            write(group / "cpu.cfs_quota_us", "-1")  # the old quota may be too much for the new period
            write(group / "cpu.cfs_period_us", str(period_us))
        write(group / "cpu.cfs_quota_us", str(quota_us))

    def _weigh(self, group: Path, vcpus: float) -> None:
        write(group / "cpu.shares", str(max(2, min(262_144, round(1024 * vcpus)))))

    def _limit_memory(self, group: Path, memory_gb: float) -> None:
        size = str(int(memory_gb * 2**30))
        write(group / "memory.limit_in_bytes", size)
        with suppress(OSError):  # the kernel may not account for swap
            write(group / "memory.swappiness", "0")
            write(group / "memory.memsw.limit_in_bytes", size)

    def _cpu_s(self, group: Path) -> float | None:
        used = read(group / "cpuacct.usage")
        if used is not None:
            return int(used) / 1e9
        micros = read_field(group / "cpu.stat", "usage_usec")  # where version 2 stands in
        return None if micros is None else micros / 1e6

    def _throttled_s(self, group: Path) -> float | None:
        nanos = read_field(group / "cpu.stat", "throttled_time")
        return None if nanos is None else nanos / 1e9

    def _memory_bytes(self, group: Path) -> int | None:
        return _without_cache(group / "memory.usage_in_bytes", group / "memory.stat", "total_inactive_file")

    def _oom_kills(self, group: Path) -> int | None:
        return read_field(group / "memory.oom_control", "oom_kill")


class CgroupV2(Cgroups):
    """One hierarchy for everything."""

    kind = "cgroup-v2"

    def __init__(self, base: Path) -> None:
        tree = Tree(base, run_name())
        uses = ["cpu", "usage", "pressure"]
        if "memory" in (read(base / "cgroup.controllers") or "").split():
            uses.append("memory")
        super().__init__(dict.fromkeys(uses, tree))

    def open(
        self, nodes: Sequence[Node], *, cpus: Mapping[str, tuple[int, ...]] = {}, is_reserved: bool = False
    ) -> None:
        """Make a group per node. Raises `OSError`."""
        self._delegate(self._trees["cpu"].base)
        super().open(nodes, cpus=cpus, is_reserved=is_reserved)

    def _delegate(self, group: Path) -> None:
        for controller in ("cpu", "memory") if "memory" in self._trees else ("cpu",):
            if controller not in (read(group / "cgroup.subtree_control") or "").split():
                write(group / "cgroup.subtree_control", f"+{controller}")

    def _limit_cpu(self, group: Path, cpus: float, rounding: Callable[[float], int]) -> None:
        limit = quota(cpus, rounding)
        write(group / "cpu.max", f"max {PERIOD_US}" if limit is None else f"{limit[0]} {limit[1]}")

    def _weigh(self, group: Path, vcpus: float) -> None:
        write(group / "cpu.weight", str(max(1, min(10_000, round(100 * vcpus)))))

    def _limit_memory(self, group: Path, memory_gb: float) -> None:
        write(group / "memory.max", str(int(memory_gb * 2**30)))
        with suppress(OSError):
            write(group / "memory.swap.max", "0")

    def _cpu_s(self, group: Path) -> float | None:
        micros = read_field(group / "cpu.stat", "usage_usec")
        return None if micros is None else micros / 1e6

    def _throttled_s(self, group: Path) -> float | None:
        micros = read_field(group / "cpu.stat", "throttled_usec")
        return None if micros is None else micros / 1e6

    def _memory_bytes(self, group: Path) -> int | None:
        return _without_cache(group / "memory.current", group / "memory.stat", "inactive_file")

    def _oom_kills(self, group: Path) -> int | None:
        return read_field(group / "memory.events", "oom_kill")


def group_name(node: str, index: int) -> str:
    """A node's own name where a group can have it, so that others find the node by it."""
    is_fine = _GROUP_NAME.fullmatch(node) is not None and node not in _CONTROL_FILES
    return node if is_fine else f"node.{index}"


def quota(cpus: float, rounding: Callable[[float], int]) -> tuple[int, int] | None:
    """Microseconds of CPU time, and the period they are for; None where the whole machine is no more."""
    if cpus >= (os.cpu_count() or 1):
        return None
    period_us = max(PERIOD_US, min(1_000_000, ceil(LEAST_QUOTA_US / cpus)))
    return max(1_000, rounding(period_us * cpus)), period_us


def _without_cache(held: Path, stat: Path, cache: str) -> int | None:
    total = read(held)
    return None if total is None else max(0, int(total) - (read_field(stat, cache) or 0))
