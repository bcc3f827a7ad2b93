"""What a handler gives back."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

Headers = list[tuple[bytes, bytes]]

JSON = b"application/json"
_encoder = msgspec.json.Encoder()


class Reply(NamedTuple):
    """An answer, complete."""

    status: int
    body: bytes
    headers: Sequence[tuple[bytes, bytes]] = ()
    content_type: bytes = JSON


def json_reply(value: object, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> Reply:
    """An answer whose body is this value, made of plain values and structs."""
    return Reply(status, _encoder.encode(value), headers)
