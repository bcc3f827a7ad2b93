"""What a member of a shared cluster uses and needs, as the ledger of leases hears of it, in whole numbers."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import msgspec

from fairlead.engine.core.capacity import UNLIMITED, mebi, milli
from fairlead.engine.live.contracts import InstanceSpec


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


def held_by(specs: Iterable[InstanceSpec]) -> dict[str, Amount]:
    """What instances hold of each node, as if all of them were busy."""
    found: dict[str, Amount] = {}
    for spec in specs:
        held, memory = found.get(spec.node, Amount()), mebi(spec.memory_gb)
        vgpus = [*held.devices, *[0] * (spec.device + 1 - len(held.devices))]
        if spec.device >= 0:
            vgpus[spec.device] += milli(spec.vgpus)
        memory = held.memory + (memory if memory < UNLIMITED else 0)
        found[spec.node] = Amount(held.vcpus + milli(spec.vcpus), memory, tuple(vgpus))
    return found


def together(one: Amount, other: Amount) -> Amount:
    """The sum of two amounts of a node."""
    devices = [sum(pair) for pair in zip_longest(one.devices, other.devices, fillvalue=0)]
    return Amount(one.vcpus + other.vcpus, one.memory + other.memory, tuple(devices))
