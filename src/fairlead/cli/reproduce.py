"""`fairlead reproduce`: a paper's table or figure, theirs and ours side by side."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.cli.errors import FAILED, UsageError
from fairlead.cli.outputs import STDOUT, check_files, write_json
from fairlead.cli.progress import ShareProgress
from fairlead.experiments import Claim, Reproduction, experiment_names, run_experiment
from fairlead.report.metrics import json_values


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", show_default=False, help="Which one; --list shows them.")
    ] = None,
    is_list: Annotated[bool, typer.Option("--list", help="List what can be reproduced.")] = False,
    is_quick: Annotated[
        bool, typer.Option("--quick", help="Shorter runs and fewer seeds, for a first impression.")
    ] = False,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
    ] = None,
    is_quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and errors.")] = False,
) -> None:
    """Reproduce a published result: theirs and ours side by side.

    The exit code is 1 when a claim is not met; its note says why.
    """
    check_files({"--json": json_to})
    if is_list:
        _list(json_to)
        return
    if name is None:
        raise UsageError(f"Name what to reproduce: {', '.join(experiment_names()) or 'there is nothing yet'}.")
    with ShareProgress(f"Reproducing {name}", is_quiet=is_quiet) as progress:
        result = run_experiment(name, quick=is_quick, progress=progress.reach)
    if json_to is not None:
        write_json(json_values(result.to_json()), json_to)
    if json_to != STDOUT and not is_quiet:
        show_reproduction(result)
        if json_to is not None:
            typer.echo(f"Wrote {json_to}")
    if not all(claim.met for claim in result.claims):
        raise typer.Exit(FAILED)


def show_reproduction(result: Reproduction) -> None:
    """Print claims, rows and notes."""
    console = Console(highlight=False)
    if result.claims:
        console.print(claims_table(result.claims, result.name))
    if result.rows:
        console.print(rows_table(result.rows))
    for note in result.notes:
        console.print(Text(note))
    met = sum(1 for claim in result.claims if claim.met)
    console.print(Text(f"{met} of {len(result.claims)} claims are met."))


def claims_table(claims: Sequence[Claim], title: str) -> Table:
    """Theirs, ours, and whether it is met."""
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("claim", overflow="fold", ratio=3)
    table.add_column("theirs", justify="right")
    table.add_column("ours", justify="right")
    table.add_column("met")
    has_notes = any(claim.note for claim in claims)
    if has_notes:
        table.add_column("note", overflow="fold", ratio=2)
    for claim in claims:
        met = Text("yes", style="green") if claim.met else Text("no", style="bold red")
        cells = [Text(claim.claim), Text(show_value(claim.paper)), Text(show_value(claim.ours)), met]
        table.add_row(*cells, *([Text(claim.note or "")] if has_notes else []))
    return table


def rows_table(rows: Sequence[Mapping[str, object]]) -> Table:
    """The rows under every key that any of them has."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for key in keys:
        is_number = all(isinstance(row.get(key), int | float | None) for row in rows)
        table.add_column(Text(key.replace("_", " ")), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(show_value(row.get(key))) for key in keys))
    return table


def show_value(value: object) -> str:
    """A number with four digits, a dash for nothing, anything else as it is."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return str(value)


def _list(json_to: str | None) -> None:
    names = list(experiment_names())
    if json_to is not None:
        write_json({"experiments": names}, json_to)
    if json_to != STDOUT:
        for name in names:
            typer.echo(name)
