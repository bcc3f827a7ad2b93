"""`fairlead nodes`: the nodes of a gateway, and draining one of them."""

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from fairlead.cli.errors import UsageError
from fairlead.cli.gateways import find_gateway
from fairlead.engine.live.status import NodeList

_NODES = "/v1/nodes"


def nodes(
    drain: Annotated[
        str | None, typer.Option(metavar="NODE", help="Let this node take no more work, and leave when it is empty.")
    ] = None,
    undo: Annotated[str | None, typer.Option(metavar="NODE", help="Let a node that is being drained work again.")] = (
        None
    ),
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Of the gateway. Default: the one started last from here.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="State of the served app, instead of the URL.")
    ] = None,
    cacert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates (PEM) to trust at an https URL.")
    ] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print the nodes as JSON.")] = False,
) -> None:
    """List the nodes of a gateway, drain one, or undo that. FAIRLEAD_TOKEN holds the token, where one is needed."""
    if drain is not None and undo is not None:
        raise UsageError("--drain and --undo are two orders; give one at a time.")
    gateway = find_gateway(url, state, cacert)
    if drain is not None or undo is not None:
        path = f"{_NODES}/{quote(drain or undo or '', safe='')}/drain"
        gateway.send("POST" if drain is not None else "DELETE", path)
    found = gateway.ask(_NODES, NodeList)
    if is_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
        return
    table = Table(box=None, pad_edge=False)
    has_devices = any(node.accelerators for node in found.nodes)
    for heading in ("node", "kind", "vCPUs", "GB", "speed", "state", *(["GPUs"] if has_devices else [])):
        table.add_column(heading)
    for node in found.nodes:
        memory = "–" if node.memory_gb is None else f"{node.memory_gb:g}"
        devices = ["\n".join(f"{one.name}: {one.shared}" for one in node.accelerators) or "–"] if has_devices else []
        table.add_row(node.name, node.kind, f"{node.vcpus:g}", memory, f"{node.speed:g}", node.state, *devices)
    Console(highlight=False).print(table)
