"""Asynchronous calls: accept, state, result, cancel."""

import re
from datetime import UTC, datetime
from math import inf, isinf
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from fairlead.engine.live.gateway.bodies import deadline_s, encoded_json, read_json, to_value
from fairlead.engine.live.gateway.endpoints import Answer, Endpoint
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.replies import Reply, json_reply
from fairlead.engine.live.gateway.runner import Job
from fairlead.engine.live.gateway.schemas import Call
from fairlead.engine.live.journal import ID_PATTERN, Accept, Entry, JournalFullError, KeyConflictError
from fairlead.engine.live.journal.entries import State

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.app import Gateway

_RESPOND_ASYNC = re.compile(r"(?:^|[,;])\s*respond-async\s*(?:$|[,;])", re.IGNORECASE)


class AsyncCall(Call, forbid_unknown_fields=True):
    """What a workflow is called with, when nobody waits. Without a deadline it may take any time."""

    callback_url: Annotated[str, msgspec.Meta(max_length=2048)] | None = None


class Acceptance(msgspec.Struct):
    """The request is on disk and will end."""

    id: str
    status_url: str


class RequestState(msgspec.Struct):
    """How an asynchronous request stands. Instants are RFC 3339 times."""

    id: str
    workflow: str
    state: State
    attempts: int
    accepted_at: str
    deadline: str | None
    finished_at: str | None
    reason: str | None
    cost_usd: float
    request_id: str | None
    traceparent: str | None
    callback: Literal["pending", "delivered", "failed"] | None


class RequestResult(msgspec.Struct):
    """What an asynchronous request gave."""

    id: str
    output: Any


_calls = msgspec.json.Decoder(AsyncCall)


def prefers_async(exchange: Exchange) -> bool:
    """Whether the client asked not to wait (RFC 7240)."""
    return _RESPOND_ASYNC.search(exchange.header(b"prefer") or "") is not None


async def accept(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Put a call into the journal, then acknowledge it."""
    body = read_json(exchange, _calls, gateway.settings.max_containers)
    value = to_value(body.input)
    return await keep(
        gateway,
        exchange,
        exchange.names[0],
        value,
        deadline_s=deadline_s(exchange, body.deadline_ms, inf),
        budget_usd=body.budget_usd,
        callback_url=body.callback_url,
    )


async def keep(
    gateway: "Gateway",
    exchange: Exchange,
    workflow: str,
    value: bytes,
    *,
    deadline_s: float | None = inf,
    budget_usd: float | None = None,
    callback_url: str | None = None,
) -> Reply:
    """Journal a request and hand it to the runner: 202, or 200 if its idempotency key was seen before."""
    full = gateway.intake.full_name(workflow)
    gateway.intake.require_running()
    gateway.intake.check_input(full, value)
    if callback_url is not None:
        gateway.check_callback(callback_url)
    clock = gateway.intake.clock
    deadline, run_by = (None, None) if deadline_s is None else (clock.wall() + deadline_s, clock.now() + deadline_s)
    try:
        entry = Accept(
            workflow=full,
            body=value,
            deadline=deadline,
            budget_usd=budget_usd,
            callback_url=callback_url,
            key=exchange.header(b"idempotency-key"),
            request_id=exchange.request_id.decode(),
            traceparent=None if exchange.traceparent is None else exchange.traceparent.decode(),
        )
    except ValueError as error:
        raise Problem(400, "invalid_header", str(error)) from None
    try:
        # `then`, not the lines below: a client that leaves while the disk is busy must not leave a request behind
        # that is in the journal and that nobody runs.
        kept = await gateway.runner.journal.accept(
            entry, then=lambda new: gateway.runner.add(Job(new.id, full, run_by, budget_usd, entry.traceparent), value)
        )
    except KeyConflictError as error:
        raise Problem(422, "key_conflict", str(error)) from None
    except JournalFullError as error:
        raise Problem(507, "journal_full", str(error), retry_after_s=error.retry_after_s) from None
    exchange.ran_as = kept.id
    url = f"/v1/requests/{kept.id}"
    headers = [(b"location", url.encode()), (b"x-call-id", kept.id.encode())]
    return json_reply(Acceptance(kept.id, url), 202 if kept.is_new else 200, headers)


async def state(gateway: "Gateway", exchange: Exchange) -> Reply:
    """How a request stands."""
    return json_reply(_state_of(await _entry(gateway, exchange)))


async def result(gateway: "Gateway", exchange: Exchange) -> Reply:
    """What a request gave: 200, 202 while it is not there, 409 if it will never be."""
    entry = await _entry(gateway, exchange)
    if entry.state == "completed":
        try:
            output = await encoded_json(entry.result) if entry.result else b"null"
        except (TypeError, ValueError, RecursionError) as error:
            raise Problem(502, "no_json_form", f"The answer has no JSON form: {error}.") from None
        return Reply(200, b'{"id":"%b","output":%b}' % (entry.id.encode(), output))
    if not entry.is_final:
        return json_reply(_state_of(entry), 202, [(b"retry-after", b"1"), (b"retry-after-ms", b"200")])
    because = entry.reason or "no reason given"
    raise Problem(
        409, entry.state, f"There is no result, the request was {entry.state}: {because}", reason=entry.reason
    )


async def cancel(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Cancel a request that has not ended: 202 once that is on disk, so that it never runs again."""
    entry = await _entry(gateway, exchange)
    try:
        state = entry.state if entry.is_final else await gateway.runner.cancel(entry.id)
    except JournalFullError as error:
        message = f"The request is not cancelled for certain: it stays open until that is on disk. {error}"
        raise Problem(507, "journal_full", message, retry_after_s=error.retry_after_s) from None
    if state != "cancelled" or entry.is_final:
        raise Problem(409, "ended", f"The request has already ended ({state or 'just now'}): nothing to cancel.")
    return json_reply(Cancelled(entry.id, "cancelled"), 202)


async def _entry(gateway: "Gateway", exchange: Exchange) -> Entry:
    (id,) = exchange.names
    try:
        entry = await gateway.runner.journal.get(id) if ID_PATTERN.fullmatch(id) else None
    except JournalFullError as error:
        raise Problem(503, "journal_unreadable", str(error), retry_after_s=error.retry_after_s) from None
    if entry is None:
        message = f"No request has the id {id[:80]!r}. Ended ones are kept for a time, then forgotten."
        raise Problem(404, "unknown_request", message)
    return entry


def _state_of(entry: Entry) -> RequestState:
    return RequestState(
        id=entry.id,
        workflow=entry.workflow,
        state=entry.state,
        attempts=entry.attempts,
        accepted_at=_instant(entry.accepted_at) or "",
        deadline=_instant(entry.deadline),
        finished_at=_instant(entry.finished_at),
        reason=entry.reason,
        cost_usd=entry.cost_usd,
        request_id=entry.request_id,
        traceparent=entry.traceparent,
        callback=entry.delivery if entry.delivery or not entry.callback_url else "pending",
    )


def _instant(unix: float | None) -> str | None:
    if unix is None or isinf(unix) or unix > 253402300799:  # the year 9999
        return None
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Cancelled(msgspec.Struct):
    """A request that was cancelled."""

    id: str
    state: State


ACCEPT_ERRORS = (400, 404, 408, 413, 415, 422, 503, 507)
ACCEPT_HEADERS = ("X-Deadline-Ms", "Idempotency-Key", "traceparent")

ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/workflows/{name}/async",
        accept,
        "Accept a call of a workflow, without waiting",
        "Asynchronous requests",
        body=AsyncCall,
        headers=ACCEPT_HEADERS,
        answers={
            202: Answer("The request is on disk.", Acceptance, ("Location", "X-Call-Id")),
            200: Answer(
                "It was accepted before, with the same idempotency key.", Acceptance, ("Location", "X-Call-Id")
            ),
        },
        errors=ACCEPT_ERRORS,
        description="The request survives any crash and ends exactly once. Without a deadline it may take any time.",
    ),
    Endpoint(
        "GET",
        "/v1/requests/{id}",
        state,
        "How an asynchronous request stands",
        "Asynchronous requests",
        answers={200: Answer("Its state.", RequestState)},
        errors=(404,),
    ),
    Endpoint(
        "GET",
        "/v1/requests/{id}/result",
        result,
        "What an asynchronous request gave",
        "Asynchronous requests",
        answers={
            200: Answer("Its output.", RequestResult),
            202: Answer("It has not ended.", RequestState, ("Retry-After", "Retry-After-Ms")),
        },
        errors=(404, 409, 502, 503),
        description="409 if it ended without a result: the error's code is its state, the reason says why.",
    ),
    Endpoint(
        "DELETE",
        "/v1/requests/{id}",
        cancel,
        "Cancel an asynchronous request",
        "Asynchronous requests",
        answers={202: Answer("It was cancelled, and never runs again.", Cancelled)},
        errors=(404, 409, 507),
    ),
)
