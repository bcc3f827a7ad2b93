"""The gateway's life: open the journal, answer until told to stop, then drain."""

import asyncio
import logging
import resource
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import uvicorn

from fairlead.engine.live.callbacks import AllowList, Courier
from fairlead.engine.live.gateway.app import Gateway
from fairlead.engine.live.gateway.connections import Census, LimitedProtocol
from fairlead.engine.live.gateway.inbox import Inbox
from fairlead.engine.live.gateway.intake import Intake
from fairlead.engine.live.gateway.metrics import Meter
from fairlead.engine.live.gateway.runner import Runner
from fairlead.engine.live.gateway.served import Served
from fairlead.engine.live.gateway.settings import Settings
from fairlead.engine.live.gateway.tallies import Tallies
from fairlead.engine.live.journal import Journal

_SPARE_DESCRIPTORS = 512  # for instances, the journal, logs
_LAST_ANSWERS_S = 2.0
_log = logging.getLogger("fairlead.gateway")


async def serve(
    host: Served, journal: Journal, settings: Settings, sockets: Sequence[socket.socket], stop: asyncio.Event
) -> None:
    """Answer on these listening sockets until `stop` is set, then finish what is open and return.

    The journal is opened and closed here; the host is the caller's.

    Raises:
        ConfigError: The settings are wrong, or the journal is in use.
    """
    settings.check(sockets)
    allowed = AllowList(settings.callback_prefixes)
    _raise_descriptor_limit(settings.max_connections + _SPARE_DESCRIPTORS)
    pending = await journal.open()
    try:
        for notice in journal.notices:
            _log.warning("%s", notice)
        courier = Courier(journal, allowed, secret=settings.callback_secret)
        intake = Intake(host, Inbox(settings.max_open), Tallies(), settings.late_limit_s)
        runner = Runner(journal, intake, settings.max_async)
        census = Census()
        config = uvicorn.Config(
            app=lambda *_: None,  # replaced below: the meter needs the server
            http=partial(LimitedProtocol, settings=settings, census=census),  # type: ignore[arg-type]
            loop="none",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=settings.idle_limit_s,  # type: ignore[arg-type]
            timeout_graceful_shutdown=_LAST_ANSWERS_S,  # type: ignore[arg-type]
        )
        server = _Server(config)
        meter = Meter(intake, runner, census, lambda: len(server.server_state.connections), courier.stats)
        config.app = Gateway(host, settings, intake, runner, courier, meter)
        watching = asyncio.ensure_future(meter.lag.watch())
        serving = asyncio.ensure_future(server.serve(list(sockets)))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            courier.start()
            runner.resume(pending)
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            intake.is_stopping = True  # from here on: not ready, new calls refused, open ones go on
            runner.begin_stop()
            if not await host.drain(settings.drain_limit_s):
                intake.cancel_all()
        finally:
            await runner.stop()
            await courier.close()
            server.should_exit = True
            stopping.cancel()
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            await serving
    finally:
        await journal.close()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are the process's own business: it sets `stop`


def _raise_descriptor_limit(needed: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        within = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, within), hard))
