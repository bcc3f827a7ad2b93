"""`fairlead reproduce`: a paper's table or figure, theirs and ours side by side."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.cli.errors import FAILED, UsageError
from fairlead.cli.outputs import STDOUT, check_files, check_folder, write_json
from fairlead.cli.progress import ShareProgress
from fairlead.cli.tables import fit_table, hanging, show_value
from fairlead.errors import UnknownNameError
from fairlead.experiments import EXPERIMENTS, Claim, Reproduction, committed_experiment, run_experiment
from fairlead.experiments.claims import Tally, tally
from fairlead.experiments.rows import BY_SEED
from fairlead.report.metrics import json_values


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", show_default=False, help="Which one; --list shows them.")
    ] = None,
    is_list: Annotated[bool, typer.Option("--list", help="List what can be reproduced.")] = False,
    is_committed: Annotated[
        bool,
        typer.Option(
            "--committed", help="Run nothing: judge the committed rows of the last full run, of all without NAME."
        ),
    ] = False,
    is_quick: Annotated[
        bool, typer.Option("--quick", help="Shorter runs and fewer seeds, for a first impression.")
    ] = False,
    json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
    ] = None,
    figures_to: Annotated[
        Path | None, typer.Option("--figures", metavar="FOLDER", help="Write the figures as SVG files.")
    ] = None,
    is_quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and errors.")] = False,
) -> None:
    """Reproduce a published result: theirs and ours side by side.

    A claim is met, not met, or not decided when the 95 % interval of our figure straddles the bar. The exit code is 0
    only if every claim is met.
    """
    check_files({"--json": json_to})
    if is_list:
        _list(json_to)
        return
    if name is None and is_committed:
        _judge_all(json_to, is_quiet=is_quiet)
        return
    if name is None:
        raise UsageError(f"Name what to reproduce: {', '.join(EXPERIMENTS)}. --list says what they are.")
    if name not in EXPERIMENTS:  # said before anything is begun
        raise UnknownNameError("experiment", name, EXPERIMENTS)
    if is_committed and (is_quick or figures_to is not None):
        raise UsageError("--committed runs nothing: it takes neither --quick nor --figures.")
    if figures_to is not None:
        check_folder("--figures", figures_to)
    if is_committed:
        result = committed_experiment(name)
        if not result.rows:
            raise UsageError(f"No rows of {name} are committed yet. Run it: fairlead reproduce {name}")
    else:
        with ShareProgress(f"Reproducing {name}", is_quiet=is_quiet) as progress:
            result = run_experiment(name, quick=is_quick, progress=progress.reach)
    if json_to is not None:
        write_json(json_values(result.to_json()), json_to)
    if figures_to is not None:
        for figure in result.figures:
            (figures_to / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8", newline="\n")
    if json_to != STDOUT and not is_quiet:
        show_reproduction(result)
        _say_figures(result, figures_to)
        if json_to is not None:
            typer.echo(f"Wrote {json_to}")
    _leave(tally(result.claims))


def _leave(found: Tally) -> None:
    if found.met < found.claims:
        raise typer.Exit(FAILED)


def _judge_all(json_to: str | None, *, is_quiet: bool) -> None:
    """One line per experiment, from its committed rows, and the sum."""
    counts = {name: tally(committed_experiment(name).claims) for name in EXPERIMENTS}
    total = sum(counts.values(), Tally(0, 0, 0))
    if json_to is not None:
        entries = [{"name": name} | _counts(found) for name, found in counts.items()]
        write_json({"experiments": entries, "total": _counts(total)}, json_to)
    if json_to != STDOUT and not is_quiet:
        lines = [
            [Text(name), *(Text(str(n)) for n in (found.claims, found.met, found.not_met, found.not_decided))]
            for name, found in {**counts, "all": total}.items()
        ]
        console = Console(highlight=False)
        console.print(
            fit_table(["experiment", "claims", "met", "not met", "not decided"], lines, console.width) or _NO_ROOM
        )
        console.print(f"\n{_sum_up(total)}")
    _leave(total)


def _counts(found: Tally) -> dict[str, object]:
    return {"claims": found.claims, **asdict(found)}


def _sum_up(found: Tally) -> str:
    return f"{found.met} of {found.claims} claims are met, {found.not_met} not met, {found.not_decided} not decided."


def show_reproduction(result: Reproduction) -> None:
    """Print claims, rows and notes."""
    console = Console(highlight=False)
    remarks = list(dict.fromkeys(claim.note for claim in result.claims if claim.note))
    if result.claims:
        console.print(_claims_table(result.claims, remarks, result.title, console.width))
    for number, remark in enumerate(remarks, start=1):
        console.print(hanging(f"[{number}]", remark))
    if result.rows:
        keys = [key for key in dict.fromkeys(key for row in result.rows for key in row) if not key.endswith(BY_SEED)]
        lines = [[Text(show_value(row.get(key))) for key in keys] for row in result.rows]
        console.print(fit_table([key.replace("_", " ") for key in keys], lines, console.width) or _NO_ROOM)
    for note in result.notes:
        console.print(hanging("-", note))
    console.print(f"\n{_sum_up(tally(result.claims))}")


def _say_figures(result: Reproduction, folder: Path | None) -> None:
    """Where the figures are, or how to get them."""
    if folder is not None and not result.figures:
        typer.echo(f"{result.name} has no figures.")
    elif folder is not None:
        for figure in result.figures:
            typer.echo(f"Wrote {folder / figure.name}.svg: {figure.title}")
    elif result.figures:
        typer.echo(f"Figures ({len(result.figures)}): add --figures FOLDER.")


_NO_ROOM = "\nThe table behind this is wider than the terminal; --json has it too.\n"


_STYLES = {"met": "green", "not met": "bold red", "not decided": "yellow"}


def _claims_table(claims: Sequence[Claim], remarks: Sequence[str], title: str, width: int) -> Table | str:
    """Each claim with its rule, theirs, ours, and the verdict; a claim with a note has its number among the remarks."""
    lines = []
    for claim in claims:
        note = Text(f"[{remarks.index(claim.note) + 1}]" if claim.note else "")
        verdict = Text(claim.verdict, style=_STYLES[claim.verdict])
        what = Text(claim.claim).append(f"\n{_rule(claim)}", style="dim")
        lines.append([what, Text(show_value(claim.paper)), Text(show_value(claim.ours)), verdict, note])
    return fit_table(["claim, rule", "theirs", "ours", "verdict", "note"], lines, width, title) or _NO_ROOM


def _rule(claim: Claim) -> str:
    """The rule, the 95 % interval of the number that it is about, and what kind of claim this is."""
    text = f"rule: {claim.rule}"
    if claim.interval is not None:
        low, high = claim.interval
        text += "; exact" if low == high else f"; 95 %: {show_value(low)} to {show_value(high)}"
    return text if claim.kind == "reproduction" else f"{text} ({claim.kind})"


def _list(json_to: str | None) -> None:
    if json_to is not None:
        entries = [{"name": name, "title": one.title, "minutes": one.minutes} for name, one in EXPERIMENTS.items()]
        write_json({"experiments": entries}, json_to)
    if json_to != STDOUT:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(overflow="fold")
        for name, one in EXPERIMENTS.items():
            table.add_row(Text(name, style="bold"), Text(f"{one.minutes:g} min"), Text(one.title))
        Console(highlight=False).print(table)
