"""Where control groups can be made on this machine: the mounted hierarchies, and our place in each."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from fairlead.engine.live.limits.groups import read


class Hierarchy(msgspec.Struct, frozen=True, kw_only=True):
    """A mounted hierarchy of control groups, with the group that this process is in."""

    mount: Path
    own: Path
    controllers: frozenset[str]  # as v1 mounts them; empty for v2

    def bases(self) -> Iterator[Path]:
        """Groups that a run's group may be made in, the highest first.

        Any group from which ours is reached without passing a limit will do: a run must not escape the limits that
        it was started under. The highest is the best, because there the next run finds what this one left.
        """
        found = [self.own]
        while found[-1] != self.mount and not _is_limited(found[-1]):
            found.append(found[-1].parent)
        yield from reversed(found)


def find_hierarchies(proc: Path = Path("/proc/self")) -> list[Hierarchy]:
    """Every hierarchy of control groups, as `mountinfo` and `cgroup` of a process give them."""
    places: dict[frozenset[str], str] = {}
    for line in (read(proc / "cgroup") or "").splitlines():
        number, names, place = line.split(":", 2)
        places[frozenset() if number == "0" else frozenset(names.split(","))] = place
    found = []
    for line in (read(proc / "mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(), right.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        mount = Path(fields[4].replace("\\040", " "))
        for controllers, place in places.items():
            if kind == "cgroup2" if not controllers else kind == "cgroup" and controllers <= set(options.split(",")):
                own = _below(mount, fields[3], place)
                found.append(Hierarchy(mount=mount, own=own, controllers=controllers))
    return found


def _below(mount: Path, root: str, place: str) -> Path:
    """Our group as a path; a container may see only a part of the hierarchy, from `root` on."""
    inner = place.removeprefix(root) if root != "/" else place
    own = mount / inner.lstrip("/")
    return own if own.is_dir() else mount


def _is_limited(path: Path) -> bool:
    if int(read(path / "cpu.cfs_quota_us") or -1) > 0:
        return True
    if not (read(path / "cpu.max") or "max").startswith("max"):
        return True
    if (read(path / "memory.max") or "max") != "max":
        return True
    return int(read(path / "memory.limit_in_bytes") or 2**63) < 2**60  # v1 writes "none" as a huge number
