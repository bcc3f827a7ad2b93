"""One line that a function wrote, and which lines are asked for."""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

MOST_TEXT = 16 << 10
"""Characters of one line; the rest is cut off, and the line says so."""

Names = str | tuple[str, ...] | None


class Line(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line of text, or one record of `logging`, whose text may have several lines.

    `request` is the id of the request that it belongs to, a list of ids where a batched function ran for several, and
    None outside of a run. `run` is the same by the names that the records of the run have, where those differ, as they
    do for asynchronous requests.
    """

    t: float  # seconds since 1970
    app: str
    function: str
    instance: str
    node: str
    request: Names
    stream: Literal["stdout", "stderr", "log"]
    level: str | None
    text: str
    run: Names | msgspec.UnsetType = msgspec.UNSET


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


def pack(line: Line) -> bytes:
    """A line as it is kept: one JSON object and a line feed."""
    return _encoder.encode(line) + b"\n"


def unpack(data: bytes) -> Line | None:
    """The line that was kept; None where that is none, as after a full disk."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def shortened(text: str) -> str:
    """A text that is not too long."""
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]}... ({len(text) - MOST_TEXT} more characters)"


def names_of(names: Sequence[str]) -> Names:
    """None, one name, or several different ones."""
    return None if not names else names[0] if len(names) == 1 else tuple(dict.fromkeys(names))


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines are asked for; None of a field takes all. `since` is in seconds since 1970."""

    app: str | None = None
    function: str | None = None
    instance: str | None = None
    request: str | None = None
    since: float | None = None

    @property
    def needle(self) -> bytes | None:
        """Bytes that each wanted line contains: what has them not need not be decoded."""
        text = self.request or self.instance or self.function or self.app
        return None if text is None else _encoder.encode(text)

    def among(self, lines: bytes) -> Iterator[bytes]:
        """Those of these lines that are asked for, as they are kept; what is no line, as after a full disk, is none."""
        needle = self.needle
        for text in lines.split(b"\n"):
            if text and (needle is None or needle in text):
                line = unpack(text)
                if line is not None and self.takes(line):
                    yield text

    def takes(self, line: Line) -> bool:
        """Whether this line is asked for."""
        return (
            (self.request is None or self.request in _listed(line.request) or self.request in _listed(line.run))
            and (self.function is None or self.function == line.function)
            and (self.instance is None or self.instance == line.instance)
            and (self.app is None or self.app == line.app)
            and (self.since is None or line.t >= self.since)
        )


def _listed(names: Names | msgspec.UnsetType) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names if isinstance(names, tuple) else ()
