"""Connections that carry one request at a time, opened when they are needed and kept."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic

import httptools
import msgspec

from fairlead.client.target import Target
from fairlead.load.samples import CLOSED, MALFORMED, NOT_CONNECTED, TIMED_OUT, UNSENT

MAX_REASON_BYTES = 4096
MAX_REASON_LETTERS = 300
LEAST_DEADLINE_MS = 0.1

Ended = Callable[[int, float, int, str], None]
"""Called once per request with its row, the instant, the status or how else it ended, and the reason of a refusal."""


class _Reason(msgspec.Struct):
    reason: str | None = None
    code: str | int | None = None


class _Refusal(msgspec.Struct):
    error: _Reason | str | None = None


_refusals = msgspec.json.Decoder(_Refusal)


class Connection(asyncio.Protocol):
    """One connection. `row` is the request under way, or -1."""

    __slots__ = ("_parser", "_pool", "_text", "_transport", "row")

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._text = b""
        self.row = -1

    def send(self, row: int, data: bytes) -> None:
        """Send a request; its end goes to the pool."""
        self.row = row
        assert self._transport is not None
        self._transport.write(data)

    def abort(self) -> None:
        """Hang up without a word."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready to send."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are not asyncio's

    def data_received(self, data: bytes) -> None:
        """Part of an answer."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._give_up(MALFORMED)

    def on_body(self, body: bytes) -> None:
        """Part of an answer's body; of refusals it is kept, for the reason."""
        if self._parser.get_status_code() >= 400 and len(self._text) < MAX_REASON_BYTES:
            self._text += body

    def on_message_complete(self) -> None:
        """The whole answer is here."""
        status = self._parser.get_status_code()
        if status < 200:  # an interim answer: the real one follows
            return
        if self.row < 0:  # an answer to nothing
            self.abort()
            return
        row, self.row = self.row, -1
        reason = ""
        if status >= 400:
            reason, self._text = _reason(self._text), b""
        self._pool.answered(self, row, status, reason, keeps=self._parser.should_keep_alive())

    def connection_lost(self, error: Exception | None) -> None:
        """Closed, by either side."""
        row, self.row = self.row, -1
        self._pool.lost(self, row)

    def _give_up(self, status: int) -> None:
        row, self.row = self.row, -1
        self.abort()
        if row >= 0:
            self._pool.failed(self, row, status)


class Pool:
    """All connections to one target. A request that would be more than `most` at once is not sent but ends as `UNSENT`.

    `requests` are heads with their bodies; `picks` tells by its row which of them a request is.
    """

    def __init__(
        self,
        target: Target,
        requests: Sequence[tuple[bytes, bytes]],
        picks: Callable[[int], int],
        *,
        tls: ssl.SSLContext | None = None,
        sends_deadline: bool,
        most: int,
        timeout_s: float,
        ended: Ended,
    ) -> None:
        self._target = target
        self._tls = tls
        self._requests = requests
        self._picks = picks
        self._whole = [b"%b\r\n%b" % request for request in requests]
        self._sends_deadline = sends_deadline
        self._most = most
        self._timeout_s = timeout_s
        self._ended = ended
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._under_way: dict[Connection, float] = {}  # with the instant to give up at; the oldest first
        self._opening: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        """Requests without an end."""
        return len(self._under_way) + len(self._opening)

    async def warm(self, count: int) -> int:
        """Open up to `count` connections beforehand; gives how many there are now. `ssl.SSLError` is raised."""
        for _ in range(min(count, self._most) - len(self._all)):
            try:
                async with asyncio.timeout(self._timeout_s):
                    connection = await self._connect()
            except ssl.SSLError:
                raise
            except OSError:
                break
            self._idle.append(connection)
        return len(self._all)

    def send(self, row: int, deadline: float) -> None:
        """Send the request of this row, whose deadline is this instant; its end is told to `ended`."""
        if self._idle:
            connection = self._idle.pop()  # the last used: it is the least likely to be closed by the other side
            self._under_way[connection] = monotonic() + self._timeout_s
            connection.send(row, self._data(row, deadline))
        elif self.in_flight < self._most:
            task = asyncio.get_running_loop().create_task(self._open_and_send(row, deadline))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        else:
            self._ended(row, monotonic(), UNSENT, "")

    def sweep(self) -> None:
        """Give up what has waited too long."""
        now = monotonic()
        late = []
        for connection, instant in self._under_way.items():
            if instant > now:
                break
            late.append(connection)
        for connection in late:
            row, connection.row = connection.row, -1
            connection.abort()
            self.failed(connection, row, TIMED_OUT)

    async def close(self) -> None:
        """Hang up all."""
        for task in self._opening:
            task.cancel()
        for connection in tuple(self._all):
            connection.row = -1
            connection.abort()
        while self._all or self._opening:  # until the loop has told each of them
            await asyncio.sleep(0)

    def answered(self, connection: Connection, row: int, status: int, reason: str, *, keeps: bool) -> None:
        """A connection has its answer."""
        self._under_way.pop(connection, None)
        if keeps:
            self._idle.append(connection)
        else:
            connection.abort()
        self._ended(row, monotonic(), status, reason)

    def failed(self, connection: Connection, row: int, status: int) -> None:
        """A connection has given up."""
        self._under_way.pop(connection, None)
        self._ended(row, monotonic(), status, "")

    def lost(self, connection: Connection, row: int) -> None:
        """A connection is closed."""
        self._all.discard(connection)
        if row >= 0:
            self.failed(connection, row, CLOSED)
        elif connection in self._idle:
            self._idle.remove(connection)

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        target, tls = self._target, self._tls
        _, connection = await loop.create_connection(lambda: Connection(self), target.host, target.port, ssl=tls)
        self._all.add(connection)
        return connection

    async def _open_and_send(self, row: int, deadline: float) -> None:
        give_up_at = monotonic() + self._timeout_s
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._connect()
        except TimeoutError:
            self._ended(row, monotonic(), TIMED_OUT, "")
        except OSError:
            self._ended(row, monotonic(), NOT_CONNECTED, "")
        else:
            self._under_way[connection] = give_up_at
            connection.send(row, self._data(row, deadline))

    def _data(self, row: int, deadline: float) -> bytes:
        picked = self._picks(row)
        if not self._sends_deadline or deadline == inf:
            return self._whole[picked]
        head, body = self._requests[picked]
        left_ms = max(LEAST_DEADLINE_MS, (deadline - monotonic()) * 1e3)
        return b"%bX-Deadline-Ms: %.1f\r\n\r\n%b" % (head, left_ms, body)


def _reason(text: bytes) -> str:
    """Why a request was refused, as its answer says; empty if it does not."""
    try:
        error = _refusals.decode(text).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    if isinstance(error, _Reason):
        error = error.reason or (None if error.code is None else str(error.code))
    return (error or "")[:MAX_REASON_LETTERS]
