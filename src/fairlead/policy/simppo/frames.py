"""What the scaler and the processes of its agents say to each other: frames of MessagePack, each with its length first.

Nothing in a frame is run. A length or a message that cannot be right ends the connection.
"""

import msgspec

LARGEST_BYTES = 64 * 1024 * 1024
_LENGTH = 4

HELLO = 0
"""The period of the first answer of a process, which says that its agents are loaded."""


class Assignment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first frame to a process: whose agents it has. `seed` None takes the likeliest action."""

    checkpoint: str
    numbers: tuple[int, ...]  # of the agents in the checkpoint, one per row
    seed: int | None


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the agents of a process see: rows of float32 and of booleans, as they lie in memory."""

    period: int
    seen: bytes
    allowed: bytes


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What they do, in the order of the rows."""

    period: int
    actions: tuple[int, ...]


def framed(message: msgspec.Struct) -> bytes:
    """A message as it goes over the pipe."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(_LENGTH, "little") + body


class Inbox:
    """Puts frames together from what arrives."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, part: bytes) -> list[bytes]:
        """The messages that are complete now. Raises ValueError if one would be too large."""
        self._bytes += part
        found = []
        while len(self._bytes) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._bytes[:_LENGTH], "little")
            if end - _LENGTH > LARGEST_BYTES:
                raise ValueError(f"a frame must have at most {LARGEST_BYTES} bytes; got {end - _LENGTH}.")
            if len(self._bytes) < end:
                break
            found.append(bytes(self._bytes[_LENGTH:end]))
            del self._bytes[:end]
        return found
