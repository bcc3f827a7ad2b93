"""What instances and readers of values say to a gateway or an agent that they have dialled, and what they are told."""

from struct import Struct

import msgspec

MOST_CONTROL_BYTES = 1 << 24
"""Size limit of a frame that carries no batch."""

PIECE_BYTES = 1 << 20
"""Bytes of a value or of an app's code that travel in one frame."""

_LENGTH = Struct("<I")
_encoder = msgspec.msgpack.Encoder()


class Attach(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """An instance dials in, for the first time or again."""

    key: str


class Attached(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """To an instance: it may go on. Otherwise it is told `Refused`."""

    generation: int


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The gateway does not take an agent in."""

    reason: str


class Read(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Asks for `length` bytes of a value from `offset` on; at most `PIECE_BYTES`.

    With `home`, the end of references to values of a node, the gateway is asked to pass on what that node answers.
    """

    name: str
    offset: int
    length: int
    home: str = ""


class Part(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Bytes of a value."""

    data: bytes


class Missing(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """There is no such value."""

    reason: str


ToInstance = Attached | Refused
ToReader = Part | Missing

to_instance: msgspec.msgpack.Decoder[ToInstance] = msgspec.msgpack.Decoder(ToInstance)
to_reader: msgspec.msgpack.Decoder[ToReader] = msgspec.msgpack.Decoder(ToReader)


def pack(message: msgspec.Struct) -> bytes:
    """A message as it goes over a connection. ValueError if it is too large."""
    body = _encoder.encode(message)
    if len(body) > MOST_CONTROL_BYTES:
        raise ValueError(f"a control message of {len(body)} bytes is larger than {MOST_CONTROL_BYTES}.")
    return _LENGTH.pack(len(body)) + body
