"""Agents for tests: in this process, on the same event loop, or as real processes."""

import asyncio
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

from fairlead.engine.live.links.address import Address, bound_address, listen_on
from fairlead.engine.live.links.tls import TlsFiles, client_context, server_context
from fairlead.engine.live.node.service import AgentOrder, AgentService
from fairlead.engine.live.objects import Objects, place_of
from fairlead.engine.live.providers.agents import AgentProvider, Timing
from fairlead.engine.live.store import Store
from fairlead.model import Device, Node

TOKEN = "a-token-for-tests-0123456789"
OWNER = "0123456789abcdef"


def make_certificates(folder: Path, *kinds: tuple[str, str]) -> Path:
    """Self-signed certificates, as docs/guide/agents.md makes one: for each prefix of file names, and its names."""
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=gateway"
    for kind, names in kinds or (("", "IP:127.0.0.1,DNS:localhost"),):
        files = ["-keyout", folder / f"{kind}key.pem", "-out", folder / f"{kind}cert.pem"]
        subprocess.run([*made.split(), "-addext", f"subjectAltName={names}", *files], check=True, capture_output=True)
    return folder


def files_of(pems: Path | None) -> TlsFiles:
    if pems is None:
        return TlsFiles()
    return TlsFiles(**{name: str(pems / f"{file}.pem") for name, file in _FILES.items()})


_FILES = {"certfile": "cert", "keyfile": "key", "cacert": "cert"}


class Running(AgentService):
    """An agent that can be ended."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.stop = asyncio.Event()

    async def close_now(self) -> None:
        """End it, with its instances and values."""
        self.stop.set()
        while self._store._locks:
            await asyncio.sleep(0.01)
        self._listening.close()


class World:
    """A hub's address, and the providers and agents that tests make at it."""

    def __init__(self, folder: Path, kind: str = "tcp", pems: Path | None = None) -> None:
        self.folder = folder
        self.files = files_of(pems)
        address = Address(path=str(folder / "hub.sock")) if kind == "unix" else Address("127.0.0.1", 0)
        self.listening = listen_on(address, "--agents-listen")
        self.address = bound_address(self.listening)
        self.log: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._services: list[Running] = []
        self._stores: list[Store] = []
        self._sockets = [self.listening]

    def provider(self, store: str | None = None, **timing: float) -> AgentProvider:
        """A gateway's end; the socket stays, as the supervisor keeps it. `store`: URL of an object store for values."""
        objects = None if store is None else Objects(place_of(store, None, OWNER, {}))
        own = Store.make(self.folder / "gateway-values")
        self._stores.append(own)
        server = server_context(TlsFiles(certfile=self.files.certfile, keyfile=self.files.keyfile))
        listening = self.listening.dup()
        self._sockets.append(listening)
        return AgentProvider(
            listening,
            TOKEN,
            server,
            own,
            self.folder,
            self.log.append,
            reading=client_context(self.files),
            timing=Timing(**timing),
            objects=objects,
        )

    def agent(
        self,
        place: str,
        vcpus: float = 4.0,
        *,
        name: str | None = None,
        speed: float = 1.0,
        kind: str = "machine",
        token: str = TOKEN,
        devices: tuple[Device, ...] = (),
    ) -> "Running":
        """An agent in this process that dials from now on."""
        address = Address(path=str(self.folder / f"{place}.sock")) if self.address.path else Address("127.0.0.1", 0)
        listening = listen_on(address, "--listen")
        node = Node(name=name or place, kind=kind, vcpus=vcpus, speed=speed, devices=devices)
        order = AgentOrder(join=self.address, token=token, node=node, folder=self.folder / place, tls=self.files)
        service = Running(order, listening, self.log.append)
        self._sockets.append(listening)
        self._services.append(service)
        self.tasks.append(asyncio.create_task(service.run(service.stop)))
        return service

    async def close(self) -> None:
        for service in self._services:
            service.stop.set()
        await asyncio.gather(*self.tasks)
        for listening in self._sockets:
            listening.close()
        for store in self._stores:
            store.close()


@asynccontextmanager
async def world(folder: Path, kind: str = "tcp", pems: Path | None = None):
    made = World(folder, kind, pems)
    try:
        yield made
    finally:
        await made.close()
