"""What a handler gives back."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

Headers = list[tuple[bytes, bytes]]

JSON = b"application/json"
_encoder = msgspec.json.Encoder()


class Outlet(Protocol):
    """Takes an answer that is sent part by part. A client that does not read what it is sent is disconnected."""

    on_lost: Callable[[], None]

    def send(self, part: bytes) -> None:
        """Send a part. Ignored once the client has gone."""
        ...

    def end(self) -> None:
        """There are no more parts."""
        ...


class Reply(NamedTuple):
    """An answer. With `stream`, its body is sent later, part by part, through the outlet that `stream` is called with.

    `stream` sets the outlet's `on_lost`, which is called if the client leaves before the end.
    """

    status: int
    body: bytes
    headers: Sequence[tuple[bytes, bytes]] = ()
    content_type: bytes = JSON
    stream: Callable[[Outlet], None] | None = None


def json_reply(value: object, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> Reply:
    """An answer whose body is this value, made of plain values and structs."""
    return Reply(status, _encoder.encode(value), headers)
