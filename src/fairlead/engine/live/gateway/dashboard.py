"""The dashboard: its page, and what the page asks for."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qs

import msgspec

from fairlead.engine.live.gateway.analyses import LIMIT_S
from fairlead.engine.live.gateway.assets import send
from fairlead.engine.live.gateway.bodies import read_json
from fairlead.engine.live.gateway.deployments import find_app
from fairlead.engine.live.gateway.endpoints import Answer, Endpoint
from fairlead.engine.live.gateway.events import Picture
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.history import COLUMNS
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.reasons import CODES
from fairlead.engine.live.gateway.recent import Ended
from fairlead.engine.live.gateway.replies import Reply, json_reply
from fairlead.engine.live.gateway.version import VERSION
from fairlead.policy import is_address, policy_names

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.app import Gateway

_MOST_POLICIES = 4
_RANGES = ("15m", "6h")
_EVENTS = b"text/event-stream"
_OFFERED = (
    "fairlead",
    "earliest-deadline",
    "fifo",
    "least-loaded",
    "clockwork",
    "dag-admission",
    "esg",
    "pard",
    "orion",
    "infless",
    "fast-gshare",
)
"""Policies that the page offers for a replay. Any other that dispatches can be asked for by name."""


class Setup(msgspec.Struct, frozen=True):
    """What the page needs to know before it shows anything."""

    version: str
    columns: tuple[str, ...]
    reasons: dict[str, str]  # what each code of a refusal says
    policies: tuple[str, ...]
    has_token: bool
    has_logs: bool


class Past(msgspec.Struct, frozen=True):
    """The history of a workflow, column by column, and the requests that ended last."""

    columns: dict[str, list[float | None]]
    ended: list[Ended]


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which policies to replay the last part of an app's run under, besides its own."""

    app: str
    policies: Annotated[list[str], msgspec.Meta(min_length=1, max_length=_MOST_POLICIES)]
    last_s: Annotated[float, msgspec.Meta(ge=5, le=900)] = 300.0


_questions = msgspec.json.Decoder(Question)


async def asset(gateway: "Gateway", exchange: Exchange) -> Reply:
    """A file of the page."""
    return send(exchange, exchange.names[0])


async def setup(gateway: "Gateway", exchange: Exchange) -> Reply:
    """What the page needs first."""
    has_logs = b'"/v1/logs"' in gateway.document
    told = Setup(VERSION, COLUMNS, dict(CODES), _OFFERED, gateway.settings.token is not None, has_logs)
    return json_reply(told, headers=_FRESH)


async def past(gateway: "Gateway", exchange: Exchange) -> Reply:
    """The history of a workflow."""
    workflow = gateway.intake.full_name(exchange.names[0])
    asked = parse_qs(exchange.query.decode("latin-1")).get("range", ["15m"])[-1]
    if asked not in _RANGES:
        raise Problem(400, "invalid_target", f"range must be one of {', '.join(_RANGES)}; got {asked[:40]!r}.")
    history = gateway.hub.history(workflow)
    ring = history.fine if asked == "15m" else history.coarse
    return json_reply(Past(ring.columns(), gateway.hub.recent(workflow)), headers=_FRESH)


async def events(gateway: "Gateway", exchange: Exchange) -> Reply:
    """The stream of pictures."""
    gateway.hub.require_room()
    return Reply(200, b"", _FRESH, _EVENTS, gateway.hub.listen)


def _end_with_client(exchange: Exchange) -> None:
    """Let the work for a client end if it leaves."""
    task = asyncio.current_task()
    if exchange.connection is not None and task is not None:
        exchange.connection.on_lost = lambda: _cancel(task)


def _cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()


async def story(gateway: "Gateway", exchange: Exchange) -> Reply:
    """The story of a request."""
    _end_with_client(exchange)
    return Reply(200, await gateway.analyses.story(exchange.names[0]), _FRESH)


async def replays(gateway: "Gateway", exchange: Exchange) -> Reply:
    """The last part of a run, under other policies."""
    _end_with_client(exchange)
    question = read_json(exchange, _questions)
    app = find_app(gateway, question.app)
    known = policy_names()
    for name in question.policies:
        if name not in known or is_address(name):
            raise Problem(400, "invalid_body", f"Invalid request body: there is no policy named {name[:80]!r}.")
    status = next((one for one in gateway.host.status().apps if one.name == app.name), None)
    if status is None:
        raise Problem(404, "unknown_app", f"{app.name!r} has just been removed.")
    policies = list(dict.fromkeys((status.policy, *question.policies)))
    body = await gateway.analyses.replays(app.name, status.generation, policies, question.last_s)
    return Reply(200, body, _FRESH)


_FRESH = ((b"cache-control", b"no-store"),)
_TAG = "Dashboard"

ENDPOINTS = (
    Endpoint(
        "GET",
        "/ui/{file}",
        asset,
        "A file of the dashboard's page",
        _TAG,
        {200: Answer("The file.", ("text/html", "text/javascript", "text/css", "image/svg+xml"))},
        errors=(404,),
        is_open=True,
        description="The page itself is at `/`. These files are the same everywhere and say nothing of what is served.",
    ),
    Endpoint("GET", "/v1/dashboard", setup, "What the page begins with", _TAG, {200: Answer("The setup.", Setup)}),
    Endpoint(
        "GET",
        "/v1/dashboard/events",
        events,
        "What happens, once per second",
        _TAG,
        {200: Answer("Server-sent events without an end; the data of each is a picture.", "text/event-stream")},
        errors=(503,),
        description=f"The data of an event is JSON: {', '.join(Picture.__struct_fields__)}. A client that leaves much "
        "of it unread is disconnected.",
    ),
    Endpoint(
        "GET",
        "/v1/dashboard/history/{workflow}",
        past,
        "The history of a workflow",
        _TAG,
        {200: Answer("Columns of points: per second for 15 minutes, or with `?range=6h` per 15 seconds.", Past)},
        errors=(400, 404),
    ),
    Endpoint(
        "GET",
        "/v1/dashboard/requests/{id}",
        story,
        "The story of a request",
        _TAG,
        {200: Answer("What `fairlead explain` says of it.", dict[str, Any])},
        errors=(404, 409, 422, 429, 503),
    ),
    Endpoint(
        "POST",
        "/v1/dashboard/replays",
        replays,
        "The last minutes under other policies",
        _TAG,
        {200: Answer("What `fairlead replay` gives: what was recorded, then each policy.", dict[str, Any])},
        errors=(400, 404, 408, 409, 413, 415, 422, 429, 503),
        body=Question,
        description=f"One analysis runs at a time, at the lowest priority, for at most {LIMIT_S:g} s.",
    ),
)
