"""Kernels of clients served by `fairlead serve` on devices, asked over HTTP, and read from the run's records."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import polars as pl

from fairlead.calibrate.serving import process_cpu_s
from fairlead.errors import FairleadError
from fairlead.experiments.kaas_clients import Model, clients_of
from fairlead.experiments.kaas_live.app import CLIENTS, MODELS
from fairlead.experiments.live_bench import serving, status_of
from fairlead.model import Recording
from fairlead.report.live import read_live_run

_APP = Path(__file__).with_name("kaas_live") / "app.py"
_ANSWER_LIMIT_S = 120.0
_EXECUTOR = b"fairlead.kaas.worker"


@dataclass(frozen=True)
class Cpu:
    """CPU time in seconds: of the gateway, of the executors of all devices, and of the clients."""

    gateway_s: float = 0.0
    devices_s: float = 0.0
    client_s: float = 0.0

    def __add__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.gateway_s + other.gateway_s, self.devices_s + other.devices_s, self.client_s + other.client_s)

    def __sub__(self, other: "Cpu") -> "Cpu":
        return self + Cpu(-other.gateway_s, -other.devices_s, -other.client_s)


@dataclass(frozen=True)
class Span:
    """From when to when on the gateway's clock something was asked, and what each answer took."""

    begin: float
    end: float
    latency_s: Mapping[str, Sequence[float]]  # by client
    cpu: Cpu = Cpu()

    @property
    def all_s(self) -> list[float]:
        """Those of all clients."""
        return [one for own in self.latency_s.values() for one in own]


@contextmanager
def served_clients(
    folder: Path, models: Sequence[Model], count: int, devices: Mapping[str, Any], policy: Mapping[str, Any]
) -> Iterator["Asker"]:
    """Clients on devices under a policy. The records are in `folder / "state"` afterwards.

    Args:
        folder: For the state and the log.
        models: See `clients_of`.
        count: How many clients.
        devices: `names`, `memory_mb` of each and `environment`.
        policy: `dispatch` and its parameters.
    """
    options = ["--policy", policy["dispatch"], "--drain", "30s", "--no-profile", "--no-warm-up"]
    for name in devices["names"]:
        options += ["--device", name]
    options += ["--device-memory", f"{devices['memory_mb']}MB"]
    for name, value in policy.items():
        if name != "dispatch":
            options += ["--set", f"policy.{name}={value}"]
    environment = {**devices["environment"], CLIENTS: str(count), MODELS: json.dumps(list(models))}
    folder.mkdir(parents=True, exist_ok=True)
    bodies = {name: _body(example.inputs) for name, example in clients_of(models, count).items()}
    with serving(_APP, folder / "state", options, environment) as address:
        yield Asker(address, bodies, int(json.loads((folder / "state" / "gateway.json").read_bytes())["pid"]))


def _body(inputs: Mapping[str, Any]) -> bytes:
    (value,) = inputs.values()
    return json.dumps({"input": value.tolist()}).encode()


class Asker:
    """Asks a served app, each client over connections of its own. The gateway has this process id."""

    def __init__(self, address: str, bodies: Mapping[str, bytes], gateway: int) -> None:
        self._address = address
        self._gateway = gateway
        self.clients = tuple(bodies)
        self._requests = {
            name: b"POST /v1/workflows/%s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (name.encode(), len(body), body)
            for name, body in bodies.items()
        }

    def one_by_one(self, clients: Sequence[str]) -> Span:
        """One request after the other, of these clients in turn."""

        async def ask() -> list[tuple[str, float]]:
            async with _Lines(self._address) as lines:
                return [(client, await lines.ask(self._requests[client])) for client in clients]

        return self._timed(ask)

    def closed(self, clients: Sequence[str], outstanding: int, seconds: float) -> Span:
        """Each client keeps `outstanding` requests open; those count that ended in time, and the first of each user."""

        async def ask() -> list[tuple[str, float]]:
            async with _Lines(self._address) as lines:
                until = perf_counter() + seconds

                async def user(client: str) -> list[tuple[str, float]]:
                    found: list[tuple[str, float]] = []
                    while perf_counter() < until:
                        took_s = await lines.ask(self._requests[client])
                        if perf_counter() < until or not found:
                            found.append((client, took_s))
                    return found

                users = [user(client) for client in clients for _ in range(outstanding)]
                return [one for own in await asyncio.gather(*users) for one in own]

        return self._timed(ask)

    def open(self, arrivals: Sequence[tuple[float, str]]) -> Span:
        """A request of a client at each of these instants, whatever the answers do."""

        async def ask() -> list[tuple[str, float]]:
            async with _Lines(self._address) as lines:
                began = perf_counter()

                async def request(at_s: float, client: str) -> tuple[str, float]:
                    await asyncio.sleep(max(0.0, began + at_s - perf_counter()))
                    await lines.ask(self._requests[client])
                    return client, perf_counter() - began - at_s

                return await asyncio.gather(*(request(*one) for one in arrivals))

        return self._timed(ask)

    def _timed(self, ask: Callable[[], Awaitable[list[tuple[str, float]]]]) -> Span:
        begin = status_of(self._address).uptime_s
        found: dict[str, list[float]] = {}
        before = self._cpu()
        for client, took_s in asyncio.run(_limited(ask)):
            found.setdefault(client, []).append(took_s)
        return Span(begin, status_of(self._address).uptime_s, found, self._cpu() - before)

    def _cpu(self) -> Cpu:
        """What gateway, executors and this process have used so far."""
        executors = [pid for pid in _children(self._gateway) if _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return Cpu(process_cpu_s(self._gateway), sum(map(process_cpu_s, executors)), process_time())


def _children(parent: int) -> Iterator[int]:
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # it has ended meanwhile
            if f"\nPPid:\t{parent}\n" in status.read_text():
                yield int(status.parent.name)


async def _limited(ask: Callable[[], Awaitable[list[tuple[str, float]]]]) -> list[tuple[str, float]]:
    async with asyncio.timeout(_ANSWER_LIMIT_S):
        return await ask()


class _Lines:
    """Connections to a server, taken when one is needed and kept for the next."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._all: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "_Lines":
        return self

    async def __aexit__(self, *_: object) -> None:
        for writer in self._all:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._all), return_exceptions=True)

    async def ask(self, request: bytes) -> float:
        """Send a request and read its answer; how long that took. FairleadError for any other status than 200."""
        began = perf_counter()
        if not self._idle:
            line = await asyncio.open_connection(self._host, self._port)
            self._all.append(line[1])
            self._idle.append(line)
        reader, writer = self._idle.pop()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in lines[1:] if line)
        body = await reader.readexactly(int(fields[b"content-length"]))
        took_s = perf_counter() - began
        if b" 200 " not in lines[0]:
            raise FairleadError(f"A client was answered {lines[0].decode()}: {body[:300].decode(errors='replace')}")
        self._idle.append((reader, writer))
        return took_s


def live_records(folder: Path) -> Recording:
    """What was recorded of the run that ended."""
    return read_live_run(folder / "state" / "runs" / "1")


def memory_figures(recording: Recording, begin: float, end: float) -> dict[str, float]:
    """Of the runs that ended in a span: how many, the share that found its constants there, and evictions per run.

    An eviction is counted where it ended an idle instance, and a miss where a run had to wait for a load: alike in
    records of a live and of a simulated run.
    """
    ended = pl.col("end").is_between(begin, end, closed="right") & (pl.col("outcome") == "done")
    runs = recording.invocations.filter(ended)
    gone = recording.instances.filter(
        pl.col("stopped").is_between(begin, end, closed="right") & (pl.col("cause") == "evicted")
    )
    count = max(1, runs.height)
    return {
        "runs": runs.height,
        "hit_share": 1 - runs.filter(pl.col("cold_s") > 0).height / count,
        "evictions_per_run": gone.height / count,
    }
