"""`fairlead monitor`: what the nodes of this machine are like now."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairlead.cli.errors import UsageError
from fairlead.cli.places import all_places, places_of
from fairlead.monitor import COUNTERS, Place, Sampler, Signals, choose
from fairlead.monitor.metrics import text as metrics_text

_NONE = "–"
_START_LIMIT_S = 30.0
_HEADS = ("node", "CPUs", "IPC", "reads", "writes", "L3", "C0", "C1", "rest", "PSI", "wait", "throttled", "steal")
_EXTRAS = ("psi_cpu", "wait_share", "throttled", "steal")


def monitor(
    nodes: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="local, or an emulated node; repeatable. Default: all."),
    ] = None,
    cpus: Annotated[str | None, typer.Option(metavar="LIST", help="CPUs of the nodes, such as 0-3.")] = None,
    cgroup: Annotated[Path | None, typer.Option(metavar="PATH", help="Control group of the one --node.")] = None,
    provider: Annotated[str | None, typer.Option(help="perf, pcm or fallback; by default the best that works.")] = None,
    every_s: Annotated[float, typer.Option("--every", metavar="SECONDS", help="How often to sample.")] = 0.5,
    no_probes: Annotated[bool, typer.Option("--no-probes", help="Leave out the fallback's probes.")] = False,
    is_once: Annotated[bool, typer.Option("--once", help="Show one sample and leave.")] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print one sample as JSON.")] = False,
    is_metrics: Annotated[bool, typer.Option("--metrics", help="Print one sample in the form of /metrics.")] = False,
) -> None:
    """Watch how busy nodes are, how many tasks wait for a CPU, and what disturbs them."""
    if not 0.05 <= every_s <= 3600:
        raise UsageError(f"--every must be from 0.05 to 3600 seconds; got {every_s:g}.")
    if cgroup is not None and not nodes:
        raise UsageError("--cgroup is the group of one node: name it with one --node.")
    places = places_of(nodes, cpus, cgroup) if nodes else all_places(cpus)
    try:
        chosen, refused = choose(places, provider, probe_every_s=None if no_probes else 2.0)
    except ValueError as error:
        raise UsageError(str(error)) from error
    console = Console(highlight=False)
    with Sampler(chosen, places, every_s=every_s, with_instances=True) as sampler:
        _await_first(sampler)
        if is_json:
            typer.echo(msgspec.json.format(msgspec.json.encode(report(sampler, refused)), indent=1).decode())
        elif is_metrics:
            typer.echo(metrics_text(sampler), nl=False)
        elif is_once or not console.is_terminal:
            console.print(frame(sampler, refused))
        else:
            with Live(frame(sampler, refused), console=console, screen=True, auto_refresh=False) as live:
                while True:
                    sleep(every_s)
                    live.update(frame(sampler, refused), refresh=True)


def report(sampler: Sampler, refused: Mapping[str, str]) -> dict[str, object]:
    """One sample of everything, as plain data."""
    return {
        "provider": sampler.provider.name,
        "refused": refused,
        "overhead": sampler.overhead(),
        "nodes": {place.name: sampler.mean(place.name) for place in sampler.places},
        "instances": {place.name: sampler.instances(place.name) for place in sampler.places},
    }


def frame(sampler: Sampler, refused: Mapping[str, str]) -> RenderableType:
    """One look at everything."""
    parts: list[RenderableType] = [Text(f"signals by {sampler.provider.name}", style="bold")]
    parts += [Text(f"{name} does not work here: {reason}.", style="dim") for name, reason in refused.items()]
    table = _table(_HEADS)
    for place in sampler.places:
        table.add_row(*_row(place, sampler.mean(place.name)))
    parts += [Text(), table]
    rows = [(place.name, name, of) for place in sampler.places for name, of in sampler.instances(place.name).items()]
    if rows:
        inner = _table(("node", "instance", "CPU s", "cores", "wait", "throttled", "MB"))
        for node, name, of in rows:
            memory = None if of.rss_bytes is None else of.rss_bytes / 1e6
            numbers = (of.cpu_s, of.busy_cores, of.wait_share, of.throttled, memory)
            inner.add_row(node, name, *map(_number, numbers))
        parts += [Text(), inner]
    parts += [Text(), Text(f"sampling takes {100 * sampler.overhead():.2f} % of a core", style="dim")]
    return Group(*parts)


def _row(place: Place, signals: Signals | None) -> list[str]:
    values: list[float | None] = [None] * (len(COUNTERS) + len(_EXTRAS))
    if signals is not None:
        values = [*(getattr(signals, name) for name in COUNTERS), *(signals.extras.get(name) for name in _EXTRAS)]
    return [place.name, _ranges(place.cpus), *map(_number, values)]


def _table(heads: Sequence[str]) -> Table:
    """Two columns of words and then numbers. Where it is narrow words are broken, and numbers are not."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)  # a blank is between them anyway
    for i, head in enumerate(heads):
        if i < 2:
            table.add_column(head, overflow="fold")
        else:
            table.add_column(head, justify="right", no_wrap=True)
    return table


def _number(value: float | None) -> str:
    """Three digits; all of them above a thousand."""
    if value is None:
        return _NONE
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"


def _ranges(cpus: tuple[int, ...]) -> str:
    """CPUs as the kernel writes them."""
    if len(cpus) > 1 and cpus == tuple(range(cpus[0], cpus[-1] + 1)):
        return f"{cpus[0]}-{cpus[-1]}"
    return ",".join(map(str, cpus))


def _await_first(sampler: Sampler) -> None:
    until = monotonic() + _START_LIMIT_S
    while any(sampler.latest(place.name) is None for place in sampler.places):
        if monotonic() > until:
            raise UsageError(f"No sample came within {_START_LIMIT_S:g} s.")
        sleep(0.02)
