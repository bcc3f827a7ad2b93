"""One HTTP request and its answer: headers by name, the body within its limits."""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from itertools import count
from secrets import token_hex
from typing import Any, Protocol

from fairlead.engine.live.gateway.inbox import Room
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.replies import Headers, Reply

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/=+-]{1,128}").fullmatch
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}").fullmatch
_RUN = token_hex(6).encode()  # so that ids we make differ between runs of the gateway
_NUMBERS = count(1)
_MOST_DISCARDED = 64 << 20
_UNREAD = (413, 429)  # answers that come while the body is still being sent


class Connection(Protocol):
    """What an exchange knows of its connection: whom to tell when the client leaves."""

    on_lost: Callable[[], None] | None

    async def respond(self, cycle: Any, reply: Reply, echoed: Headers) -> None:
        """Answer in one go; `cycle` is the server's own state of the exchange."""
        ...


class ClientGone(Exception):  # noqa: N818 - nobody is left to be told of an error
    """The client left before its request was complete."""


class Exchange:
    """One request as the handlers see it."""

    __slots__ = (
        "_cycle",
        "_held_bytes",
        "_is_complete",
        "_limit_bytes",
        "_room",
        "connection",
        "headers",
        "method",
        "names",
        "path",
        "query",
        "receive",
        "request_id",
        "traceparent",
    )

    def __init__(self, scope: Scope, receive: Receive, limit_bytes: int, room: Room) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.names: tuple[str, ...] = ()  # what stands in the path where its template has a name, in order
        self.receive = receive
        self.connection: Connection | None = scope.get("fairlead.connection")
        self._cycle = scope.get("fairlead.cycle")
        self._is_complete = False
        self._limit_bytes = limit_bytes
        self._room = room
        self._held_bytes = 0
        given = self.headers.get(b"x-request-id")
        self.request_id = given if given and _REQUEST_ID(given) else b"%b-%x" % (_RUN, next(_NUMBERS))
        trace = self.headers.get(b"traceparent")
        self.traceparent = trace if trace and _TRACEPARENT(trace) else None

    def header(self, name: bytes) -> str | None:
        """A header's value, by its name in lower case."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def body(self) -> bytes:
        """The whole body. How long it may take is the connection's business; ClientGone if it never ends."""
        limit_bytes = self._limit_bytes
        declared = self.headers.get(b"content-length")
        if declared is not None and int(declared) > limit_bytes:
            raise _too_large(int(declared), limit_bytes)
        body = await self._part()
        if self._is_complete:
            if len(body) > limit_bytes:
                raise _too_large(len(body), limit_bytes)
            return body
        parts, size = [body], len(body)
        while not self._is_complete:
            part = await self._part()
            size += len(part)
            if size > limit_bytes:
                raise _too_large(size, limit_bytes)
            parts.append(part)
        return b"".join(parts)

    async def _part(self) -> bytes:
        message = await self.receive()
        if message["type"] != "http.request":
            raise ClientGone
        self._is_complete = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        if not self._room.take(len(part)):
            found = f"The bodies of open requests take up {self._room.most_bytes} bytes, the most there is room for."
            raise Problem(429, "inbox_full", found, reason="inbox-full", retry_after_s=1.0, close=True)
        self._held_bytes += len(part)
        return part

    def end(self) -> None:
        """What the body took up is free again."""
        self._room.give_back(self._held_bytes)
        self._held_bytes = 0

    async def answer(self, reply: Reply, send: Send) -> None:
        """Send the answer, with what is echoed of the request."""
        headers: Headers = [
            (b"content-type", reply.content_type),
            (b"content-length", b"%d" % len(reply.body)),
            (b"x-request-id", self.request_id),
        ]
        if self.traceparent is not None:
            headers.append((b"traceparent", self.traceparent))
        if self.connection is not None and (self._is_complete or reply.status not in _UNREAD):
            await self.connection.respond(self._cycle, reply, headers)
            return
        await send({"type": "http.response.start", "status": reply.status, "headers": [*headers, *reply.headers]})
        # A client that is still sending would lose the answer to a reset if the connection closed now.
        await send({"type": "http.response.body", "body": reply.body, "more_body": True})
        await self._discard()
        await send({"type": "http.response.body", "body": b""})

    async def _discard(self) -> None:
        left = _MOST_DISCARDED
        while left > 0 and not self._is_complete:
            message = await self.receive()
            self._is_complete = not message.get("more_body", False)  # also of a client that left
            left -= len(message.get("body", b""))


def _too_large(size: int, limit_bytes: int) -> Problem:
    message = f"The body has {size} bytes or more; at most {limit_bytes} are taken."
    return Problem(413, "body_too_large", message, close=True)
