"""Health, readiness, metrics, status, and the documents that describe the interface."""

import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fairlead.engine.live.gateway import assets
from fairlead.engine.live.gateway.endpoints import Answer, Endpoint
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.page import Home, home
from fairlead.engine.live.gateway.replies import Reply, json_reply
from fairlead.engine.live.status import Status

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.app import Gateway

_POLICY = b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?").fullmatch


class Health(msgspec.Struct, omit_defaults=True):
    """One word; with "blocked", also why workflows cannot run."""

    status: Literal["alive", "ready", "starting", "draining", "blocked"]
    reasons: tuple[str, ...] = ()


async def first(gateway: "Gateway", exchange: Exchange) -> Reply:
    """What is served here: the dashboard, or JSON if that is asked for, which names apps only to those who may call."""
    accepted = exchange.header(b"accept") or ""
    if "json" not in accepted or "text/html" in accepted:
        return assets.send(exchange, assets.PAGE)
    host = exchange.header(b"host") or ""
    scheme = "http" if gateway.settings.certfile is None else "https"
    manifests = gateway.host.manifests() if gateway.guard.permits(exchange.headers) else None
    shown = home(
        manifests,
        address=f"{scheme}://{host if _HOST(host) else 'localhost'}",
        has_token=gateway.settings.token is not None,
        is_ready=gateway.is_ready,
    )
    headers = [(b"vary", b"Accept, Authorization"), (b"cache-control", b"no-store")]
    return json_reply(shown, headers=headers)


async def alive(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Alive, since it answers."""
    return json_reply(Health("alive"))


async def ready(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Whether new requests are taken. Why workflows cannot run is told only to those who may call them."""
    if gateway.is_ready:
        return json_reply(Health("ready"))
    reasons = gateway.host.obstacles() if gateway.guard.permits(exchange.headers) else ()
    status: Literal["starting", "draining", "blocked"] = "starting"
    if gateway.is_draining:
        status = "draining"
    elif gateway.host.is_ready:
        status = "blocked"
    return json_reply(Health(status, reasons), 503, [(b"retry-after", b"1")])


async def metrics(gateway: "Gateway", exchange: Exchange) -> Reply:
    """Counts in Prometheus's text form."""
    await gateway.host.look_at_devices()
    return Reply(200, gateway.meter.text(), content_type=b"text/plain; version=0.0.4; charset=utf-8")


async def status(gateway: "Gateway", exchange: Exchange) -> Reply:
    """How everything stands."""
    await gateway.host.look_at_devices()
    return json_reply(gateway.host.status())


async def document(gateway: "Gateway", exchange: Exchange) -> Reply:
    """The OpenAPI document."""
    return Reply(200, gateway.document)


async def page(gateway: "Gateway", exchange: Exchange) -> Reply:
    """The same for people."""
    return Reply(200, gateway.page, [(b"content-security-policy", _POLICY)], b"text/html; charset=utf-8")


_TAG = "Operation"

ENDPOINTS = (
    Endpoint(
        "GET",
        "/",
        first,
        "What is served here",
        _TAG,
        {200: Answer("The dashboard; JSON if `Accept` asks for it.", ("text/html", Home))},
        is_open=True,
        description="Apps are listed for callers with the token, or for all where there is none.",
    ),
    Endpoint(
        "GET",
        "/healthz",
        alive,
        "Whether the gateway lives",
        _TAG,
        {200: Answer("It does.", Health)},
        is_open=True,
    ),
    Endpoint(
        "GET",
        "/readyz",
        ready,
        "Whether new requests are taken",
        _TAG,
        {200: Answer("They are.", Health), 503: Answer("Not now.", Health, ("Retry-After",))},
        is_open=True,
    ),
    Endpoint("GET", "/metrics", metrics, "Metrics for Prometheus", _TAG, {200: Answer("Text form.", "text/plain")}),
    Endpoint("GET", "/v1/status", status, "How everything stands", _TAG, {200: Answer("The status.", Status)}),
    Endpoint(
        "GET",
        "/openapi.json",
        document,
        "This document",
        _TAG,
        {200: Answer("OpenAPI 3.1.", dict[str, Any])},
        is_open=True,
    ),
    Endpoint(
        "GET", "/docs", page, "This document, for people", _TAG, {200: Answer("A page.", "text/html")}, is_open=True
    ),
)
