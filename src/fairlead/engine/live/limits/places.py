"""Where the emulated nodes of running services are, for whoever watches or disturbs them."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fairlead.engine.live.limits.groups import PREFIX, is_dead
from fairlead.engine.live.limits.hierarchies import Hierarchy, find_hierarchies
from fairlead.monitor import Place
from fairlead.monitor.place import HELD, inner_groups, processes_in


def find_places() -> list[Place]:
    """Every node that has a control group, named as its group is: RUN / node.

    Its CPUs are those that its instances may use now; without instances, all.
    """
    found = []
    for hierarchy in find_hierarchies():
        if not hierarchy.controllers or "cpu" in hierarchy.controllers:
            for run in _runs(hierarchy):
                with suppress(FileNotFoundError):  # the service ends while this looks
                    nodes = sorted(path for path in run.iterdir() if HELD not in path.name and _is_limited(path))
                    found += [Place(name=node.name, cpus=_cpus(node), cgroup=node) for node in nodes]
    return found


def _runs(hierarchy: Hierarchy) -> Iterator[Path]:
    """The groups of runs that are alive, from our own group up to the root: where runs are made."""
    above = [hierarchy.own, *(path for path in hierarchy.own.parents if path.is_relative_to(hierarchy.mount))]
    for base in above:
        for path in sorted(base.glob(f"{PREFIX}-*")):
            if path.is_dir() and not is_dead(path.name):
                yield path


def _cpus(node: Path) -> tuple[int, ...]:
    found: set[int] = set()
    for pid in (pid for group in inner_groups(node) for pid in processes_in(group)):
        with suppress(OSError):  # it has ended
            found |= os.sched_getaffinity(pid)
    return tuple(sorted(found or os.sched_getaffinity(0)))


def _is_limited(group: Path) -> bool:
    """Whether CPU time is limited here: beside version 1, the groups of version 2 only tell the pressure."""
    return (group / "cpu.cfs_quota_us").exists() or (group / "cpu.max").exists()
