"""The link over one end of a socket pair; the instance has the other end."""

import asyncio
import socket
from collections.abc import Callable

from fairlead.engine.live.contracts import LinkReports
from fairlead.engine.live.links.asked import Asked
from fairlead.engine.live.wire import Batch, Begin, Done, Failed, Frames, Ready, frame, report


class PairLink(asyncio.Protocol):
    """Frames to and from one instance.

    Args:
        connection: Our end.
        begin: The first message.
        broken: Told once when the channel has ended, with the reason where the instance sent nonsense.
    """

    def __init__(self, connection: socket.socket, begin: Begin, broken: Callable[[str | None], None]) -> None:
        self._broken = broken
        self._frames = Frames()
        self._reports: LinkReports | None = None
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = [frame(begin)]
        self._generation = 0
        self._asked = Asked()
        self.late = 0  # answers of another generation, which were dropped
        connection.setblocking(False)
        self._connecting = asyncio.get_running_loop().create_task(self._connect(connection))

    async def _connect(self, connection: socket.socket) -> None:
        transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=connection)
        transport.writelines(self._unsent)
        self._unsent.clear()
        self._transport = transport

    def open(self, reports: LinkReports) -> None:
        """Say to whom messages go."""
        self._reports = reports

    def run(self, batch: Batch) -> None:
        """Pass a batch on, in order. One that is dying does not get it: its end, which is about to be seen, says so."""
        data = frame(batch)
        self._asked.note(batch)
        if self._transport is None:
            self._unsent.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """End the channel: an idle instance ends by it."""
        if self._transport is not None:
            self._transport.close()

    def drop(self) -> None:
        """End the channel at once: nothing is at its other end."""
        self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take in what the instance says; nonsense ends it."""
        try:
            for body in self._frames.feed(data):
                self._heard(report(body))
        except (ValueError, RecursionError) as error:
            self._broken(f"it broke its channel: {error}")

    def _heard(self, message: Ready | Failed | Done) -> None:
        self._asked.check(message)
        if isinstance(message, Done):
            if message.generation != self._generation:
                self.late += 1
                return
            self._asked.take(message)
        if self._reports is not None:
            self._reports.heard(message)

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel has ended; the process mostly too. One that lives on without it is of no use."""
        self._broken(None)
