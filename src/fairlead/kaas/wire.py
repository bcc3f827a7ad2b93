"""The channel between an `Executor` and the process of its device: a header in MessagePack, then raw bytes.

A frame is the lengths of both (4 and 8 bytes), the header and the payload. To the process goes one `Begin`, then
the rest; from it comes one `Ready` or `Failed`, then a `Running` and a `Done`, or a `Refused`, for each `Run`. What had
to make room is told before that, as `Evicted`.
"""

from __future__ import annotations

import socket
from struct import Struct
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

MOST_HEADER = 1 << 20
MOST_PAYLOAD = 1 << 32
_LENGTHS = Struct("<IQ")


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class Begin(_Message, frozen=True):
    """What the process is to be. Paths are folders."""

    device: str
    memory_bytes: int
    values: str
    cache: str


class Register(_Message, frozen=True):
    """A graph, as JSON in the payload, that requests will name by this digest."""

    digest: str


class Drop(_Message, frozen=True):
    """A graph that no request will name any more."""

    digest: str


class Run(_Message, frozen=True):
    """Run a graph: the payload has its inputs, in the order of its buffers. `keys` replace those of its constants.

    With `is_load` it is only compiled, and its constants are loaded; the payload is empty, and so is the answer's.
    """

    id: int
    tenant: str
    graph: str
    keys: dict[str, str]
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


class Running(_Message, frozen=True):
    """The request is loaded: its kernels are launched now."""

    id: int


class Timings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a request's time in the process went, in seconds. `queue_s`: it was loaded and waited for the device."""

    compile_s: float = 0.0
    load_s: float = 0.0
    queue_s: float = 0.0
    run_s: float = 0.0
    download_s: float = 0.0


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
    """The request's outputs are in the payload, in the order of the graph's buffers."""

    id: int
    timings: Timings
    counts: Counts


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


Order: TypeAlias = Begin | Register | Drop | Run | Forget | Ask
Reply: TypeAlias = Ready | Failed | Running | Evicted | Done | Refused | Report
Payload: TypeAlias = npt.NDArray[np.uint8]

_encoder = msgspec.msgpack.Encoder()
_orders: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
NOTHING: Payload = np.empty(0, np.uint8)


def head(message: Order | Reply, payload: int) -> bytes:
    """The beginning of a frame: everything but its payload, which has this many bytes."""
    header = _encoder.encode(message)
    if len(header) > MOST_HEADER or payload > MOST_PAYLOAD:
        raise ValueError(f"a message of {len(header)} and {payload} bytes is larger than a channel takes.")
    return _LENGTHS.pack(len(header), payload) + header


def _lengths(data: bytes | bytearray | memoryview) -> tuple[int, int]:
    header, payload = _LENGTHS.unpack_from(data)
    if header > MOST_HEADER or payload > MOST_PAYLOAD:
        raise ValueError(f"a frame of {header} and {payload} bytes is larger than a channel takes.")
    return header, payload


class Replies:
    """Cuts what arrives from the process into messages. ValueError if it is no such thing."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._payload: bytearray | None = None
        self._filled = 0
        self._reply: Reply | None = None

    def feed(self, data: bytes) -> list[tuple[Reply, bytearray]]:
        """The messages that are whole now."""
        found: list[tuple[Reply, bytearray]] = []
        rest = memoryview(data)
        while True:
            if self._payload is not None and self._reply is not None:  # large ones are filled in place
                part = rest[: len(self._payload) - self._filled]
                self._payload[self._filled : self._filled + len(part)] = part
                self._filled += len(part)
                rest = rest[len(part) :]
                if self._filled < len(self._payload):
                    return found
                found.append((self._reply, self._payload))
                self._payload = None
            self._buffer += rest
            rest = rest[:0]
            if len(self._buffer) < _LENGTHS.size:
                return found
            header, payload = _lengths(self._buffer)
            start = _LENGTHS.size + header
            if len(self._buffer) < start:
                return found
            try:
                self._reply = _replies.decode(memoryview(self._buffer)[_LENGTHS.size : start])
            except msgspec.MsgspecError as error:
                raise ValueError(f"a message is wrong: {error}.") from error
            self._payload, self._filled = bytearray(payload), 0
            rest = memoryview(bytes(self._buffer[start:]))
            self._buffer = bytearray()


class Channel:
    """The process's end: blocking, with one thread that receives and several that send under a lock of theirs."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def receive(self) -> tuple[Order, Payload] | None:
        """The next message; None once the parent is gone. ValueError if it is wrong."""
        lengths = self._read(_LENGTHS.size)
        if lengths is None:
            return None
        header, payload = _lengths(lengths.data)
        text = self._read(header)
        body = NOTHING if not payload else self._read(payload)
        if text is None or body is None:
            return None
        try:
            return _orders.decode(text.data), body
        except msgspec.MsgspecError as error:
            raise ValueError(f"a message is wrong: {error}.") from error

    def send(self, message: Reply, payload: Payload = NOTHING) -> None:
        """Pass a message on."""
        start = head(message, payload.size)
        if not payload.size:
            self._socket.sendall(start)
            return
        sent = self._socket.sendmsg((start, payload.data))
        if sent < len(start):
            self._socket.sendall(start[sent:])
            sent = len(start)
        self._socket.sendall(payload.data[sent - len(start) :])

    def _read(self, size: int) -> Payload | None:
        data = np.empty(size, np.uint8)
        view, filled = data.data, 0
        while filled < size:
            count = self._socket.recv_into(view[filled:])
            if not count:
                return None
            filled += count
        return data
