"""What `fairlead serve --backend ray` is told: the cluster, what to reserve there, and how nodes are recognised."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from math import inf
from pathlib import Path

from fairlead.cli.errors import UsageError
from fairlead.engine.live.links.address import facing, parse_address
from fairlead.engine.live.order import RayOrder
from fairlead.errors import MissingExtraError

RESERVE = ("node", "instance")
"""Who reserves: each node's agent its whole share, or every instance what it uses."""

_CURRENT = Path("/tmp/ray/ray_current_cluster")  # where `ray start` notes the cluster of this machine
_PORT = 8001
_GROWTH = re.compile(r"(?P<kind>.+)=(?P<least>\d+)\.\.(?P<most>\d+)")


def ray_order(
    address: str | None,
    share: Sequence[str],
    reserve: str,
    pip: Path | None,
    devices: tuple[str, ...] = (),
    device_memory_bytes: int = 0,
) -> RayOrder:
    """The cluster and the share. UsageError or MissingExtraError says what is wrong."""
    if find_spec("ray") is None:
        raise MissingExtraError("The 'ray' back end", "Ray", "ray")
    if reserve not in RESERVE:
        raise UsageError(f"--ray-reserve must be one of {', '.join(RESERVE)}; got {reserve!r}.")
    if devices and not device_memory_bytes:
        raise UsageError("--device with --backend ray needs --device-memory: what the nodes have is not known here.")
    return RayOrder(
        address=_address(address, os.environ),
        share=_share(share),
        by_instance=reserve == "instance",
        pip=() if pip is None else _requirements(pip),
        devices=devices,
        device_memory_bytes=device_memory_bytes,
    )


def ray_listen(order: RayOrder, port: int = _PORT) -> str:
    """Where agents join by default: at the address from which this machine reaches the cluster."""
    try:
        return f"{facing(parse_address(order.address)).host}:{port}"
    except OSError as error:
        raise UsageError(f"--address {order.address}: {error.strerror or error}.") from error


def shared_certificate(state: Path) -> tuple[str, str]:
    """The certificate and key by which a gateway and its agents know each other: made on first use, in this folder."""
    certificate, key = state / "ray-cert.pem", state / "ray-key.pem"
    if not (certificate.is_file() and key.is_file()):
        made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=fairlead"
        before = os.umask(0o077)
        try:
            subprocess.run([*made.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            what = "a certificate for the links to other machines cannot be made with openssl"
            raise UsageError(f"--backend ray: {what}: {error}.") from error
        finally:
            os.umask(before)
    return str(certificate.resolve()), str(key.resolve())


def growth(texts: Sequence[str]) -> dict[str, tuple[int, int]]:
    """How many nodes of each kind there may be: least and most, by kind."""
    found = {}
    for text in texts:
        match = _GROWTH.fullmatch(text)
        bounds = (int(match["least"]), int(match["most"])) if match else (0, 0)
        if match is None or not 1 <= bounds[0] <= bounds[1]:
            raise UsageError(
                f"--grow must be KIND=LEAST..MOST with 1 <= LEAST <= MOST, such as cpu=1..8; got {text!r}."
            )
        found[match["kind"]] = bounds
    return found


def _address(given: str | None, environment: Mapping[str, str]) -> str:
    found = given or environment.get("RAY_ADDRESS") or ""
    if not found and _CURRENT.is_file():
        found = _CURRENT.read_text().strip()
    if not found:
        raise UsageError("No Ray cluster is known here: give --address HOST:PORT, that of `ray start --head`.")
    try:
        parse_address(found)
    except ValueError:
        raise UsageError(f"--address must be HOST:PORT, that of `ray start --head`; got {found!r}.") from None
    return found


def _requirements(file: Path) -> tuple[str, ...]:
    try:
        lines = [line.partition(" #")[0].strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--ray-pip {file}: cannot be read: {error}.") from error
    return tuple(line for line in lines if line and not line.startswith("#"))


def _share(texts: Sequence[str]) -> dict[str, float]:
    found = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            amount = float(number)
        except ValueError:
            amount = -1.0
        if not name or not 0 <= amount < inf:
            raise UsageError(f"--ray-share must be RESOURCE=AMOUNT of each node, such as CPU=2; got {text!r}.")
        found[name] = amount
    return found
