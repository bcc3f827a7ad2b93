"""An emulated node with busy functions on it, and what is left after somebody pressed on it."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from fairlead.engine.live.limits import make_limiter
from fairlead.engine.live.limits.places import find_places
from fairlead.model import Node

SPIN = [sys.executable, "-I", "-S", "-c", "while True: pass"]


class Emulated:
    """A node of half a core; its run's group is heavy, so that others on this machine do not count."""

    def __init__(self, limiter):
        self.limiter = limiter
        mine = [place for place in find_places() if f"-{os.getpid()}-" in place.cgroup.parent.name]
        (self.place,) = mine
        for name, weight in (("cpu.shares", "262144"), ("cpu.weight", "10000")):
            file = self.place.cgroup.parent / name
            if file.exists():
                file.write_text(weight)
        self._functions = []

    def add_function(self, vcpus=1.0):
        """A busy loop as an instance."""
        process = subprocess.Popen(SPIN)
        self._functions.append(process)
        self.limiter.admit(len(self._functions), process.pid, "half", vcpus, 0.0)

    def functions_cpu_s(self):
        return sum(self.limiter.usage(i + 1).cpu_s for i in range(len(self._functions)))

    def limits(self):
        """Every limit of CPU time in here."""
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.max")
        groups = [self.place.cgroup, *(path for path in self.place.cgroup.iterdir() if path.is_dir())]
        return {str(g / n): (g / n).read_text() for g in groups for n in names if (g / n).exists()}

    def end(self):
        for process in self._functions:
            process.kill()
            process.wait()


@contextmanager
def emulated_node(speed=0.5):
    limiter = make_limiter()
    limiter.open([Node(name="half", kind="half", vcpus=1, speed=speed)])
    found = None
    try:
        found = Emulated(limiter)
        yield found
    finally:
        if found is not None:
            found.end()
        limiter.close()


def has_cgroups():
    return make_limiter().kind != "affinity"


def holders(pid):
    """Groups that a process of this id made to hold a part of a node, or the machine."""
    roots = [Path("/sys/fs/cgroup")]
    return [path for root in roots for path in root.rglob(f"*fairlead-*-{pid}-*") if path.is_dir()]


def children(pid):
    """The processes below a process, their own included."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] not in "ZX":
                parents[int(folder.name)] = int(fields[1])
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition, limit_s=60.0):
    """Whether it came true in time."""
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
