"""`AsyncClient`: calls, asynchronous requests, and retries that never pass the deadline."""

import asyncio
import os
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote
from uuid import uuid4

import msgspec

from fairlead.app.units import seconds, seconds_or_none
from fairlead.client.answers import Answer, RequestState
from fairlead.client.bodies import JSON, RAW, output_of, raw_body, read_output, tensors_of, to_json
from fairlead.client.connections import Pool, Reply
from fairlead.client.errors import CallError, LateError, NoAnswerError, retry_after_s
from fairlead.client.sending import Gateway, Sending, decoded, unreadable
from fairlead.client.target import Target
from fairlead.client.tls import client_context

TOKEN = "FAIRLEAD_TOKEN"
"""The environment variable that holds the token, where none is given."""

Duration = float | str
"""Seconds, or a text such as "200ms"."""

_POLL_S = 0.2  # between two questions for a result, where the gateway does not say

_requests = msgspec.json.Decoder(RequestState)


class _Answered(msgspec.Struct):
    id: str
    output: Any
    latency_ms: float | None = None
    deadline_ms: float | None = None
    in_time: bool | None = None


class _Accepted(msgspec.Struct):
    id: str


_answers = msgspec.json.Decoder(_Answered)
_acceptances = msgspec.json.Decoder(_Accepted)


class AsyncClient:
    """Calls the workflows of one gateway from `async` code; `Client` is the same for other code.

    Args:
        url: The gateway, such as `http://127.0.0.1:8000`; with `https` its certificate is verified.
        token: The gateway's token; without, that in the environment variable FAIRLEAD_TOKEN; "" for none.
        cacert: PEM file of the certificates to trust instead of the system's.
        retries: How often a call that may be sent again is, beyond the first time.
        timeout: How long a call without a deadline may take, with all retries.
        connections: The most connections open at once; further calls wait for one.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        cacert: str | Path | None = None,
        retries: int = 3,
        timeout: Duration = 60.0,
        connections: int = 100,
    ) -> None:
        target = Target.of(url)
        if "?" in target.path:
            raise ValueError(f"the URL of a gateway has no query; got {url[:200]!r}.")
        token = (os.environ.get(TOKEN) or "") if token is None else token
        if not all("!" <= letter <= "~" for letter in token):
            raise ValueError("token must consist of printable ASCII characters, without blanks.")
        for name, value, least in (("retries", retries, 0), ("connections", connections, 1)):
            if type(value) is not int or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}.")
        trusted = None if cacert is None else Path(cacert)
        self._gateway = Gateway(
            target=target,
            pool=Pool(target, client_context(trusted) if target.is_tls else None, connections),
            token=token,
            retries=retries,
            timeout_s=seconds(timeout, "timeout"),
            cacert=trusted,
        )

    async def call(
        self,
        workflow: str,
        input: object = None,
        *,
        app: str | None = None,
        deadline: Duration | None = None,
        budget_usd: float | None = None,
        idempotency_key: str | None = None,
        idempotent: bool = False,
        traceparent: str | None = None,
    ) -> Answer:
        """Run a workflow and wait for its answer.

        Args:
            workflow: Its name, or "app.workflow".
            input: JSON values; arrays and tensors (anything with `tolist`) are sent as lists. Bytes go as they are, but
                only as the whole input.
            app: The app of the workflow, where the name alone is not unique.
            deadline: From now, for everything, retries included. Without one, the workflow's objective counts for the
                gateway, and `timeout` here.
            budget_usd: What the request may cost.
            idempotency_key: The same key and input are run once, however often they are sent: the call is accepted into
                the gateway's journal first, so that it survives crashes, and then waited for.
            idempotent: Whether running the call twice does no harm. Only then is it sent again when it may have run.
            traceparent: W3C trace context to continue.

        Raises:
            CallError: There is no answer: `RefusedError`, `LateError`, `FailedError`, `InvalidCallError`,
                `UnauthorizedError`, `CancelledCallError`, `NoAnswerError`.
        """
        name, deadline_s = _full(workflow, app), seconds_or_none(deadline, "deadline")
        if idempotency_key is not None:
            began = monotonic()
            handle = await self.submit(
                name,
                input,
                deadline=deadline_s,
                budget_usd=budget_usd,
                idempotency_key=idempotency_key,
                traceparent=traceparent,
            )
            allowed_s = self._gateway.timeout_s if deadline_s is None else deadline_s
            return await handle._answer(began, began + allowed_s, deadline_s)
        headers = _trace(traceparent)
        if isinstance(input, bytes | bytearray | memoryview):
            path, data, kind = f"/function/{quote(name, safe='')}", bytes(input), RAW
        else:
            path, kind = f"/v1/workflows/{quote(name, safe='')}", JSON
            data = to_json({"input": input} if budget_usd is None else {"input": input, "budget_usd": budget_usd})
        sent = Sending(self._gateway, name, deadline_s, is_repeatable=idempotent)
        reply = await sent.exchange("POST", path, {**headers, "Content-Type": kind}, data)
        if kind == RAW:
            return sent.answer(read_output(reply), reply)
        found = decoded(_answers, reply, name)
        return Answer(
            workflow=name,
            output=found.output,
            id=found.id,
            latency_s=(found.latency_ms or 0.0) / 1e3,
            deadline_s=None if found.deadline_ms is None else found.deadline_ms / 1e3,
            in_time=found.in_time,
            elapsed_s=sent.elapsed_s,
            attempts=sent.attempts,
        )

    async def infer(
        self,
        workflow: str,
        inputs: object,
        *,
        app: str | None = None,
        deadline: Duration | None = None,
        idempotent: bool = False,
        traceparent: str | None = None,
    ) -> Answer:
        """Run a workflow on NumPy arrays, sent and answered as raw bytes (Open Inference Protocol).

        One array is the workflow's input; a mapping of arrays by name becomes an object. The output is an array, or a
        mapping of arrays if the workflow gives an object.
        """
        name = _full(workflow, app)
        data, headers = raw_body(tensors_of(inputs))
        sent = Sending(self._gateway, name, seconds_or_none(deadline, "deadline"), is_repeatable=idempotent)
        path = f"/v2/models/{quote(name, safe='')}/infer"
        reply = await sent.exchange("POST", path, {**_trace(traceparent), **headers}, data)
        try:
            output = output_of(reply)
        except (msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
            raise unreadable(reply, name) from error
        return sent.answer(output, reply)

    async def submit(
        self,
        workflow: str,
        input: object = None,
        *,
        app: str | None = None,
        deadline: Duration | None = None,
        budget_usd: float | None = None,
        idempotency_key: str | None = None,
        callback_url: str | None = None,
        traceparent: str | None = None,
    ) -> "AsyncHandle":
        """Have a request accepted, without waiting for its answer. It survives any crash and ends exactly once.

        Args:
            idempotency_key: Makes that this key and input are accepted once. Without one, each `submit` is a request of
                its own; a key that is made up keeps its own retries from being two.
            callback_url: Told of the end, if the gateway allows it.
        """
        name, deadline_s = _full(workflow, app), seconds_or_none(deadline, "deadline")
        headers = {**_trace(traceparent), "Idempotency-Key": _key(idempotency_key)}
        if isinstance(input, bytes | bytearray | memoryview):
            path, data, kind = f"/async-function/{quote(name, safe='')}", bytes(input), RAW
            headers |= {} if callback_url is None else {"X-Callback-Url": _header("callback_url", callback_url)}
        else:
            given = {"input": input, "budget_usd": budget_usd, "callback_url": callback_url}
            path, kind = f"/v1/workflows/{quote(name, safe='')}/async", JSON
            data = to_json({key: value for key, value in given.items() if key == "input" or value is not None})
        sent = Sending(self._gateway, name, deadline_s, is_repeatable=True)
        reply = await sent.exchange("POST", path, {**headers, "Content-Type": kind}, data)
        return AsyncHandle(self, decoded(_acceptances, reply, name).id, name)

    def request(self, id: str) -> "AsyncHandle":
        """The handle of a request that was accepted before, perhaps by another program."""
        return AsyncHandle(self, id)

    async def close(self) -> None:
        """Hang up. Calls under way are not answered any more."""
        self._gateway.pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._gateway.target.origin + self._gateway.prefix!r})"


class AsyncHandle:
    """An asynchronous request: its state, its result, and how to cancel it."""

    def __init__(self, client: AsyncClient, id: str, workflow: str | None = None) -> None:
        self._client = client
        self.id = id
        self.workflow = workflow

    async def status(self) -> RequestState:
        """How it stands."""
        reply = await self._ask("GET", "", None)
        return decoded(_requests, reply, self.workflow)

    async def result(self, timeout: Duration | None = None) -> Any:
        """Its output, once it has ended. LateError if that takes longer than `timeout`; the request goes on."""
        timeout_s = seconds_or_none(timeout, "timeout")
        until = None if timeout_s is None else monotonic() + timeout_s
        return (await self._answer(monotonic(), until, None)).output

    async def cancel(self) -> bool:
        """Cancel it: True once that is on the gateway's disk, False if it had ended already."""
        try:
            await self._ask("DELETE", "", None)
        except CallError as error:
            if error.code == "ended":
                return False
            raise
        return True

    async def _answer(self, began: float, until: float | None, deadline_s: float | None) -> Answer:
        while True:
            try:
                reply = await self._ask("GET", "/result", until)
            except NoAnswerError:
                if until is None or monotonic() < until:
                    raise
                raise self._late(deadline_s) from None
            if reply.status != 202:
                break
            pause_s = retry_after_s(reply.headers) or _POLL_S
            await asyncio.sleep(pause_s if until is None else max(0.0, min(pause_s, until - monotonic())))
        elapsed_s = monotonic() - began
        return Answer(
            workflow=self.workflow or "",
            output=decoded(_answers, reply, self.workflow).output,
            id=self.id,
            latency_s=elapsed_s,
            deadline_s=deadline_s,
            in_time=None if deadline_s is None else elapsed_s <= deadline_s,
            elapsed_s=elapsed_s,
        )

    async def _ask(self, method: str, path: str, until: float | None) -> Reply:
        sent = Sending(self._client._gateway, self.workflow, None, is_repeatable=True)
        if until is not None:
            sent.until = min(sent.until, until)
        return await sent.exchange(method, f"/v1/requests/{quote(self.id, safe='')}{path}", {}, b"")

    def _late(self, deadline_s: float | None) -> LateError:
        what = "by its deadline" if deadline_s is not None else "in the time given"
        return LateError(f"The request {self.id} has not ended {what}.", workflow=self.workflow, id=self.id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"


def _full(workflow: str, app: str | None) -> str:
    return workflow if app is None else f"{app}.{workflow}"


def _key(given: str | None) -> str:
    return uuid4().hex if given is None else _header("idempotency_key", given)


def _trace(traceparent: str | None) -> dict[str, str]:
    return {} if traceparent is None else {"traceparent": _header("traceparent", traceparent)}


def _header(name: str, value: str) -> str:
    if not 0 < len(value) <= 2048 or not all(" " <= letter <= "~" for letter in value):
        raise ValueError(f"{name} must be 1 to 2,048 printable ASCII characters; got {value[:80]!r}.")
    return value
