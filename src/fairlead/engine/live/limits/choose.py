"""The best limiter that works here, found by trying."""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from fairlead.engine.live.limits.affinity import Affinity
from fairlead.engine.live.limits.base import Limiter
from fairlead.engine.live.limits.cgroups import Cgroups, CgroupV1, CgroupV2
from fairlead.engine.live.limits.groups import read, run_name
from fairlead.engine.live.limits.hierarchies import Hierarchy, find_hierarchies
from fairlead.errors import FairleadError, suggestion
from fairlead.model import Node

KINDS = ("cgroup-v2", "cgroup-v1", "affinity")

_log = logging.getLogger(__name__)


def make_limiter(kind: str | None = None) -> Limiter:
    """A limiter of this kind, or the best that works on this machine. Raises `FairleadError` where that kind does not.

    It is tried with a real process, as permissions, mounts and kernels differ too much to tell beforehand.
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"limits must be one of {', '.join(KINDS)}; got {kind!r}.{suggestion(kind, KINDS)}")
    if kind == "affinity":
        return Affinity()
    reasons: list[str] = []
    hierarchies = find_hierarchies()
    makers: dict[str, Callable[[Sequence[Hierarchy]], Iterator[Cgroups]]] = {
        "cgroup-v2": _version_2,
        "cgroup-v1": _version_1,
    }
    for name, make in makers.items():
        if kind in (None, name):
            found = _first_that_works(make(hierarchies), reasons)
            if found is not None:
                return found
    why = "; ".join(dict.fromkeys(reasons)) or "no control groups with a CPU controller are mounted"
    if kind is not None:
        raise FairleadError(f"Limits of kind {kind!r} do not work here: {why}. Leave the kind out to use what does.")
    _log.warning("CPU limits are coarse, by affinity and niceness: %s.", why)
    return Affinity()


def _version_2(hierarchies: Sequence[Hierarchy]) -> Iterator[CgroupV2]:
    for hierarchy in hierarchies:
        if not hierarchy.controllers:
            for base in hierarchy.bases():
                if "cpu" in (read(base / "cgroup.controllers") or "").split():
                    yield CgroupV2(base)


def _version_1(hierarchies: Sequence[Hierarchy]) -> Iterator[CgroupV1]:
    by_use = {"cpu": "cpu", "usage": "cpuacct", "memory": "memory", "pressure": ""}
    places = {
        use: next((h for h in hierarchies if (controller in h.controllers if controller else not h.controllers)), None)
        for use, controller in by_use.items()
    }
    if places["cpu"] is None:
        return
    # The extras are taken where their highest base can be written to: without them a limit is still a limit.
    extras = {}
    for use, place in places.items():
        if place is not None and use != "cpu":
            base = next((base for base in place.bases() if _is_writable(base)), None)
            if base is not None:
                extras[use] = base
    if "pressure" in extras:
        extras["usage"] = extras["pressure"]  # it counts CPU time too, and each hierarchy less makes a start quicker
    for base in places["cpu"].bases():
        yield CgroupV1({"cpu": base, **extras})


def _is_writable(base: Path) -> bool:
    probe = base / run_name()
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


def _first_that_works(candidates: Iterable[Cgroups], reasons: list[str]) -> Cgroups | None:
    for candidate in candidates:
        reason = _why_not(candidate)
        if reason is None:
            return candidate
        reasons.append(reason)
    return None


def _why_not(limiter: Cgroups) -> str | None:
    """Limit a process that waits for its input; None where that works."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            limiter.open([Node(name="probe", kind="probe", vcpus=0.5)])
            limiter.admit(0, process.pid, "probe", 0.5, 0.0)
            return None if limiter.holds(0) else "a process could not be moved into a group"
        except OSError as error:
            return str(error)
        finally:
            process.kill()
            limiter.close()
