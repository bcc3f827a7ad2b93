"""One call on its way to a gateway: attempts, pauses between them, and where they end."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from secrets import randbelow
from time import monotonic
from typing import TypeVar

import msgspec

from fairlead.client.answers import Answer
from fairlead.client.connections import BrokenError, Pool, Reply, UnsentError
from fairlead.client.errors import (
    CallError,
    CancelledCallError,
    LateError,
    NoAnswerError,
    RefusedError,
    error_of,
    may_come_again,
)
from fairlead.client.target import Target
from fairlead.client.tls import tls_failure

T = TypeVar("T")

_FIRST_PAUSE_S = 0.05  # before a retry, where the answer does not say when to come again
_LEAST_DEADLINE_MS = 0.1


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """Where calls go, and how."""

    target: Target
    pool: Pool
    token: str
    retries: int
    timeout_s: float
    cacert: Path | None

    @property
    def prefix(self) -> str:
        """Before every path: empty, unless the gateway is behind one."""
        return self.target.path.rstrip("/")


class Sending:
    """One call on its way, which may take several attempts."""

    def __init__(
        self, gateway: Gateway, workflow: str | None, deadline_s: float | None, *, is_repeatable: bool
    ) -> None:
        self._gateway = gateway
        self._workflow = workflow
        self._deadline_s = deadline_s
        self._is_repeatable = is_repeatable
        self._began = monotonic()
        self.until = self._began + (gateway.timeout_s if deadline_s is None else deadline_s)
        self.attempts = 0

    @property
    def elapsed_s(self) -> float:
        """Since the call was made."""
        return monotonic() - self._began

    def answer(self, output: object, reply: Reply) -> Answer:
        """An answer whose body is the output alone: a deadline was kept here, or it is an error."""
        return Answer(
            workflow=self._workflow or "",
            output=output,
            id=reply.headers.get("x-call-id"),
            latency_s=self.elapsed_s,
            deadline_s=self._deadline_s,
            in_time=None if self._deadline_s is None else True,
            elapsed_s=self.elapsed_s,
            attempts=self.attempts,
        )

    async def exchange(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """The first answer that is no error, within the time there is; the last error otherwise."""
        for attempt in count(1):
            self.attempts = attempt
            try:
                return await self._once(method, path, headers, body)
            except CallError as error:
                error.attempts = attempt
                if attempt > self._gateway.retries or not may_come_again(error, is_repeatable=self._is_repeatable):
                    raise
                pause_s = self._pause_s(error, attempt)
                if monotonic() + pause_s >= self.until:
                    raise
            await asyncio.sleep(pause_s)
        raise AssertionError("the attempts have no end")

    def _pause_s(self, error: CallError, attempt: int) -> float:
        """When to come again: as told, and a little later, so that not all who were told so come at once."""
        told_s = error.retry_after_s if isinstance(error, RefusedError | CancelledCallError) else None
        return (_FIRST_PAUSE_S * 2 ** (attempt - 1) if told_s is None else told_s) * (1 + randbelow(1000) / 10_000)

    async def _once(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        gateway = self._gateway
        left_s = self.until - monotonic()
        sent = dict(headers)
        if gateway.token:
            sent["Authorization"] = f"Bearer {gateway.token}"
        if self._deadline_s is not None:
            sent["X-Deadline-Ms"] = f"{max(_LEAST_DEADLINE_MS, left_s * 1e3):.1f}"
        data = _request(method, gateway.prefix + path, gateway.target, sent, body)
        try:
            async with asyncio.timeout(max(0.0, left_s)):
                reply = await gateway.pool.send(data)
        except TimeoutError:
            raise self._given_up() from None
        except ssl.SSLError as error:
            raise tls_failure(gateway.target.origin, error, gateway.cacert, "cacert=FILE") from error
        except UnsentError as error:
            raise self._no_answer(f"cannot be reached: {error}", was_sent=False) from error
        except BrokenError as error:
            raise self._no_answer(f"gave no answer: {error}", was_sent=True) from error
        if reply.status >= 300:
            raise error_of(reply.status, reply.headers, reply.body, self._workflow)
        return reply

    def _given_up(self) -> CallError:
        if self._deadline_s is None:
            return self._no_answer("gave no answer in the time that was set (timeout)", was_sent=True)
        message = f"There was no answer within {self._deadline_s * 1e3:g} ms."
        return LateError(message, workflow=self._workflow, code="deadline_passed")

    def _no_answer(self, what: str, *, was_sent: bool) -> NoAnswerError:
        error = NoAnswerError(f"{self._gateway.target.origin} {what}.", workflow=self._workflow)
        error.was_sent = was_sent
        return error


def _request(method: str, path: str, target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {target.origin.partition('//')[2]}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1") + body


def decoded(decoder: "msgspec.json.Decoder[T]", reply: Reply, workflow: str | None) -> T:
    """What an answer holds."""
    try:
        return decoder.decode(reply.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable(reply, workflow) from error


def unreadable(reply: Reply, workflow: str | None) -> NoAnswerError:
    """The error for an answer that cannot be read."""
    error = NoAnswerError(
        f"the answer ({reply.status}) is not that of a Fairlead gateway.", workflow=workflow, status=reply.status
    )
    error.was_sent = True
    return error
