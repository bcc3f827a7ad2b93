"""Machines: devices, nodes of several kinds, and the cluster they make, with its prices."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import inf
from types import MappingProxyType
from typing import Literal, get_args

import msgspec

from fairlead.model.mig import MIG_SIZES, mig_layout

Sharing = Literal["mps", "mig", "time"]
Serves = Literal["all", "functions", "kernels"]

_LOST_VGPUS = 0.0004  # rounds to no thousandth of a vGPU: nothing fits there


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """What a second of an allocated vCPU or vGPU costs, and which seconds are billed."""

    vcpu_usd_per_hour: float = 0.034
    vgpu_usd_per_hour: float = 0.67
    bill_cold_start: bool = True
    bill_idle: bool = False

    def __post_init__(self) -> None:
        for name in ("vcpu_usd_per_hour", "vgpu_usd_per_hour"):
            value = getattr(self, name)
            if not 0 <= value < inf:
                raise ValueError(f"{name} must be finite and not negative; got {value}.")

    def usd_per_s(self, vcpus: float, vgpus: float) -> float:
        """What holding these costs per second."""
        return (vcpus * self.vcpu_usd_per_hour + vgpus * self.vgpu_usd_per_hour) / 3600


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator, and how what runs there shares it.

    `mps`: side by side, in free fractions. `mig`: in slices of 1, 2, 3, 4 or 7 at fixed places; it begins with those of
    `partition`, and a start for which one must be cut takes `repartition_s` longer. `time`: by turns, each run with the
    whole device; where several take turns, `slice_overhead` is what changing costs, as a share of the time of a turn.

    `serves` says what may run there: kernels where an executor has the device, functions where instances get shares of
    it. A device that `is_fixed` has the slices of its `partition` and no others: none is cut or destroyed. `name` is
    what its node knows it by: `opencl:0`, or the model and UUID of a GPU; devices of a simulation need none.

    `reserve_gb` of its memory is nobody's to use. The rest is about kernels: how fast buffers are copied to and from
    the host, what a start that allocates pays besides, and how long the executor of all kernels takes to start.
    """

    vgpus: float
    memory_gb: float = inf
    sharing: Sharing = "mps"
    name: str = ""
    reserve_gb: float = 0.0
    load_gb_per_s: float = inf
    allocation_s: float = 0.0
    executor_start_s: float = 0.0
    partition: tuple[int, ...] = ()
    repartition_s: float = 0.0
    slice_overhead: float = 0.0
    is_fixed: bool = False
    serves: Serves = "all"

    def __post_init__(self) -> None:
        if not 0 < self.vgpus < inf:
            raise ValueError(f"vgpus of a device must be positive and finite; got {self.vgpus}.")
        if not self.memory_gb > 0:
            raise ValueError(f"device_memory_gb must be positive; got {self.memory_gb}.")
        if self.sharing not in get_args(Sharing):
            raise ValueError(f"gpu_sharing must be one of {', '.join(get_args(Sharing))}; got {self.sharing!r}.")
        if self.serves not in get_args(Serves):
            raise ValueError(f"serves must be one of {', '.join(get_args(Serves))}; got {self.serves!r}.")
        if self.sharing == "mig" and self.vgpus != 7:
            raise ValueError(f"a MIG device has 7 vGPUs; got {self.vgpus:g}.")
        if not 0 <= self.reserve_gb < self.memory_gb:
            raise ValueError(f"device_reserve_gb must be at least 0 and below device_memory_gb; got {self.reserve_gb}.")
        if not self.load_gb_per_s > 0:
            raise ValueError(f"load_gb_per_s must be positive; got {self.load_gb_per_s}.")
        for name in ("allocation_s", "executor_start_s", "repartition_s", "slice_overhead"):
            value = getattr(self, name)
            if not 0 <= value < inf:
                raise ValueError(f"{name} must be finite and not negative; got {value}.")
        self._check_partition()

    def _check_partition(self) -> None:
        sizes = list(self.partition)
        if self.is_fixed and self.sharing != "mig":
            raise ValueError("is_fixed must be false unless gpu_sharing is mig.")
        if sizes and self.sharing != "mig":
            raise ValueError(f"partition must be left out unless gpu_sharing is mig; got {sizes}.")
        if not set(sizes) <= set(MIG_SIZES):
            raise ValueError(f"partition must be of MIG sizes ({', '.join(map(str, MIG_SIZES))}); got {sizes}.")
        if mig_layout(sizes) is None:
            raise ValueError(f"partition must be slices that one device has places for; got {sizes}.")

    @property
    def usable_gb(self) -> float:
        """Memory that instances and buffers may take."""
        return self.memory_gb - self.reserve_gb

    @property
    def is_lost(self) -> bool:
        """Whether nothing of it can be used any more; see `lost`."""
        return self.vgpus <= _LOST_VGPUS

    def lost(self) -> "Device":
        """What takes its place in a node when it is lost, so that the numbers of the other devices stay."""
        return Device(vgpus=_LOST_VGPUS, sharing="time", serves=self.serves, name=self.name)

    def holds(self, vgpus: float) -> bool:
        """Whether a run with this many vGPUs can be there while nothing else is."""
        if self.sharing != "mig":
            return vgpus <= self.vgpus
        return vgpus in (self.partition if self.is_fixed else MIG_SIZES)

    def has_slices(self, sizes: Sequence[int]) -> bool:
        """Whether a MIG device can have slices of these sizes beside each other."""
        if self.is_fixed:
            return not Counter(sizes) - Counter(self.partition)
        return mig_layout(sizes) is not None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One machine. Every node of a kind has the same speed: work takes 1/speed of its profiled time.

    With an `overcommit` above 1 it takes instances of so many times its vCPUs, and runs share what there is: those at
    work slow each other down as soon as they hold more vCPUs than the machine has (`profile.interference.contention`).
    """

    name: str
    kind: str
    vcpus: float
    memory_gb: float = inf
    devices: tuple[Device, ...] = ()
    speed: float = 1.0
    overcommit: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.vcpus < inf:
            raise ValueError(f"vcpus must be finite and not negative; got {self.vcpus}.")
        if not self.memory_gb > 0:
            raise ValueError(f"memory_gb must be positive; got {self.memory_gb}.")
        if not 0 < self.speed < inf:
            raise ValueError(f"speed must be positive and finite; got {self.speed}.")
        if self.vcpus == 0 and not self.devices:
            raise ValueError("a node needs vcpus or vgpus; got 0 of both.")
        if not 1 <= self.overcommit < inf:
            raise ValueError(f"overcommit must be at least 1 and finite; got {self.overcommit}.")
        if self.overcommit > 1 and self.vcpus == 0:
            raise ValueError(f"overcommit must be 1 on a node without vcpus; got {self.overcommit}.")

    @property
    def capacity_vcpus(self) -> float:
        """vCPUs that instances may hold here at once."""
        return self.vcpus * self.overcommit


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes of a kind there may be, and what one more takes.

    Args:
        most: Nodes that may be up or coming at a time.
        least: Nodes that stay.
        usd_per_hour: What a node costs; None for the price of its vCPUs and vGPUs.
        provision_s: Time from asking for a node until it takes work; None for that of the scenario.
    """

    most: int
    least: int = 1
    usd_per_hour: float | None = None
    provision_s: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ValueError(f"least must be at least 1 and not above most; got {self.least} and {self.most}.")
        for name in ("usd_per_hour", "provision_s"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < inf:
                raise ValueError(f"{name} must be finite and not negative; got {value}.")

    def node_usd_per_hour(self, node: Node, price: Price) -> float:
        """What a node of the kind costs, given one of them and the price list."""
        if self.usd_per_hour is not None:
            return self.usd_per_hour
        return 3600 * price.usd_per_s(node.vcpus, sum(device.vgpus for device in node.devices))


class Cluster(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Nodes, the network between them, and prices. Without `bandwidth_gbps` transfer takes no time."""

    nodes: tuple[Node, ...]
    bandwidth_gbps: float = inf
    price: Price = Price()

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError("a cluster needs at least one node.")
        names = [node.name for node in self.nodes]
        if len(set(names)) < len(names):
            twice = min(name for name in names if names.count(name) > 1)
            raise ValueError(f"two nodes are named {twice!r}.")
        if not self.bandwidth_gbps > 0:
            raise ValueError(f"bandwidth_gbps must be positive; got {self.bandwidth_gbps}.")
        speeds: dict[str, float] = {}
        for node in self.nodes:
            if speeds.setdefault(node.kind, node.speed) != node.speed:
                raise ValueError(f"nodes of kind {node.kind!r} have different speeds; give them kinds of their own.")

    @cached_property
    def kinds(self) -> Mapping[str, Node]:
        """The largest node of each kind, in order of first appearance: what fits on no other of its kind fits there."""
        kinds: dict[str, Node] = {}
        for node in self.nodes:
            if node.kind not in kinds or _size(node) > _size(kinds[node.kind]):
                kinds[node.kind] = node
        return MappingProxyType(kinds)


def _size(node: Node) -> tuple[float, float, float]:
    return sum(device.vgpus for device in node.devices), node.vcpus, node.memory_gb
