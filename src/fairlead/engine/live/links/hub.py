"""The listening end of a gateway or an agent: takes connections in, greets them, and finds out what they are.

A connection counts as unknown until both ends have proved that they know the token and its first message has come.
Unknown connections are few, small and short-lived: at most `MOST_UNKNOWN` at a time, of which the oldest is dropped for
the next, and `HANDSHAKE_LIMIT_S` each.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast
from weakref import WeakSet

from fairlead.engine.live.links import control
from fairlead.engine.live.links.address import bound_address, tune
from fairlead.engine.live.links.dial import HANDSHAKE_LIMIT_S
from fairlead.engine.live.links.greeting import AGENT, REFUSAL, GreetingError, Listener, identity_of
from fairlead.engine.live.links.messages import MOST_CONTROL_BYTES, Attach, Read
from fairlead.engine.live.links.serving import Reads, Relay
from fairlead.engine.live.links.stream import Stream
from fairlead.engine.live.store import Store
from fairlead.engine.live.wire import MOST_BYTES
from fairlead.errors import ConfigError, Fault

Log = Callable[[str], None]

MOST_UNKNOWN = 64
"""Connections that may be unknown at a time."""

_MOST_READ_BYTES = 1 << 12  # of a request for a part of a value
_LOG_EVERY_S = 5.0  # a line about refused connections


class Hub:
    """Takes in agents, instances and readers of values.

    Args:
        token: What every connection has to know.
        tls: Of the listening end; None only where others than this machine's programs cannot dial.
        log: Gets a line about connections that were refused.
        store: The values that readers may read.
        relay: Reads parts of values of other nodes for readers that do not reach these; only a gateway has it.
        agent: Gets the `Hello` of an agent, and its stream, whose `heard` and `ended` it sets.
        instance: Gets the key of an instance and its stream, likewise.
    """

    def __init__(
        self,
        token: str,
        tls: ssl.SSLContext | None,
        log: Log,
        store: Store,
        agent: Callable[[control.Hello, Stream], None] | None = None,
        instance: Callable[[str, Stream], None] | None = None,
        relay: Relay | None = None,
    ) -> None:
        self._token = token
        self._tls = tls
        self._log = log
        self._store = store
        self._agent = agent
        self._instance = instance
        self._relay = relay
        self._unknown: dict[asyncio.Task[None], None] = {}  # oldest first
        self._streams: WeakSet[Stream] = WeakSet()  # their transports keep them
        self._accepting: asyncio.Task[None] | None = None
        self._next_line = 0.0
        self.refused = 0

    def open(self, listening: socket.socket) -> None:
        """Take connections in from now on. ConfigError where others could listen in."""
        place = bound_address(listening)
        if self._tls is None and not place.is_local:
            what = "other machines can reach it, so it needs TLS: give a certificate and its key, or use 127.0.0.1."
            raise ConfigError(str(place), [Fault("", what)])
        listening.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._accepting = self._loop.create_task(self._accept(listening))

    async def close(self) -> None:
        """Take nothing more in, and end what was taken in."""
        tasks = [*self._unknown, *([self._accepting] if self._accepting is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in list(self._streams):
            stream.abort()
        self._streams.clear()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(listening)
                tune(connection)
            except OSError as error:  # too many open files, or a connection that is gone again
                self._say(f"a connection could not be accepted: {error}")
                await asyncio.sleep(0.05)
                continue
            while len(self._unknown) >= MOST_UNKNOWN:
                oldest = next(iter(self._unknown))
                del self._unknown[oldest]  # it ends later: the next connection must not count on the same one
                oldest.cancel()
            task = self._loop.create_task(self._take_in(connection))
            self._unknown[task] = None
            task.add_done_callback(self._known)
            await asyncio.sleep(0)  # many that wait are accepted without a pause otherwise

    def _known(self, task: asyncio.Task[None]) -> None:
        self._unknown.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "a fault in the hub", "exception": error})

    async def _take_in(self, connection: socket.socket) -> None:
        """Greet a connection and pass it on, all within the time that it has."""
        visitor = _Visitor(self._token, self._loop)
        try:
            async with asyncio.timeout(HANDSHAKE_LIMIT_S):
                await self._loop.connect_accepted_socket(lambda: visitor, connection, ssl=self._tls)
                identity = await visitor.greeted
                spoken: asyncio.Future[None] = self._loop.create_future()
                stream = Stream(lambda body: None, lambda reason: None, MOST_CONTROL_BYTES)
                stream.heard = lambda body: self._pass_on(body, identity, stream, spoken)
                stream.ended = lambda reason: None if spoken.done() else spoken.set_exception(OSError(reason))
                visitor.give_to(stream)
                await spoken
        except (OSError, GreetingError, TimeoutError) as error:
            self.refused += 1
            visitor.abort()
            if isinstance(error, GreetingError | TimeoutError):
                self._say(f"a connection was refused: {error or 'it took too long to say what it is'}")
        except asyncio.CancelledError:
            self.refused += 1
            visitor.abort()
            raise
        finally:
            if visitor.transport is None:
                with suppress(OSError):
                    connection.close()

    def _pass_on(self, body: bytes, identity: bytes, stream: Stream, spoken: "asyncio.Future[None]") -> None:
        """Look at the first message: what dialled in may speak for nothing else than itself."""
        message = control.first.decode(body)
        stream.ended = _ignore
        if isinstance(message, Read):
            stream.allow(_MOST_READ_BYTES)
            reads = Reads(self._store, stream, self._relay)
            stream.heard, stream.ended = reads.heard, reads.ended
            reads.heard(body)
        elif isinstance(message, control.Hello) and self._agent is not None and identity == AGENT:
            self._agent(message, stream)
        elif isinstance(message, Attach) and self._instance is not None and identity_of(message.key) == identity:
            stream.allow(MOST_BYTES)  # large values do not travel in frames, but many small ones may
            self._instance(message.key, stream)
        else:
            raise ValueError("it may not say that here")
        self._streams.add(stream)
        if not spoken.done():
            spoken.set_result(None)

    def _say(self, line: str) -> None:
        now = self._loop.time()
        if now >= self._next_line:
            self._next_line = now + _LOG_EVERY_S
            self._log(f"{line} ({self.refused} so far)" if self.refused else line)


def _ignore(reason: str) -> None:
    pass


class _Visitor(asyncio.Protocol):
    """A connection that has not proved anything yet."""

    def __init__(self, token: str, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = Listener(token)
        self._is_greeted = False
        self._early: list[bytes] = []
        self.greeted: asyncio.Future[bytes] = loop.create_future()
        self.greeted.add_done_callback(lambda future: future.cancelled() or future.exception())  # it is looked at
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._listener.challenge())

    def data_received(self, data: bytes) -> None:
        if self._is_greeted:  # between our proof and the change of protocol
            self._early.append(data)
            return
        assert self.transport is not None
        try:
            proof = self._listener.feed(data)
        except GreetingError as error:
            self.transport.write(REFUSAL)
            self.transport.close()
            if not self.greeted.done():
                self.greeted.set_exception(error)
            return
        if proof is not None:
            self._is_greeted = True
            self.transport.write(proof)
            if not self.greeted.done():
                self.greeted.set_result(self._listener.identity)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.greeted.done():
            self.greeted.set_exception(OSError("it closed the connection"))

    def give_to(self, stream: Stream) -> None:
        """From now on the stream has the connection."""
        assert self.transport is not None
        if self.transport.is_closing():
            raise OSError("it closed the connection")
        self.transport.set_protocol(stream)
        stream.connection_made(self.transport)
        for data in self._early:
            stream.data_received(data)

    def abort(self) -> None:
        """End the connection; a refusal that is on its way is still sent."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.abort()
