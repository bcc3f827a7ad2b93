"""`POST /v1/workflows/{name}`: run a workflow and wait for its answer."""

from collections.abc import Callable
from math import isinf
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fairlead.engine.live.gateway.asynchronous import Acceptance, accept, prefers_async
from fairlead.engine.live.gateway.bodies import deadline_s, json_form, off_loop, read_json, reading_bytes, to_value
from fairlead.engine.live.gateway.endpoints import Answer, Endpoint
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.replies import Reply
from fairlead.engine.live.gateway.schemas import Answered, Call
from fairlead.engine.live.gateway.served import Accepted, Served
from fairlead.engine.live.values import Ending, LostValueError

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.app import Gateway

T = TypeVar("T")

_calls = msgspec.json.Decoder(Call)


async def call(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Run a workflow; with `Prefer: respond-async`, accept it only."""
    if b"prefer" in exchange.headers and prefers_async(exchange):
        return await accept(gateway, exchange)
    gateway.intake.full_name(exchange.names[0])  # an unknown workflow is told before a faulty body
    body = read_json(exchange, _calls, gateway.settings.max_containers)
    ticket, ending = await gateway.intake.run(
        exchange.names[0],
        to_value(body.input),
        deadline_s=deadline_s(exchange, body.deadline_ms, None),
        budget_usd=body.budget_usd,
        connection=exchange.connection,
    )
    return await answered(gateway.host, ticket, ending)


async def answered(host: Served, ticket: Accepted, ending: Ending) -> Reply:
    """The answer of a request that ended."""
    id = b"%b-%d-%d" % (ticket.app.encode(), ticket.generation, ticket.request)
    try:
        output = await output_json(host, ending)
    except Problem as problem:
        problem.id = id.decode()
        raise
    allowed_s = ending.deadline - ending.arrival
    head = b'{"id":"%b","output":' % id
    tail = b',"latency_ms":%.3f,"deadline_ms":%b,"in_time":%b}' % (
        ending.latency_s * 1e3,
        b"null" if isinf(allowed_s) else b"%.3f" % (allowed_s * 1e3),
        b"true" if ending.is_in_time else b"false",
    )
    return Reply(200, head + output + tail)


async def output_json(host: Served, ending: Ending) -> bytes:
    """What a completed request gave, as JSON; Problem for any other end."""
    size = 0 if ending.value is None else host.size_bytes(ending.value)
    try:
        return await output(host, ending, json_form(size))
    except (TypeError, ValueError, RecursionError) as error:
        raise Problem(502, "no_json_form", f"The answer has no JSON form: {error}.") from None


async def output(host: Served, ending: Ending, form: Callable[[object], T]) -> T:
    """What a completed request gave, brought into this form; Problem for any other end.

    A large answer is read and formed in a thread, and freed in any case.
    """
    value = ending.value
    if ending.outcome != "completed" or value is None:
        raise refusal(ending)
    try:
        return await off_loop(reading_bytes(host, value), lambda: form(host.read(value)))
    except LostValueError as error:
        raise _lost(str(error)) from None
    finally:
        host.release(value)


def _lost(because: str) -> Problem:
    return Problem(503, "value_lost", f"Data of the request was lost: {because}.", reason=because, retry_after_s=1.0)


def refusal(ending: Ending) -> Problem:
    """What the client is told of a request that was not completed."""
    because = ending.reason or "no reason given"
    if ending.code == "value_lost":
        return _lost(because)
    if ending.outcome == "failed" and ending.code is not None:
        return Problem(422, ending.code, f"The request failed: {because}.", reason=ending.reason)
    if ending.outcome == "failed":
        return Problem(502, "function_failed", f"The workflow failed: {because}", reason=ending.reason)
    if ending.outcome == "cancelled":
        return Problem(
            503, "cancelled", f"The request was cancelled: {because}", reason=ending.reason, retry_after_s=1.0
        )
    if ending.outcome == "dropped" and ending.end >= ending.deadline:
        return Problem(504, "deadline_passed", f"The deadline passed: {because}", reason=ending.reason)
    return Problem(
        429,
        ending.outcome,
        f"The request was {ending.outcome}: {because}",
        reason=ending.reason,
        retry_after_s=1.0 if ending.retry_after_s is None else ending.retry_after_s,
    )


CALL_ERRORS = (400, 404, 408, 413, 415, 422, 429, 502, 503, 504)

ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/workflows/{name}",
        call,
        "Run a workflow and wait for its answer",
        "Workflows",
        body=Call,
        headers=("X-Deadline-Ms", "Prefer"),
        answers={
            200: Answer("The workflow's answer.", Answered),
            202: Answer("Accepted, with `Prefer: respond-async`.", Acceptance, ("Location", "X-Call-Id")),
        },
        errors=(*CALL_ERRORS, 507),
        description="The name is `app.workflow`, or `workflow` where that is unique. If the deadline is given both in "
        "the header and in the body, the smaller counts. A client that disconnects cancels its request.",
    ),
)
