"""What the gateway answers: admit a request by its head, then let its endpoint's handler answer it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TypeVarTuple

from fairlead.engine.live.callbacks import CallbackRefusedError, Courier
from fairlead.engine.live.gateway import apps, asynchronous, calls, dashboard, health, inference, logs, nodes, openfaas
from fairlead.engine.live.gateway.analyses import Analyses
from fairlead.engine.live.gateway.auth import Guard
from fairlead.engine.live.gateway.endpoints import Endpoint, Router, is_plain_path
from fairlead.engine.live.gateway.events import Hub
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.heads import check_coding
from fairlead.engine.live.gateway.intake import Intake
from fairlead.engine.live.gateway.metrics import Meter
from fairlead.engine.live.gateway.openapi import document_json
from fairlead.engine.live.gateway.page import document_page
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.replies import Reply
from fairlead.engine.live.gateway.runner import Runner
from fairlead.engine.live.gateway.served import Served
from fairlead.engine.live.gateway.settings import Settings
from fairlead.engine.live.logs.folder import LOGS, LogFolder

ENDPOINTS: tuple[Endpoint, ...] = (
    *calls.ENDPOINTS,
    *asynchronous.ENDPOINTS,
    *apps.ENDPOINTS,
    *nodes.ENDPOINTS,
    *inference.ENDPOINTS,
    *openfaas.ENDPOINTS,
    *health.ENDPOINTS,
    *dashboard.ENDPOINTS,
    *logs.ENDPOINTS,
)

Ts = TypeVarTuple("Ts")

_log = logging.getLogger("fairlead.gateway")


@cache
def _of_endpoints() -> tuple[bytes, bytes, Router]:
    """The OpenAPI document, its page, and the router: the same for every gateway."""
    return document_json(ENDPOINTS), document_page(ENDPOINTS), Router(ENDPOINTS)


class Gateway:
    """Everything the handlers need."""

    def __init__(
        self, host: Served, settings: Settings, intake: Intake, runner: Runner, courier: Courier, meter: Meter
    ) -> None:
        self.host = host
        self.settings = settings
        self.intake = intake
        self.runner = runner
        self.meter = meter
        self.deploying = asyncio.Lock()
        self.logs = logs.Followers(LogFolder(settings.state / LOGS), settings.max_log_followers)
        self.document, self.page, self._router = _of_endpoints()
        self._courier = courier
        self.guard = Guard(settings.token)
        self.hub = Hub(host, intake.tallies, settings.max_dashboards, intake.clock.now)
        self.analyses = Analyses(settings.state)
        self._tasks: set[asyncio.Task[None]] = set()

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

    def admit(self, exchange: Exchange) -> None:
        """Find the endpoint of a request and check the caller's rights; Problem ends it before its body is read."""
        endpoint: Endpoint | None = None
        try:
            endpoint, exchange.names = self._router.find(exchange.method, exchange.path)
            exchange.endpoint = endpoint
        finally:  # that a path does not exist is told only to those who may know
            if endpoint is None or not endpoint.is_open:
                self.guard.check(exchange.headers)
        check_coding(exchange.headers)

    def begin(self, exchange: Exchange, respond: Callable[[Exchange, Reply], None]) -> None:
        """Have a request that was admitted and is complete answered: `respond` is called once, perhaps at once."""
        endpoint = exchange.endpoint
        assert endpoint is not None
        exchange.respond = respond
        try:
            if endpoint.direct is not None and endpoint.direct(self, exchange):
                return
        except Exception as error:
            respond(exchange, self.failure(exchange, error))
            return
        self.follow(exchange, endpoint.handler, self, exchange)

    def follow(self, exchange: Exchange, work: Callable[[*Ts], Awaitable[Reply]], *arguments: *Ts) -> None:
        """Answer with what this work gives, in a task of its own."""
        task = asyncio.get_running_loop().create_task(self._finish(exchange, work, *arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, exchange: Exchange, work: Callable[[*Ts], Awaitable[Reply]], *arguments: *Ts) -> None:
        try:
            reply = await work(*arguments)
        except Exception as error:
            reply = self.failure(exchange, error)
        exchange.respond(exchange, reply)

    def failure(self, exchange: Exchange, error: Exception) -> Reply:
        """The answer to a request whose handler raised this."""
        if not isinstance(error, Problem):
            what = f"{exchange.method} {exchange.path} (request id {exchange.request_id.decode()})"
            _log.error("%s", what, exc_info=error)
            error = Problem(500, "internal", "The gateway failed on this request; its log has the cause.")
        return self.refusal(exchange, error)

    def refusal(self, exchange: Exchange, problem: Problem) -> Reply:
        """A problem in the form that the endpoint's clients expect."""
        return problem.reply(is_plain_path(exchange.path))
