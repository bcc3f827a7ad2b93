"""Where a node is on this machine: some CPUs, and a control group where it is emulated."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from fairlead.monitor.files import fields, read, read_number

HELD = "@"
"""Between a node's name and the rest, in the name of a group beside it that holds a part of the node for others."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A node as this machine knows it.

    `cgroup` is its group in the hierarchy that limits CPU time (`cpu` of version 1, or version 2). The group of the
    same path in the other hierarchies is taken to be its group there. Without a group, the node is its CPUs.
    """

    name: str
    cpus: tuple[int, ...]
    cgroup: Path | None = None


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of a place, by what they tell; None where this machine does not."""

    limit: Path
    usage: Path | None = None
    pressure: Path | None = None


def local_place(cpus: Sequence[int] | None = None, name: str = "local") -> Place:
    """This machine, or some of its CPUs. Raises `ValueError` for CPUs that this process may not use."""
    allowed = sorted(os.sched_getaffinity(0))
    missing = [cpu for cpu in cpus or () if cpu not in allowed]
    if missing:
        raise ValueError(f"CPU {missing[0]} cannot be used here; there are {', '.join(map(str, allowed))}.")
    return Place(name=name, cpus=tuple(cpus or allowed))


def mounts(mountinfo: Path = Path("/proc/self/mountinfo")) -> Iterator[tuple[Path, frozenset[str] | None]]:
    """Where control groups are mounted, with the controllers of version 1; None for version 2."""
    for line in (read(mountinfo) or "").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            mount = Path(left.split()[4].replace("\\040", " "))
            yield mount, None if kind == "cgroup2" else frozenset(options.split(","))


def groups_of(group: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> Groups:
    """The groups of the same path in every hierarchy."""
    found = list(mounts(mountinfo))
    below = [mount for mount, _ in found if group.is_relative_to(mount)]
    tail = group.relative_to(max(below, key=lambda mount: len(mount.parts))) if below else None
    unified = accounts = None
    for mount, controllers in found:
        same = group if tail is None else mount / tail
        if controllers is None and (same / "cpu.pressure").exists():
            unified = same
        elif controllers is not None and "cpuacct" in controllers and same.is_dir():
            accounts = same
    if tail is None:  # not mounted where the kernel says: taken by itself
        unified = group if (group / "cpu.pressure").exists() else None
        accounts = group if (group / "cpuacct.usage").exists() else None
    return Groups(limit=group, usage=unified or accounts, pressure=unified)


def quota_cpus(group: Path) -> float | None:
    """How many CPUs a group may use at once, in the words of either version; None without a limit."""
    text = read(group / "cpu.max")
    if text is not None:
        quota, _, period = text.strip().partition(" ")
        return int(quota) / int(period or 100_000) if quota.isdigit() else None
    quota_us, period_us = read_number(group / "cpu.cfs_quota_us"), read_number(group / "cpu.cfs_period_us")
    return quota_us / period_us if quota_us is not None and period_us and quota_us > 0 else None


def cpu_s(group: Path | None) -> float | None:
    """CPU time of all that is or was in a group."""
    if group is None:
        return None
    nanos = read_number(group / "cpuacct.usage")
    if nanos is not None:
        return nanos / 1e9
    micros = fields(read(group / "cpu.stat")).get("usage_usec")
    return None if micros is None else micros / 1e6


def periods(group: Path) -> tuple[int, int] | None:
    """The periods of a group's quota so far, and those in which it ran out."""
    found = fields(read(group / "cpu.stat"))
    return (found["nr_periods"], found["nr_throttled"]) if "nr_periods" in found and "nr_throttled" in found else None


def inner_groups(group: Path) -> list[Path]:
    """The groups of a node's instances: all that are just below."""
    return [group / name for name in _names_in(group)]


def holders_of(group: Path) -> list[Path]:
    """The groups beside a node's that hold a part of it: what they may use is taken from the node's own limit."""
    return [group.parent / name for name in _names_in(group.parent) if name.startswith(f"{group.name}{HELD}")]


def room_cpus(group: Path) -> float | None:
    """How many CPUs a node has, with what others hold of it; None without a limit."""
    own = quota_cpus(group)
    if own is None:
        return None
    return own + sum(quota_cpus(holder) or 0.0 for holder in holders_of(group))


def _names_in(group: Path) -> list[str]:
    try:
        with os.scandir(group) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return []


def threads_in(group: Path) -> list[int]:
    """The threads of one group, without those of the groups below."""
    text = read(group / "cgroup.threads") or read(group / "tasks") or ""
    return [int(word) for word in text.split() if word != "0"]  # 0: outside this namespace


def processes_in(group: Path) -> list[int]:
    """The processes of one group, without those of the groups below."""
    return [int(word) for word in (read(group / "cgroup.procs") or "").split() if word != "0"]
