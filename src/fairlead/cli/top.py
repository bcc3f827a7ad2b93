"""`fairlead top`: what a gateway serves now, in the terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairlead.cli.errors import UsageError
from fairlead.cli.gateways import STATUS, find_gateway
from fairlead.engine.live.kernels.status import DeviceStatus
from fairlead.engine.live.status import AppStatus, CacheStatus, FunctionStatus, NodeStatus, Status, WorkflowStatus
from fairlead.errors import FairleadError
from fairlead.report.numbers import Kind, show

_NONE = "–"
_WORKFLOW_COLUMNS = {  # heading, and which goes first where the terminal is narrow: the one with the highest number
    "workflow": 0,
    "SLO": 3,
    "open": 4,
    "offered /s": 2,
    "goodput /s": 0,
    "in time": 0,
    "p50": 0,
    "p99": 0,
    "least slack": 6,
    "refused": 1,
}
_FUNCTION_COLUMNS = {
    "function": 0,
    "waiting": 0,
    "starting": 0,
    "idle": 0,
    "busy": 0,
    "wanted": 4,
    "vCPUs": 6,
    "batch size": 3,
    "predicted": 2,
    "took": 1,
    "total": 5,
}
_CACHE_COLUMNS = {"cached": 1, "kept": 5}
_NODE_COLUMNS = {"node": 0, "vCPUs": 0, "speed": 1, "in use": 0, "instances": 0}
_GPU_COLUMNS = {"vGPUs": 0, "GPUs": 2}
_GPU_USE_COLUMNS = {"GPU": 3, "GPU GB": 4}
_DEVICE_COLUMNS = {
    "device": 0,
    "used": 0,
    "of": 1,
    "buffers": 4,
    "hits": 0,
    "evicted": 2,
    "waiting": 3,
    "runs": 2,
    "busy": 1,
    "restarts": 3,
}
_WATCHED_COLUMNS = {"busy": 0, "others": 0, "waiting": 0}


def top(
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Of the gateway. Default: the one started last from here.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="State of the served app, instead of the URL.")
    ] = None,
    cacert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates (PEM) to trust at an https URL.")
    ] = None,
    every_s: Annotated[float, typer.Option("--every", metavar="SECONDS", help="How often to look.")] = 1.0,
    is_once: Annotated[bool, typer.Option("--once", help="Show it once and leave.")] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print the status once, as JSON.")] = False,
) -> None:
    """Watch queues, instances, slack and attainment."""
    if not 0.1 <= every_s <= 3600:
        raise UsageError(f"--every must be from 0.1 to 3600 seconds; got {every_s:g}.")
    gateway = find_gateway(url, state, cacert)
    status = gateway.ask(STATUS, Status)
    if is_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(status), indent=1).decode())
        return
    console = Console(highlight=False)
    if is_once or not console.is_terminal:
        console.print(frame(status, gateway.url))
        return
    with Live(frame(status, gateway.url), console=console, screen=True, auto_refresh=False) as live:
        while True:
            sleep(every_s)
            try:  # found anew each time: the port may be another program's by now, which must not be given the token
                gateway = find_gateway(url, gateway.state, cacert)
                live.update(frame(gateway.ask(STATUS, Status), gateway.url), refresh=True)
            except FairleadError as error:  # it may be starting again
                live.update(Text(str(error)), refresh=True)


def frame(status: Status, url: str) -> RenderableType:
    """One look at everything."""
    mood = "draining" if status.is_draining else "ready" if status.is_ready else "starting"
    parts: list[RenderableType] = [Text(f"{url}: {mood}, up {_uptime(status.uptime_s)}", style="bold")]
    if not status.apps:
        parts.append(Text("No app is served."))
    for app in status.apps:
        parts += [Text(), _heading(app), _workflows(app.workflows), _functions(app.functions), _nodes(app)]
    if status.devices:
        parts += [Text(), _devices(status.devices)]
    return Group(*parts)


def _devices(devices: tuple[DeviceStatus, ...]) -> "_Fitted":
    """The devices for kernels, of all apps together."""
    return _Fitted(
        _DEVICE_COLUMNS,
        [
            (
                f"{one.device} on {one.node}" + ("" if one.is_ready else " (starting)"),
                _size(one.used_bytes),
                _NONE if one.memory_bytes is None else _size(one.memory_bytes),
                str(len(one.residents)),
                _number(one.hit_rate, "share"),
                f"{one.evictions:,}",
                str(one.waiting),
                f"{one.runs:,}",
                f"{sum(one.device_s.values()):.1f} s",
                str(one.restarts),
            )
            for one in devices
        ],
    )


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MB"


def _heading(app: AppStatus) -> Text:
    text = f"{app.name}, generation {app.generation}, under {app.policy}"
    if app.scaler is not None:
        text += f", scaled by {app.scaler}"
    if app.draining:
        text += f"; {app.draining} older still draining"
    if app.refused_actions:
        text += f"; {app.refused_actions} actions refused"
    return Text(text, style="bold")


def _workflows(workflows: tuple[WorkflowStatus, ...]) -> "_Fitted":
    return _Fitted(
        _WORKFLOW_COLUMNS,
        [
            (
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
            for one in workflows
        ],
    )


def _functions(functions: tuple[FunctionStatus, ...]) -> "_Fitted":
    has_caches, has_gpus = any(one.cache for one in functions), any(one.gpus for one in functions)
    return _Fitted(
        _FUNCTION_COLUMNS | (_CACHE_COLUMNS if has_caches else {}) | (_GPU_USE_COLUMNS if has_gpus else {}),
        [
            (
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
                *(_cached(one.cache) if has_caches else ()),
                *(_gpu_use(one) if has_gpus else ()),
            )
            for one in functions
        ],
    )


def _cached(cache: CacheStatus | None) -> tuple[str, str]:
    """The share that a prediction cache answered, and how many answers it keeps."""
    return (_NONE, _NONE) if cache is None else (_number(cache.hit_rate, "share"), f"{cache.entries:,}")


def _gpu_use(function: FunctionStatus) -> tuple[str, str]:
    """The share of GPUs that its instances keep busy, in GPUs, and the device memory that they have."""
    shares = [one.utilisation for one in function.gpus if one.utilisation is not None]
    memory = [one.memory_bytes for one in function.gpus if one.memory_bytes is not None]
    return f"{sum(shares):.2f}" if shares else _NONE, f"{sum(memory) / 2**30:.1f}" if memory else _NONE


def _held(node: NodeStatus) -> tuple[str, str]:
    """The vGPUs that are held of those there are, and how each GPU is shared."""
    used = sum(one.used_vgpus for one in node.accelerators)
    there = sum(one.vgpus for one in node.accelerators)
    return f"{used:g} of {there:g}", "; ".join(device.shared for device in node.accelerators) or _NONE


def _nodes(app: AppStatus) -> "_Fitted":
    is_watched, has_gpus = any(one.signals for one in app.nodes), any(one.accelerators for one in app.nodes)
    rows = []
    for one in app.nodes:
        shares = (one.signals.get("c0"), one.pressure, one.signals.get("psi_cpu")) if is_watched else ()
        seen = (_number(share, "share") for share in shares)
        load = _number(one.load, "share")
        vcpus = f"{one.vcpus:g}" if one.lease_vcpus is None else f"{one.lease_vcpus:g} of {one.vcpus:g}"
        name = one.name if one.state == "up" else f"{one.name} ({one.state})"
        rows.append((name, vcpus, f"{one.speed:g}", load, str(one.instances), *(_held(one) if has_gpus else ()), *seen))
    return _Fitted(_NODE_COLUMNS | (_GPU_COLUMNS if has_gpus else {}) | (_WATCHED_COLUMNS if is_watched else {}), rows)


@dataclass(frozen=True)
class _Fitted:
    """A table that shows whole headings and cells at any width: where there is no room, whole columns are left out.

    `columns` are headings with their rank; the highest rank is left out first, rank 0 never.
    """

    columns: dict[str, int]
    rows: Sequence[Sequence[str | Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        yield self._table(options.max_width)

    def _table(self, width: int) -> Table:
        headings = list(self.columns)
        kept = list(range(len(headings)))
        while True:
            for heads, gap in ((headings, 2), (_broken(headings), 2), (_broken(headings), 1)):
                widths = [self._width(place, heads[place], width) for place in kept]
                if sum(widths) + gap * (len(kept) - 1) <= width:
                    return self._build(kept, heads, widths, gap)
            last = max(kept, key=lambda place: self.columns[headings[place]])
            if not self.columns[headings[last]]:
                return self._build(kept, heads, widths, gap)
            kept.remove(last)

    def _width(self, place: int, heading: str, width: int) -> int:
        cells = max((len(row[place]) for row in self.rows), default=0)
        if place == 0:  # a longer name goes on in the next line
            cells = min(cells, max(16, width // 4))
        return max(cells, *(len(line) for line in heading.split("\n")))

    def _build(self, kept: Sequence[int], headings: Sequence[str], widths: Sequence[int], gap: int) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
        for place, width in zip(kept, widths, strict=True):
            table.add_column(headings[place], justify="right" if place else "left", width=width, overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in (row[i] for i in kept)))
        return table


def _broken(headings: Sequence[str]) -> list[str]:
    return [heading.replace(" ", "\n") for heading in headings]


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
