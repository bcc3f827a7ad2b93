"""A gateway on virtual time: everything but HTTP and processes, in front of a virtual cluster. It can crash and start
again; the cluster, the disk and the clients go on.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fairlead.app import App
from fairlead.app.snapshot import Snapshot, keep_snapshot
from fairlead.engine.live.callbacks import AllowList, Courier
from fairlead.engine.live.clock import Clock
from fairlead.engine.live.gateway.app import Gateway
from fairlead.engine.live.gateway.connections import Census
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.inbox import Inbox
from fairlead.engine.live.gateway.intake import Intake
from fairlead.engine.live.gateway.metrics import Meter
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.replies import Reply
from fairlead.engine.live.gateway.runner import Runner
from fairlead.engine.live.gateway.settings import Settings
from fairlead.engine.live.gateway.tallies import Tallies
from fairlead.engine.live.host import Host, Options
from fairlead.model import Node
from fairlead.testing.virtual.journal import InlineWriter, VirtualJournal
from fairlead.testing.virtual.loop import Life, LifeEndedError, VirtualLoop
from fairlead.testing.virtual.nodes import VirtualCluster
from fairlead.testing.virtual.provider import VirtualProvider
from fairlead.testing.virtual.traits import Span, Traits

_WALL_S = 1.8e9  # what the wall clock shows when the loop's shows 0


class Answered(msgspec.Struct, frozen=True):
    """What a client gets."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.body)


class VirtualGateway:
    """One life of a gateway: host, journal, and what answers requests."""

    def __init__(self, world: "VirtualWorld", *, is_restart: bool, dies_after: int | None) -> None:
        self.world = world
        self.life = Life(world.loop, f"gateway {world.lives}", dies_after)
        self.journal = world.journal()
        self.provider = world.make_provider(world.cluster)
        self._is_restart = is_restart
        self.faults: list[Exception] = []  # of ours
        self.is_serving = False
        self.life.at_end(self._release)

    def _release(self) -> None:
        """What the operating system does for a process that has ended."""
        self.is_serving = False
        self.world.trace(f"{self.life.name} has ended after {self.life.steps} steps")
        self.journal.crash()
        self.provider.crash()
        host = getattr(self, "host", None)
        if host is not None:
            host._store.close()

    async def open(self) -> None:
        """Start as `fairlead serve` does. Runs as a part of its life."""
        world = self.world
        options = replace(world.options, is_restart=self._is_restart, apps=world.sources())
        self.host = Host(world.state, options, world.note, self._broken, self.provider, world.clock)
        await self.host.open()
        settings = world.settings
        pending = await self.journal.open(lock_wait_s=0.0)
        self.courier = Courier(self.journal, AllowList(settings.callback_prefixes), clock=world.clock.wall)
        self.intake = Intake(self.host, Inbox(settings.max_open, world.clock), Tallies(), settings, world.clock)
        self.runner = Runner(self.journal, self.intake, settings.max_async)
        meter = Meter(self.intake, self.runner, Census(), lambda: 0, self.courier.stats)
        self.gateway = Gateway(self.host, settings, self.intake, self.runner, self.courier, meter)
        self.courier.start()
        self.runner.resume(pending)
        self.is_serving = True

    async def close(self) -> None:
        """Drain and end, as on SIGTERM. Runs as a part of its life."""
        self.intake.is_stopping = True
        self.runner.begin_stop()
        if not await self.host.drain(self.world.settings.drain_limit_s):
            self.intake.cancel_all()
        await self.runner.stop()
        await self.courier.close()
        await self.journal.close()
        await self.host.close()

    async def answer(self, method: str, path: str, body: object, headers: Mapping[str, str], line: "Line") -> Answered:
        """What the gateway answers to a request. Runs as a part of its life; a client that is cancelled leaves."""
        found = {name.lower().encode(): value.encode() for name, value in headers.items()}
        if body is not None:
            found[b"content-type"] = b"application/json"
        exchange = Exchange(method, path, b"", found, line)
        if body is not None:
            exchange.take(msgspec.json.encode(body))
        reply: Reply
        try:
            self.gateway.admit(exchange)
        except Problem as problem:
            reply = self.gateway.refusal(exchange, problem)
        else:
            answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            self.gateway.begin(exchange, lambda _, reply: None if answered.done() else answered.set_result(reply))
            try:
                reply = await answered
            except asyncio.CancelledError:
                line.leave()
                raise
        return Answered(reply.status, bytes(reply.body))

    def _broken(self, error: Exception) -> None:
        """A fault of ours: the process would end itself."""
        self.faults.append(error)
        self.world.faults.append(error)
        self.world.trace(f"{self.life.name} is broken: {error!r}")
        self.world.loop.call_soon(self.life.end, context=self.world.cluster.context)


class Line:
    """The connection of a client, which may leave before it is answered."""

    def __init__(self) -> None:
        self.on_lost: Callable[[], None] | None = None
        self.is_gone = False

    def leave(self) -> None:
        """Leave: what was asked for is cancelled."""
        self.is_gone = True
        if self.on_lost is not None:
            self.on_lost()


class VirtualWorld:
    """A cluster, a disk, and one gateway at a time. Made and used on a virtual loop.

    Args:
        folder: Where the state folder goes; fast in memory (`/dev/shm`).
        apps: Gives the code of each app, by name: a function that declares the app, so that instances share nothing.
        nodes: Those of the cluster.
        seed: Of everything that happens by chance.
        traits: How the cluster behaves.
        options: How apps are served. Nodes are not watched, and runs are not recorded.
        commit_s: Time from an operation of the journal to its commit.
        provider: The gateway's side of the cluster, for tests that put another in its place.
        writer: What writes the journal, likewise.
        settings: Of the gateway.
        max_open: Requests that the journal holds.
    """

    def __init__(
        self,
        folder: Path,
        apps: Mapping[str, Callable[[], App]],
        nodes: Sequence[Node],
        *,
        seed: int = 0,
        traits: Traits = Traits(),
        options: Options = Options(),
        commit_s: Span = (0.0005, 0.003),
        provider: Callable[[VirtualCluster], VirtualProvider] = VirtualProvider,
        writer: type[InlineWriter] = InlineWriter,
        settings: Mapping[str, Any] = {},
        max_open: int = 100_000,
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.state = folder / "state"
        self.settings = Settings(state=self.state, **settings)
        self.options = replace(options, records=False, is_watched=False)
        self.traces: list[str] = []
        self.said: list[str] = []  # the gateways' log
        self.faults: list[Exception] = []
        self.rng = np.random.default_rng(seed)
        self.wall_offset_s = _WALL_S
        self.clock = Clock(loop.time, self._wall)
        self.cluster = VirtualCluster(nodes, self._code, np.random.default_rng([seed, 1]), traits, self.trace)
        self.make_provider = provider
        self.lives = 0
        self.gateway: VirtualGateway | None = None
        self._apps = dict(apps)
        self._makers: dict[str, Callable[[], App]] = {}  # by snapshot
        self._commit_s = commit_s
        self._max_open = max_open
        self._writer = writer
        self._ids = count(1)
        self._disk = np.random.default_rng([seed, 2])
        self._serving = asyncio.Event()

    # --- gateways --------------------------------------------------------------------------------------------------

    async def start(self, *, dies_after: int | None = None) -> VirtualGateway:
        """Start a gateway and wait until it serves; LifeEndedError if it ends before."""
        self.lives += 1
        gateway = VirtualGateway(self, is_restart=self.lives > 1, dies_after=dies_after)
        self.gateway = gateway
        self.trace(f"{gateway.life.name} starts")
        await gateway.life.ask(gateway.open())
        self._serving.set()
        return gateway

    def crash(self) -> None:
        """End the gateway between two of its steps."""
        if self.gateway is not None:
            self.gateway.life.end()
            self.gateway = None
            self._serving.clear()

    async def stop(self) -> None:
        """End the gateway in good order."""
        gateway = self.gateway
        assert gateway is not None
        await gateway.life.ask(gateway.close())
        self.crash()

    async def deploy(self, name: str, make: Callable[[], App]) -> None:
        """Replace an app, or add one."""
        gateway = self.gateway
        assert gateway is not None
        path = self._keep(name, make)

        async def deploy() -> None:
            await gateway.host.deploy(path, replace=True)
            gateway.intake.refresh()
            gateway.runner.deployed(name)

        await gateway.life.ask(deploy())

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] = {},
        line: "Line | None" = None,
    ) -> Answered:
        """One request. LifeEndedError if there is no gateway, or it ends before it answers."""
        gateway = self.gateway
        if gateway is None or not gateway.is_serving:
            raise LifeEndedError("there is no gateway")
        return await gateway.life.ask(gateway.answer(method, path, body, headers, line or Line()))

    # --- for gateways ----------------------------------------------------------------------------------------------

    def sources(self) -> tuple[Path, ...]:
        """The files of the apps that are served from the start."""
        return tuple(self._keep(name, make) for name, make in self._apps.items())

    def journal(self) -> VirtualJournal:
        """The journal, as a new process opens it."""
        return VirtualJournal(
            self.state / "journal.sqlite",
            loop=self.loop,
            clock=self.clock,
            new_id=lambda: f"{next(self._ids):032x}",
            commit_s=self._draw_commit_s,
            writer=self._writer,
            max_open=self._max_open,
        )

    def trace(self, line: str) -> None:
        """Note something that happened."""
        self.traces.append(f"{self.loop.time():12.6f} {line}")

    def note(self, line: str) -> None:
        """Take a line of a gateway's log."""
        self.said.append(line)
        self.trace(f"log: {line}")

    def jump(self, seconds: float) -> None:
        """Set the wall clock."""
        self.trace(f"the wall clock jumps by {seconds:g} s")
        self.wall_offset_s += seconds

    def _wall(self) -> float:
        return self.loop.time() + self.wall_offset_s

    def _draw_commit_s(self) -> float:
        least, most = self._commit_s
        return least if least == most else float(self._disk.uniform(least, most))

    def _keep(self, name: str, make: Callable[[], App]) -> Path:
        manifest = make().manifest()
        path = keep_snapshot(self.state / "sources", Snapshot(f"{name}.py", None, manifest, {}))
        self._makers[path.name] = make
        return path

    def _code(self, file: str) -> App:
        return self._makers[Path(file).name]()
