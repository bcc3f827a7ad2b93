"""One end of a stream that carries frames, and the link to an instance at its other end."""

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec

from fairlead.engine.live.contracts import LinkReports
from fairlead.engine.live.links.asked import Asked
from fairlead.engine.live.store import names
from fairlead.engine.live.values import LOST_INPUT, Reference, Result, reference
from fairlead.engine.live.wire import MOST_BYTES, Batch, Done, Failed, Frames, Ready, frame, report

Message = Ready | Failed | Done


class Stream(asyncio.Protocol):
    """Cuts what arrives into frames and passes their bodies on; sends frames in order.

    The same for a socket pair, a Unix socket, TCP, and TLS on it. A frame larger than `most_bytes` ends the connection,
    as does a body at which `heard` raises ValueError.

    Args:
        heard: Gets the body of each frame.
        ended: Called once, with the reason, when nothing more can be sent or will be heard.
    """

    def __init__(self, heard: Callable[[bytes], None], ended: Callable[[str], None], most_bytes: int = MOST_BYTES):
        self.heard = heard
        self.ended = ended
        self._frames = Frames(most_bytes)
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._fault = ""
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what was meant to be sent before."""
        self._transport = cast(asyncio.Transport, transport)
        if self._unsent:
            self._transport.writelines(self._unsent)
            self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        """Pass on the frames that are whole."""
        try:
            for body in self._frames.feed(data):
                self.heard(body)
        except (ValueError, RecursionError) as error:  # what cannot be decoded, too
            self._fault = f"it sent what is no valid message: {error}"
            self.abort()

    def eof_received(self) -> None:
        """Nothing more comes: close."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        if not self._is_over:
            self._is_over = True
            self._unsent.clear()
            self.ended(self._fault or (str(exc) if exc is not None else "the connection was closed"))

    def allow(self, most_bytes: int) -> None:
        """Take frames of up to this size from now on."""
        self._frames.most_bytes = most_bytes

    def send(self, data: bytes) -> None:
        """Pass a frame on; dropped when the connection has ended."""
        if self._transport is None:
            if not self._is_over:
                self._unsent.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def backlog_bytes(self) -> int:
        """Bytes that the other end has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        """End the connection once everything is sent."""
        if self._transport is not None:
            self._transport.close()
        self._unsent.clear()

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()
        self._unsent.clear()


class StreamLink:
    """The way to one instance over a stream.

    An answer whose generation is not that of the link is late: it was asked for by a former gateway, or before the
    instance was given up. It goes to `late` and not to the runtime.

    Args:
        send: Sends a frame.
        generation: What batches carry from now on.
        late: Gets every late answer, whose values nothing will read.
        home: How references to values of the instance's node must end, lest others be sent wherever it likes; None
            where any may come.
        is_there: Whether the node with this end of references is connected; None asks nothing. A batch that needs a
            value of one that is not fails at once, instead of when its instance has tried to reach that node.
    """

    def __init__(
        self,
        send: Callable[[bytes], None],
        generation: int,
        late: Callable[[Done], None],
        home: str | None = None,
        is_there: Callable[[str], bool] | None = None,
    ) -> None:
        self._is_there = is_there
        self._send = send
        self.generation = generation
        self._late = late
        self._asked = Asked(home)
        self._reports: LinkReports | None = None
        self._waiting: list[Message] = []
        self._carried_s: dict[int, float] = {}  # by batch: what its inputs took to get to the instance's node

    def open(self, reports: LinkReports) -> None:
        """Pass messages on, those first that came before."""
        self._reports = reports
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            reports.heard(message)

    def run(self, batch: Batch) -> None:
        """Send a batch with the link's generation, which its answer gives back. ValueError if it is too large."""
        if self._is_there is not None and (lost := self._lost(batch, self._is_there)) is not None:
            asyncio.get_running_loop().call_soon(self._fail, batch, lost, self.generation)
            return
        self._send(frame(Batch(batch.batch, batch.stages, batch.inputs, self.generation, batch.about)))
        self._asked.note(batch)

    def heard(self, body: bytes) -> None:
        """Take in what the instance says. Raises ValueError for what is no message."""
        message = report(body)
        self._asked.check(message)
        if isinstance(message, Done):
            if message.generation != self.generation:
                self._late(message)
                return
            self._asked.take(message)
            transfer_s = message.transfer_s + self._carried_s.pop(message.batch, 0.0)
            message = msgspec.structs.replace(message, generation=0, transfer_s=transfer_s)  # as it was asked for
        self.tell(message)

    @staticmethod
    def _lost(batch: Batch, is_there: Callable[[str], bool]) -> Reference | None:
        """An input that lies on a node which is not connected."""
        for value in batch.inputs:
            if type(value) is not bytes:
                for text in names(value):
                    found = reference(text)
                    if found.node and not is_there(found.home):
                        return found
        return None

    def _fail(self, batch: Batch, lost: Reference, generation: int) -> None:
        if generation == self.generation:
            what = f"a value of {lost.size / 2**20:.2f} MiB on node {lost.node} is lost"
            error = f"{LOST_INPUT}{what}: the node is not connected"
            failed = Result(False, error=error, lost_at=lost.node)
            self.tell(Done(batch.batch, 0.0, (failed,) * len(batch.inputs)))

    def carried(self, batch: int, seconds: float) -> None:
        """Note what it took to bring the inputs of a batch, which its answer adds to its own time of transfer."""
        self._carried_s[batch] = seconds

    def tell(self, message: Message) -> None:
        """Pass a message on to whoever has opened this link, or will."""
        if self._reports is None:
            self._waiting.append(message)
        else:
            self._reports.heard(message)

    def fence(self, generation: int) -> None:
        """Give up the batches under way: answers to them are late from now on."""
        self.generation = generation
        self._reports = None
        self._waiting.clear()
        self._carried_s.clear()
        self._asked.clear()
