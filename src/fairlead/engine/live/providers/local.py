"""Instances on this machine: a node agent in the gateway's own process, and a socket pair to each instance.

The reference provider. Its instances end with the gateway.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from fairlead.engine.live.contracts import LEFT, Capabilities, Exit, InstanceSpec, Inventory, ProviderReports
from fairlead.engine.live.gpus import GpuChoice, MachineGpus, offered
from fairlead.engine.live.kernels.host import KernelHost
from fairlead.engine.live.kernels.link import KernelLink
from fairlead.engine.live.kernels.status import DeviceStatus
from fairlead.engine.live.limits import Usage
from fairlead.engine.live.links.pair import PairLink
from fairlead.engine.live.logs.folder import LogFolder
from fairlead.engine.live.node import NodeAgent
from fairlead.engine.live.nodes import EmulatedNodes
from fairlead.engine.live.store import Store
from fairlead.engine.live.wire import Begin
from fairlead.model import Node
from fairlead.monitor import Place

_CUT_OFF_S = 2.0  # an instance that lives on after its channel has ended is of no use


class LocalProvider:
    """Runs instances as processes of this machine.

    Args:
        store: Shared memory for large values.
        emulated: The nodes to be, each a part of this machine that goes before all else there; None for those that are
            declared.
        limits: A kind of limiter; None for the best that works here.
        gpus: Which GPUs to offer on the nodes that are declared; None for none.
        folder: Where constants and compiled code of kernels are kept; None where there are no kernels.
        log: Gets a line for everything worth knowing.
        logs: Where what instances write is kept; see `NodeAgent`.
    """

    def __init__(
        self,
        store: Store,
        *,
        emulated: EmulatedNodes | None = None,
        limits: str | None = None,
        gpus: GpuChoice | None = None,
        folder: Path | None = None,
        logs: LogFolder | None = None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._store = store
        self._emulated = emulated
        self._limits = limits
        self._choice = gpus if emulated is None else None  # a part of a machine stands for one without GPUs
        self._gpus: MachineGpus | None = None
        self._logs = logs
        self._log = log
        self.agent = NodeAgent(self._ended, limits=limits, is_reserved=emulated is not None, logs=logs)
        self._folder = folder
        self._kernels: KernelHost | None = None  # once there are devices
        self._links: dict[str, PairLink] = {}
        self._stopped: set[str] = set()

    @property
    def capabilities(self) -> Capabilities:
        """Apps may declare their nodes unless a nodes file says what there is."""
        if self._emulated is not None:
            return Capabilities()
        if self._gpus is None:
            return Capabilities(declares=True)
        return Capabilities(declares=True, devices=self._gpus.devices, no_devices="; ".join(self._gpus.lines))

    async def open(self, reports: ProviderReports) -> Inventory:
        """Make the nodes that are known."""
        self._reports = reports
        self._loop = asyncio.get_running_loop()
        if self._choice is not None:
            self._gpus = await asyncio.to_thread(MachineGpus.find, self._choice)
            self.agent = NodeAgent(
                self._ended, limits=self._limits, gpus=self._gpus, changed=self._changed, logs=self._logs
            )
            if self._gpus.devices:
                for line in self._gpus.lines:
                    self._log(line)
        if self._emulated is None:
            return Inventory(())
        nodes = self._emulated.cluster.nodes
        self.agent.add(nodes, self._emulated.cpus)
        self._emulated.require_limits(self.agent.kind)
        self._use_devices(nodes)
        return Inventory(nodes)

    def declare(self, nodes: Sequence[Node]) -> None:
        """Make nodes that an app asks for."""
        self.agent.add(nodes)
        self._use_devices(nodes)

    @property
    def devices(self) -> Sequence[DeviceStatus]:
        """How the devices of its nodes stood at the last look."""
        return () if self._kernels is None else self._kernels.devices

    async def look_at_devices(self) -> None:
        """Look at them now."""
        if self._kernels is not None:
            await self._kernels.look()

    def _use_devices(self, nodes: Sequence[Node]) -> None:
        if self._kernels is None and self._folder is not None and any(node.devices for node in nodes):
            self._kernels = KernelHost(self._folder, self._store, self._kernel_ended, self._evicted, self._log)
        if self._kernels is not None:
            self._kernels.add(nodes)

    def places(self) -> Sequence[Place]:
        """Its nodes are all on this machine."""
        return self.agent.places()

    def start(self, spec: InstanceSpec) -> None:
        """Spawn the process of an instance."""
        if self.agent.has(spec.key):
            return
        if spec.is_kernel:
            self._start_kernel(spec)
            return
        if spec.node not in self.agent:
            self._loop.call_soon(self._reports.gone, spec.key, Exit(f"there is no node {spec.node!r} on this machine"))
            return
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            self._loop.call_soon(self._reports.gone, spec.key, Exit(f"it could not be started: {error}"))
            return
        self.agent.start(spec, "fairlead.engine.live.worker", theirs)
        spill = self._store.spill
        begin = Begin(
            spec.code.file,
            spec.function,
            str(self._store.folder),
            None if spill is None else str(spill),
            spec.max_items,
        )
        link = PairLink(ours, begin, lambda error: self._broken(spec.key, error))
        self._links[spec.key] = link
        self._reports.connected(spec.key, link)

    def _start_kernel(self, spec: InstanceSpec) -> None:
        if self._kernels is None:
            what = f"there is no device for kernels on node {spec.node!r}"
            self._loop.call_soon(self._reports.gone, spec.key, Exit(what))
        elif not self._kernels.has(spec.key):
            link = KernelLink()
            link.instance = self._kernels.start(spec, Path(spec.code.file), link.say)
            if link.instance is not None:
                self._reports.connected(spec.key, link)

    def stop(self, key: str, grace_s: float) -> None:
        """End an instance: by closing its channel where it has a grace, and by force after that."""
        if self._kernels is not None:
            self._kernels.stop(key, grace_s)
        link = self._links.get(key)
        if link is not None:
            self._stopped.add(key)
            if grace_s > 0:
                link.close()
            self.agent.stop(key, grace_s)

    def resize(self, key: str, vcpus: float) -> None:
        """Change what an instance may use of the CPU."""
        self.agent.resize(key, vcpus)

    def grow(self, kind: str) -> None:
        """This machine has no more nodes than it has."""

    def shrink(self, node: str) -> None:
        """Nothing runs there any more: there is nothing else to give back."""
        self._loop.call_soon(self._reports.node_lost, node, LEFT)

    def usage(self, key: str) -> Usage:
        """What an instance has used so far."""
        return self.agent.usage(key)

    def cpu_s(self, key: str) -> float | None:
        """The CPU time that an instance has used so far."""
        return self.agent.cpu_s(key)

    async def close(self, *, keep: bool = False) -> None:
        """End every instance, and free the nodes."""
        if self._kernels is not None:
            await self._kernels.close()
        await self.agent.close()

    def _changed(self, node: Node) -> None:
        """A GPU was lost, or is back."""
        self._log(f"node {node.name} has {offered(node.devices)} now")
        self._reports.node_changed(node)

    def _broken(self, key: str, error: str | None) -> None:
        """A channel has ended, or carries nonsense."""
        if error is not None:
            self.agent.stop(key, 0, error)
        elif key not in self._stopped:
            self.agent.stop(key, _CUT_OFF_S, "it closed its channel")

    def _kernel_ended(self, spec: InstanceSpec, how: Exit) -> None:
        self._reports.gone(spec.key, how)

    def _evicted(self, key: str, buffers: Sequence[str]) -> None:
        self._reports.evicted(key, buffers)

    def _ended(self, spec: InstanceSpec, how: Exit) -> None:
        self._store.forget(how.pid)
        link = self._links.pop(spec.key, None)
        if link is not None:
            link.drop()
        self._stopped.discard(spec.key)
        self._reports.gone(spec.key, how)
