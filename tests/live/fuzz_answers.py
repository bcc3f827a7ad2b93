"""A strict reader of HTTP/1.1 answers: what it does not accept, the server must not send."""

import re
from typing import NamedTuple

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEAD = re.compile(
    rb"HTTP/1\.1 (\d{3}) [\t\x20-\x7e]*\r\n((?:" + _TOKEN + rb":[\t ]*[\t\x20-\x7e\x80-\xff]*\r\n)*)\r\n"
)
_LENGTH = re.compile(rb"^content-length:[ \t]*(\d+)[ \t]*\r$", re.IGNORECASE | re.MULTILINE)
_CODING = re.compile(rb"^transfer-encoding:[ \t]*([^\r]*)\r$", re.IGNORECASE | re.MULTILINE)
_SIZE = re.compile(rb"[0-9a-fA-F]{1,8}")
_ID = re.compile(rb"^x-request-id:[ \t]*(\S+)[ \t]*\r$", re.IGNORECASE | re.MULTILINE)
_CLOSE = re.compile(rb"^connection:[^\r]*\bclose\b", re.IGNORECASE | re.MULTILINE)
_RETRY = re.compile(rb"^retry-after:[ \t]*\d+[ \t]*\r$", re.IGNORECASE | re.MULTILINE)
_MOST_HEAD = 1 << 16


class NotAnAnswerError(ValueError):
    """The bytes are no HTTP/1.1 answer."""


class Head(NamedTuple):
    """The head of an answer."""

    status: int
    id: bytes | None
    length: int
    is_streamed: bool  # in chunks, instead of a length
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
    lengths, codings = _LENGTH.findall(fields), _CODING.findall(fields)
    has_body = status >= 200 and status not in (204, 304)
    if codings and (codings != [b"chunked"] or lengths or not has_body):
        raise NotAnAnswerError(f"transfer codings {codings} and {len(lengths)} content lengths in an answer {status}")
    if not codings and len(lengths) != has_body:
        raise NotAnAnswerError(f"{len(lengths)} content lengths in an answer {status}")
    id = _ID.search(fields)
    return Head(
        status=status,
        id=id[1] if id else None,
        length=int(lengths[0]) if lengths else 0,
        is_streamed=bool(codings),
        closes=_CLOSE.search(fields) is not None,
        has_retry=_RETRY.search(fields) is not None,
        size=end + 4 - start,
    )


def count_parts(data: bytes | bytearray) -> int:
    """How many whole chunks these bytes of a streamed answer are; what begins after them may be incomplete."""
    at = count = 0
    while at < len(data):
        end = data.find(b"\r\n", at)
        if not _SIZE.fullmatch(data, at, len(data) if end < 0 else end):
            raise NotAnAnswerError(f"not the size of a chunk: {bytes(data[at : at + 40])!r}")
        if end < 0:
            break
        after = end + 2 + int(data[at:end], 16)
        if not b"\r\n".startswith(data[after : after + 2]):
            raise NotAnAnswerError(f"a chunk that goes on after its end: {bytes(data[after : after + 40])!r}")
        if len(data) < after + 2:
            break
        if after == end + 2:
            raise NotAnAnswerError("a stream that ends while its client stays")
        at, count = after + 2, count + 1
    return count
