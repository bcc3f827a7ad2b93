"""One HTTP call to a callback: sign, send, and read no more than the status.

Written on asyncio's streams: one time limit for the whole exchange, which a server that answers drop by drop cannot
stretch, and no thread per call. Redirects are not followed: they would lead past the allow-list.
"""

import asyncio
import hashlib
import hmac
import re
import ssl
from collections.abc import Mapping

from fairlead.engine.live.callbacks.allowed import Target

SIGNATURE_HEADER = "X-Fairlead-Signature"

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r?\n")
_LINE_BYTES = 4096
_INTERIM = 5  # informational answers that are skipped


class PostError(Exception):
    """The call brought no answer that could be understood; the message says why."""


def sign(secret: bytes, timestamp: int, body: bytes) -> str:
    """The value of the signature header: the instant, and HMAC-SHA256 over the instant and the body."""
    digest = hmac.new(secret, b"%d." % timestamp + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},sha256={digest}"


def is_signed(secret: bytes, header: str, body: bytes, *, now: float, tolerance_s: float = 300.0) -> bool:
    """Whether a received callback was signed with this secret, not long ago. For receivers."""
    stamp = re.match(r"t=([0-9]{1,12}),", header, re.ASCII)
    if stamp is None or abs(now - int(stamp[1])) > tolerance_s:
        return False
    return hmac.compare_digest(sign(secret, int(stamp[1]), body).encode(), header.encode("ascii", "replace"))


async def post(
    target: Target, body: bytes, headers: Mapping[str, str], *, timeout_s: float, tls: ssl.SSLContext | None
) -> int:
    """The status of a POST of JSON; PostError where there is none."""
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "User-Agent: fairlead",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    if any("\r" in line or "\n" in line for line in lines):
        raise PostError("a header holds a line break")
    head = "\r\n".join([*lines, "", ""]).encode("ascii")
    try:
        async with asyncio.timeout(timeout_s):
            return await _exchange(target, head + body, tls)
    except TimeoutError:
        raise PostError(f"no answer within {timeout_s:g} s") from None
    except ssl.SSLError as error:
        raise PostError(f"TLS: {error.reason or error}") from None
    except OSError as error:
        raise PostError(f"the connection failed: {error.strerror or error}") from None


async def _exchange(target: Target, message: bytes, tls: ssl.SSLContext | None) -> int:
    reader, writer = await asyncio.open_connection(target.host, target.port, ssl=tls, limit=_LINE_BYTES)
    try:
        writer.write(message)
        # Not awaited to the end before reading: a server may refuse, and stop reading, before it has seen all.
        for _ in range(_INTERIM):
            status = await _status(reader)
            if status >= 200:
                return status
            while (await _line(reader)).strip():
                pass
        raise PostError("the answer never came after its informational ones")
    finally:
        writer.transport.abort()  # at once: a polite close would wait for a peer that may never answer


async def _status(reader: asyncio.StreamReader) -> int:
    line = await _line(reader)
    found = _STATUS.fullmatch(line)
    if found is None:
        raise PostError("the answer is not HTTP" if line else "the connection was closed without an answer")
    return int(found[1])


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:  # longer than the limit
        raise PostError("the answer is not HTTP") from None
