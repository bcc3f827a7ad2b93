"""`fairlead agent`: this machine, as a node of a gateway that runs here or elsewhere."""

import asyncio
import os
import re
import signal
import socket
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from fairlead.app.secrets import AGENT_TOKEN, take_secrets
from fairlead.cli.devices import chosen_devices, chosen_size
from fairlead.cli.errors import UsageError
from fairlead.cli.serve import STATE, gpu_choice
from fairlead.engine.live.gateway.settings import read_token
from fairlead.engine.live.kernels.finding import DeviceChoice, DeviceFinder
from fairlead.engine.live.limits.choose import KINDS
from fairlead.engine.live.links.address import Address, facing, listen_on, parse_address
from fairlead.engine.live.links.greeting import GreetingError
from fairlead.engine.live.links.tls import TlsFiles, client_context, server_context
from fairlead.engine.live.node.service import AgentOrder, AgentService
from fairlead.engine.live.process import say
from fairlead.model import Node

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def agent(
    join: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where the gateway takes agents in: HOST:PORT or unix:PATH.")
    ],
    name: Annotated[str | None, typer.Option(help="The node's name; by default this machine's.")] = None,
    kind: Annotated[
        str, typer.Option(help="What kind of machine it is; nodes of a kind have the same speed.")
    ] = "machine",
    vcpus: Annotated[float | None, typer.Option(help="vCPUs that it gives; by default its cores.")] = None,
    memory: Annotated[
        float | None, typer.Option(metavar="GB", help="Memory that it gives; by default all of it.")
    ] = None,
    speed: Annotated[
        float, typer.Option(help="How fast it is; 1 is the machine that profiles were measured on.")
    ] = 1.0,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Holds the agents' token; otherwise FAIRLEAD_AGENT_TOKEN does.")
    ] = None,
    cacert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM file that verifies the gateway: a CA, or its certificate.")
    ] = None,
    certfile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM certificate of this agent, for those that read its values.")
    ] = None,
    keyfile: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM private key of --certfile.")] = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Where its values can be read; by default a free port of its address."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Holds code and values; by default .fairlead/agent-<name>.")
    ] = None,
    gpus: Annotated[
        str, typer.Option(metavar="WHICH", help="GPUs that functions get: all, none, or indices and UUIDs such as 0,1.")
    ] = "all",
    gpu_sharing: Annotated[
        str,
        typer.Option(help="How GPUs without MIG are shared: mps, time (by turns), or auto: mps if its daemon runs."),
    ] = "auto",
    vgpus_per_gpu: Annotated[
        float, typer.Option(metavar="NUMBER", help="As how many vGPUs a GPU without MIG counts.")
    ] = 7.0,
    device: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A device for kernels: opencl:0, cuda:0 or numpy. Repeatable."),
    ] = None,
    device_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory of each device that kernels may use, such as 64MB; by default all."),
    ] = None,
    limits: Annotated[
        str | None, typer.Option(help="How CPU and memory are limited: cgroup-v1, cgroup-v2 or affinity.")
    ] = None,
) -> None:
    """Run instances for a gateway: join it, and join it again whenever it is lost."""
    gateway = _address(join, "--join")
    if limits is not None and limits not in KINDS:
        raise UsageError(f"--limits must be one of {', '.join(KINDS)}; got {limits!r}.")
    chosen_gpus = gpu_choice(gpus, gpu_sharing, vgpus_per_gpu)
    node = _node(name or socket.gethostname().partition(".")[0], kind, vcpus, memory, speed)
    home = (folder or STATE / f"agent-{node.name}").resolve()
    if device:
        choice = DeviceChoice(chosen_devices(device), chosen_size(device_memory, "--device-memory"))
        node = DeviceFinder(home / "kernels" / "cache", choice, say).complete([node], is_needed=True)[0]
    files = TlsFiles(certfile=_path(certfile), keyfile=_path(keyfile), cacert=_path(cacert))
    _check_files(files, gateway)
    token = _token(token_file, os.environ)
    with listen_on(_listen_address(listen, gateway, files), "--listen") as listening:
        order = AgentOrder(
            join=gateway,
            token=token,
            node=node,
            folder=home,
            tls=files,
            limits=limits,
            gpus=chosen_gpus,
        )
        take_secrets()  # functions can read the environment of every process of their user
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_run(order, listening))
        except GreetingError as error:
            raise UsageError(f"--join {gateway}: {error}. Both sides need the same token and version.") from error


async def _run(order: AgentOrder, listening: socket.socket) -> None:
    stop = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    await AgentService(order, listening, say).run(stop)


def _address(text: str, option: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise UsageError(f"{option} {error}.") from error


def _node(name: str, kind: str, vcpus: float | None, memory: float | None, speed: float) -> Node:
    if not _NAME.fullmatch(name):
        raise UsageError(f"--name must be letters, digits, '.', '_' and '-', at most 63; got {name!r}.")
    if vcpus is None:
        vcpus = float(len(os.sched_getaffinity(0)))
    if memory is None:
        memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    if not 0 < vcpus < inf:
        raise UsageError(f"--vcpus must be positive; got {vcpus:g}.")
    try:
        return Node(name=name, kind=kind, vcpus=vcpus, memory_gb=memory, speed=speed)
    except ValueError as error:
        raise UsageError(f"--{error}") from error


def _check_files(files: TlsFiles, gateway: Address) -> None:
    if (files.certfile is None) != (files.keyfile is None):
        raise UsageError("--certfile and --keyfile belong together: give both, or neither.")
    if files.cacert is None and not gateway.is_local:
        raise UsageError(
            f"--join {gateway}: the gateway is on another machine, so it must be verified. Give --cacert with its CA, "
            "or with its own certificate."
        )
    client_context(files)
    server_context(TlsFiles(certfile=files.certfile, keyfile=files.keyfile))


def _token(file: Path | None, environment: Mapping[str, str]) -> str:
    token = read_token(file, environment, AGENT_TOKEN)
    if token is None:
        raise UsageError(
            f"A token is needed: give --token-file, such as the gateway's agents.token, or set {AGENT_TOKEN}."
        )
    return token


def _listen_address(listen: str | None, gateway: Address, files: TlsFiles) -> Address:
    """Where the values of this node are to be read: by default, at the address from which it reaches the gateway."""
    if listen is not None:
        address = _address(listen, "--listen")
        if address.host in ("0.0.0.0", "::"):
            raise UsageError(f"--listen {address}: name the address at which other machines reach this one.")
    else:
        try:
            address = facing(gateway)
        except OSError as error:
            raise UsageError(f"--join {gateway}: {error.strerror or error}.") from error
    if files.certfile is None and not address.is_local:
        raise UsageError(
            f"--listen {address}: other machines read values there, so it needs TLS. Give --certfile and --keyfile "
            "with a certificate for that address."
        )
    return address


def _path(file: Path | None) -> str | None:
    return None if file is None else str(file.resolve())
