"""Where functions have instances, and which of these are still being started ahead of need.

A start counts until its instance is ready or gone, and not until it was expected to be: beside other programs a process
takes many times as long to start, and keeps its vCPUs for as long as that.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from fairlead.model import Instance
from fairlead.policy.base import Changes
from fairlead.policy.fairlead.menu import Menu, Pair


class Begun(NamedTuple):
    """An instance that is being started ahead of need: of which function and GPU share, where, and what it takes."""

    function: str
    share: float
    node: str
    held: Pair


class Roster:
    """Ready instances by function and node, and those that are on their way; O(1) per instance that comes or goes."""

    def __init__(self) -> None:
        self._begun: dict[int, Begun] = {}  # by instance
        self._ready: dict[int, Instance] = {}
        self._hosts: dict[str, Counter[str]] = {}  # by function: nodes with ready instances
        self._only: dict[str, dict[str, None]] = {}  # by node: functions whose ready instances are all there

    def follow(self, changes: Changes) -> None:
        """Take in instances that became ready or ended."""
        for one in changes.started:
            self._begun.pop(one.id, None)
            if one.id not in self._ready:
                self._ready[one.id] = one
                self._count(one, 1)
        for stopped in changes.stopped:
            self._begun.pop(stopped.instance.id, None)
            known = self._ready.pop(stopped.instance.id, None)
            if known is not None:
                self._count(known, -1)

    def _count(self, one: Instance, more: int) -> None:
        hosts = self._hosts.setdefault(one.function, Counter())
        if len(hosts) == 1:
            self._only[next(iter(hosts))].pop(one.function)
        hosts[one.node] += more
        if not hosts[one.node]:
            del hosts[one.node]
        if len(hosts) == 1:
            self._only.setdefault(next(iter(hosts)), {})[one.function] = None

    def begin(self, instance: int, menu: Menu, option: int, node: str) -> None:
        """An instance is being started ahead of need."""
        self._begun[instance] = Begun(menu.name, menu.vgpus_each[option], node, menu.held_by[option])

    def under_way(self, function: str, share: float | None = None) -> int:
        """How many instances of a function are being started ahead of need, of one GPU share or of all."""
        return sum(one.function == function and share in (None, one.share) for one in self._begun.values())

    def held(self, node: str | None = None) -> Pair:
        """What these starts take, on one node or on all."""
        cpu = gpu = 0.0
        for one in self._begun.values():
            if node is None or one.node == node:
                cpu, gpu = cpu + one.held[0], gpu + one.held[1]
        return cpu, gpu

    def hosts(self, function: str) -> Iterable[str]:
        """The nodes that have ready instances of a function."""
        return self._hosts.get(function, ())

    def only_on(self, node: str) -> Iterable[str]:
        """The functions that have ready instances on this node and nowhere else."""
        return self._only.get(node, ())
