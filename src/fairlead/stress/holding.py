"""A part of a node that third parties hold: taken from the node's own limit, and given to a group beside it.

Pressure of x % on a node of q cores lowers the limit of the node's group to (1 - x) q and makes a group beside it with
a limit of x q, in which a burner takes all that it may. Both then get their part, whatever the functions want. Weights
cannot do this: inside a group that runs out of its quota every period, a group of 256 times the weight got a third of
the node instead of three quarters (Linux 6.18, three busy functions, half a core).

Both limits together are always the node's, so that whoever finds the group of a dead owner can give its part back.
"""

import os
from contextlib import suppress
from pathlib import Path

from fairlead.engine.live.limits.groups import is_dead, read, run_name, write
from fairlead.engine.live.limits.hierarchies import find_hierarchies
from fairlead.errors import FairleadError
from fairlead.monitor import Place
from fairlead.monitor.place import HELD, groups_of, holders_of, inner_groups, quota_cpus

Writes = list[tuple[str, str]]
"""Control files and what to write to them, in order."""

_PERIOD_US = 10_000  # as the limits of instances have it
_LEAST_QUOTA_US = 1_000  # the kernel takes no less
_MOST_PERIOD_US = 1_000_000
_MOST_SHARE = 0.98  # a node that has nothing left cannot even end
_HEAVIEST_V1, _HEAVIEST_V2 = "262144", "10000"


class StressError(FairleadError):
    """Pressure could not be made."""


class Holding:
    """The groups of one third party on one place.

    Raises `OSError` where they cannot be made, and `StressError` where another one has the node: both together would
    get less than they say.

    Args:
        place: Where. Nothing is taken from a place without a group: the third party is then the heaviest there, in a
            group of its own.
    """

    def __init__(self, place: Place) -> None:
        self._node = place.cgroup
        if self._node is None:
            base = _base()
            if base is None:
                raise OSError("no control group that limits CPU time may be made")
            self._cpus, stem = float(len(place.cpus)), ""
        else:
            recover(self._node)
            base, stem = self._node.parent, f"{self._node.name}{HELD}"
            self._before = present_writes(self._node)
            self._cpus = min(quota_cpus(self._node) or len(place.cpus), len(place.cpus))
        self._inner: dict[
            Path, tuple[float, Writes]
        ] = {}  # limits of instances that stand in the way of a lower one above them
        name = f"{stem}{run_name()}"
        self.group = base / name
        usage = groups_of(self._node or base).usage  # where CPU time of the node is counted, if not in the same place
        beside = None if usage is None else (usage if self._node is None else usage.parent) / name
        self.groups = [self.group] if beside in (None, self.group) else [self.group, beside]
        made: list[Path] = []
        try:
            for group in self.groups:
                group.mkdir()
                made.append(group)
            for path, text in _weight(self.group):
                write(Path(path), text)
            if self._node is not None:
                _check_alone(place.name, self._node, self.group)  # now that others see this one: one of both notices
        except (OSError, StressError):
            for group in made:
                group.rmdir()
            raise

    def undo(self, share: float) -> Writes:
        """What would give the node its part back after `limit`; the groups are to be removed after it.

        Known before the change, so that somebody else can undo it should this process die in the middle.
        """
        if self._node is None:
            return []
        left = self._cpus - self._held(share)
        for group in inner_groups(self._node):
            cpus = None if (group / "cpu.max").exists() else quota_cpus(group)
            if cpus is not None and cpus > left:
                self._inner[group] = cpus, present_writes(group)
        return [*self._before, *(write for _, writes in self._inner.values() for write in writes)]

    def limit(self, share: float) -> None:
        """Let it have this share of the node. Raises `OSError`."""
        self.undo(share)
        held = self._held(share)
        _apply(limit_writes(self.group, held))
        if self._node is None:
            return
        left = self._cpus - held
        # Version 1 refuses a group less than what a group below has: those have no limit of their own meanwhile.
        for group, (cpus, _) in self._inner.items():
            if cpus > left:
                _apply(limit_writes(group, None), is_strict=False)
        _apply(limit_writes(self._node, left))
        for group, (cpus, writes) in list(self._inner.items()):
            if cpus <= left:
                _apply(writes, is_strict=False)
                del self._inner[group]

    def remove(self) -> None:
        """Give everything back, and remove the groups, where nobody has yet."""
        if self.group.is_dir():
            _apply(self.undo(0.0), is_strict=False)
        for group in self.groups:
            with suppress(OSError):
                group.rmdir()

    def _held(self, share: float) -> float:
        return self._cpus * min(share, _MOST_SHARE)


def _check_alone(name: str, node: Path, own: Path) -> None:
    for group in holders_of(node):
        if group != own:
            owner = group.name.partition(HELD)[2].split("-")
            is_here = len(owner) == 5 and owner[:2] == run_name().split("-")[:2]
            by, how = (f" by process {owner[2]}", f": kill {owner[2]}") if is_here else ("", "")
            raise StressError(
                f"Node {name} is pressed on already{by}, and two at once would both get less than they say. Wait until "
                f"that one is done, or end it{how}."
            )


def recover(node: Path) -> None:
    """Give back to a node what is held by third parties whose owner and keeper were both killed."""
    usage = groups_of(node).usage
    for group in holders_of(node):
        if is_dead(group.name.partition(HELD)[2]):
            held, left = quota_cpus(group), quota_cpus(node)
            with suppress(OSError):  # not while anybody is in there
                group.rmdir()
                if held is not None and left is not None:
                    _apply(limit_writes(node, held + left))
                if usage is not None and usage != node:
                    (usage.parent / group.name).rmdir()


def limit_writes(group: Path, cpus: float | None) -> Writes:
    """How a group is limited to so many CPUs, in the words of its version; None for no limit."""
    if cpus is None:
        quota_us, period_us = None, _PERIOD_US
    else:
        period_us = max(_PERIOD_US, min(_MOST_PERIOD_US, int(_LEAST_QUOTA_US / cpus) + 1))
        quota_us = max(_LEAST_QUOTA_US, round(period_us * cpus))
    if (group / "cpu.max").exists():
        return [(str(group / "cpu.max"), f"{'max' if quota_us is None else quota_us} {period_us}")]
    writes = []
    if read(group / "cpu.cfs_period_us") != str(period_us):  # the old quota may be too much for the new period
        writes = [(str(group / "cpu.cfs_quota_us"), "-1"), (str(group / "cpu.cfs_period_us"), str(period_us))]
    return [*writes, (str(group / "cpu.cfs_quota_us"), "-1" if quota_us is None else str(quota_us))]


def present_writes(group: Path) -> Writes:
    """What gives a group the limit that it has now, whatever it has by then."""
    text = read(group / "cpu.max")
    if text is not None:
        return [(str(group / "cpu.max"), text)]
    quota, period = str(group / "cpu.cfs_quota_us"), str(group / "cpu.cfs_period_us")
    return [(quota, "-1"), (period, read(Path(period)) or str(_PERIOD_US)), (quota, read(Path(quota)) or "-1")]


def _weight(group: Path) -> Writes:
    """The most there is: what it may have it gets, also where the machine is full."""
    if (group / "cpu.shares").exists():
        return [(str(group / "cpu.shares"), _HEAVIEST_V1)]
    return [(str(group / "cpu.weight"), _HEAVIEST_V2)]


def _apply(writes: Writes, *, is_strict: bool = True) -> None:
    for path, text in writes:
        try:
            write(Path(path), text)
        except OSError:
            if is_strict:
                raise


def _base() -> Path | None:
    """A group in which CPU time can be limited and that we may write to: the highest there is."""
    for hierarchy in find_hierarchies():
        if "cpu" in hierarchy.controllers or not hierarchy.controllers:
            for base in hierarchy.bases():
                below = (read(base / "cgroup.subtree_control") or "").split()
                if ("cpu" in hierarchy.controllers or "cpu" in below) and os.access(base, os.W_OK):
                    return base
    return None
