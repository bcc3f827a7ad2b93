"""The three contracts between the runtime and the place where instances run: provider, link and values.

A *provider* knows which nodes and instances exist, and starts, stops and resizes instances. A *link* is how one
instance is spoken to. *Values* is where data lies. Ray, Kubernetes and one machine differ in the provider only.

All calls come from, and all reports go to, the thread of the event loop. Calls return at once, may be repeated
without harm, and are answered by reports. `fairlead.testing.backends` checks all of this.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from fairlead.engine.live.kernels.status import DeviceStatus
from fairlead.engine.live.limits import Usage
from fairlead.engine.live.values import Value
from fairlead.engine.live.wire import Batch, Done, Failed, Ready
from fairlead.model import Device, Node
from fairlead.monitor import Place

LEFT = "it was given back"
"""The reason of `node_lost` for a node that left because it was told to."""


class AppCode(msgspec.Struct, frozen=True):
    """The code that an instance loads: a file on this machine, and a digest that names its content everywhere.

    `requirements` are the packages with which it runs: see `fairlead.app.environments`. `app` is the name of the app
    that it holds.
    """

    file: str
    digest: str = ""
    requirements: tuple[str, ...] = ()
    app: str = ""


class InstanceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An instance to be started.

    `key` is unique among all instances that this gateway and its predecessors started. `memory_gb` may be infinite.
    `device` is the index of the node's accelerator, -1 for none, and `vgpus` what the instance has of it. One of a
    kernel is no process: it stands for the kernel's constants on that device.
    """

    key: str
    code: AppCode
    function: str
    node: str
    vcpus: float
    memory_gb: float
    max_items: int
    device: int = -1
    vgpus: float = 0.0
    is_kernel: bool = False


class Capabilities(msgspec.Struct, frozen=True):
    """What a provider can do besides starting and stopping instances.

    `declares`: it makes the nodes that apps ask for, as parts of this machine; otherwise its nodes are what they are.
    `resizes`: the CPU limit of a running instance can change. `keeps`: instances survive the gateway, and the next one
    can adopt them. `growable`: the kinds of nodes that `grow` can add.
    `devices`: the accelerators of this machine, for those nodes; `no_devices`: why there are none, as half a sentence.
    """

    declares: bool = False
    resizes: bool = True
    keeps: bool = False
    growable: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    no_devices: str = ""


class Inventory(msgspec.Struct, frozen=True):
    """What exists when a provider opens: its nodes, and the instances of a former gateway that still run."""

    nodes: tuple[Node, ...]
    instances: tuple[InstanceSpec, ...] = ()


class Exit(msgspec.Struct, frozen=True):
    """How an instance ended: why, the end of what it printed, and the CPU time that it used, as far as it is known.

    `pid` is its process, where it had one on this machine.
    """

    error: str
    output: str = ""
    cpu_s: float = 0.0
    pid: int = -1


class LinkReports(Protocol):
    """What a link tells the runtime."""

    def heard(self, message: Ready | Failed | Done) -> None:
        """The instance said something. An answer of an older generation never gets here."""
        ...


class Link(Protocol):
    """The way to one instance: frames in order, until it ends. Its end is reported by the provider, as `gone`."""

    def open(self, reports: LinkReports) -> None:
        """Say to whom messages go; called once, before anything is sent."""
        ...

    def run(self, batch: Batch) -> None:
        """Pass a batch on. ValueError if it is too large for a frame. One that is dying drops it."""
        ...


class ProviderReports(Protocol):
    """What a provider tells the runtime."""

    def connected(self, key: str, link: Link) -> None:
        """An instance can be spoken to; it says `Ready` or `Failed` next. Also for an adopted instance."""
        ...

    def gone(self, key: str, how: Exit) -> None:
        """An instance does not exist any more, for whatever reason, and its capacity is free.

        Reported once for every key that was started, also for one that was told to stop.
        """
        ...

    def resize_refused(self, key: str, vcpus: float, reason: str) -> None:
        """An instance keeps its CPU limit, which is `vcpus`."""
        ...

    def evicted(self, key: str, buffers: Sequence[str]) -> None:
        """These constants of a kernel are not on the device of this instance any more."""
        ...

    def node_joined(self, node: Node) -> None:
        """A node can be used, for the first time or again."""
        ...

    def node_changed(self, node: Node) -> None:
        """A node has other capacities than before."""
        ...

    def node_lost(self, name: str, reason: str) -> None:
        """A node cannot be reached. Its instances are given up without a further report; late answers are dropped."""
        ...


class Provider(Protocol):
    """Where instances live. One per gateway: all apps and generations share its nodes."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    async def open(self, reports: ProviderReports) -> Inventory:
        """Begin to work; tells what exists."""
        ...

    def declare(self, nodes: Sequence[Node]) -> None:
        """Make nodes that an app asks for, where `capabilities.declares`; those that are there already stay."""
        ...

    def start(self, spec: InstanceSpec) -> None:
        """Start an instance; `connected` or `gone` follows. A key that was started before changes nothing."""
        ...

    def stop(self, key: str, grace_s: float) -> None:
        """End an instance, by force after `grace_s` (0: at once); `gone` follows. An unknown key changes nothing."""
        ...

    def resize(self, key: str, vcpus: float) -> None:
        """Give an instance another CPU limit; only a refusal is reported."""
        ...

    def grow(self, kind: str) -> None:
        """Ask for one more node of a kind among `capabilities.growable`; `node_joined` follows when it is there."""
        ...

    def shrink(self, node: str) -> None:
        """Give a node back on which nothing runs any more; `node_lost` follows."""
        ...

    def usage(self, key: str) -> Usage:
        """What an instance has used so far, as far as it is known here."""
        ...

    def cpu_s(self, key: str) -> float | None:
        """The CPU time in `usage`, which the dashboard asks for once per second."""
        ...

    def places(self) -> Sequence[Place]:
        """Where its nodes are on this machine; none of those that are elsewhere."""
        ...

    async def close(self, *, keep: bool = False) -> None:
        """End every instance and free everything. With `keep`, where it can, instances stay for the next gateway."""
        ...


@runtime_checkable
class HasDevices(Protocol):
    """A provider whose nodes have devices for kernels."""

    @property
    def devices(self) -> Sequence[DeviceStatus]:
        """How they stood at the last look."""
        ...

    async def look_at_devices(self) -> None:
        """Look at them now, where that is not done by somebody else."""
        ...


class Values(Protocol):
    """Where data lies. A value is read and released through this only, wherever it is kept."""

    def put(self, data: bytes) -> Value:
        """Bytes that came from outside, as instances take them: large ones are kept where instances can read them."""
        ...

    def hold(self, value: Value) -> None:
        """Note that a request may need a value that an instance made."""
        ...

    def release(self, value: Value) -> None:
        """A value is not needed any more."""
        ...

    def copy(self, value: Value) -> Value | None:
        """The same value once more, released by itself; None where that would take moving its bytes."""
        ...

    def size_bytes(self, value: Value) -> int:
        """How large a value is as MessagePack. O(1) for one that is not a list; needs no I/O."""
        ...

    def read(self, value: Value) -> object:
        """What a value stands for. Blocks; call it on a thread unless the value is small."""
        ...

    def encoded(self, value: Value) -> bytes:
        """The bytes that `read` would decode. Blocks, as `read` does."""
        ...
