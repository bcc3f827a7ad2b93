"""Connections with limits that uvicorn's own protocol lacks: their number, slow senders, oversized heads.

One timer per connection, armed only while a request is incomplete or nothing was ever sent, so that a request that
arrives in one piece costs nothing extra.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from fairlead.engine.live.gateway.problems import raw_refusal
from fairlead.engine.live.gateway.replies import Headers, Reply
from fairlead.engine.live.gateway.settings import Settings


class Census:
    """How many connections there were and are, for the metrics."""

    def __init__(self) -> None:
        self.accepted = 0
        self.refused = 0
        self.timed_out = 0
        self.statuses: dict[int, int] = {}  # answers by HTTP status

    def answered(self, status: int) -> None:
        """Count an answer."""
        self.statuses[status] = self.statuses.get(status, 0) + 1


class _HeadTooLarge(Exception):  # noqa: N818 - caught below
    pass


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol within limits, which also tells an exchange when its client leaves."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: Settings,
        census: Census,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.on_lost: Callable[[], None] | None = None
        self._settings = settings
        self._census = census
        self._timer: asyncio.TimerHandle | None = None
        self._is_receiving = False  # a request has begun and is not complete
        self._is_in_head = False
        self._has_just_begun = False
        self._head_bytes = 0
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, unless there are too many."""
        super().connection_made(transport)
        self._census.accepted += 1
        if len(self.connections) > self._settings.max_connections:
            self._census.refused += 1
            most = self._settings.max_connections
            self._refuse(503, "Service Unavailable", "too_many_connections", f"There are already {most} connections.")
        else:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits on this connection."""
        self._disarm()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        if self.on_lost is not None:
            told, self.on_lost = self.on_lost, None
            told()

    def data_received(self, data: bytes) -> None:
        """Parse what came, within the limit of a head."""
        if self._is_refused:
            return
        self._unset_keepalive_if_required()
        self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # nothing here can be upgraded: it is answered as the plain request it also is
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _HeadTooLarge):
                self._refuse_head()
            else:
                self._refuse(400, "Bad Request", "invalid_http", "This is not a valid HTTP/1.1 request.")
            return
        if self._is_receiving:
            if self._is_in_head and self._head_bytes > self._settings.max_head_bytes:
                self._refuse_head()
            elif self._has_just_begun or self._timer is None:
                self._arm()
        elif self.cycle is None or self.cycle.response_complete:
            # The rest of a body that was answered early, or blank lines: without a timer it could go on for ever.
            if self._timer is None:
                self._arm()
        elif self._timer is not None:
            self._disarm()
        self._has_just_begun = False

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._is_receiving = self._is_in_head = self._has_just_begun = True

    def on_headers_complete(self) -> None:
        """The head is there: check its size, then start the exchange."""
        self._is_in_head = False
        if self._head_bytes > self._settings.max_head_bytes:  # only then is it worth counting
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > self._settings.max_head_bytes:
                raise _HeadTooLarge
        super().on_headers_complete()  # makes the cycle; its task runs later
        self.scope["fairlead.connection"] = self  # type: ignore[typeddict-unknown-key]
        self.scope["fairlead.cycle"] = self.cycle  # type: ignore[typeddict-unknown-key]

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._is_receiving = False
        self._head_bytes = 0
        super().on_message_complete()

    async def respond(self, cycle: RequestResponseCycle, reply: Reply, echoed: Headers) -> None:
        """Answer in one write. The two messages of ASGI would be two packets, and cost more than all else we do."""
        if cycle.flow.write_paused:
            try:
                await asyncio.wait_for(cycle.flow.drain(), self._settings.idle_limit_s)
            except TimeoutError:  # it sends on and never reads
                self.transport.abort()
        if cycle.disconnected:
            return
        parts = [STATUS_LINE[reply.status]]
        for headers in (self.server_state.default_headers, echoed, reply.headers):
            for name, value in headers:
                parts += (name, b": ", value, b"\r\n")
                if name == b"connection":
                    cycle.keep_alive = False
        if not cycle.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        if cycle.scope["method"] != "HEAD":
            parts.append(reply.body)
        self.transport.write(b"".join(parts))
        self._census.answered(reply.status)
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.message_event.set()
        del cycle.scope["fairlead.cycle"]  # type: ignore[typeddict-item]  # or each would keep the other, until collected
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came for a while: close, and do not wait for a client that does not read either."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _arm(self) -> None:
        self._disarm()
        self._timer = self.loop.call_later(self._settings.receive_limit_s, self._time_is_up)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self.pipeline:  # it waits for its turn, and we do not read meanwhile: not the client's fault
            self._arm()
            return
        self._census.timed_out += 1
        if not self._is_receiving:
            self.transport.close()  # nothing was sent that could be answered
        elif self.cycle is not None and not self._is_in_head and self.cycle.response_started:
            self.transport.close()
        else:
            limit_s = self._settings.receive_limit_s
            message = f"The request was not complete within {limit_s:g} s."
            self._refuse(408, "Request Timeout", "request_timeout", message)

    def _refuse_head(self) -> None:
        most = self._settings.max_head_bytes
        message = f"The request line and headers have more than {most} bytes."
        self._refuse(431, "Request Header Fields Too Large", "head_too_large", message)

    def _refuse(self, status: int, phrase: str, code: str, message: str) -> None:
        self._is_refused = True
        self._disarm()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(raw_refusal(status, phrase, code, message))
            self._census.answered(status)
        self.transport.close()
