"""HTTP/1.1 on one connection, by `httptools`: parse within limits, answer in order, end cleanly.

One request is in work at a time; those that a client sends ahead wait in a short queue, and nothing more is read
meanwhile. What a client may send is bounded at every point: the head with chunk extensions and trailers, the body, the
requests sent ahead, the time that a request may take to arrive. `docs/design/hardening.md` has the reasons.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, cast

import httptools

from fairlead.engine.live.gateway.access import AccessLog
from fairlead.engine.live.gateway.connections import Connections
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.heads import check_head, request_target
from fairlead.engine.live.gateway.inbox import Room
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.repeats import KnownHead, known_head
from fairlead.engine.live.gateway.replies import Reply
from fairlead.engine.live.gateway.settings import Settings
from fairlead.engine.live.gateway.streaming import MOST_UNREAD, StreamedBody, notice_loss

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.app import Gateway

_STATUS_LINE = {status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus}
_CHUNK_BYTES = 16  # of each part of a body, as much again at most does not count as head: the size line of its chunk
_SMALL_CHUNKS = 2048  # chunks that may be as small as they like
_SOON_READ = 64 << 10  # a refused body of this size is read to its end, and the connection stays
_MOST_DISCARDED = 64 << 20  # bytes that are read past an answer, so that a client that still sends gets to read it
_LINGER_S = 2.0
_GONE_S = 30.0  # a client that follows a stream, and has not confirmed what it was sent
_log = logging.getLogger("fairlead.gateway")


class _Refused(Exception):  # noqa: N818 - raised through the parser to stop it
    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem


_AFTER_THE_LAST = Problem(400, "invalid_http", "The connection ends with the request before this one.")  # never sent


class HttpConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, gateway: "Gateway", connections: Connections, settings: Settings, room: Room) -> None:
        self._gateway = gateway
        self._connections = connections
        self._settings = settings
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._incoming: Exchange | None = None  # its head is complete, its body is not
        self._current: Exchange | None = None  # in work
        self._queue: deque[Exchange] = deque()  # complete; each waits for the answer before its own
        self._last: Exchange | None = None  # the last that was completed by the bytes which are being parsed
        self._known: KnownHead | None = None
        self._last_words: Problem | None = None  # what the client is told once all before it is answered
        self._is_deaf = False  # whatever comes now is not parsed
        self._is_lingering = False
        self._is_write_paused = False
        self._is_read_paused = False
        self._unread = 0  # bytes of answers, when that was last looked at
        self._begin()
        self._is_receiving = False
        self._is_muted = False
        self._has_body_to_come = False
        self._in_segment = 0  # requests that began in the bytes which are being parsed
        self._discarded = 0
        self.on_lost: Callable[[], None] | None = None
        self.expires_at = inf
        self.is_known = False
        self.is_gone = False

    def _begin(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._is_in_head = True
        self._head_bytes = 0  # of headers that are complete
        self._overhead = 0  # bytes of the request that are no body
        self._body_bytes = self._chunks = 0

    # --- the transport's side --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, unless there are too many."""
        self._transport = cast(asyncio.Transport, transport)
        if self._connections.enter(self):
            self._wait()
            return
        self._is_deaf = True
        message = f"There are already {self._settings.max_connections} connections, and each has a request in work."
        problem = Problem(503, "too_many_connections", message, retry_after_s=1.0, close=True)
        self._write_reply(Exchange("GET", "", b"", {}), problem.reply())
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the handler that waits, and drop every reference, so that no cycle is left to the garbage collector."""
        self._connections.gone(self)
        self._is_deaf = self.is_gone = True
        for exchange in (self._incoming, *self._queue):
            if exchange is not None:
                self._room.give_back(exchange.drop_body())
        self._incoming = None
        self._queue.clear()
        self._parser = self._last = self._known = None
        self._transport = None
        self.expires_at = inf
        if self.on_lost is not None:
            told, self.on_lost = self.on_lost, None
            told()

    def eof_received(self) -> None:
        """The client has left: what it asked for is cancelled with the connection."""

    def pause_writing(self) -> None:
        """The client does not read what it is sent."""
        self._is_write_paused = True
        self._unread = 0 if self._transport is None else self._transport.get_write_buffer_size()
        self._read(False)
        self.expires_at = self._loop.time() + self._patience_s()

    def resume_writing(self) -> None:
        """The client has read on."""
        self._is_write_paused = False
        self.expires_at = inf
        if self._current is None:
            self._next()

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        if self._is_deaf:
            self._discard(len(data))
            return
        is_first = self._current is None and not self._is_receiving and not self._is_write_paused
        if is_first and self._known is not None and self._known.fits(data) and self._repeat(data):
            return
        self._in_segment = 0
        self._overhead += len(data)
        self._last = None
        try:
            self._feed(data)
            if self._is_receiving:
                self._check_overhead()
                self._overhead = max(0, self._overhead)  # what a body leaves unused is not saved up for a trailer
        except httptools.HttpParserError as error:
            if self._is_deaf:
                return  # bytes after the last request
            refused = error.__context__
            if isinstance(refused, _Refused):
                self._say_last(refused.problem)
            else:
                self._say_last(Problem(400, "invalid_http", f"This is not a valid HTTP/1.1 request: {error}."))
            return
        except _Refused as refused:
            self._say_last(refused.problem)
            return
        if self._queue:
            self._read(False)
        elif is_first and self._last is not None and self._in_segment == 1 and not self._is_receiving:
            self._known = known_head(data, self._body_bytes, self._last)
            self._last = None

    def _repeat(self, data: bytes) -> bool:
        """Take a request whose head is known; False if there is no room for its body."""
        assert self._known is not None
        exchange, body = self._known.repeat(data)
        if not self._room.take(len(body)):
            return False
        if body:
            exchange.take(body)
        self._work(exchange)
        return True

    def _feed(self, data: bytes) -> None:
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # Nothing here can be upgraded: the request counts as the plain one that it also is. The parser has left
            # HTTP with its head, so that another one reads its body, and all that follows.
            rest = data[upgrade.args[0] :]
            self._parser = httptools.HttpRequestParser(self)
            if self._has_body_to_come:
                self._has_body_to_come = False
                length = self._headers.get(b"content-length")
                framing = b"transfer-encoding: chunked" if length is None else b"content-length: " + length
                self._is_muted = True
                self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")
                self._is_muted = False
            if rest and not self._is_deaf:
                self._feed(rest)

    # --- the parser's side -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._is_muted:
            return
        if self._is_deaf:  # the request before it was the last
            raise _Refused(_AFTER_THE_LAST)
        self._in_segment += 1
        most = self._settings.max_pipelined
        if self._in_segment > most or len(self._queue) >= most:
            message = f"At most {most} requests may be sent ahead of their answers on one connection."
            raise _Refused(Problem(429, "too_many_pipelined", message, retry_after_s=1.0))
        self._begin_message()

    def _begin_message(self) -> None:
        overhead = self._overhead if self._in_segment == 1 else 0  # of later ones, their headers are counted
        self._begin()
        self._overhead = overhead
        if not self._is_receiving:
            self._is_receiving = True
            if self._current is None:
                self.expires_at = self._loop.time() + self._settings.receive_limit_s

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        if not self._is_muted:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; after the head it is a trailer, which nothing here reads."""
        if self._is_muted or not self._is_in_head:
            return
        self._head_bytes += len(name) + len(value) + 4
        name = name.lower()
        headers = self._headers
        known = headers.get(name)
        if known is None:
            headers[name] = value
        elif known != value or name == b"host":  # a repetition says nothing new, but a second host is one too many
            headers[name] = known + b", " + value

    def on_headers_complete(self) -> None:
        """The head is there: find the endpoint, check the caller's rights, then let the body come."""
        if self._is_muted:
            return
        parser = self._parser
        assert parser is not None
        self._is_in_head = False
        self._overhead = self._head_bytes + len(self._url)
        self._check_overhead()
        version = parser.get_http_version()
        try:
            path, query, host = request_target(parser.get_method(), self._url)
            if host is not None:
                self._headers[b"host"] = host
            check_head(self._headers, version)
        except Problem as problem:
            raise _Refused(problem) from None
        exchange = self._incoming = Exchange(
            parser.get_method().decode("ascii"),
            path,
            query,
            self._headers,
            self,
            keep_alive=parser.should_keep_alive(),
            is_old=version == "1.0",
        )
        if parser.should_upgrade() and exchange.has_body:
            self._has_body_to_come = True
        try:
            self._gateway.admit(exchange)
            self._check_length(exchange)
        except Problem as problem:
            self._refuse_incoming(problem)
            return
        if not self.is_known and exchange.endpoint is not None and not exchange.endpoint.is_open:
            self._connections.works(self)
            self.is_known = True
            if self._current is None:
                self._connections.waits(self)
        if b"expect" in self._headers and exchange.has_body and not self._queue and self._current is None:
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        self._overhead -= len(part) + min(len(part), _CHUNK_BYTES)
        self._body_bytes += len(part)
        exchange = self._incoming
        if exchange is None or exchange.reply is not None:
            self._discarded += len(part)
            if self._discarded > _MOST_DISCARDED:
                self._leave_at_once()
            return
        if exchange.held_bytes + len(part) > self._most_bytes(exchange):
            self._refuse_incoming(_too_large(exchange.held_bytes + len(part), self._most_bytes(exchange)))
        elif not self._room.take(len(part)):
            found = f"The bodies of open requests take up {self._room.most_bytes} bytes, the most there is room for."
            problem = Problem(429, "inbox_full", found, reason="inbox-full", retry_after_s=1.0, close=True)
            self._refuse_incoming(problem)
        else:
            exchange.take(part)

    def on_chunk_header(self) -> None:
        """A chunk begins. Very many of a few bytes each are work without a use."""
        self._chunks += 1
        if self._chunks > _SMALL_CHUNKS and self._chunks * _CHUNK_BYTES > 2 * self._body_bytes:
            message = (
                f"The body comes in more than {_SMALL_CHUNKS} chunks of fewer than {_CHUNK_BYTES // 2} bytes each."
            )
            raise _Refused(Problem(431, "head_too_large", f"{message} Send larger chunks."))

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self._has_body_to_come:
            return  # its body follows, by another parser
        self._is_receiving = False
        self._overhead = 0
        exchange, self._incoming = self._incoming, None
        if exchange is None:
            return  # it was answered while its body was on its way
        self._last = exchange
        if not exchange.keep_alive:
            self._is_deaf = True
        if self._current is None and not self._is_write_paused:
            self._work(exchange)
        else:
            self._queue.append(exchange)

    def _check_overhead(self) -> None:
        if self._overhead > self._settings.max_head_bytes:
            most = self._settings.max_head_bytes
            message = f"The request line, headers, chunk extensions and trailers have more than {most} bytes."
            raise _Refused(Problem(431, "head_too_large", message))

    def _check_length(self, exchange: Exchange) -> None:
        declared = exchange.headers.get(b"content-length")
        if declared is not None and int(declared) > self._most_bytes(exchange):
            raise _too_large(int(declared), self._most_bytes(exchange))

    def _most_bytes(self, exchange: Exchange) -> int:
        """How large its body may be: little, where it is not even looked at."""
        is_read = exchange.endpoint is not None and exchange.endpoint.body is not None
        return self._settings.max_body_bytes if is_read else min(_SOON_READ, self._settings.max_body_bytes)

    # --- answers ---------------------------------------------------------------------------------------------------

    def _work(self, exchange: Exchange) -> None:
        """Take a request up."""
        if self._connections.access is not None:
            exchange.began = perf_counter()
        self._current = exchange
        self.expires_at = inf
        if exchange.reply is not None:
            self._respond(exchange, exchange.reply)
            return
        self._connections.works(self)
        self._gateway.begin(exchange, self._take_reply)

    def _take_reply(self, exchange: Exchange, reply: Reply) -> None:
        """Send the answer to the request in work. May be called while the runtime acts: it raises nothing."""
        self._room.give_back(exchange.drop_body())
        try:
            self._respond(exchange, reply)
        except Exception:
            _log.exception("answering %s %s", exchange.method, exchange.path)
            self._leave_at_once()

    def _refuse_incoming(self, problem: Problem) -> None:
        """Answer a request whose body has not arrived: at once, unless other answers come before or little is left."""
        exchange = self._incoming
        assert exchange is not None
        self._room.give_back(exchange.drop_body())
        exchange.reply = self._gateway.refusal(exchange, problem)
        declared = exchange.headers.get(b"content-length")
        is_short = declared is not None and int(declared) <= _SOON_READ and b"expect" not in exchange.headers
        if not exchange.has_body or (is_short and not problem.close):
            return  # it is answered when it is complete, and the connection stays
        exchange.keep_alive = False
        if self._current is None and not self._queue:
            self._answer_early(exchange)

    def _answer_early(self, exchange: Exchange) -> None:
        """Answer while the client still sends: what it sends is read and dropped, or it might never see the answer."""
        assert exchange.reply is not None
        self._incoming = None
        self._write_reply(exchange, exchange.reply)
        self._linger()

    def _respond(self, exchange: Exchange, reply: Reply) -> None:
        if self._transport is None:
            self._current = None
            return
        self._write_reply(exchange, reply)
        if reply.stream is not None and exchange.method != "HEAD":
            outlet = StreamedBody(self, is_chunked=not exchange.is_old)
            self.on_lost = outlet.lost
            notice_loss(self._transport, min(_GONE_S, self._settings.idle_limit_s))
            reply.stream(outlet)  # the request stays in work until the outlet is ended
            return
        self._answered(exchange)

    def end_stream(self) -> None:
        """The answer that was sent part by part is complete."""
        exchange = self._current
        self.on_lost = None
        if exchange is not None and self._transport is not None:
            self._answered(exchange)

    def send_part(self, data: bytes) -> None:
        """Send a part of an answer, unless the client has left too much of it unread: then the connection ends."""
        transport = self._transport
        if transport is None:
            return
        if transport.get_write_buffer_size() > MOST_UNREAD:
            transport.abort()
            return
        transport.write(data)

    def _answered(self, exchange: Exchange) -> None:
        self._current = None
        if self._connections.is_closing:
            exchange.keep_alive = False
        if not exchange.keep_alive:
            self._close()
        elif self._is_write_paused:  # it must read before it is served again, and makes room until then
            self._connections.waits(self)
        else:
            self._next()

    def _next(self) -> None:
        """Take up what waits; without anything, wait for the client."""
        if self._transport is None:
            return
        if self._queue:
            self._work(self._queue.popleft())
            return
        if self._last_words is not None:
            problem, self._last_words = self._last_words, None
            self._end_with(problem)
            return
        if self._connections.is_closing and not self._is_receiving:
            self._close()
            return
        incoming = self._incoming
        if incoming is not None and incoming.reply is not None and not incoming.keep_alive:
            self._answer_early(incoming)
            return
        self._connections.waits(self)
        self._wait()
        self._read(True)

    def _wait(self) -> None:
        """Nothing is in work: the client has a limited time to go on."""
        limit_s = self._settings.receive_limit_s if self._is_receiving else self._patience_s()
        self.expires_at = self._loop.time() + limit_s

    def _patience_s(self) -> float:
        """How long the client may do nothing: briefly, before its first authorised request."""
        settings = self._settings
        return settings.idle_limit_s if self.is_known else min(settings.receive_limit_s, settings.idle_limit_s)

    def _write_reply(self, exchange: Exchange, reply: Reply) -> None:
        """Send an answer in one write."""
        connections = self._connections
        status, body, headers, content_type, stream = reply
        if stream is None:
            framing = b"content-length: %d\r\n" % len(body)
        elif exchange.is_old:  # it knows no chunks: the body ends with the connection
            framing, exchange.keep_alive = b"", False
        else:
            framing = b"transfer-encoding: chunked\r\n"
        parts = [
            b"%bdate: %b\r\ncontent-type: %b\r\n%bx-request-id: %b\r\n"
            % (_STATUS_LINE[status], connections.date, content_type, framing, exchange.request_id)
        ]
        if exchange.traceparent is not None:
            parts.append(b"traceparent: %b\r\n" % exchange.traceparent)
        for name, value in headers:
            if name == b"connection":
                exchange.keep_alive = False
            else:
                parts += (name, b": ", value, b"\r\n")
        if connections.is_closing:
            exchange.keep_alive = False
        if not exchange.keep_alive:
            parts.append(b"connection: close\r\n")
        elif exchange.is_old:
            parts.append(b"connection: keep-alive\r\n")
        parts.append(b"\r\n")
        if exchange.method != "HEAD":
            parts.append(body)
        connections.census.answered(status)
        if connections.access is not None:
            self._note_access(connections.access, exchange, status, len(body))
        self._write(b"".join(parts))

    def _note_access(self, access: AccessLog, exchange: Exchange, status: int, size: int) -> None:
        now = perf_counter()
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        place = str(peer[0]) if isinstance(peer, tuple) else "-"
        access.note(exchange, place, status, size, (now - exchange.began) * 1e3 if exchange.began else 0.0)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    # --- the end ---------------------------------------------------------------------------------------------------

    def _say_last(self, problem: Problem) -> None:
        """Parse nothing more; tell the client why, once all that came before is answered."""
        self._is_deaf = True
        self._is_receiving = False
        if self._incoming is not None:
            self._room.give_back(self._incoming.drop_body())
            self._incoming = None
        if self._current is None and not self._queue:
            self._end_with(problem)
        else:
            self._last_words = problem

    def _end_with(self, problem: Problem) -> None:
        problem.close = True
        exchange = Exchange("GET", "", b"", {}, keep_alive=False)
        self._write_reply(exchange, problem.reply())
        self._linger()

    def _linger(self) -> None:
        """End the connection, but not before the client could read the answer: closing with unread bytes resets it."""
        transport = self._transport
        if transport is None:
            return
        self._is_deaf = self._is_lingering = True
        self._connections.works(self)
        self._connections.waits(self)
        if not transport.can_write_eof():
            transport.close()
            return
        transport.write_eof()
        self._read(True)
        self.expires_at = self._loop.time() + min(_LINGER_S, self._settings.receive_limit_s)

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > _MOST_DISCARDED:
            self._leave_at_once()

    def expire(self) -> None:
        """Its time is up."""
        if self._is_lingering:
            self._close()
        elif self._is_write_paused:
            self._expire_unread()
        elif self._incoming is not None and self._incoming.reply is not None and self._current is None:
            self._answer_early(self._incoming)
        elif self._is_receiving:
            self._connections.census.timed_out += 1
            limit_s = self._settings.receive_limit_s
            self._say_last(Problem(408, "request_timeout", f"The request was not complete within {limit_s:g} s."))
        elif self._current is None:
            self._connections.census.timed_out += self._is_receiving or not self.is_known
            self._close()

    def _expire_unread(self) -> None:
        """End a client that does not read its answer; one that reads slowly may go on."""
        transport = self._transport
        if transport is None:
            return
        unread = transport.get_write_buffer_size()
        if unread < self._unread:
            self._unread = unread
            self.expires_at = self._loop.time() + self._patience_s()
        else:
            transport.abort()

    def leave(self) -> None:
        """Make room for another connection, at once."""
        self._leave_at_once()

    def close(self) -> None:
        """End once all that was answered has been sent."""
        self._close()

    def _close(self) -> None:
        transport = self._transport
        if transport is None:
            return
        for exchange in self._queue:
            self._room.give_back(exchange.drop_body())
        self._queue.clear()
        self._is_deaf = True
        self._unread = transport.get_write_buffer_size()
        if self._unread:  # it may never read
            self._is_write_paused = True
            self.expires_at = self._loop.time() + self._patience_s()
        transport.close()

    def _leave_at_once(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _read(self, is_wanted: bool) -> None:
        if self._transport is not None and is_wanted == self._is_read_paused and not self._transport.is_closing():
            self._is_read_paused = not is_wanted
            if is_wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()


def _too_large(size: int, limit_bytes: int) -> Problem:
    message = f"The body has {size} bytes or more; at most {limit_bytes} are taken."
    return Problem(413, "body_too_large", message, close=True)
