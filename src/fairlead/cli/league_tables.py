"""The results of a league on a terminal of 80 columns."""

from collections.abc import Sequence
from string import ascii_uppercase
from textwrap import wrap

import typer
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from fairlead.league import Break, Cell, Done, Entrant, Result, Standing, Table, breaks, standings
from fairlead.league.page import finding, points
from fairlead.league.standing import HOLDS
from fairlead.report.heatmap import per_cent
from fairlead.report.numbers import show

MOST_DETAILED, MOST_LOADS = 40, 3
"""Cells and loads of one scenario up to which all figures of each cell are printed."""

NARROWEST = 11
"""Characters that the name of a scenario has at least, before it is broken over several lines."""

_SIGNS = {"error": "err", "too slow": "slow"}


def show_league(table: Table, done: Done, targets: Sequence[str]) -> None:
    """Print standings, attainment by scenario and load, and what follows from them."""
    console = Console(highlight=False)
    ranked = standings(table)
    letters = {one.policy: _letter(place) for place, one in enumerate(ranked)}
    console.print(_standings_table(ranked, letters))
    if len(table.plan.entrants) == 1:
        _show_one(console, table, table.plan.entrants[0], ranked)
    else:
        console.print(_matrix(table, letters, console.width))
        console.print("Bold: within a point of the best of its row. Letters: see the standings.")
        _say_empty(table)
    for note in table.plan.notes:
        typer.echo(note)
    typer.echo(f"{done.ran:,} runs were done, {done.found:,} were found in the cache.")
    typer.echo(finding(table))
    for target, entrant in zip(targets, table.plan.entrants, strict=False):
        if entrant.is_app:
            typer.echo(advice(target, entrant, breaks(table, entrant.name)))


def advice(target: str, entrant: Entrant, found: Sequence[Break]) -> str:
    """Which policy to take for an app, how much it holds, and what to type next."""
    best = found[0]
    if best.highest is None:
        lowest = min(entrant.at)
        return (
            f"{entrant.name}: no policy answers {HOLDS:.0%} of the requests in time, not even at load {lowest:g} "
            f"({show(lowest * entrant.rate_rps, 'rate')} requests/s). Next: fairlead plan {target}"
        )
    rate = show(best.highest * entrant.rate_rps, "rate")
    limit = f"breaks at load {best.fails_at:g}" if best.fails_at is not None else "held every load tried"
    return (
        f"{entrant.name}: take {best.policy}. It answers at least {HOLDS:.0%} in time up to load {best.highest:g} "
        f"({rate} requests/s) and {limit}. Next: fairlead serve {target} --policy {best.policy}"
    )


def _standings_table(ranked: Sequence[Standing], letters: dict[str, str]) -> RichTable:
    table = _plain_table("Standings")
    table.add_column("")
    table.add_column("policy", no_wrap=True)
    has_failed = any(one.failed for one in ranked)
    for heading in ("level", "mean", "regret", "worst", *(["failed"] if has_failed else [])):
        table.add_column(heading, justify="right")
    table.add_column("where", overflow="fold")
    for one in ranked:
        table.add_row(
            letters[one.policy],
            Text(one.policy, style="bold"),
            f"{one.level}/{one.cells}",
            f"{100 * one.mean_attainment:.1f}",
            f"{100 * one.mean_regret:.1f}",
            f"{100 * one.worst_regret:.1f}",
            *([str(one.failed or "")] if has_failed else []),
            Text(f"{one.worst_at.scenario} x{one.worst_at.load:g}" if one.worst_regret > 0 else "–"),
        )
    table.caption = (
        "Level: cells within a point of the best. Mean: in time, in per cent. Regret: points behind the best."
    )
    return table


def _matrix(table: Table, letters: dict[str, str], width: int) -> RichTable:
    """Scenarios and loads by policies, whose columns are named by their letters in the standings."""
    found = _plain_table("Answered in time, in per cent")
    found.add_column("scenario", no_wrap=True)
    found.add_column("load", justify="right")
    for policy in letters:
        found.add_column(letters[policy], justify="right", no_wrap=True)
    for entrant in table.plan.entrants:
        names = _over_rows(entrant.name, max(NARROWEST, width - 9 - 5 * len(letters)), len(entrant.at))
        for name, load in zip(names, entrant.at, strict=True):
            cells = [_share(table.results.get(Cell(entrant.name, load, policy))) for policy in letters]
            found.add_row(Text(name), f"{load:g}", *cells)
    return found


def _over_rows(name: str, width: int, rows: int) -> list[str]:
    """A name broken at its hyphens over the rows of its loads; the last one takes what is left."""
    parts = wrap(name, width)
    kept = [*parts[: rows - 1], "\n".join(parts[rows - 1 :])]
    return kept + [""] * (rows - len(kept))


def _show_one(console: Console, table: Table, entrant: Entrant, ranked: Sequence[Standing]) -> None:
    """One scenario: policies by loads, and all figures where that is a short table."""
    held = {one.policy: one for one in breaks(table, entrant.name)}
    grid = _plain_table(f"{entrant.name}: answered in time, in per cent, by load")
    grid.add_column("policy", no_wrap=True)
    for load in entrant.at:
        grid.add_column(f"{load:g}", justify="right")
    grid.add_column("holds to", justify="right")
    for one in ranked:
        cells = [_share(table.results.get(Cell(entrant.name, load, one.policy))) for load in entrant.at]
        highest = held[one.policy].highest
        grid.add_row(Text(one.policy, style="bold"), *cells, "–" if highest is None else f"{highest:g}")
    grid.caption = f"Holds to: the highest load with at least {HOLDS:.0%} in time. Bold: within a point of the best."
    console.print(grid)
    if len(entrant.at) <= MOST_LOADS and len(table.results) <= MOST_DETAILED:
        for load in entrant.at:
            console.print(_details(table, entrant, load))


def _details(table: Table, entrant: Entrant, load: float) -> RichTable:
    rate = entrant.rate_rps * load
    offered = f", {show(rate, 'rate')} requests/s" if rate else ""
    found = _plain_table(f"Load {load:g}{offered}")
    found.add_column("policy", no_wrap=True)
    for heading in ("in time", "±", "worst", "good/s", "cost", "decide", "regret"):
        found.add_column(heading, justify="right")
    for result in table.row(entrant.name, load):
        found.add_row(Text(result.cell.policy, style="bold"), *_figures(result))
    return found


def _figures(result: Result) -> list[str]:
    if result.attainment is None or result.worst_attainment is None or result.regret is None:
        return [result.status]
    half = result.attainment.half_width
    return [
        show(result.attainment.mean, "share"),
        "" if half is None else f"{100 * half:.1f}",
        show(result.worst_attainment.mean, "share"),
        show(result.goodput_rps.mean if result.goodput_rps else None, "rate"),
        show(result.cost_usd.mean if result.cost_usd else None, "usd"),
        show(result.decision_s.mean if result.decision_s else None, "seconds"),
        points(result.regret.mean).partition(" ")[0],
    ]


def _share(result: Result | None) -> Text:
    if result is None:
        return Text("")
    if result.status != "done":
        return Text(_SIGNS[result.status], style="red")
    return Text(per_cent(result.share), style="bold" if result.is_best else "")


def _say_empty(table: Table) -> None:
    rows = table.empty_rows
    if rows:
        named = ", ".join(f"{scenario} x{load:g}" for scenario, load in rows)
        typer.echo(f"No policy answers one request of a hundred in time, so all are level: {named}.")


def _plain_table(title: str) -> RichTable:
    return RichTable(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def _letter(place: int) -> str:
    more, last = divmod(place, len(ascii_uppercase))
    return (ascii_uppercase[more - 1] if more else "") + ascii_uppercase[last]
