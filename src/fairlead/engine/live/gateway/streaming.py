"""An answer that is sent part by part: in chunks, or up to the end of the connection for a client of HTTP/1.0."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

MOST_UNREAD = 1 << 20
"""Bytes that a client may leave unread before it is disconnected."""


class Sink(Protocol):
    """The connection, as this module sees it."""

    def send_part(self, data: bytes) -> None:
        """Send a part of the answer."""
        ...

    def end_stream(self) -> None:
        """The answer is complete."""
        ...


def notice_loss(transport: asyncio.Transport, within_s: float) -> None:
    """Have a connection end when its client has not confirmed what it was sent: it is gone without a word.

    Otherwise the kernel tries for a quarter of an hour, in which the client keeps its place among the few.
    """
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(within_s * 1e3))


def _nothing() -> None:
    pass


class StreamedBody:
    """The outlet of one answer. Nothing is sent once the client has gone or the answer has ended."""

    def __init__(self, sink: Sink, *, is_chunked: bool) -> None:
        self.on_lost: Callable[[], None] = _nothing
        self._sink: Sink | None = sink
        self._is_chunked = is_chunked

    def send(self, part: bytes) -> None:
        """Send a part."""
        if self._sink is not None and part:
            self._sink.send_part(b"%x\r\n%b\r\n" % (len(part), part) if self._is_chunked else part)

    def end(self) -> None:
        """There are no more parts."""
        sink, self._sink = self._sink, None
        if sink is not None:
            if self._is_chunked:
                sink.send_part(b"0\r\n\r\n")
            sink.end_stream()

    def lost(self) -> None:
        """The client has gone."""
        if self._sink is not None:
            self._sink = None
            self.on_lost()
