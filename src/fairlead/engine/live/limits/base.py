"""The contract of a limiter: what keeps the processes of instances within what they were given."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from fairlead.model import Node
from fairlead.monitor import Place


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance has used since it was admitted; None where this machine does not tell.

    `peak_bytes` is the most that its own process held, without what it started.
    """

    cpu_s: float | None = None
    throttled_s: float | None = None
    memory_bytes: int | None = None
    peak_bytes: int | None = None
    oom_kills: int | None = None
    gpu_bytes: int | None = None  # of device memory, now
    gpu_share: float | None = None  # of a GPU's multiprocessors, at the last look


class Limiter(Protocol):
    """Limits CPU and memory of instances, and of the emulated nodes that they run on.

    An instance never gets more CPU than its vCPUs times its node's speed, and all instances of a node together never
    more than the node has. Only `open` and a first `admit` of an unknown node raise: a process that has just died is
    nobody's fault.
    """

    @property
    def kind(self) -> str:
        """`cgroup-v1`, `cgroup-v2` or `affinity`."""
        ...

    def open(
        self, nodes: Sequence[Node], *, cpus: Mapping[str, tuple[int, ...]] = {}, is_reserved: bool = False
    ) -> None:
        """Make room for these nodes, and clear up what dead runs left.

        `cpus` has those of nodes that are bound to some. Reserved nodes go before all else on the machine, as far as a
        limiter can have it: then they are what they say also where others are busy.
        """
        ...

    def place(self, node: str) -> Place:
        """Where a node is, for whoever watches it."""
        ...

    def admit(self, instance: int, pid: int, node: str, vcpus: float, memory_gb: float) -> None:
        """Hold a process that has just started to its limits. 0 GB is no memory limit of its own."""
        ...

    def resize(self, instance: int, vcpus: float) -> None:
        """Give an instance another CPU limit."""
        ...

    def usage(self, instance: int) -> Usage:
        """What it has used; all unknown when there is no such instance."""
        ...

    def cpu_s(self, instance: int) -> float | None:
        """The CPU time in `usage`: one look instead of several."""
        ...

    def remove(self, instance: int) -> None:
        """Forget an instance, and end whatever it left running."""
        ...

    def pressure(self, node: str) -> float | None:
        """Share of the last ten seconds in which something on the node waited for a CPU; None where unknown."""
        ...

    def close(self) -> None:
        """Forget everything, and end whatever is left running."""
        ...
