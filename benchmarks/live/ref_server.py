"""The bare reference: the standard library's event loop, HTTP parsed by hand, one process, no features.

Kinds: `noop` answers at once. `hop` asks a second process for each answer, over a socket pair: what any runtime pays
that keeps functions in processes of their own. `fifo` puts what waits into batches of up to eight, in order of
arrival; a batch of n takes 8 + 2n ms, as an accelerator would (a wait, no work). `deadline` does the same and is told
that formula: it refuses at arrival what cannot finish by its `X-Deadline-Ms`, and drops at dispatch what no longer can.
"""

import argparse
import asyncio
import multiprocessing
import signal
import socket
from collections import deque
from time import monotonic

MAX_BATCH = 8
MARGIN_S = 0.004  # timers of this event loop are late by a millisecond or two, and the answer has to travel

OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"output":1}'
REFUSED = (
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: 31\r\n\r\n"
    b'{"error":{"reason":"too late"}}'
)


def cost_s(count: int) -> float:
    return 0.008 + 0.002 * count


class Stage:
    """One batch at a time; what waits is in order of arrival."""

    def __init__(self, *, knows_deadlines: bool) -> None:
        self.knows_deadlines = knows_deadlines
        self.waiting: deque[tuple[Connection, float]] = deque()
        self.busy_until = 0.0
        self.is_busy = False

    def arrive(self, connection: "Connection", deadline: float) -> None:
        if self.knows_deadlines and self.finish() > deadline - MARGIN_S:
            connection.answer(REFUSED)
            return
        self.waiting.append((connection, deadline))
        if not self.is_busy:
            self.start()

    def finish(self) -> float:
        """When a request that comes now would be done, if the batch it goes into is full by then."""
        if not self.is_busy:
            return monotonic() + cost_s(1)
        return self.busy_until + cost_s(MAX_BATCH) * (1 + len(self.waiting) // MAX_BATCH)

    def start(self) -> None:
        now = monotonic()
        if self.knows_deadlines:  # the oldest goes rather than the size of the batch
            while self.waiting and now + cost_s(min(MAX_BATCH, len(self.waiting))) > self.waiting[0][1]:
                self.waiting.popleft()[0].answer(REFUSED)
        batch = [self.waiting.popleft()[0] for _ in range(min(MAX_BATCH, len(self.waiting)))]
        self.is_busy = bool(batch)
        if batch:
            self.busy_until = now + cost_s(len(batch))
            asyncio.get_running_loop().call_later(cost_s(len(batch)), self.end, batch)

    def end(self, batch: "list[Connection]") -> None:
        for connection in batch:
            connection.answer(OK)
        self.start()


class Hop(asyncio.Protocol):
    """The way to a second process that gives every byte back: one request, one byte."""

    def __init__(self) -> None:
        self.waiting: deque[Connection] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def arrive(self, connection: "Connection", deadline: float) -> None:
        self.waiting.append(connection)
        self.transport.write(b"x")

    def data_received(self, data: bytes) -> None:
        for _ in data:
            self.waiting.popleft().answer(OK)


def echo(connection: socket.socket) -> None:
    """The second process."""
    while data := connection.recv(65536):
        connection.sendall(data)


class Connection(asyncio.Protocol):
    """One client. Requests that come in one go are answered one after another."""

    def __init__(self, stage: Stage | Hop | None) -> None:
        self.stage = stage
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def answer(self, data: bytes) -> None:
        self.transport.write(data)  # a client that has gone is no concern of the transport's

    def data_received(self, data: bytes) -> None:
        self.data += data
        while True:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.data[:end].lower()
            whole = end + 4 + int(_header(head, b"content-length") or 0)
            if len(self.data) < whole:
                return
            self.data = self.data[whole:]
            if self.stage is None:
                self.answer(OK)
            else:
                limit_ms = _header(head, b"x-deadline-ms")
                self.stage.arrive(self, monotonic() + float(limit_ms) / 1e3 if limit_ms else float("inf"))


def _header(head: bytes, name: bytes) -> bytes:
    """A header's value in a head of small letters; empty without it."""
    _, found, rest = head.partition(b"\r\n" + name + b":")
    return rest.partition(b"\r\n")[0].strip() if found else b""


async def serve(kind: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    stage: Stage | Hop | None = None
    if kind == "hop":
        ours, theirs = socket.socketpair()
        multiprocessing.get_context("fork").Process(target=echo, args=(theirs,), daemon=True).start()
        _, stage = await loop.create_connection(Hop, sock=ours)
    elif kind != "noop":
        stage = Stage(knows_deadlines=kind == "deadline")
    server = await loop.create_server(lambda: Connection(stage), "127.0.0.1", port, backlog=1024)
    print(f"Serving {kind} at http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
    server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("noop", "hop", "fifo", "deadline"))
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    asyncio.run(serve(options.kind, options.port))
