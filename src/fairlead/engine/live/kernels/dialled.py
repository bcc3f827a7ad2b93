"""The connection of a kernel's instance to its gateway, from the process of an agent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from fairlead.engine.live.links.address import Address
from fairlead.engine.live.links.caller import call
from fairlead.engine.live.links.greeting import Credential, GreetingError
from fairlead.engine.live.links.messages import Attach, Refused, pack, to_instance
from fairlead.engine.live.links.stream import Stream
from fairlead.engine.live.values import Result
from fairlead.engine.live.wire import Batch, Done, Failed, Ready, frame, order


class DialledKernel:
    """Speaks for one instance. It dials once: an instance that loses its gateway ends, since it holds nothing.

    Args:
        key: The instance.
        run: Gets the batches.
        ended: Told once why nothing more can be heard or said.
    """

    def __init__(self, key: str, run: Callable[[Batch], None], ended: Callable[[str], None]) -> None:
        self._key = key
        self._run = run
        self._ended = ended
        self._attached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._attached.add_done_callback(lambda future: future.cancelled() or future.exception())  # it is looked at
        self._stream = Stream(self._heard, self._over)

    async def open(self, gateway: Address, credential: Credential, tls: ssl.SSLContext | None, limit_s: float) -> None:
        """Dial the gateway. Raises OSError or GreetingError."""
        await call(gateway, credential, tls, self._stream)
        self._stream.send(pack(Attach(self._key)))
        async with asyncio.timeout(limit_s):  # TimeoutError is an OSError
            await self._attached

    def say(self, message: Ready | Failed | Done) -> None:
        """Pass on what the instance says."""
        try:
            data = frame(message)
        except ValueError as error:  # too large, and there was no room for it in the store
            assert isinstance(message, Done)
            failed = (Result(False, error=str(error)),) * len(message.results)
            data = frame(Done(message.batch, message.work_s, failed, message.generation))
        self._stream.send(data)

    def close(self) -> None:
        """End the connection once everything is sent."""
        self._stream.close()

    def _heard(self, body: bytes) -> None:
        if not self._attached.done():
            answer = to_instance.decode(body)
            if isinstance(answer, Refused):
                self._attached.set_exception(GreetingError(answer.reason))
            else:
                self._attached.set_result(None)
            return
        message = order(body)
        if isinstance(message, Batch):
            self._run(message)

    def _over(self, reason: str) -> None:
        if not self._attached.done():
            self._attached.set_exception(OSError(reason))
        self._ended(f"its gateway is lost: {reason}")
