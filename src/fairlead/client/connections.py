"""Connections to one gateway: each carries one request at a time, and is kept for the next."""

import asyncio
import ssl
from collections.abc import Mapping
from time import monotonic
from typing import NamedTuple

import httptools

from fairlead.client.target import Target

MAX_BYTES = 256 << 20
"""Of one answer; a gateway's own limit is far below."""

_MOST_HEAD = 64 << 10  # bytes of headers of one answer

_IDLE_LIMIT_S = 30.0  # a gateway closes a connection after 75 s without a request: never use one just then


class Reply(NamedTuple):
    """An HTTP answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class UnsentError(Exception):
    """No connection: the request was not sent."""


class BrokenError(Exception):
    """The connection broke off, or what came is no HTTP: the request may have run."""


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._body = bytearray()
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Reply] | None = None
        self.idle_since = 0.0
        self.is_open = True

    async def send(self, data: bytes) -> Reply:
        """Send a request and wait for its answer. Cancelled, it hangs up, which cancels the request."""
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        try:
            return await self._waiting
        except BaseException:  # also where the answer came in the very moment in which it was not wanted any more
            self.close()
            raise
        finally:
            self._waiting = None

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are not asyncio's

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the answer is no HTTP: {error}")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > _MOST_HEAD:
            self._fail(f"the headers of the answer have more than {_MOST_HEAD >> 10} KB")
            return
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > MAX_BYTES:
            self._fail(f"the answer has more than {MAX_BYTES >> 20} MB")

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        reply = Reply(status, self._headers, bytes(self._body))
        self._headers, self._body, self._head_bytes = {}, bytearray(), 0
        if status < 200:  # an interim answer: the real one follows
            return
        if not self._parser.should_keep_alive() or self._waiting is None:
            self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"the connection broke off{f': {error}' if error else ''}")

    def _fail(self, why: str) -> None:
        self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(BrokenError(why))


class Pool:
    """Up to `most` connections to one place; a request beyond that waits for one to be free.

    Connections belong to the event loop that they were made on: on another one, as after a second `asyncio.run`, the
    pool begins anew.
    """

    def __init__(self, target: Target, tls: ssl.SSLContext | None, most: int) -> None:
        self._target = target
        self._tls = tls
        self._most = most
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places = asyncio.Semaphore(most)
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._is_closed = False

    async def send(self, data: bytes) -> Reply:
        """One request, one answer. Raises `UnsentError`, `BrokenError`, `ssl.SSLError`."""
        self._settle(asyncio.get_running_loop())
        async with self._places:
            if self._is_closed:
                raise RuntimeError("this client is closed.")
            connection = self._kept() or await self._connect()
            try:
                reply = await connection.send(data)
            finally:
                if not connection.is_open:
                    self._open.discard(connection)
            if connection.is_open:
                connection.idle_since = monotonic()
                self._idle.append(connection)
            return reply

    def _settle(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is self._loop:
            return
        if self._loop is not None and not self._loop.is_closed() and self._open:
            raise RuntimeError("this client is used by another event loop; make one for each.")
        self._loop, self._places = loop, asyncio.Semaphore(self._most)
        self._idle, self._open = [], set()

    def close(self) -> None:
        """Hang up."""
        self._is_closed = True
        is_there = self._loop is not None and not self._loop.is_closed()
        for connection in self._open if is_there else ():
            connection.close()
        self._open.clear()
        self._idle.clear()

    def _kept(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()  # the last used: it is the least likely to be closed by the other side
            if connection.is_open and monotonic() - connection.idle_since < _IDLE_LIMIT_S:
                return connection
            connection.close()
            self._open.discard(connection)
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        target = self._target
        try:
            _, connection = await loop.create_connection(_Connection, target.host, target.port, ssl=self._tls)
        except ssl.SSLError:
            raise
        except OSError as error:
            raise UnsentError(getattr(error, "strerror", None) or str(error)) from error
        self._open.add(connection)
        return connection
