"""`fairlead top`: what a gateway serves now, in the terminal."""

from pathlib import Path
from time import sleep
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairlead.cli.errors import UsageError
from fairlead.cli.gateways import GatewayError, find_gateway, get
from fairlead.engine.live.status import AppStatus, FunctionStatus, Status, WorkflowStatus
from fairlead.report.numbers import Kind, show

PATH = "/v1/status"
_NONE = "–"


def top(
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Of the gateway. Default: the one started last from here.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="State of the served app, instead of the URL.")
    ] = None,
    every_s: Annotated[float, typer.Option("--every", metavar="SECONDS", help="How often to look.")] = 1.0,
    is_once: Annotated[bool, typer.Option("--once", help="Show it once and leave.")] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print the status once, as JSON.")] = False,
) -> None:
    """Watch queues, instances, slack and attainment."""
    if not 0.1 <= every_s <= 3600:
        raise UsageError(f"--every must be from 0.1 to 3600 seconds; got {every_s:g}.")
    where = find_gateway(url, state)
    status = read_status(where)
    if is_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(status), indent=1).decode())
        return
    console = Console(highlight=False)
    if is_once or not console.is_terminal:
        console.print(frame(status, where))
        return
    with Live(frame(status, where), console=console, screen=True, auto_refresh=False) as live:
        while True:
            sleep(every_s)
            try:
                live.update(frame(read_status(where), where), refresh=True)
            except GatewayError as error:  # it may be starting again
                live.update(Text(str(error)), refresh=True)


def read_status(url: str) -> Status:
    """What the gateway says of itself."""
    try:
        return msgspec.json.decode(get(url, PATH), type=Status)
    except msgspec.DecodeError as error:
        raise GatewayError(f"{url}{PATH}: is no status, perhaps of another version: {error}") from error


def frame(status: Status, url: str) -> RenderableType:
    """One look at everything."""
    mood = "draining" if status.is_draining else "ready" if status.is_ready else "starting"
    parts: list[RenderableType] = [Text(f"{url}: {mood}, up {_uptime(status.uptime_s)}", style="bold")]
    if not status.apps:
        parts.append(Text("No app is served."))
    for app in status.apps:
        parts += [Text(), _heading(app), _workflows(app.workflows), _functions(app.functions), _nodes(app)]
    return Group(*parts)


def _heading(app: AppStatus) -> Text:
    text = f"{app.name}, generation {app.generation}, under {app.policy}"
    if app.scaler is not None:
        text += f", scaled by {app.scaler}"
    if app.draining:
        text += f"; {app.draining} older still draining"
    if app.refused_actions:
        text += f"; {app.refused_actions} actions refused"
    return Text(text, style="bold")


def _workflows(workflows: tuple[WorkflowStatus, ...]) -> Table:
    heads = ("workflow", "SLO", "open", "offered /s", "goodput /s", "in time", "p50", "p99", "least slack", "refused")
    table = _table(heads)
    for one in workflows:
        table.add_row(
            one.name,
            _number(one.slo_s, "seconds"),
            str(one.open),
            _number(one.recent_offered_rps, "rate"),
            _number(one.recent_goodput_rps, "rate"),
            _in_time(one.recent_attainment),
            _number(one.recent_p50_s, "seconds"),
            _number(one.recent_p99_s, "seconds"),
            _slack(one.least_slack_s),
            f"{one.rejected + one.dropped:,}",
        )
    return table


def _functions(functions: tuple[FunctionStatus, ...]) -> Table:
    instances = ("starting", "idle", "busy", "wanted", "vCPUs")
    table = _table(("function", "waiting", *instances, "batch size", "predicted", "took", "total"))
    for one in functions:
        table.add_row(
            one.name,
            str(one.waiting),
            str(one.starting),
            str(one.idle),
            str(one.busy),
            _NONE if one.replicas is None else str(one.replicas),
            f"{one.vcpus:g}",
            _NONE if one.recent_batch_size is None else f"{one.recent_batch_size:.1f}",
            _number(one.predicted_s, "seconds"),
            _number(one.observed_s, "seconds"),
            f"{one.invocations:,}",
        )
    return table


def _nodes(app: AppStatus) -> Table:
    is_watched = any(one.signals for one in app.nodes)
    seen = ("busy", "others", "waiting") if is_watched else ()
    table = _table(("node", "vCPUs", "speed", "in use", "instances", *seen))
    for one in app.nodes:
        shares = (one.signals.get("c0"), one.pressure, one.signals.get("psi_cpu")) if is_watched else ()
        table.add_row(
            one.name,
            f"{one.vcpus:g}",
            f"{one.speed:g}",
            _number(one.load, "share"),
            str(one.instances),
            *(_number(share, "share") for share in shares),
        )
    return table


def _table(headings: tuple[str, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=not place)
    return table


def _in_time(share: float | None) -> Text:
    if share is None:
        return Text(_NONE)
    return Text(show(share, "share"), style="green" if share >= 0.95 else "yellow" if share >= 0.8 else "red")


def _slack(seconds: float | None) -> Text:
    if seconds is None:
        return Text(_NONE)
    sign = "-" if seconds < 0 else ""
    return Text(f"{sign}{show(abs(seconds), 'seconds')}", style="red" if seconds < 0 else "")


def _number(value: float | None, kind: Kind) -> str:
    return show(value, kind)


def _uptime(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
