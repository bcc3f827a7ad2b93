"""What HTTP costs: the gateway in front of a host that answers at once, against a bare server.

Closed loop over 32 connections; one process serves, another one loads. `python benchmarks/bench_gateway.py [SECONDS]`
"""

import asyncio
import json
import multiprocessing
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "live"))

from gateway_world import SmallHost

from fairlead.engine.live.gateway import Settings
from fairlead.engine.live.gateway.server import serve
from fairlead.engine.live.journal import Journal

CONNECTIONS = 32
BODY = b'{"input": [1, 2, 3]}'
REQUEST = (
    b"POST /v1/workflows/echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"X-Deadline-Ms: 1000\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


class Bare(asyncio.Protocol):
    """Answers whatever ends like our request; knows no HTTP beyond that."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.buffer = transport, b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0 and len(self.buffer) >= end + 4 + len(BODY):
            given = json.loads(self.buffer[end + 4 : end + 4 + len(BODY)])
            self.buffer = self.buffer[end + 4 + len(BODY) :]
            body = json.dumps({"output": given["input"]}).encode()
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            self.transport.write(head + body)


def serve_bare(listening: socket.socket) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Bare, sock=listening)
        await server.serve_forever()

    asyncio.run(main())


def serve_gateway(listening: socket.socket) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as state:
            host = SmallHost({"bench.echo": lambda value, _: value})
            host.calls = _Nothing()
            settings = Settings(state=Path(state))
            journal = Journal(Path(state) / "journal.sqlite")
            await serve(host, journal, settings, [listening], asyncio.Event())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


class _Nothing(list):
    def append(self, item: object) -> None:
        """Keep nothing: the benchmark would grow."""


class User(asyncio.Protocol):
    """Sends the next request when the answer to the last one is complete."""

    def __init__(self, latencies: list[float], until: float) -> None:
        self.latencies, self.until = latencies, until
        self.done = asyncio.get_running_loop().create_future()
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.sent = perf_counter()
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.buffer[:end].lower()
        assert head.startswith(b"http/1.1 200"), head
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        if len(self.buffer) < end + 4 + length:
            return
        self.buffer = b""
        now = perf_counter()
        self.latencies.append(now - self.sent)
        if now < self.until:
            self.send()
        elif not self.done.done():
            self.done.set_result(None)
            self.transport.close()


async def load(port: int, connections: int, seconds: float) -> list[float]:
    latencies: list[float] = []
    until = perf_counter() + seconds
    loop = asyncio.get_running_loop()
    users = [
        (await loop.create_connection(lambda: User(latencies, until), "127.0.0.1", port))[1] for _ in range(connections)
    ]
    await asyncio.gather(*(user.done for user in users))
    return latencies


def cpu_s(process: int | None) -> float:
    """CPU time of a process so far: what a busy machine does not blur."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(name: str, server: Callable[[socket.socket], None], seconds: float) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        port = listening.getsockname()[1]
        process = multiprocessing.get_context("fork").Process(target=server, args=(listening,))
        process.start()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(load(port, 1, 0.5))  # warm
            alone = sorted(runner.run(load(port, 1, seconds / 2)))
            before_s = cpu_s(process.pid)
            crowd = sorted(runner.run(load(port, CONNECTIONS, seconds)))
            used_s = cpu_s(process.pid) - before_s
    finally:
        process.kill()
        process.join()
    print(
        f"{name:<10} 1 connection: p50 {alone[len(alone) // 2] * 1e6:6.0f} us   {CONNECTIONS} connections: "
        f"{len(crowd) / seconds:7.0f}/s, p50 {crowd[len(crowd) // 2] * 1e3:5.2f} ms, "
        f"p99 {crowd[int(len(crowd) * 0.99)] * 1e3:5.2f} ms; CPU per request {used_s / len(crowd) * 1e6:4.0f} us"
    )


if __name__ == "__main__":
    duration_s = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
    measure("bare", serve_bare, duration_s)
    measure("gateway", serve_gateway, duration_s)
