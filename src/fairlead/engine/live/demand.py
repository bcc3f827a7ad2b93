"""What a member of a shared cluster uses and needs, as the ledger of leases hears of it, in whole numbers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec


class Amount(NamedTuple):
    """An amount of a node: vCPUs in thousandths, memory in MiB, and of each device thousandths of vGPUs."""

    vcpus: int = 0
    memory: int = 0
    devices: tuple[int, ...] = ()

    def each(self) -> tuple[int, ...]:
        """All of them, in the order of a node's resources."""
        return self.vcpus, self.memory, *self.devices


class Need(NamedTuple):
    """What one instance takes, wherever it runs: in thousandths, MiB, and thousandths of vGPUs of one device."""

    vcpus: int = 0
    memory: int = 0
    vgpus: int = 0


class Work(msgspec.Struct, frozen=True):
    """Waiting work: this many instances could do it. Each must get enough for any of the sizes that fit on a node."""

    sizes: tuple[Need, ...]
    instances: int = 1


class Demand(msgspec.Struct, frozen=True):
    """What a member needs now.

    `uses` is what exists of its instances by node: idle ones count with their memory, terminating ones with all they
    had. `more` is waiting work, which could be done on any node. `spare` is what is used by idle instances that it
    could do without, by node.
    """

    uses: Mapping[str, Amount] = {}
    more: Sequence[Work] = ()
    spare: Mapping[str, Amount] = {}
