"""The gateway's process: `python -m fairlead.engine.live.process ORDER`, started by the supervisor.

It opens the journal, starts the apps, answers, and drains when it is told to end.
"""

import asyncio
import ctypes
import gc
import os
import signal
import socket
import sys
import traceback
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from fairlead.app.knowledge import knowledge
from fairlead.app.secrets import AGENT_TOKEN, CALLBACK_SECRET, take_secrets
from fairlead.engine.live.gateway.server import serve
from fairlead.engine.live.gateway.settings import LIMITS, Settings, read_token
from fairlead.engine.live.host import Host, Options
from fairlead.engine.live.journal import Journal
from fairlead.engine.live.kernels.finding import DeviceChoice
from fairlead.engine.live.links.address import bound_address
from fairlead.engine.live.links.tls import TlsFiles, client_context, server_context
from fairlead.engine.live.logs.folder import LOGS, LogFolder
from fairlead.engine.live.nodes import nodes_of
from fairlead.engine.live.objects import Objects, StoreError, owner_id, place_of
from fairlead.engine.live.order import RayOrder, ServeOrder
from fairlead.engine.live.providers.agents import AgentProvider
from fairlead.engine.live.ray.provider import ray_provider
from fairlead.engine.live.reloading import reload_on_change
from fairlead.engine.live.statefolder import sole_user
from fairlead.engine.live.store import Store
from fairlead.engine.live.supervisor import CANNOT_START
from fairlead.engine.live.tracing.tracer import Tracer, ratio_of
from fairlead.engine.live.watchdog import FAULTY, Watchdog
from fairlead.errors import ConfigError, FairleadError, Fault, MissingExtraError
from fairlead.model import Bounds
from fairlead.profile.host import cpu_name, machine_file
from fairlead.workload import PolicyChoice

_PR_SET_PDEATHSIG = 1
_GC_THRESHOLD = 50_000  # objects: a collection in the middle of a request costs it milliseconds


def main(text: str) -> int:
    """Serve what the order says; gives the exit code."""
    order = msgspec.json.decode(text, type=ServeOrder)
    if order.supervisor:
        _die_with(order.supervisor)
    try:
        secrets = take_secrets()
        settings = _settings(order, secrets)
        with (
            socket.socket(fileno=order.listen_fd) as listening,
            nullcontext() if order.agents_fd < 0 else socket.socket(fileno=order.agents_fd) as agents,
            sole_user(Path(order.state), say),
        ):
            settings.check([listening])
            token = read_token(_path(order.agents_token_file), secrets, AGENT_TOKEN) if agents is not None else None
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(_serve(order, settings, listening, agents, token or "", secrets))
    except FairleadError as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201 - the process's own last words
        return 1 if order.is_restart else CANNOT_START  # what was served once is tried again


async def _serve(
    order: ServeOrder,
    settings: Settings,
    listening: socket.socket,
    agents: socket.socket | None,
    token: str,
    secrets: Mapping[str, str],
) -> int:
    host = _host(order, settings, agents, token, await _objects(order, secrets), _tracer(order))
    journal = Journal(Path(order.state) / "journal.sqlite")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stop.set)
    loop.add_signal_handler(signal.SIGQUIT, host.hurry)
    try:
        if not await _open(host, stop):
            await host.close()
            os._exit(0)  # an app file that is being described may hang, and its thread with it
        gc.collect()
        gc.freeze()  # what is loaded stays
        gc.set_threshold(_GC_THRESHOLD)
        url = _url(listening, "http" if settings.certfile is None else "https")
        _write_address(Path(order.state), url, settings.certfile)
        if not order.is_restart:
            _announce(host, url, settings.certfile)
        reloading = asyncio.create_task(reload_on_change(host, say)) if order.reloads else None
        with Watchdog(settings.stall_limit_s, lambda: journal.death, say):
            await serve(host, journal, settings, [listening], stop)
        if reloading is not None:
            reloading.cancel()
    finally:
        await host.close()
    return 0


async def _objects(order: ServeOrder, secrets: Mapping[str, str]) -> Objects | None:
    """The object store for values, where there is to be one. StoreError if it cannot be used when first served."""
    if order.values is None:
        return None
    region = os.environ.get("AWS_REGION", "")
    objects = Objects(place_of(order.values, order.values_endpoint, owner_id(Path(order.state)), secrets, region))
    try:
        await objects.check()
    except StoreError as error:
        if not order.is_restart:
            raise
        say(f"large values cannot go from node to node for now: {error}")
    return objects


def _host(
    order: ServeOrder,
    settings: Settings,
    agents: socket.socket | None,
    token: str,
    objects: Objects | None,
    tracer: Tracer | None,
) -> Host:
    """The host of the apps: on this machine, or on the nodes of agents that dial in."""
    state, options = Path(order.state), _options(order, settings)
    if agents is None:
        return Host(state, options, say, _give_way, tracer=tracer)
    if order.ray is not None:
        return _ray_host(order, order.ray, options, agents, token, tracer)
    files = TlsFiles(certfile=order.certfile, keyfile=order.keyfile, cacert=order.agents_client_ca)
    tls = None if bound_address(agents).path else server_context(files)
    reading = client_context(TlsFiles(cacert=order.agents_ca or order.certfile))
    store = Store.make(state / "values")
    logs = LogFolder(state / LOGS, order.log_bytes)
    provider = AgentProvider(agents, token, tls, store, state, say, reading=reading, objects=objects, logs=logs)
    return Host(state, options, say, _give_way, provider, values=provider.values, store=store, tracer=tracer)


def _ray_host(
    order: ServeOrder, ray: RayOrder, options: Options, agents: socket.socket, token: str, tracer: Tracer | None
) -> Host:
    """The host of the apps on the nodes of a Ray cluster, whose agents all have the gateway's own certificate."""
    state = Path(order.state)
    store = Store.make(state / "values")
    wait_s = 1.0 if order.is_restart else 15.0
    provider = ray_provider(
        ray,
        agents,
        token,
        store,
        state,
        say,
        limits=order.limits,
        growable=tuple(order.growth),
        wait_s=wait_s,
        logs=LogFolder(state / LOGS, order.log_bytes),
    )
    return Host(state, options, say, _give_way, provider, values=provider.values, store=store, tracer=tracer)


def _tracer(order: ServeOrder) -> Tracer | None:
    """Who takes the traces of requests; None where that was not asked for. MissingExtraError without the packages."""
    if order.otel is None:
        return None
    try:
        otlp = import_module("fairlead.engine.live.tracing.otlp")
    except ImportError as error:
        raise MissingExtraError("Sending traces", "OpenTelemetry", "otel") from error
    try:
        return Tracer(otlp.OtlpExporter(order.otel or None), ratio_of(os.environ), say)
    except ValueError as error:
        raise ConfigError("OpenTelemetry", [Fault("", f"{error}.")]) from error


async def _open(host: Host, stop: asyncio.Event) -> bool:
    """Start the apps; False if the gateway is told to end meanwhile."""
    opening, stopping = asyncio.ensure_future(host.open()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
        if opening.done():
            opening.result()
            return True
        return False
    finally:
        for task in (opening, stopping):
            task.cancel()
        await asyncio.gather(opening, stopping, return_exceptions=True)


def _options(order: ServeOrder, settings: Settings) -> Options:
    policy = order.policy and PolicyChoice(name=order.policy, parameters=order.policy_parameters)
    scaler = order.scaler and PolicyChoice(name=order.scaler, parameters=order.scaler_parameters)
    return Options(
        policy=policy or None,
        policy_parameters=order.policy_parameters,
        scaler=scaler or None,
        control_period_s=order.control_period_s,
        overcommit=order.overcommit,
        weights=order.weights,
        limits=order.limits,
        gpus=order.gpus,
        nodes=None if order.nodes is None else nodes_of(order.nodes),
        is_watched=order.monitor,
        warms_up=order.warms_up,
        profiled=order.profiled,
        records=order.records,
        times_decisions=order.times_decisions,
        is_restart=order.is_restart,
        max_items=settings.max_items,
        devices=DeviceChoice(order.devices, order.device_memory_bytes),
        log_bytes=order.log_bytes,
        growth={kind: Bounds(least=least, most=most) for kind, (least, most) in order.growth.items()},
        apps=tuple(Path(path) for path in order.apps),
    )


def _settings(order: ServeOrder, secrets: Mapping[str, str]) -> Settings:
    limits: dict[str, Any] = {name: LIMITS[name](value) for name, value in order.settings.items()}
    return Settings(
        state=Path(order.state),
        token=read_token(Path(order.token_file) if order.token_file else None, secrets),
        allow_deploy=order.allow_deploy,
        callback_prefixes=order.callback_prefixes,
        callback_secret=os.fsencode(secrets[CALLBACK_SECRET]) if CALLBACK_SECRET in secrets else None,
        access_log=order.access_log,
        certfile=Path(order.certfile) if order.certfile else None,
        keyfile=Path(order.keyfile) if order.keyfile else None,
        **limits,
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _url(listening: socket.socket, scheme: str) -> str:
    address, port = listening.getsockname()[:2]
    return f"{scheme}://[{address}]:{port}" if ":" in address else f"{scheme}://{address}:{port}"


def _write_address(state: Path, url: str, certfile: Path | None) -> None:
    """Write where this gateway is, for the commands that talk to it; only its owner may read it.

    `cacert` is the certificate by which they recognise it, where it speaks TLS. The file appears whole, so whoever
    waits for it never finds it empty.
    """
    part = state / "gateway.json.part"
    try:
        part.unlink(missing_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            cacert = None if certfile is None else str(certfile)
            file.write(msgspec.json.encode({"pid": os.getpid(), "url": url, "cacert": cacert}))
        part.rename(state / "gateway.json")
    except OSError as error:  # a full disk must not keep an app from being served
        say(f"commands will not find this gateway by themselves: {error}")


def _announce(host: Host, url: str, certfile: Path | None) -> None:
    lines = []
    trust = "" if certfile is None else f" --cacert {certfile}"
    uses = Counter(workflow.name for manifest in host.manifests() for workflow in manifest.workflows)
    for manifest in host.manifests():
        lines.append(f"Serving {manifest.name} at {url}")
        for workflow in manifest.workflows:
            name = workflow.name if uses[workflow.name] == 1 else f"{manifest.name}.{workflow.name}"
            objective = "no objective" if workflow.slo_s is None else f"within {workflow.slo_s * 1000:g} ms"
            lines.append(f"  POST {url}/v1/workflows/{name}  {objective}")
    lines += _known(host)
    lines.append(f"Dashboard {url}/")
    chosen = f" --workflow {name}" if uses.total() > 1 else ""
    load = f"fairlead load {url}{trust}{chosen} --rate 50 --duration 10s"
    lines.append(f"Watch     fairlead top --url {url}{trust}    Load  {load}")
    with suppress(OSError):
        print("\n".join(lines), flush=True)  # noqa: T201 - what `fairlead serve` shows


def _known(host: Host) -> list[str]:
    """What is known of how long the functions take, for each app, headed by one word."""
    cpu, has_machine = cpu_name(), machine_file().is_file()
    lines = []
    for snapshot in host.snapshots():
        name = f"{snapshot.manifest.name}: " if len(host.snapshots()) > 1 else ""
        tried = host.tried(snapshot.manifest.name)
        lines += [f"{name}{line}" for line in knowledge(snapshot, cpu, tried, has_machine=has_machine)]
    return [f"{'' if place else 'Times':<10}{line}" for place, line in enumerate(lines)]


def _give_way(error: Exception) -> None:
    """End this process, as it cannot be trusted any more: the supervisor starts another, which has the journal."""
    say("".join(traceback.format_exception(error)) + "a fault of Fairlead; the gateway starts again")
    os._exit(FAULTY)


def say(line: str) -> None:
    """One line of the log, on the standard error stream."""
    stamp = datetime.now().astimezone().isoformat(timespec="milliseconds")
    with suppress(OSError):  # a log on a full disk, or whose reader is gone, is no reason to serve no more
        print(f"{stamp} {line}", file=sys.stderr, flush=True)  # noqa: T201 - this is the log


def _die_with(supervisor: int) -> None:
    """End with the supervisor: another one may want its port and its journal."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        sys.exit("the supervisor is gone")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
