"""The gateway as an ASGI application: guard, route, handle, answer."""

import asyncio
import logging

from fairlead.engine.live.callbacks import CallbackRefusedError, Courier
from fairlead.engine.live.gateway import apps, asynchronous, calls, health, inference, openfaas
from fairlead.engine.live.gateway.auth import Guard
from fairlead.engine.live.gateway.endpoints import Endpoint, Router
from fairlead.engine.live.gateway.exchange import ClientGone, Exchange, Receive, Scope, Send
from fairlead.engine.live.gateway.inbox import Room
from fairlead.engine.live.gateway.intake import Intake
from fairlead.engine.live.gateway.metrics import Meter
from fairlead.engine.live.gateway.openapi import document_json
from fairlead.engine.live.gateway.page import document_page
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.runner import Runner
from fairlead.engine.live.gateway.served import Served
from fairlead.engine.live.gateway.settings import Settings

ENDPOINTS: tuple[Endpoint, ...] = (
    *calls.ENDPOINTS,
    *asynchronous.ENDPOINTS,
    *apps.ENDPOINTS,
    *inference.ENDPOINTS,
    *openfaas.ENDPOINTS,
    *health.ENDPOINTS,
)

_log = logging.getLogger("fairlead.gateway")


class Gateway:
    """Everything the handlers need, and the ASGI callable itself."""

    def __init__(
        self, host: Served, settings: Settings, intake: Intake, runner: Runner, courier: Courier, meter: Meter
    ) -> None:
        self.host = host
        self.settings = settings
        self.intake = intake
        self.runner = runner
        self.meter = meter
        self.deploying = asyncio.Lock()
        self.document = document_json(ENDPOINTS)
        self.page = document_page(ENDPOINTS)
        self._courier = courier
        self._guard = Guard(settings.token)
        self._router = Router(ENDPOINTS)
        self._room = Room(settings.max_open_bytes)

    @property
    def is_draining(self) -> bool:
        """Whether the gateway is about to end."""
        return self.intake.is_stopping or self.host.is_draining

    @property
    def is_ready(self) -> bool:
        """Whether new requests are taken, of every workflow."""
        return self.host.is_ready and not self.is_draining and not self.host.obstacles()

    def check_callback(self, url: str) -> None:
        """Refuse a URL that is not on the allow-list."""
        try:
            self._courier.check(url)
        except CallbackRefusedError as error:
            raise Problem(403, "callback_refused", str(error)) from None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One exchange."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, self.settings.max_body_bytes, self._room)
        endpoint: Endpoint | None = None
        try:
            try:
                endpoint, exchange.names = self._router.find(exchange.method, exchange.path)
            finally:  # what is not there is told only to who may know
                if endpoint is None or not endpoint.is_open:
                    self._guard.check(exchange.headers)
            reply = await endpoint.handler(self, exchange)
        except Problem as problem:
            reply = problem.reply(endpoint is not None and endpoint.is_plain)
        except ClientGone:
            return
        except Exception:
            _log.exception("%s %s (request id %s)", exchange.method, exchange.path, exchange.request_id.decode())
            failure = Problem(500, "internal", "The gateway failed on this request; its log has the cause.")
            reply = failure.reply(endpoint is not None and endpoint.is_plain)
        finally:
            exchange.end()
        await exchange.answer(reply, send)
