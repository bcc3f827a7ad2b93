"""One device of a node: its executor, and who must know when something of theirs leaves it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path

from fairlead.app.scenario import KERNEL_LOAD_LIMIT_S
from fairlead.app.secrets import SECRETS
from fairlead.engine.live.kernels.status import DeviceStatus, Resident
from fairlead.kaas.errors import DeviceLostError, KernelError
from fairlead.kaas.executor import Executor, ExecutorSettings
from fairlead.kaas.request import Answer, Request, Status
from fairlead.kaas.values import Values
from fairlead.model import Device

Gone = Callable[[Sequence[str] | None], None]
"""Told which keys of a tenant are not on a device any more; None for all."""

_LOOK_LIMIT_S = 0.5
_MOST_RESIDENTS = 100  # that a status lists


class LiveDevice:
    """The device of this number on a node. Its executor starts when it is first needed, and serves all apps.

    Args:
        node: The node.
        index: The number of the device there.
        device: What it is.
        folder: Where its constants and compiled code are kept.
        log: Gets a line for everything worth knowing.
    """

    def __init__(self, node: str, index: int, device: Device, folder: Path, log: Callable[[str], None]) -> None:
        self.node = node
        self.index = index
        self.device = device
        self.values = Values(folder / "values")
        self._log = log
        memory_bytes = 0 if device.memory_gb == inf else int(device.memory_gb * 2**30)
        settings = ExecutorSettings(
            device=device.name,
            memory_bytes=memory_bytes,
            values=folder / "values",
            cache=folder / "cache",
            load_limit_s=KERNEL_LOAD_LIMIT_S,
            environment=dict.fromkeys(SECRETS, ""),
        )
        self._settings = settings
        self._executor: Executor | None = None
        self._opening: asyncio.Task[Executor] | None = None
        self._told: defaultdict[str, list[Gone]] = defaultdict(list)  # by tenant
        self._seen: Status | None = None

    async def open(self) -> None:
        """Start its executor now. KernelError if that fails."""
        await self._opened()

    async def load(self, request: Request) -> Answer:
        """Compile a graph and load its constants. KernelError if that fails."""
        return await (await self._opened()).load(request)

    async def run(self, request: Request) -> Answer:
        """The answer to a request. KernelError if it fails."""
        executor = self._executor
        if executor is None or self._opening is not None:
            executor = await self._opened()
        return await executor.run(request)

    def submit(self, request: Request, answered: Callable[[Answer | KernelError], None]) -> Callable[[], None] | None:
        """Run a request on an executor that is started, without waiting: see `Executor.submit`. None if it is not."""
        return None if self._executor is None else self._executor.submit(request, answered)

    def join(self, tenant: str, gone: Gone) -> None:
        """Have somebody told when something of a tenant leaves the device."""
        self._told[tenant].append(gone)

    def leave(self, tenant: str, gone: Gone) -> None:
        """Have them told no more."""
        self._told[tenant].remove(gone)
        if not self._told[tenant]:
            del self._told[tenant]

    async def forget(self, tenant: str) -> None:
        """Free what a tenant has on the device, as far as nothing uses it now."""
        if self._executor is not None:
            with suppress(KernelError):
                await self._executor.forget(tenant)

    @property
    def status(self) -> DeviceStatus:
        """How it stood at the last look."""
        whole = self.device.memory_gb
        executor, found = self._executor, self._seen
        if executor is None or found is None:
            return DeviceStatus(
                node=self.node,
                index=self.index,
                device=self.device.name,
                is_ready=executor is None or executor.ready is not None,
                memory_bytes=None if whole == inf else int(whole * 2**30),
                restarts=0 if executor is None else executor.restarts,
            )
        counts = found.counts
        return DeviceStatus(
            node=self.node,
            index=self.index,
            device=self.device.name,
            name=found.name,
            is_ready=executor.ready is not None,
            memory_bytes=found.memory_bytes if whole < inf else None,
            used_bytes=found.used_bytes,
            peak_bytes=found.peak_bytes,
            residents=tuple(Resident(r.tenant, r.key, r.size) for r in found.residents[:_MOST_RESIDENTS]),
            hits=counts.hits,
            compulsory_misses=counts.compulsory_misses,
            capacity_misses=counts.capacity_misses,
            evictions=counts.evictions,
            compiled=counts.compiled,
            loaded_bytes=counts.loaded_bytes,
            input_bytes=counts.input_bytes,
            output_bytes=counts.output_bytes,
            runs=found.answered,
            waiting=found.waiting,
            restarts=executor.restarts,
            device_s=found.device_s,
        )

    async def look(self) -> None:
        """See how it stands; what its process says last, where that is busy or being started."""
        executor = self._executor
        if executor is not None and executor.ready is not None:
            with suppress(KernelError, TimeoutError):
                async with asyncio.timeout(_LOOK_LIMIT_S):
                    self._seen = await executor.status()

    async def close(self) -> None:
        """End its executor."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._executor is not None:
            await self._executor.close()

    async def _opened(self) -> Executor:
        if self._executor is not None:
            return self._executor
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())  # it is looked at
        return await asyncio.shield(self._opening)

    async def _open(self) -> Executor:
        executor = Executor(self._settings, self._left)
        try:
            await executor.start()
        except OSError as error:
            raise DeviceLostError(f"The process of {self.device.name} cannot be started: {error}") from None
        else:
            self._executor = executor
            return executor
        finally:
            self._opening = None

    def _left(self, buffers: Sequence[tuple[str, str]] | None) -> None:
        """Something is not on the device any more."""
        if buffers is None:
            self._log(f"the executor of {self.device.name} on node {self.node} ended; it is started again")
            for listeners in self._told.values():
                for gone in listeners:
                    gone(None)
            return
        by_tenant: defaultdict[str, list[str]] = defaultdict(list)
        for tenant, key in buffers:
            by_tenant[tenant].append(key)
        for tenant, keys in by_tenant.items():
            for gone in self._told.get(tenant, ()):
                gone(keys)
