"""One HTTP request as the handlers see it: headers by name, the whole body, and the connection that it came on."""

import re
from collections.abc import Callable
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

from fairlead.engine.live.gateway.replies import Reply

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.endpoints import Endpoint

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/=+-]{1,128}").fullmatch
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}").fullmatch
_LATER = re.compile(rb"(?!00|ff)([0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})-[!-~]*").fullmatch
_RUN = token_hex(6).encode()  # so that ids we make differ between runs of the gateway
_NUMBERS = count(1)


def _nowhere(exchange: "Exchange", reply: Reply) -> None:
    raise AssertionError("nothing takes the answer")


class Connection(Protocol):
    """What a handler knows of a connection: `on_lost` is called once if the client leaves before its answer."""

    on_lost: Callable[[], None] | None
    is_gone: bool


class Exchange:
    """One request, and its answer where that is known before a handler runs.

    Args:
        method: In upper case.
        path: As it was sent, still percent-encoded: `%2F` is no separator.
        query: Without the question mark.
        headers: By name in lower case; values of repeated headers are joined by ", ".
        connection: Where the request came from.
        keep_alive: Whether the connection may carry another request.
    """

    __slots__ = (
        "_parts",
        "began",
        "connection",
        "endpoint",
        "headers",
        "held_bytes",
        "is_old",
        "keep_alive",
        "method",
        "names",
        "path",
        "query",
        "ran_as",
        "reply",
        "request_id",
        "respond",
        "traceparent",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query: bytes,
        headers: dict[bytes, bytes],
        connection: Connection | None = None,
        *,
        keep_alive: bool = True,
        is_old: bool = False,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.connection = connection
        self.keep_alive = keep_alive
        self.is_old = is_old  # HTTP/1.0, whose clients must be told that the connection stays
        self.endpoint: Endpoint | None = None
        self.names: tuple[str, ...] = ()  # what stands in the path where its template has a name, in order
        self.reply: Reply | None = None  # known before the body is: a refusal
        self.respond: Callable[[Exchange, Reply], None] = _nowhere  # takes the answer; set before a handler runs
        self.began = 0.0  # when it was complete, where that is asked for
        self.ran_as: str | None = None  # the id of the workflow's request
        self.held_bytes = 0  # of its body
        self._parts: list[bytes | bytearray] = []  # the first, and all others together
        given = headers.get(b"x-request-id")
        self.request_id = given if given and _REQUEST_ID(given) else b"%b-%x" % (_RUN, next(_NUMBERS))
        trace = headers.get(b"traceparent")
        self.traceparent = None if trace is None else _continued(trace)

    def again(self) -> "Exchange":
        """Another request with the same head, without a body. It shares the headers, which do not change any more."""
        other = Exchange(
            self.method,
            self.path,
            self.query,
            self.headers,
            self.connection,
            keep_alive=self.keep_alive,
            is_old=self.is_old,
        )
        other.endpoint, other.names = self.endpoint, self.names
        return other

    def header(self, name: bytes) -> str | None:
        """A header's value, by its name in lower case."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def has_body(self) -> bool:
        """Whether its head announces a body."""
        return b"transfer-encoding" in self.headers or self.headers.get(b"content-length", b"0").strip(b"0") != b""

    @property
    def body(self) -> bytes:
        """The whole body: a handler runs once it has arrived."""
        parts = self._parts
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def take(self, part: bytes) -> None:
        """Keep a part of the body."""
        self.held_bytes += len(part)
        if not self._parts:
            self._parts.append(part)
        elif isinstance(self._parts[-1], bytearray):
            self._parts[-1] += part
        else:  # many small parts take one object each
            self._parts.append(bytearray(part))

    def drop_body(self) -> int:
        """Let go of the body; how many bytes it held."""
        held, self.held_bytes = self.held_bytes, 0
        self._parts.clear()
        return held


def _continued(trace: bytes) -> bytes | None:
    """The trace that a header says to continue; None for none. Of later versions, what this one knows."""
    if _TRACEPARENT(trace):
        return trace
    later = _LATER(trace)
    return None if later is None else b"00" + later[1][2:]
