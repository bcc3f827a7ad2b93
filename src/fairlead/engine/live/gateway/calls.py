"""`POST /v1/workflows/{name}`: run a workflow and wait for its answer."""

import asyncio
from collections.abc import Callable
from functools import partial
from math import isinf
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fairlead.engine.live.gateway.asynchronous import Acceptance, accept, prefers_async
from fairlead.engine.live.gateway.bodies import deadline_s, is_small, json_form, read_json, to_value
from fairlead.engine.live.gateway.endpoints import Answer, Endpoint
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.replies import Reply
from fairlead.engine.live.gateway.schemas import Answered, Call
from fairlead.engine.live.gateway.served import Accepted, Served
from fairlead.engine.live.values import Ending, LostValueError, to_json

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.app import Gateway

T = TypeVar("T")

_calls = msgspec.json.Decoder(Call)


def call(gateway: "Gateway", exchange: Exchange) -> bool:
    """Run a workflow; False with `Prefer: respond-async`."""
    if b"prefer" in exchange.headers and prefers_async(exchange):
        return False
    name = exchange.names[0]
    gateway.intake.full_name(name)  # an unknown workflow is told before a faulty body
    body = read_json(exchange, _calls, gateway.settings.max_containers)
    caller = gateway.intake.begin(
        name,
        to_value(body.input),
        deadline_s=deadline_s(exchange, body.deadline_ms, None),
        budget_usd=body.budget_usd,
        connection=exchange.connection,
        done=partial(_ended, gateway, exchange),
        trace=exchange.traceparent,
    )
    if gateway.settings.access_log is not None:
        exchange.ran_as = _id(caller.ticket)
    return True


def _ended(gateway: "Gateway", exchange: Exchange, ticket: Accepted, ending: Ending) -> None:
    """Answer a request that ended: at once, unless its answer is so large that others would wait for it."""
    host = gateway.host
    if ending.value is not None and not is_small(host, ending.value):
        gateway.follow(exchange, _answered, host, ticket, ending)
        return
    try:
        reply = _reply(ticket, ending, output_now(host, ending, to_json))
    except Exception as error:
        reply = gateway.failure(exchange, _told(error, ticket))
    exchange.respond(exchange, reply)


async def _answered(host: Served, ticket: Accepted, ending: Ending) -> Reply:
    """The answer of a request whose output is large."""
    size = 0 if ending.value is None else host.size_bytes(ending.value)
    try:
        return _reply(ticket, ending, await output(host, ending, json_form(size)))
    except Exception as error:
        raise _told(error, ticket) from None


def _reply(ticket: Accepted, ending: Ending, output: bytes) -> Reply:
    allowed_s = ending.deadline - ending.arrival
    body = b'{"id":"%b-%d-%d","output":%b,"latency_ms":%.3f,"deadline_ms":%b,"in_time":%b}' % (
        ticket.app.encode(),
        ticket.generation,
        ticket.request,
        output,
        ending.latency_s * 1e3,
        b"null" if isinf(allowed_s) else b"%.3f" % (allowed_s * 1e3),
        b"true" if ending.is_in_time else b"false",
    )
    return Reply(200, body)


def _id(ticket: Accepted) -> str:
    """The name of a request, as its caller and `fairlead explain` know it."""
    return f"{ticket.app}-{ticket.generation}-{ticket.request}"


def _told(error: Exception, ticket: Accepted, form: str = "JSON") -> Exception:
    """What the client is told of an error: of its own request, and of an output that does not have this form."""
    if isinstance(error, TypeError | ValueError | RecursionError):
        error = Problem(502, "no_json_form", f"The answer has no {form} form: {error}.")
    if isinstance(error, Problem):
        error.id = _id(ticket)
    return error


async def bare_answer(
    host: Served,
    exchange: Exchange,
    ticket: Accepted,
    ending: Ending,
    reply: Callable[[object], Reply],
    form: str = "JSON",
) -> Reply:
    """The answer of a request where the body is the output alone: the header `X-Call-Id` has the request's id."""
    exchange.ran_as = _id(ticket)
    try:
        answer = await output(host, ending, reply)
    except Exception as error:
        raise _told(error, ticket, form) from None
    return answer._replace(headers=(*answer.headers, (b"x-call-id", exchange.ran_as.encode())))


def output_now(host: Served, ending: Ending, form: Callable[[object], T]) -> T:
    """What a completed request gave, brought into this form and freed; Problem for any other end."""
    value = ending.value
    if ending.outcome != "completed" or value is None:
        raise refusal(ending)
    try:
        return form(host.read(value))
    except LostValueError as error:
        raise _lost(str(error)) from None
    finally:
        host.release(value)


async def output(host: Served, ending: Ending, form: Callable[[object], T]) -> T:
    """The same, where a large answer is read and formed in a thread."""
    value = ending.value
    if value is None or is_small(host, value):
        return output_now(host, ending, form)
    try:
        return await asyncio.to_thread(lambda: form(host.read(value)))
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
        return Problem(
            502,
            "function_failed",
            f"The workflow failed: {because}",
            reason=ending.reason,
            traceback=ending.traceback,
        )
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
        accept,
        "Run a workflow and wait for its answer",
        "Workflows",
        direct=call,
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
