"""Dialling on the event loop: how an agent reaches its gateway."""

import asyncio
import ssl
from typing import cast

from fairlead.engine.live.links.address import Address, tune
from fairlead.engine.live.links.dial import HANDSHAKE_LIMIT_S
from fairlead.engine.live.links.greeting import CHALLENGE_BYTES, PROOF_BYTES, Credential, Dialler, GreetingError
from fairlead.engine.live.links.stream import Stream


async def call(address: Address, credential: Credential, tls: ssl.SSLContext | None, stream: Stream) -> None:
    """Connect a stream to whatever listens there, once both ends have proved who they are.

    Raises:
        OSError: It cannot be reached, or TLS failed; also a `TimeoutError`.
        GreetingError: One end does not accept the other.
    """
    loop = asyncio.get_running_loop()
    caller = _Caller(credential, loop)
    try:
        async with asyncio.timeout(HANDSHAKE_LIMIT_S):
            if address.path:
                await loop.create_unix_connection(lambda: caller, address.path)
            else:
                await loop.create_connection(lambda: caller, address.host, address.port, ssl=tls)
            await caller.greeted
    except BaseException:
        caller.abort()
        raise
    caller.give_to(stream)


class _Caller(asyncio.Protocol):
    """The dialling end of a connection, until it is greeted."""

    def __init__(self, credential: Credential, loop: asyncio.AbstractEventLoop) -> None:
        self._dialler = Dialler(credential)
        self._heard = b""
        self._has_answered = False
        self._transport: asyncio.Transport | None = None
        self.greeted: asyncio.Future[None] = loop.create_future()
        self.greeted.add_done_callback(lambda future: future.cancelled() or future.exception())  # it is looked at

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connection = transport.get_extra_info("socket")
        if connection is not None:
            tune(connection)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        try:
            if not self._has_answered and len(self._heard) >= CHALLENGE_BYTES:
                assert self._transport is not None
                self._transport.write(self._dialler.answer(self._heard[:CHALLENGE_BYTES]))
                self._heard = self._heard[CHALLENGE_BYTES:]
                self._has_answered = True
            if self._has_answered and len(self._heard) >= PROOF_BYTES and not self.greeted.done():
                self._dialler.check(self._heard[:PROOF_BYTES])
                self._heard = self._heard[PROOF_BYTES:]
                self.greeted.set_result(None)
        except GreetingError as error:
            if not self.greeted.done():
                self.greeted.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.greeted.done():
            self.greeted.set_exception(OSError("it closed the connection"))

    def give_to(self, stream: Stream) -> None:
        """From now on the stream has the connection."""
        assert self._transport is not None
        if self._transport.is_closing():
            raise OSError("it closed the connection")
        self._transport.set_protocol(stream)
        stream.connection_made(self._transport)
        if self._heard:
            stream.data_received(self._heard)

    def abort(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()
