"""A strict reader of HTTP/1.1 answers: what it does not accept, the server must not send."""

import re
from typing import NamedTuple

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEAD = re.compile(
    rb"HTTP/1\.1 (\d{3}) [\t\x20-\x7e]*\r\n((?:" + _TOKEN + rb":[\t ]*[\t\x20-\x7e\x80-\xff]*\r\n)*)\r\n"
)
_LENGTH = re.compile(rb"^content-length:[ \t]*(\d+)[ \t]*\r$", re.IGNORECASE | re.MULTILINE)
_CODING = re.compile(rb"^transfer-encoding:", re.IGNORECASE | re.MULTILINE)
_ID = re.compile(rb"^x-request-id:[ \t]*(\S+)[ \t]*\r$", re.IGNORECASE | re.MULTILINE)
_CLOSE = re.compile(rb"^connection:[^\r]*\bclose\b", re.IGNORECASE | re.MULTILINE)
_RETRY = re.compile(rb"^retry-after:[ \t]*\d+[ \t]*\r$", re.IGNORECASE | re.MULTILINE)
_MOST_HEAD = 1 << 16


class NotAnAnswerError(ValueError):
    """The bytes are no HTTP/1.1 answer with a definite length."""


class Head(NamedTuple):
    """The head of an answer."""

    status: int
    id: bytes | None
    length: int
    closes: bool
    has_retry: bool
    size: int  # bytes of the head itself


def read_head(data: bytearray, start: int = 0) -> Head | None:
    """The head that begins at `start`; None if it is incomplete."""
    end = data.find(b"\r\n\r\n", start)
    if end < 0:
        if len(data) - start > _MOST_HEAD:
            raise NotAnAnswerError("a head without an end")
        if not b"HTTP/1.1 "[: len(data) - start] == data[start : start + 9]:
            raise NotAnAnswerError(f"an answer begins with {bytes(data[start : start + 40])!r}")
        return None
    found = _HEAD.fullmatch(data, start, end + 4)
    if found is None:
        raise NotAnAnswerError(f"not a valid head: {bytes(data[start : start + 400])!r}")
    status, fields = int(found[1]), found[2]
    lengths = _LENGTH.findall(fields)
    if _CODING.search(fields):
        raise NotAnAnswerError("a transfer coding, where every answer has a length")
    has_body = status >= 200 and status not in (204, 304)
    if len(lengths) != has_body:
        raise NotAnAnswerError(f"{len(lengths)} content lengths in an answer {status}")
    id = _ID.search(fields)
    return Head(
        status=status,
        id=id[1] if id else None,
        length=int(lengths[0]) if lengths else 0,
        closes=_CLOSE.search(fields) is not None,
        has_retry=_RETRY.search(fields) is not None,
        size=end + 4 - start,
    )
