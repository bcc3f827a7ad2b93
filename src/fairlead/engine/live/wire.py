"""The channel between a gateway and an instance: frames of MessagePack over a stream, such as a socket pair.

A frame is its length in four bytes, then its body. To the instance goes one `Begin`, then `Batch`es; from it comes one
`Ready` or `Failed`, then one `Done` per batch. An instance that is to dial its gateway gets a `Dial` before the
`Begin`, both from its agent.
"""

import socket
from collections.abc import Sequence
from struct import Struct

import msgspec

from fairlead.app.current import About
from fairlead.engine.live.values import MOST_ITEMS, Result, Value

MOST_BYTES = 1 << 28  # of one frame; large values do not travel in frames

_READ_BYTES = 1 << 16  # at once: a larger buffer would be mapped and unmapped by the allocator for every message
_LENGTH = Struct("<I")


class Begin(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """What the instance is to be: sent once its limits hold."""

    app: str  # path of the app file
    function: str
    store: str  # folder in shared memory
    spill: str | None = None  # folder on disk, for what does not fit into shared memory
    max_items: int = MOST_ITEMS  # that an output may give to a map stage


class Batch(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Run these: one "workflow/stage" and one input per invocation. `generation` is given back in the answer.

    `about` has what the function may know of each; empty where no request asked for it.
    """

    batch: int
    stages: Sequence[str]
    inputs: Sequence[Value]
    generation: int = 0
    about: Sequence[About] = ()


class Dial(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Dial this gateway, as the instance with this key, before anything is loaded.

    `identity` and `secret` are its credential. An instance that has lost its gateway dials for `adoption_s` and then
    ends. `home` is the end of references to values of its node; see `Reference`.
    """

    gateway: str
    key: str
    identity: bytes
    secret: bytes
    home: str
    adoption_s: float
    certfile: str | None = None
    keyfile: str | None = None
    cacert: str | None = None
    is_pinned: bool = False  # see `TlsFiles`


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The instance can run batches; how long loading the code and `setup` took."""

    load_s: float
    setup_s: float


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The instance cannot start, because of its code."""

    error: str


class Done(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A batch has ended; `work_s` is how long the function took, `transfer_s` how long its inputs were fetched.

    `generation` is that of the `Batch`. An answer to a batch of a former gateway, or of an instance that was given up,
    is known by it and dropped. `cpu_s` is told of batches that no request asked for, such as those of a measurement:
    the CPU time of the instance since its last answer to one, with that of processes that it started and that have
    ended.
    """

    batch: int
    work_s: float
    results: tuple[Result, ...]
    generation: int = 0
    transfer_s: float = 0.0
    cpu_s: float | None = None


_encoder = msgspec.msgpack.Encoder()
_order_decoder: msgspec.msgpack.Decoder[Begin | Batch | Dial] = msgspec.msgpack.Decoder(Begin | Batch | Dial)
_report_decoder: msgspec.msgpack.Decoder[Ready | Failed | Done] = msgspec.msgpack.Decoder(Ready | Failed | Done)


def frame(message: Begin | Batch | Dial | Ready | Failed | Done) -> bytes:
    """A message as it goes over the channel."""
    body = _encoder.encode(message)
    if len(body) > MOST_BYTES:
        raise ValueError(f"a message of {len(body)} bytes is larger than a channel takes ({MOST_BYTES}).")
    return _LENGTH.pack(len(body)) + body


def order(body: bytes | memoryview) -> Begin | Batch | Dial:
    """What the gateway or the agent said."""
    return _order_decoder.decode(body)


def report(body: bytes | memoryview) -> Ready | Failed | Done:
    """What the instance said."""
    return _report_decoder.decode(body)


class Frames:
    """Cuts what arrives into bodies of frames, of `most_bytes` each at most."""

    __slots__ = ("_buffer", "most_bytes")

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._buffer = bytearray()
        self.most_bytes = most_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are whole now. A frame that is too large raises ValueError: the other side is broken."""
        buffer = self._buffer
        if not buffer and len(data) >= 4 and _LENGTH.unpack_from(data)[0] == len(data) - 4 <= self.most_bytes:
            return [data[4:]]  # one frame that came whole, as most do
        buffer += data
        bodies = []
        start, size = 0, len(buffer)
        while size - start >= 4:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > self.most_bytes:
                raise ValueError(f"a frame of {length} bytes is larger than a channel takes ({self.most_bytes}).")
            if size - start - 4 < length:
                break
            bodies.append(bytes(buffer[start + 4 : start + 4 + length]))
            start += 4 + length
        if start:
            del buffer[:start]
        return bodies


class Channel:
    """The instance's end: blocking, as an instance has nothing else to do."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._frames = Frames()
        self._bodies: list[bytes] = []

    def receive(self) -> Begin | Batch | Dial | None:
        """The next message; None once the gateway is gone."""
        while not self._bodies:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                return None
            self._bodies = self._frames.feed(data)
        return order(self._bodies.pop(0))

    def send(self, message: Ready | Failed | Done) -> None:
        """Pass a message on."""
        self._socket.sendall(frame(message))
