"""Instances on the nodes of a Ray cluster: agents run them, as on any machine that joins, and Ray runs the agents.

The provider of agents does the work. This one starts the Ray driver beside it, starts it again when it dies, and passes
on what concerns nodes: which there are, that one is dead, that one more is wanted or one is given back.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from fairlead.engine.live.contracts import Capabilities, Exit, InstanceSpec, Inventory, Link, ProviderReports
from fairlead.engine.live.kernels.status import DeviceStatus
from fairlead.engine.live.limits import Usage
from fairlead.engine.live.links.address import bound_address
from fairlead.engine.live.links.tls import TlsFiles, client_context, server_context
from fairlead.engine.live.logs.folder import LogFolder
from fairlead.engine.live.objects import owner_id
from fairlead.engine.live.order import RayOrder
from fairlead.engine.live.providers.agents import AgentProvider, Timing
from fairlead.engine.live.ray import messages
from fairlead.engine.live.ray.kinds import Share
from fairlead.engine.live.store import Store
from fairlead.errors import FairleadError
from fairlead.model import Device, Node
from fairlead.monitor import Place

Log = Callable[[str], None]

_FIRST_DELAY_S, _MOST_DELAY_S = 0.5, 10.0
_CLOSE_S = 20.0


class RayError(FairleadError):
    """The Ray cluster cannot be joined."""


class RayProvider:
    """Runs instances on the nodes of a Ray cluster.

    Args:
        agents: Takes the agents of the nodes in.
        order: What the driver is told; see `messages.Open`.
        state: The gateway's folder: it has the names of nodes that were given back.
        log: Gets a line for everything worth knowing.
        growable: Kinds of nodes that Ray's autoscaler can add.
    """

    def __init__(
        self,
        agents: AgentProvider,
        order: messages.Open,
        state: Path,
        log: Log,
        growable: Sequence[str] = (),
    ) -> None:
        self.values = agents.values
        self._agents = agents
        self._order = order
        self._file = state / "ray.json"
        self._log = log
        self._growable = tuple(growable)
        self._driver: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None
        self._found: asyncio.Future[tuple[str, ...]] | None = None  # names of nodes, where opening waits for them
        self._closed = asyncio.Event()
        self._is_closing = False
        self._last_line = ""
        self._reports: ProviderReports | None = None
        self._waiting: dict[str, InstanceSpec] = {}  # instances for which nothing is reserved yet
        self._held: set[str] = set()

    @property
    def capabilities(self) -> Capabilities:
        """Agents resize and keep instances; where instances reserve for themselves, Ray cannot resize them."""
        return Capabilities(keeps=True, growable=self._growable, resizes=not self._order.share.by_instance)

    @property
    def hosts(self) -> dict[str, str]:
        """By node that is connected: the machine that it is on."""
        return self._agents.hosts

    @property
    def driver_pid(self) -> int | None:
        """The process of the Ray driver, while there is one."""
        return None if self._driver is None or self._driver.returncode is not None else self._driver.pid

    async def open(self, reports: ProviderReports) -> Inventory:
        """Start the driver, and take the agents of all nodes in. RayError where there is no cluster.

        A gateway that starts again does not wait for Ray: the agents of its predecessor dial it by themselves.
        """
        self._reports = reports
        is_first = not self._agents.has_state
        self._found = asyncio.get_running_loop().create_future() if is_first else None
        self._running = asyncio.create_task(self._run())
        expected = None if self._found is None else await self._found
        return await self._agents.open(_Listening(self, reports), expected)

    def declare(self, nodes: Sequence[Node]) -> None:
        """Nodes are what Ray says they are."""

    def start(self, spec: InstanceSpec) -> None:
        """Have the agent of its node start an instance, once what it needs is reserved where it reserves for itself."""
        if not self._order.share.by_instance:
            self._agents.start(spec)
        elif spec.key not in self._waiting and spec.key not in self._held:
            self._waiting[spec.key] = spec
            if not self._send(messages.Hold(spec.key, spec.node, spec.vcpus, spec.vgpus)):
                asyncio.get_running_loop().call_soon(self._deny, spec.key, "Ray cannot be asked now")

    def stop(self, key: str, grace_s: float) -> None:
        """Have the agent end an instance."""
        if key in self._waiting:
            self._send(messages.Free(key))
            asyncio.get_running_loop().call_soon(self._deny, key, "it was stopped before it started")
        else:
            self._agents.stop(key, grace_s)

    def resize(self, key: str, vcpus: float) -> None:
        """Have the agent change an instance's CPU limit; refused where Ray's account would be wrong afterwards."""
        if not self._order.share.by_instance:
            self._agents.resize(key, vcpus)
        elif self._reports is not None and (size := self._agents.size(key)) is not None:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._reports.resize_refused, key, size, "Ray does not resize what it has reserved")

    def grow(self, kind: str) -> None:
        """Ask Ray for one more node of a kind."""
        self._send(messages.Grow(kind))

    def shrink(self, node: str) -> None:
        """Have the agent of a node end, and let Ray have what was reserved there."""
        self._write_left((*self._left(), node))
        self._send(messages.Shrink(node))
        self._agents.shrink(node)

    def usage(self, key: str) -> Usage:
        """What the agent said last."""
        return self._agents.usage(key)

    def cpu_s(self, key: str) -> float | None:
        """What the agent said last of its CPU time."""
        return self._agents.cpu_s(key)

    @property
    def devices(self) -> Sequence[DeviceStatus]:
        """What agents said last of the devices of their nodes."""
        return self._agents.devices

    async def look_at_devices(self) -> None:
        """Agents look by themselves."""

    def places(self) -> Sequence[Place]:
        """Its nodes are elsewhere."""
        return ()

    async def close(self, *, keep: bool = False) -> None:
        """End every instance, agent and reservation; with `keep`, leave them to the next gateway."""
        self._is_closing = True
        if not keep:
            await self._agents.end_instances()
            has_driver = self._send(messages.Close())
            self._agents.dismiss()  # also where there is no driver: keepers free what they reserved
            if has_driver:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), _CLOSE_S)
        await self._agents.close(keep=keep)
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    # --- the driver ------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Run the driver, and another one when it has died."""
        delay_s = _FIRST_DELAY_S
        while not self._is_closing:
            code, has_found = await self._run_once()
            if self._is_closing:
                self._closed.set()
                return
            if self._found is not None and not self._found.done():
                self._found.set_exception(RayError(self._last_line or f"The Ray driver ended with code {code}."))
                return
            delay_s = _FIRST_DELAY_S if has_found else min(_MOST_DELAY_S, 2 * delay_s)
            self._log(f"the Ray driver ended with code {code}; serving goes on, and another starts in {delay_s:g} s")
            for key in list(self._waiting):
                self._deny(key, "the Ray driver has ended")
            await asyncio.sleep(delay_s)

    async def _run_once(self) -> tuple[int, bool]:
        driver = self._driver = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "fairlead.engine.live.ray.driver",
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )
        has_found = False
        try:
            assert driver.stdin is not None
            assert driver.stdout is not None
            driver.stdin.write(messages.line_of(msgspec.structs.replace(self._order, left=self._left())))
            while line := await driver.stdout.readline():
                message = messages.from_driver.decode(line)
                has_found |= isinstance(message, messages.Found)
                self._heard(message)
            return await driver.wait(), has_found
        finally:
            if driver.returncode is None:
                driver.kill()
                await driver.wait()

    def _heard(self, message: messages.FromDriver) -> None:
        if isinstance(message, messages.Found):
            names = tuple(node.name for node in message.nodes)
            if self._found is not None and not self._found.done():
                self._found.set_result(names)
            self._write_left([name for name in self._left() if name not in names])
        elif isinstance(message, messages.Dead):
            self._agents.give_up(message.node, "Ray says that it is dead")
        elif isinstance(message, messages.Held):
            self._start_held(message.key)
        elif isinstance(message, messages.Denied):
            self._deny(message.key, message.reason)
        elif isinstance(message, messages.Said):
            self._last_line = message.line
            self._log(message.line)
        else:
            self._closed.set()

    def _send(self, message: messages.ToDriver) -> bool:
        """Tell the driver something; False while there is none."""
        driver = self._driver
        if driver is None or driver.returncode is not None or driver.stdin is None or driver.stdin.is_closing():
            return False
        driver.stdin.write(messages.line_of(message))
        return True

    # --- instances that reserve for themselves ---------------------------------------------------------------------

    def _start_held(self, key: str) -> None:
        spec = self._waiting.pop(key, None)
        if spec is None:
            self._send(messages.Free(key))
        else:
            self._held.add(key)
            self._agents.start(spec)

    def _deny(self, key: str, reason: str) -> None:
        if self._waiting.pop(key, None) is not None and self._reports is not None:
            self._reports.gone(key, Exit(reason))

    def ended(self, key: str) -> None:
        """An instance is gone: so is what was reserved for it."""
        if key in self._held:
            self._held.discard(key)
            self._send(messages.Free(key))

    def lost(self, node: str) -> None:
        """A node is gone, with what was reserved there."""
        for key in [key for key, spec in self._waiting.items() if spec.node == node]:
            del self._waiting[key]
            self._send(messages.Free(key))

    # --- what outlives the gateway ---------------------------------------------------------------------------------

    def _left(self) -> tuple[str, ...]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=tuple[str, ...])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return ()

    def _write_left(self, names: Sequence[str]) -> None:
        if tuple(names) == self._left():
            return
        try:
            self._file.write_bytes(msgspec.json.encode(tuple(names)))
        except OSError as error:
            self._log(f"nodes that were given back are used again by the next gateway: {error}")


def ray_provider(
    ray: RayOrder,
    listening: socket.socket,
    token: str,
    store: Store,
    state: Path,
    log: Log,
    *,
    limits: str | None = None,
    growable: Sequence[str] = (),
    wait_s: float = 15.0,
    logs: LogFolder | None = None,
) -> RayProvider:
    """The back end for an order; agents join at `listening`, and all have the order's own certificate."""
    tls = server_context(TlsFiles(certfile=ray.certfile, keyfile=ray.keyfile))
    reading = client_context(TlsFiles(cacert=ray.certfile, is_pinned=True))
    timing = Timing(wait_s=wait_s)
    agents = AgentProvider(listening, token, tls, store, state, log, reading=reading, timing=timing, logs=logs)
    opening = messages.Open(
        address=ray.address,
        owner=owner_id(state),
        join=str(msgspec.structs.replace(bound_address(listening), is_tls=tls is not None)),
        token=token,
        certificate=None if ray.certfile is None else Path(ray.certfile).read_text(),
        key=None if ray.keyfile is None else Path(ray.keyfile).read_text(),
        limits=limits,
        share=Share(ray.share, ray.by_instance),
        pip=ray.pip,
        devices=tuple(
            Device(vgpus=1, name=name, serves="kernels", memory_gb=ray.device_memory_bytes / 2**30)
            for name in ray.devices
        ),
    )
    return RayProvider(agents, opening, state, log, growable)


class _Listening:
    """Passes reports on, and has reservations freed of what has ended."""

    def __init__(self, provider: RayProvider, reports: ProviderReports) -> None:
        self._provider = provider
        self._reports = reports
        self.connected: Callable[[str, Link], None] = reports.connected
        self.resize_refused: Callable[[str, float, str], None] = reports.resize_refused
        self.evicted: Callable[[str, Sequence[str]], None] = reports.evicted
        self.node_joined: Callable[[Node], None] = reports.node_joined
        self.node_changed: Callable[[Node], None] = reports.node_changed

    def gone(self, key: str, how: Exit) -> None:
        self._provider.ended(key)
        self._reports.gone(key, how)

    def node_lost(self, name: str, reason: str) -> None:
        self._provider.lost(name)
        self._reports.node_lost(name, reason)
