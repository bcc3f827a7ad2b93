"""`fairlead serve`: an app, served under its objective on this machine."""

import os
import secrets
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlsplit

import msgspec
import typer
import yaml

from fairlead.app.load import no_app_in, split_address
from fairlead.app.secrets import AGENT_TOKEN
from fairlead.app.units import seconds
from fairlead.cli.choices import admit_own
from fairlead.cli.devices import chosen_devices, chosen_size
from fairlead.cli.errors import UsageError, warn
from fairlead.cli.ray import growth, ray_listen, ray_order, shared_certificate
from fairlead.engine.live.callbacks.allowed import AllowList
from fairlead.engine.live.gateway.settings import LIMITS, Settings, read_token
from fairlead.engine.live.gpus import GpuChoice, UnknownGpuError
from fairlead.engine.live.limits.choose import KINDS
from fairlead.engine.live.links.address import bound_address, listen_on, parse_address
from fairlead.engine.live.links.tls import TlsFiles, client_context
from fairlead.engine.live.nodes import nodes_text, read_nodes
from fairlead.engine.live.objects import place_of
from fairlead.engine.live.order import ServeOrder
from fairlead.engine.live.supervisor import Supervisor, listen
from fairlead.errors import ConfigError
from fairlead.policy import policy_faults

STATE = Path(".fairlead")
"""Holds the state folder of every app that was served from this folder."""

BACKENDS = ("local", "agents", "ray")
"""Where instances may run."""

_AGENTS_LISTEN = "127.0.0.1:8001"
_OTEL = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PEMS = ("certfile", "keyfile")
_LARGEST = 1e15  # of any limit: bytes, seconds or counts beyond it are typing errors


def serve(
    apps: Annotated[
        list[Path] | None, typer.Argument(metavar="APP...", help="Apps: app.py, app.py:name, or a folder.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            callback=admit_own,
            help="The policy that dispatches, by name or as my.module:Class. Default: the app's own.",
        ),
    ] = None,
    scaler: Annotated[
        str | None, typer.Option(callback=admit_own, help="The policy that scales; none by default.")
    ] = None,
    control_period: Annotated[
        str | None, typer.Option(metavar="TIME", help="How often the scaler decides, such as 2s; by default 10s.")
    ] = None,
    overcommit: Annotated[
        float | None, typer.Option(help="Replicas may hold this many times the vCPUs of a node; by default 1.")
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(metavar="APP=NUMBER", help="An app's part of the nodes, relative to other apps; by default 1."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter: policy.margin_s=0.002.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that other machines can reach needs a token.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any that is free.", min=0, max=65535)] = 8000,
    state: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Journal and records; by default .fairlead/<first app>.")
    ] = None,
    limits: Annotated[
        str | None, typer.Option(help="How CPU and memory are limited: cgroup-v1, cgroup-v2 or affinity.")
    ] = None,
    gpus: Annotated[
        str, typer.Option(metavar="WHICH", help="GPUs that functions get: all, none, or indices and UUIDs such as 0,1.")
    ] = "all",
    gpu_sharing: Annotated[
        str,
        typer.Option(help="How GPUs without MIG are shared: mps, time (by turns), or auto: mps if its daemon runs."),
    ] = "auto",
    vgpus_per_gpu: Annotated[
        float, typer.Option(metavar="NUMBER", help="How many vGPUs a GPU without MIG counts as.")
    ] = 7.0,
    nodes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Parts of this machine to serve on, instead of the app's own.")
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A device for kernels: opencl:0, cuda:0 or numpy; by default every OpenCL device. Repeatable.",
        ),
    ] = None,
    device_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory of each device that kernels may use, such as 64MB; by default all."),
    ] = None,
    monitor: Annotated[
        bool | None,
        typer.Option("--monitor/--no-monitor", help="Watch the nodes; by default where there is a scaler."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Holds the token; otherwise FAIRLEAD_TOKEN does, if set.")
    ] = None,
    allow_deploy: Annotated[bool, typer.Option("--allow-deploy", help="Let clients with the token upload code.")] = (
        False
    ),
    callback_allow: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="A prefix of URLs that may be called back; repeatable.")
    ] = None,
    drain: Annotated[str, typer.Option(metavar="TIME", help="How long open requests may take at the end.")] = "30s",
    max_body_mb: Annotated[float, typer.Option(help="The largest body of a request, in megabytes.")] = 8.0,
    max_open: Annotated[int, typer.Option(help="The most requests open at once.", min=1, max=10**9)] = 10_000,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Another limit of the gateway, such as max_items=500; repeatable."),
    ] = None,
    certfile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM certificate chain: serve TLS; needs --keyfile.")
    ] = None,
    keyfile: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM private key of --certfile.")] = None,
    backend: Annotated[
        str,
        typer.Option(help="Where instances run: local (this machine), agents (machines that join) or ray (a cluster)."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Of the Ray cluster; by default RAY_ADDRESS, or that of this machine."),
    ] = None,
    ray_share: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RESOURCE=AMOUNT",
            help="What to reserve of every Ray node; by default all that is free. Repeatable.",
        ),
    ] = None,
    ray_reserve: Annotated[
        str,
        typer.Option(help="How Ray's resources are reserved: node (one share per node) or instance (what each uses)."),
    ] = "node",
    ray_pip: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Requirements that instances run with, as a runtime environment of Ray."),
    ] = None,
    grow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=LEAST..MOST", help="Let policies ask Ray for nodes of a kind and give them back; repeatable."
        ),
    ] = None,
    agents_listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Where agents join: HOST:PORT or unix:PATH. Default: port 8001, on 127.0.0.1 or, with --backend ray, "
            "on the address from which the cluster is reached.",
        ),
    ] = None,
    agents_token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The agents' token; otherwise FAIRLEAD_AGENT_TOKEN, or agents.token in the state folder.",
        ),
    ] = None,
    agents_cacert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="PEM file that verifies the certificates of agents; by default --certfile."),
    ] = None,
    agents_client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take in only agents with a certificate that this verifies.")
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Object store for large values between nodes of agents: file:///FOLDER or s3://BUCKET/PREFIX.",
        ),
    ] = None,
    values_endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="The S3 endpoint of --values; by default that of AWS_REGION.")
    ] = None,
    no_warm_up: Annotated[
        bool, typer.Option("--no-warm-up", help="Do not run the examples of workflows before serving.")
    ] = False,
    no_profile: Annotated[
        bool, typer.Option("--no-profile", help="Assume times, also of what was measured, and learn them from runs.")
    ] = False,
    reload: Annotated[
        bool, typer.Option("--reload", help="Deploy an app again whenever one of its files changes; for development.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Do not show what functions print; `fairlead logs` has it.")
    ] = False,
    log_mb: Annotated[
        float, typer.Option(help="What the lines of functions may take on the disk, in megabytes.", min=1, max=1e6)
    ] = 256.0,
    access_log: Annotated[
        str | None, typer.Option(metavar="FORM", help="Print a line for every request: text or json.")
    ] = None,
    otel: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Send traces to this OpenTelemetry receiver (OTLP over HTTP)."),
    ] = None,
    no_records: Annotated[bool, typer.Option("--no-records", help="Keep no records of the run.")] = False,
    decision_times: Annotated[
        bool, typer.Option("--decision-times", help="Record the CPU time of every decision of the policy.")
    ] = False,
) -> None:
    """Serve apps over HTTP: admit requests that can be answered in time, refuse others at once, survive crashes."""
    paths = _app_paths(apps or [], allow_deploy)
    folder = (state or STATE / (_stem(paths[0]) if paths else "apps")).resolve()
    parameters = _parameters(settings or [], policy, scaler)
    _check_certificate(certfile, keyfile)
    if not 1 <= max_body_mb * 2**20 < _LARGEST:
        raise UsageError(f"--max-body-mb must be a positive number of megabytes; got {max_body_mb:g}.")
    if limits is not None and limits not in KINDS:
        raise UsageError(f"--limits must be one of {', '.join(KINDS)}; got {limits!r}.")
    AllowList(callback_allow or ())
    if decision_times and no_records:
        raise UsageError("--decision-times are part of the records, which --no-records leaves out.")
    if overcommit is not None and not 1 <= overcommit < inf:
        raise UsageError(f"--overcommit must be at least 1 and finite; got {overcommit:g}.")
    if control_period is not None and scaler in (None, "none") and not monitor:
        raise UsageError("--control-period needs --scaler, whose period it is, or --monitor.")
    chosen_gpus = gpu_choice(gpus, gpu_sharing, vgpus_per_gpu)
    if chosen_gpus != GpuChoice() and (backend != "local" or nodes is not None):
        where = "--nodes, whose parts of this machine have no GPUs" if nodes is not None else f"--backend {backend}"
        hint = "; each fairlead agent takes these options itself" if backend == "agents" else ""
        raise UsageError(f"--gpus, --gpu-sharing and --vgpus-per-gpu do not go with {where}{hint}.")
    if nodes is not None and (device or device_memory):
        raise UsageError("--device and --device-memory do not go with --nodes, whose parts of this machine have none.")
    if nodes is not None and (warning := read_nodes(nodes).excess(len(paths))) is not None:
        warn(warning)
    if backend not in BACKENDS:
        raise UsageError(f"--backend must be one of {', '.join(BACKENDS)}; got {backend!r}.")
    if backend != "local" and nodes is not None:
        raise UsageError(f"--nodes describes parts of this machine; with --backend {backend}, each agent is a node.")
    if backend == "agents" and (device or device_memory):
        raise UsageError("--device and --device-memory are for nodes that this command makes; give them to each agent.")
    if backend != "ray" and (address is not None or ray_share or ray_reserve != "node" or ray_pip or grow):
        raise UsageError("--address, --ray-share, --ray-reserve, --ray-pip and --grow need --backend ray.")
    ray = None
    devices, device_bytes = chosen_devices(device or []), chosen_size(device_memory, "--device-memory")
    if backend == "ray":
        ray = ray_order(address, ray_share or [], ray_reserve, ray_pip, devices, device_bytes)
    bounds = growth(grow or [])
    join_at = agents_listen or (_AGENTS_LISTEN if ray is None else ray_listen(ray))
    if values is not None:
        if backend != "agents":
            raise UsageError("--values needs --backend agents: on one machine, values stay in shared memory.")
        place_of(values, values_endpoint, "", os.environ)
    elif values_endpoint is not None:
        raise UsageError("--values-endpoint needs --values.")
    order = ServeOrder(
        state=str(folder),
        apps=tuple(str(path) for path in paths),
        policy=policy,
        policy_parameters=parameters["policy"],
        scaler=None if scaler == "none" else scaler,
        scaler_parameters=parameters["scaler"],
        control_period_s=None if control_period is None else _duration(control_period, "--control-period"),
        overcommit=overcommit,
        weights=_weights(weight or []),
        limits=limits,
        gpus=chosen_gpus,
        nodes=None if nodes is None else nodes_text(nodes),
        devices=devices,
        device_memory_bytes=device_bytes,
        monitor=monitor,
        warms_up=not no_warm_up,
        profiled=not no_profile,
        records=not no_records,
        times_decisions=decision_times,
        reloads=reload,
        log_bytes=int(log_mb * 2**20),
        access_log=_form(access_log),
        otel=_receiver(otel),
        token_file=None if token_file is None else str(token_file.resolve()),
        allow_deploy=allow_deploy,
        callback_prefixes=tuple(callback_allow or ()),
        certfile=None if certfile is None else str(certfile.resolve()),
        keyfile=None if keyfile is None else str(keyfile.resolve()),
        values=values,
        values_endpoint=values_endpoint,
        settings={
            "max_body_bytes": int(max_body_mb * 2**20),
            "max_open": max_open,
            "drain_limit_s": _duration(drain, "--drain"),
            **_limits(limit or []),
        },
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--state {folder}: cannot be made: {error.strerror}.") from error
    with listen(host, port) as listening, _agents_socket(backend, join_at, certfile) as agents:
        if agents is not None and ray is not None:
            if not bound_address(agents).is_local:
                ray = msgspec.structs.replace(ray, **dict(zip(_PEMS, shared_certificate(folder), strict=True)))
            token_of_agents = agents_token(agents_token_file, folder)
            order = msgspec.structs.replace(
                order,
                agents_token_file=None if token_of_agents is None else str(token_of_agents),
                ray=ray,
                growth=bounds,
            )
        elif agents is not None:
            for file in (agents_cacert, agents_client_ca):
                client_context(TlsFiles(cacert=None if file is None else str(file)))
            token_of_agents = agents_token(agents_token_file, folder)
            warn_of_join(agents, token_of_agents, certfile)
            order = msgspec.structs.replace(
                order,
                agents_token_file=None if token_of_agents is None else str(token_of_agents),
                agents_ca=None if agents_cacert is None else str(agents_cacert.resolve()),
                agents_client_ca=None if agents_client_ca is None else str(agents_client_ca.resolve()),
            )
        token = read_token(token_file)
        Settings(
            state=folder,
            token=token,
            allow_deploy=allow_deploy,
            certfile=certfile,
            keyfile=keyfile,
            **cast(dict[str, Any], order.settings),
        ).check([listening])
        code = Supervisor(listening, order, warn, agents, None if quiet else _show).run()
    if code:
        raise typer.Exit(1)


def _form(text: str | None) -> Literal["text", "json"] | None:
    """The form of the access log."""
    if text is not None and text not in ("text", "json"):
        raise UsageError(f"--access-log must be text or json; got {text!r}.")
    return cast(Literal["text", "json"] | None, text)


def _receiver(url: str | None) -> str | None:
    """Where traces go: to a URL, or, with an empty text, to where the standard variables say; None for nowhere."""
    if url is None:
        is_given = any(os.environ.get(name) for name in _OTEL) and os.environ.get("OTEL_SDK_DISABLED") != "true"
        return "" if is_given and find_spec("opentelemetry") is not None else None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--otel must be a URL such as http://127.0.0.1:4318; got {url!r}.")
    return url


def _show(line: str) -> None:
    """A line that a function wrote."""
    typer.echo(line, err=True)


@contextmanager
def _agents_socket(backend: str, text: str, certfile: Path | None) -> Iterator[socket.socket | None]:
    """Where agents dial in; None where instances run here."""
    if backend == "local":
        yield None
        return
    try:
        address = parse_address(text)
    except ValueError as error:
        raise UsageError(f"--agents-listen {error}.") from error
    if backend == "agents" and certfile is None and not address.is_local:
        raise UsageError(
            f"--agents-listen {address}: other machines can reach it, so it needs TLS. Give --certfile and --keyfile, "
            "or listen on 127.0.0.1."
        )
    with listen_on(address, "--agents-listen") as agents:
        yield agents
    if address.path:
        Path(address.path).unlink(missing_ok=True)


def gpu_choice(gpus: str, sharing: str, vgpus: float) -> GpuChoice:
    """What the options say of GPUs."""
    choice = GpuChoice(gpus=gpus.strip(), sharing=cast(Any, sharing), vgpus=vgpus)
    try:
        choice.check()
    except UnknownGpuError as error:
        raise UsageError(str(error)) from error
    return choice


def agents_token(file: Path | None, state: Path) -> Path | None:
    """The file with the agents' token, made on first use; None where the environment has the token."""
    if file is None and AGENT_TOKEN in os.environ:
        read_token(None, variable=AGENT_TOKEN)
        return None
    chosen = (file or state / "agents.token").resolve()
    if file is None and not chosen.exists():
        with open(os.open(chosen, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as made:
            made.write(secrets.token_urlsafe(32) + "\n")
    read_token(chosen)
    return chosen


def warn_of_join(agents: socket.socket, token: Path | None, certfile: Path | None) -> None:
    """Say how agents join."""
    how = f" --token-file {token}" if token is not None else f"    ({AGENT_TOKEN} holds the token)"
    trust = "" if certfile is None else f" --cacert {certfile}"
    typer.echo(f"Agents join with: fairlead agent --join {bound_address(agents)}{trust}{how}", err=True)


def _weights(texts: Sequence[str]) -> dict[str, float]:
    """The weights of apps, by name."""
    weights: dict[str, float] = {}
    for text in texts:
        app, _, number = text.partition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = 0.0
        if not app or not 0 < weight < inf:
            raise UsageError(f"--weight must be APP=NUMBER with a positive number, such as shop=2; got {text!r}.")
        weights[app] = weight
    return weights


def _app_paths(apps: Sequence[Path], allow_deploy: bool) -> list[Path]:
    if not apps and not allow_deploy:
        raise UsageError("Name an app file, such as app.py; or let clients upload apps with --allow-deploy.")
    for address in apps:
        file, _ = split_address(address)
        if file.is_dir():
            raise no_app_in(file)
        if not file.is_file():
            raise UsageError(f"There is no app file {address}.")
    return [path.resolve() for path in apps]


def _stem(address: Path) -> str:
    """What the state folder of an app is called: as its file, or, if its address is a folder, as that."""
    file, _ = split_address(address)
    return file.stem if address.name.startswith(file.name) else file.parent.name


def _parameters(settings: Sequence[str], policy: str | None, scaler: str | None) -> dict[str, dict[str, object]]:
    """The parameters of policy and scaler that `--set` gives, checked as far as those two are known here."""
    found: dict[str, dict[str, object]] = {"policy": {}, "scaler": {}}
    for setting in settings:
        key, sign, value = setting.partition("=")
        part, dot, name = key.strip().partition(".")
        if not sign or not dot or part not in found or not name:
            raise UsageError(f"--set {setting!r} must be policy.NAME=VALUE or scaler.NAME=VALUE.")
        try:
            found[part][name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            quoted = f"--set '{key}=\"{value}\"'"
            raise UsageError(
                f"--set {setting!r}: {value!r} cannot be read as a value; as text it takes quotes of its own: {quoted}."
            ) from error
    for part, chosen in (("policy", policy), ("scaler", scaler)):
        if chosen is None and found[part] and part == "scaler":
            raise UsageError(f"--set {part}.… needs --{part}, whose parameter it is.")
        if chosen is not None and chosen != "none" and (faults := policy_faults(chosen, found[part], part)):
            raise ConfigError(f"--{part} {chosen}", faults)
    return found


def _limits(given: Sequence[str]) -> dict[str, Any]:
    """What `--limit` says, by the name of the setting."""
    found: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or name not in LIMITS:
            raise UsageError(f"--limit {text!r} must be NAME=VALUE. Names: {', '.join(LIMITS)}.")
        try:
            found[name] = LIMITS[name](value)
        except ValueError:
            found[name] = 0
        if not 0 < found[name] < _LARGEST:
            kind = "a positive whole number" if LIMITS[name] is int else "a positive number"
            raise UsageError(f"--limit {name} must be {kind} below {_LARGEST:g}; got {value[:40]!r}.")
    return found


def _check_certificate(certfile: Path | None, keyfile: Path | None) -> None:
    """Raise UsageError unless TLS can be served with these files, or there are none."""
    if certfile is None and keyfile is None:
        return
    if certfile is None or keyfile is None:
        given, missing = ("--keyfile", "--certfile") if certfile is None else ("--certfile", "--keyfile")
        raise UsageError(f"{given} needs {missing}: TLS takes a certificate and its private key.")
    for option, file, holds in (
        ("--certfile", certfile, "a certificate"),
        ("--keyfile", keyfile, "a private key"),
    ):
        try:
            text = file.read_bytes()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"{option} {file}: cannot be read: {why}.") from error
        if b"-----BEGIN " not in text or (b"CERTIFICATE" if file is certfile else b"PRIVATE KEY") not in text:
            raise UsageError(f"{option} {file}: does not hold {holds} in PEM form.")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certfile, keyfile, password=_no_password)
    except _EncryptedKeyError:
        what = "is encrypted; decrypt it, since a gateway that starts again cannot ask for a password"
        raise UsageError(f"--keyfile {keyfile}: {what}.") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(f"--keyfile {keyfile}: is not the key of --certfile {certfile}.") from error
        why = (error.reason or "it cannot be read").replace("_", " ").lower()
        raise UsageError(f"--certfile {certfile} with --keyfile {keyfile}: cannot be used for TLS: {why}.") from error


class _EncryptedKeyError(Exception):
    """A private key wants a password."""


def _no_password() -> str:
    raise _EncryptedKeyError


def _duration(text: str, option: str) -> float:
    try:
        return seconds(text, option)
    except ValueError as error:
        raise UsageError(str(error)) from error
