"""The gateway's life: open the journal, answer until told to stop, then drain."""

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress

from fairlead.engine.live.callbacks import AllowList, Courier
from fairlead.engine.live.gateway.app import Gateway
from fairlead.engine.live.gateway.connections import Connections
from fairlead.engine.live.gateway.inbox import Inbox, Room
from fairlead.engine.live.gateway.intake import Intake
from fairlead.engine.live.gateway.metrics import Meter
from fairlead.engine.live.gateway.protocol import HttpConnection
from fairlead.engine.live.gateway.runner import Runner
from fairlead.engine.live.gateway.served import Served
from fairlead.engine.live.gateway.settings import Settings
from fairlead.engine.live.gateway.tallies import Tallies
from fairlead.engine.live.journal import Journal
from fairlead.errors import ConfigError, Fault

_SPARE_DESCRIPTORS = 512  # for instances, the journal, logs
_LAST_ANSWERS_S = 2.0
_HANDSHAKE_S = 5.0
_BACKLOG = 4096
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
    security = tls_context(settings)
    allowed = AllowList(settings.callback_prefixes)
    handshakes = 0 if security is None else settings.max_connections  # they are not counted before they are done
    _raise_descriptor_limit(settings.max_connections + handshakes + _SPARE_DESCRIPTORS)
    pending = await journal.open()
    try:
        for notice in journal.notices:
            _log.warning("%s", notice)
        courier = Courier(journal, allowed, secret=settings.callback_secret)
        intake = Intake(host, Inbox(settings.max_open), Tallies(), settings)
        runner = Runner(journal, intake, settings.max_async)
        connections = Connections(settings)
        if connections.access is not None:
            connections.access.open()
        meter = Meter(intake, runner, connections.census, connections.__len__, courier.stats)
        gateway = Gateway(host, settings, intake, runner, courier, meter)
        loop = asyncio.get_running_loop()
        watching = (meter.lag.watch(), connections.sweep(loop.time), gateway.hub.run())
        watches = [asyncio.ensure_future(each) for each in watching]
        servers = await _listen(gateway, connections, settings, sockets, security)
        try:
            courier.start()
            runner.resume(pending)
            await stop.wait()
            intake.is_stopping = True  # from here on: not ready, new calls refused, open ones go on
            runner.begin_stop()
            if not await host.drain(settings.drain_limit_s):
                intake.cancel_all()
        finally:
            await runner.stop()
            await courier.close()
            for server in servers:
                server.close()
            gateway.hub.close()
            gateway.logs.close()
            connections.close_idle()
            await connections.emptied(_LAST_ANSWERS_S)
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
            if connections.access is not None:
                connections.access.close()
    finally:
        await journal.close()


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """What TLS needs, where it is asked for. ConfigError says what is wrong with the files."""
    if settings.certfile is None or settings.keyfile is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.certfile, settings.keyfile, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        fault = Fault("", f"cannot be used as certificate chain and private key in PEM form: {why}.")
        raise ConfigError(f"{settings.certfile}, {settings.keyfile}", [fault]) from None
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; give one without a password")


async def _listen(
    gateway: Gateway,
    connections: Connections,
    settings: Settings,
    sockets: Sequence[socket.socket],
    security: ssl.SSLContext | None,
) -> list[asyncio.Server]:
    room = Room(settings.max_open_bytes)

    def connection() -> HttpConnection:
        return HttpConnection(gateway, connections, settings, room)

    loop = asyncio.get_running_loop()
    handshake_s = None if security is None else min(_HANDSHAKE_S, settings.receive_limit_s)
    servers: list[asyncio.Server] = []
    for listening in sockets:
        listen = loop.create_unix_server if listening.family == socket.AF_UNIX else loop.create_server
        servers.append(
            await listen(connection, sock=listening, backlog=_BACKLOG, ssl=security, ssl_handshake_timeout=handshake_s)
        )
    return servers


def _raise_descriptor_limit(needed: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        within = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, within), hard))
