"""Brings the endings of asynchronous requests to their callback URLs.

At least once: what was delivered is noted in the journal afterwards, so a crash in between delivers it again. A call
is made only after the ending is on disk, so that two deliveries never differ.
"""

import asyncio
import logging
import secrets
import ssl
import time
from collections import deque
from collections.abc import Callable

import msgspec

from fairlead.engine.live.callbacks.allowed import AllowList, CallbackRefusedError, Target
from fairlead.engine.live.callbacks.post import SIGNATURE_HEADER, PostError, post, sign
from fairlead.engine.live.journal import Entry, Journal, Undelivered
from fairlead.errors import FairleadError

logger = logging.getLogger(__name__)

_AT_ONCE = 32
_AT_ONCE_PER_ORIGIN = 4  # so that a receiver that hangs holds up nobody but itself
_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


class Attempt(msgspec.Struct, frozen=True):
    """A call that is to be made."""

    id: str
    target: Target
    number: int  # from 1


class CourierStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts for metrics, since the start."""

    waiting: int
    delivered: int
    failed: int
    retries: int


class Courier:
    """Calls back, a few at a time, and again with growing pauses where that fails.

    Args:
        allowed: What may be called. Checked again before each call: the list may have changed since the request.
        secret: Signs each call, if given.
        max_attempts: Calls per ending, over all restarts.
        pause_s: Before the second call; doubles up to `longest_pause_s`, and varies by a quarter.
        max_body_bytes: A longer body is sent without its result.
    """

    def __init__(
        self,
        journal: Journal,
        allowed: AllowList,
        *,
        secret: bytes | None = None,
        timeout_s: float = 10.0,
        max_attempts: int = 8,
        pause_s: float = 0.5,
        longest_pause_s: float = 60.0,
        max_body_bytes: int = 2**20,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._journal = journal
        self._allowed = allowed
        self._secret = secret
        self._timeout_s = timeout_s
        self._max_attempts = max_attempts
        self._pause_s = pause_s
        self._longest_pause_s = longest_pause_s
        self._max_body_bytes = max_body_bytes
        self._clock = clock
        self._lanes: dict[tuple[str, str, int], deque[Attempt]] = {}
        self._active: dict[tuple[str, str, int], int] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._tls: ssl.SSLContext | None = None
        self._is_closed = False
        self._delivered = self._failed = self._retries = 0

    def check(self, url: str) -> Target:
        """The target of a URL that may be called; CallbackRefusedError otherwise. To be asked before accepting."""
        return self._allowed.check(url)

    def start(self) -> None:
        """Begin to deliver: what an earlier process left, then each ending as it reaches the disk."""
        self._loop = asyncio.get_running_loop()
        for undelivered in self._journal.watch_undelivered(self._add):
            self._add(undelivered)

    async def close(self) -> None:
        """Stop. What is not delivered yet is in the journal."""
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def stats(self) -> CourierStats:
        """Counts for metrics."""
        waiting = sum(map(len, self._lanes.values())) + len(self._calls) + len(self._timers)
        return CourierStats(waiting=waiting, delivered=self._delivered, failed=self._failed, retries=self._retries)

    def _add(self, undelivered: Undelivered) -> None:
        if self._is_closed:
            return
        try:
            target = self._allowed.check(undelivered.callback_url)
        except CallbackRefusedError as error:
            self._give_up(undelivered.id, str(error))
            return
        self._queue(Attempt(undelivered.id, target, undelivered.attempts + 1))

    def _queue(self, attempt: Attempt) -> None:
        self._lanes.setdefault(attempt.target.origin, deque()).append(attempt)
        self._pump()

    def _pump(self) -> None:
        """Start calls while there are free places, one origin after the other."""
        for origin in list(self._lanes):
            if len(self._calls) >= _AT_ONCE or self._is_closed:
                return
            lane = self._lanes.pop(origin)  # and to the back, if something is left: each origin has its turn
            while lane and self._active.get(origin, 0) < _AT_ONCE_PER_ORIGIN and len(self._calls) < _AT_ONCE:
                self._active[origin] = self._active.get(origin, 0) + 1
                call = self._loop.create_task(self._call(lane.popleft()))
                self._calls.add(call)
            if lane:
                self._lanes[origin] = lane

    async def _call(self, attempt: Attempt) -> None:
        origin = attempt.target.origin
        try:
            await self._deliver(attempt)
        except FairleadError as error:  # the journal cannot be read now
            self._try_later(attempt, str(error))
        finally:
            self._active[origin] -= 1
            if not self._active[origin]:
                del self._active[origin]
            task = asyncio.current_task()
            assert task is not None
            self._calls.discard(task)
            self._pump()

    async def _deliver(self, attempt: Attempt) -> None:
        entry = await self._journal.get(attempt.id)
        if entry is None or entry.delivery != "pending":
            return  # forgotten meanwhile, or delivered
        body = callback_body(entry, self._max_body_bytes)
        headers = {"X-Fairlead-Request": entry.id}
        if entry.request_id is not None:
            headers["X-Request-ID"] = entry.request_id
        if entry.traceparent is not None:
            headers["traceparent"] = entry.traceparent
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = sign(self._secret, int(self._clock()), body)
        try:
            tls = await self._tls_context() if attempt.target.scheme == "https" else None
            status = await post(attempt.target, body, headers, timeout_s=self._timeout_s, tls=tls)
        except PostError as error:
            self._try_later(attempt, str(error))
            return
        if 200 <= status < 300:
            self._delivered += 1
            self._journal.delivered(attempt.id)
        elif status in _TRY_AGAIN:
            self._try_later(attempt, f"answered {status}")
        else:
            why = "a redirect, which is not followed" if 300 <= status < 400 else "not worth a second call"
            self._give_up(attempt.id, f"answered {status}: {why}")

    async def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:  # reads the system's certificates: tens of milliseconds, once
            self._tls = await self._loop.run_in_executor(None, ssl.create_default_context)
        return self._tls

    def _try_later(self, attempt: Attempt, note: str) -> None:
        if attempt.number >= self._max_attempts:
            self._give_up(attempt.id, f"{note}, at the last of {attempt.number} attempts")
            return
        self._retries += 1
        self._journal.delivery_failed(attempt.id, note, is_final=False)
        pause_s = min(self._pause_s * 2 ** (attempt.number - 1), self._longest_pause_s)
        pause_s *= 0.75 + secrets.randbelow(501) / 1000  # so that what failed together does not come back together
        following = Attempt(attempt.id, attempt.target, attempt.number + 1)

        def again() -> None:
            self._timers.discard(timer)
            self._queue(following)

        timer = self._loop.call_later(pause_s, again)
        self._timers.add(timer)

    def _give_up(self, id: str, note: str) -> None:
        self._failed += 1
        logger.warning("The callback of request %s is given up: %s.", id, note.rstrip("."))
        self._journal.delivery_failed(id, note, is_final=True)


def callback_body(entry: Entry, max_bytes: int) -> bytes:
    """What is posted, as JSON. A result that is too long, or is not JSON, is left out and `result_omitted` is true."""
    fields: dict[str, object] = {
        "id": entry.id,
        "workflow": entry.workflow,
        "state": entry.state,
        "accepted_at": entry.accepted_at,
        "finished_at": entry.finished_at,
        "cost_usd": entry.cost_usd,
        "reason": (entry.reason or "")[:4096] or None,
        "result": None,
        "result_omitted": entry.result is not None,
    }
    if entry.result is not None and len(entry.result) <= max_bytes:
        try:
            full = fields | {"result": msgspec.msgpack.decode(entry.result), "result_omitted": False}
            body = msgspec.json.encode(full)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            body = b""  # MessagePack holds more than JSON does
        if 0 < len(body) <= max_bytes:
            return body
    return msgspec.json.encode(fields)
