"""The devices of a node agent, and the instances of kernels on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from fairlead.engine.live.contracts import Exit, InstanceSpec
from fairlead.engine.live.kernels.code import KernelCode, read_kernels
from fairlead.engine.live.kernels.device import LiveDevice
from fairlead.engine.live.kernels.instance import KernelInstance, Say
from fairlead.engine.live.kernels.status import DeviceStatus
from fairlead.engine.live.store import Store
from fairlead.errors import ConfigError, Fault
from fairlead.model import Node

_MOST_CODES = 8  # snapshots whose kernels are remembered


class KernelHost:
    """Runs the kernels of the nodes of one agent.

    Args:
        folder: Where constants and compiled code are kept; it may be there from before.
        store: Where large values lie.
        ended: Told once of every instance that was started, when nothing of it is left.
        evicted: Told which buffers of an instance are not on its device any more.
        log: Gets a line for everything worth knowing.
    """

    def __init__(
        self,
        folder: Path,
        store: Store,
        ended: Callable[[InstanceSpec, Exit], None],
        evicted: Callable[[str, tuple[str, ...]], None],
        log: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._store = store
        self._ended = ended
        self._evicted = evicted
        self._log = log
        self._devices: dict[tuple[str, int], LiveDevice] = {}
        self._instances: dict[str, KernelInstance] = {}
        self._codes: dict[Path, asyncio.Task[dict[str, KernelCode]]] = {}

    def add(self, nodes: Sequence[Node]) -> None:
        """Let the devices of nodes be used; those that are there already stay."""
        for node in nodes:
            for index, device in enumerate(node.devices):
                if device.serves == "kernels" and (node.name, index) not in self._devices:
                    self._devices[node.name, index] = LiveDevice(node.name, index, device, self._folder, self._log)

    def has(self, key: str) -> bool:
        """Whether an instance has been started and has not ended."""
        return key in self._instances

    def start(self, spec: InstanceSpec, file: Path, say: Say) -> KernelInstance | None:
        """Start an instance of a kernel of this snapshot; None, with a report, where its node has no such device."""
        device = self._devices.get((spec.node, spec.device))
        if device is None:
            what = f"node {spec.node!r} has no device {spec.device} for kernels"
            asyncio.get_running_loop().call_soon(self._ended, spec, Exit(what))
            return None

        def evicted(buffers: tuple[str, ...]) -> None:
            self._evicted(spec.key, buffers)

        instance = KernelInstance(spec, device, self._store, say, evicted, self._gone)
        self._instances[spec.key] = instance
        instance.start(asyncio.ensure_future(self._code(file, spec.function, device)))
        return instance

    def stop(self, key: str, grace_s: float, reason: str = "it was stopped") -> None:
        """End an instance."""
        instance = self._instances.get(key)
        if instance is not None:
            instance.stop(grace_s, reason)

    @property
    def devices(self) -> tuple[DeviceStatus, ...]:
        """How the devices stood at the last look."""
        return tuple(device.status for device in self._devices.values())

    async def look(self) -> None:
        """Look at the devices."""
        await asyncio.gather(*(device.look() for device in self._devices.values()))

    async def close(self) -> None:
        """End everything."""
        for instance in list(self._instances.values()):
            instance.stop(0.0)
        for code in self._codes.values():
            code.cancel()
        await asyncio.gather(*(device.close() for device in self._devices.values()))
        self._devices.clear()

    def _gone(self, instance: KernelInstance, reason: str) -> None:
        if self._instances.pop(instance.spec.key, None) is not None:
            self._ended(instance.spec, Exit(reason))

    async def _code(self, file: Path, function: str, device: LiveDevice) -> KernelCode:
        """The code of a kernel, with the values of its constants where the device can read them."""
        reading = self._codes.get(file)
        if reading is None or (reading.done() and (reading.cancelled() or reading.exception() is not None)):
            reading = self._codes[file] = asyncio.get_running_loop().create_task(asyncio.to_thread(read_kernels, file))
            while len(self._codes) > _MOST_CODES:
                del self._codes[next(iter(self._codes))]
        kernels = await asyncio.shield(reading)
        code = kernels.get(function)
        if code is None:
            raise ConfigError(str(file), [Fault(f"functions.{function}", "is no kernel.")])
        await asyncio.to_thread(_put, device, code)
        return code


def _put(device: LiveDevice, code: KernelCode) -> None:
    for key, value in code.values.items():
        if not device.values.has(code.app, key):  # a key names its content
            with suppress(ValueError):
                device.values.put(code.app, key, value)
