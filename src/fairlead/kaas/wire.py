"""The channel between an `Executor` and the process of its device: messages in MessagePack, each after its length.

To the process goes one `Begin`, then the rest; from it comes one `Ready` or `Failed`, then a `Done` or a `Refused` for
each `Run`. What had to make room is told before that, as `Evicted`. The bytes of requests and answers do not travel:
they lie in memory that both map (`fairlead.kaas.slots`).
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TypeAlias

import msgspec

MOST_MESSAGE = 1 << 22
MOST_PAYLOAD = 1 << 32  # bytes that a request sends, or returns
_LENGTH = Struct("<I")
_MOST_EVICTED = 1000  # buffers in one message: tenant and key have at most 256 characters each
_READ = 1 << 16  # bytes that are received at once


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class Begin(_Message, frozen=True):
    """What the process is to be. Paths are folders."""

    device: str
    memory_bytes: int
    values: str
    cache: str


class Drop(_Message, frozen=True):
    """A graph that no request will name any more."""

    digest: str


class Run(_Message, frozen=True):
    """Run a graph, named by its digest. `keys` replace those of its constants.

    Its slot has `described` bytes of JSON, if the process does not know the graph yet, and `sent` bytes of inputs, in
    the order of its buffers; the outputs go there too, from the beginning. With `is_load` the graph is only compiled,
    and its constants are loaded: nothing is sent or returned.
    """

    id: int
    tenant: str
    graph: str
    keys: dict[str, str]
    slot: int
    described: int = 0
    sent: int = 0
    is_load: bool = False


class Forget(_Message, frozen=True):
    """Free what a tenant has on the device. The answer is a `Report`."""

    id: int
    tenant: str


class Ask(_Message, frozen=True):
    """Tell what lies on the device: a `Report`."""

    id: int


class Ready(_Message, frozen=True):
    """The device is open."""

    name: str
    language: str
    identity: str
    memory_bytes: int


class Failed(_Message, frozen=True):
    """The device cannot be opened."""

    error: str


class Timings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a request's time went, in seconds: the parts, in this order, are all the time from asked to answered.

    `wait_s`: until the process took it up, behind others and in the channel. `queue_s`: it was loaded and waited for
    the device. `reply_s`: from its outputs in the host's memory until its caller's process had them.
    """

    wait_s: float = 0.0
    compile_s: float = 0.0
    load_s: float = 0.0
    queue_s: float = 0.0
    run_s: float = 0.0
    download_s: float = 0.0
    reply_s: float = 0.0


class Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a request found in device memory, and what it moved."""

    hits: int = 0
    compulsory_misses: int = 0
    capacity_misses: int = 0
    evictions: int = 0
    compiled: int = 0
    loaded_bytes: int = 0
    input_bytes: int = 0
    output_bytes: int = 0

    def plus(self, other: Counts) -> Counts:
        """Both together."""
        both = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Counts(*(a + b for a, b in both))


class Evicted(_Message, frozen=True):
    """These cached buffers are not on the device any more; each is a tenant and a key."""

    buffers: tuple[tuple[str, str], ...]


class Done(_Message, frozen=True):
    """The request's outputs are in its slot, in the order of the graph's buffers.

    `began` and `ended` are instants of `perf_counter`, which is one clock for all processes of a machine.
    """

    id: int
    timings: Timings
    counts: Counts
    began: float
    ended: float


class Refused(_Message, frozen=True):
    """The request failed; the process goes on. `kind` is that of a `KernelError`."""

    id: int
    kind: str
    message: str


class Resident(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cached buffer on the device."""

    tenant: str
    key: str
    size: int


class Report(_Message, frozen=True):
    """What lies on the device, in bytes; `residents` are the largest 1000."""

    id: int
    used: int
    pinned: int
    peak: int
    capacity: int
    evictions: int
    residents: tuple[Resident, ...]


def evictions(keys: Sequence[tuple[str, str]]) -> Iterator[Evicted]:
    """What had to make room, in messages that are small enough."""
    for start in range(0, len(keys), _MOST_EVICTED):
        yield Evicted(tuple(keys[start : start + _MOST_EVICTED]))


Order: TypeAlias = Begin | Drop | Run | Forget | Ask
Reply: TypeAlias = Ready | Failed | Evicted | Done | Refused | Report

_encoder = msgspec.msgpack.Encoder()
_orders: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def frame(message: Order | Reply) -> bytes:
    """A message as it travels."""
    body = _encoder.encode(message)
    if len(body) > MOST_MESSAGE:
        raise ValueError(f"a message of {len(body)} bytes is larger than a channel takes.")
    return _LENGTH.pack(len(body)) + body


class _Frames:
    """Cuts a stream into the bodies of messages. ValueError for one that is too large."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are whole now."""
        self._data += data
        found, start = [], 0
        while len(self._data) >= start + _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data, start)
            if length > MOST_MESSAGE:
                raise ValueError(f"a message of {length} bytes is larger than a channel takes.")
            end = start + _LENGTH.size + length
            if len(self._data) < end:
                break
            found.append(bytes(self._data[start + _LENGTH.size : end]))
            start = end
        del self._data[:start]
        return found


class Replies:
    """Cuts what arrives from the process into messages. ValueError if it is no such thing."""

    def __init__(self) -> None:
        self._frames = _Frames()

    def feed(self, data: bytes) -> list[Reply]:
        """The messages that are whole now."""
        try:
            return [_replies.decode(body) for body in self._frames.feed(data)]
        except msgspec.MsgspecError as error:
            raise ValueError(f"a message is wrong: {error}.") from error


class Channel:
    """The process's end: blocking, for one thread that receives and several that send under a lock of theirs."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._frames = _Frames()
        self._received: deque[bytes] = deque()

    def receive(self) -> Order | None:
        """The next message; None once the parent is gone. ValueError if it is wrong."""
        while not self._received:
            data = self._socket.recv(_READ)
            if not data:
                return None
            self._received.extend(self._frames.feed(data))
        try:
            return _orders.decode(self._received.popleft())
        except msgspec.MsgspecError as error:
            raise ValueError(f"a message is wrong: {error}.") from error

    def send(self, message: Reply) -> None:
        """Pass a message on."""
        self._socket.sendall(frame(message))
