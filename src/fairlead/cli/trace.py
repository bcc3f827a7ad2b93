"""`fairlead trace`: what a trace of a cloud's functions is like, and traces cut to size or made up."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.cli.errors import UsageError, guarded
from fairlead.cli.outputs import check_folder
from fairlead.cli.progress import ShareProgress
from fairlead.cli.tables import fit_table
from fairlead.report.numbers import show
from fairlead.workload.traces import Summary, Trace, generate, read, sample, scale, summarise, write
from fairlead.workload.traces.summary import QUANTILES

trace = typer.Typer(
    name="trace",
    help="Look at a trace of a cloud's functions, cut it to size, or make one up.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_WIDEST = 96
_READ, _WRITE = 0.6, 0.4  # shares of the time, about

Source = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", show_default=False, help="A folder with the CSV files of a day (2019), or a file (2021)."
    ),
]
Day = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=14, show_default=False, help="Which one, of a folder of several.")
]
Out = Annotated[
    Path, typer.Option("--out", "-o", metavar="FOLDER", show_default=False, help="Where to write the three files.")
]
Seed = Annotated[int, typer.Option(min=0, help="Of what is drawn.")]


@trace.command()
@guarded
def info(
    source: Source,
    day: Day = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Show how many functions a trace has, how often they are called, how long they take and how large they are."""
    with ShareProgress(f"Reading {source}", is_quiet=is_json) as progress:
        found = summarise(read(source, day, progress.reach))
    if is_json:
        typer.echo(json.dumps(found.as_json(), indent=1, allow_nan=False))
    else:
        _show(found)


@trace.command(name="sample")
@guarded
def sample_(
    source: Source,
    functions: Annotated[int, typer.Option(metavar="N", min=1, show_default=False, help="How many to keep.")],
    out: Out,
    minutes: Annotated[
        str | None,
        typer.Option(metavar="A:B", show_default=False, help="Only these, by the numbers of their columns."),
    ] = None,
    seed: Seed = 0,
    day: Day = None,
) -> None:
    """Keep some functions of a trace, one of each stratum by popularity, so that the mix stays."""
    window = _minutes(minutes)
    _check_apart(source, out)
    with ShareProgress(f"Sampling {source}") as progress:
        whole = read(source, day, lambda share, doing: progress.reach(_READ * share, doing))
        if window is not None:
            whole = _cut(whole, *window)
        if functions > len(whole):
            raise UsageError(f"--functions {functions}: the trace has {len(whole)}.")
        kept = sample(whole, functions, seed)
        _write(kept, out, progress)
    _tell(kept, out)


@trace.command(name="scale")
@guarded
def scale_(
    source: Source,
    factor: Annotated[float, typer.Option(metavar="F", show_default=False, help="What to multiply the calls by.")],
    out: Out,
    day: Day = None,
) -> None:
    """Multiply the calls of a trace, rounded so that nothing drifts; functions, times and memory stay."""
    _check_apart(source, out)
    with ShareProgress(f"Scaling {source}") as progress:
        whole = read(source, day, lambda share, doing: progress.reach(_READ * share, doing))
        try:
            scaled = scale(whole, factor)
        except ValueError as error:
            raise UsageError(f"--factor: {error}") from None
        if not scaled.invocations:
            raise UsageError(f"--factor {factor:g}: nothing is left of {whole.invocations:,} calls.")
        _write(scaled, out, progress)
    _tell(scaled, out)


@trace.command(name="generate")
@guarded
def generate_(
    out: Out,
    functions: Annotated[int, typer.Option(metavar="N", min=1, help="How many.")] = 10_000,
    invocations: Annotated[
        int | None,
        typer.Option(metavar="M", min=1, help="About how many calls in all.", show_default="10,000 a day per function"),
    ] = None,
    minutes: Annotated[int, typer.Option(metavar="K", min=1, help="How many, from midnight on.")] = 1440,
    seed: Seed = 0,
) -> None:
    """Make a trace up from published statistics: popularity, times, memory, triggers, the time of day."""
    check_folder("--out", out)
    with ShareProgress(f"Generating {functions:,} functions") as progress:
        try:
            made = generate(
                functions,
                minutes=minutes,
                invocations=invocations,
                seed=seed,
                progress=lambda share, doing: progress.reach(_READ * share, doing),
            )
        except ValueError as error:
            raise UsageError(f"{error}") from None
        _write(made, out, progress)
    _tell(made, out)


def _check_apart(source: Path, out: Path) -> None:
    check_folder("--out", out)
    if source.resolve() == out.resolve():
        raise UsageError(f"--out {out}: is the trace itself; name another folder.")


def _minutes(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+):(\d+)", text, re.ASCII)
    if found is None:
        raise UsageError(f"--minutes {text}: must be the first and the last minute, as in 480:959.")
    return int(found[1]), int(found[2])


def _cut(whole: Trace, first: int, last: int) -> Trace:
    end = whole.first_minute + whole.minutes - 1
    if not whole.first_minute <= first <= last <= end:
        raise UsageError(f"--minutes {first}:{last}: must be in order and from {whole.first_minute} to {end}.")
    return whole.window(first - whole.first_minute, last - first + 1)


def _write(made: Trace, out: Path, progress: ShareProgress) -> None:
    try:
        write(made, out, lambda share, doing: progress.reach(1 - _WRITE + _WRITE * share, doing))
    except OSError as error:
        raise UsageError(f"--out {out}: cannot be written: {error.strerror or error}.") from error


def _tell(made: Trace, out: Path) -> None:
    typer.echo(f"Wrote {out}: {len(made):,} functions, {made.minutes:,} minutes, {made.invocations:,} calls.")
    typer.echo(f"What it is like: fairlead trace info {out}")


def _show(found: Summary) -> None:
    console = Console(highlight=False)
    width = min(console.width, _WIDEST)
    last = found.first_minute + found.minutes - 1
    general = {
        "functions": f"{found.functions:,} in {found.apps:,} apps of {found.owners:,} owners",
        "minutes": f"{found.minutes:,} (from {found.first_minute} to {last})",
        "calls": f"{found.invocations:,}",
        "calls per second": f"{found.mean_rps:,.4g} on average, {found.peak_minute_rps:,.4g} in the busiest minute",
        "busy vCPUs": f"{found.busy_vcpus:,.4g} on average, if no call waits",
        "below one call a minute": f"{show(found.below_one_a_minute, 'share')} of the functions",
        "the top 1 % of functions": f"{show(found.top_1, 'share')} of the calls",
        "the top 10 % of functions": f"{show(found.top_10, 'share')} of the calls",
    }
    console.print(Text(found.source, style="bold"))
    grid = Table.grid(padding=(0, 2, 0, 0))
    for key, value in general.items():
        grid.add_row(Text(f" {key}"), Text(value))
    console.print(grid)
    quantiles = {
        "calls per minute": [show(value, "rate") for value in found.calls_per_minute.values()],
        "mean duration": [show(value, "seconds") for value in found.mean_s.values()],
        "log-sigma of a run": [f"{value:.2f}" for value in found.sigma.values()],
        "memory": [f"{show(value, 'rate')} MB" for value in found.memory_mb.values()],
    }
    lines = [[key, *values] for key, values in quantiles.items()]
    _print_table(console, ["over functions", *QUANTILES], lines, width)
    triggers = [
        [
            trigger,
            f"{count:,}",
            show(count / found.functions, "share"),
            f"{found.invocations_by_trigger[trigger]:,}",
            show(found.invocations_by_trigger[trigger] / max(1, found.invocations), "share"),
        ]
        for trigger, count in found.functions_by_trigger.items()
    ]
    _print_table(console, ["trigger", "functions", "share", "calls", "share of calls"], triggers, width)
    for what, number in found.notes.items():
        console.print(Text(f"Note: {what}: {number:,}."))
    console.print(
        Text(f"A smaller one of the same mix: fairlead trace sample {found.source} --functions N --out FOLDER")
    )


def _print_table(console: Console, headings: list[str], lines: Iterable[list[str]], width: int) -> None:
    cells = [[Text(cell) for cell in line] for line in lines]
    console.print(fit_table(headings, cells, width) or "(The terminal is too narrow for a table; try --json.)")
