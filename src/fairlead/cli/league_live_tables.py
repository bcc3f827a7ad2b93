"""The tables of a live league on a terminal of 80 columns."""

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.league.live.compare import judge
from fairlead.league.live.document import Cell, Entrant, League
from fairlead.league.live.figures import Figures
from fairlead.league.live.page import finding, verdict_rows
from fairlead.report.numbers import NONE, show

MOST_PAIRS = 3
"""Pairs in another order that are named for one app and load."""


def show_live(league: League) -> None:
    """Print one table per app and load, the order of the policies, and the verdict."""
    console = Console(highlight=False)
    if not league.cells:
        typer.echo("No cell is done.")
        return
    for app, load, cells in league.rows():
        console.print(_cells(app, load, cells))
    typer.echo(
        "in: % answered in time, live and predicted. p50, p99: ms, likewise. good: answers\n"
        "in time per second. $/M: cost of a million requests. cpu: CPU seconds of gateway\n"
        "and instances. *: other programs or the load generator were too busy."
    )
    verdict = judge(league)
    table = Table(title="Predictions and live runs", box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in verdict_rows(verdict):
        table.add_row(Text(name), Text(value))
    console.print(table)
    for one in verdict.orders:
        tau = NONE if one.tau is None else f"{one.tau:.2f}"
        wrong = ", ".join(f"{better} before {worse}" for better, worse in one.wrong[:MOST_PAIRS])
        more = len(one.wrong) - MOST_PAIRS
        said = f"; not predicted: {wrong}{f' and {more} more' if more > 0 else ''}" if wrong else ""
        typer.echo(
            f"{one.app} x{one.load:g}: tau {tau}, {one.apart} pair{'s' * (one.apart != 1)} over 5 points apart{said}"
        )
    typer.echo(finding(verdict))


def _cells(app: Entrant, load: float, cells: list[Cell]) -> Table:
    rate = show(load * app.capacity_rps, "rate")
    given = "given" if app.is_given else "measured"
    capacity = show(app.capacity_rps, "rate")
    title = f"{app.name}, load {load:g}: {rate} requests/s (capacity {capacity}, {given})"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    for heading in ("in", "pred", "p50", "pred", "p99", "pred", "good", "$/M", "cpu", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for cell in cells:
        table.add_row(Text(cell.policy, style="bold"), *_figures(cell))
    return table


def _figures(cell: Cell) -> list[str]:
    if cell.live is None:
        return ["failed"]
    live, predicted = cell.live.live, cell.predicted
    return [
        _share(live),
        _share(predicted),
        _ms(live.p50_s),
        _ms(None if predicted is None else predicted.p50_s),
        _ms(live.p99_s),
        _ms(None if predicted is None else predicted.p99_s),
        _short(live.goodput_rps),
        NONE if live.cost_usd is None or not live.requests else _short(1e6 * live.cost_usd / live.requests),
        _short(cell.live.gateway_cpu_s + cell.live.instances_cpu_s),
        "*" if cell.live.marks else "",
    ]


def _share(figures: Figures | None) -> str:
    return NONE if figures is None else f"{100 * figures.share:.1f}"


def _ms(value_s: float | None) -> str:
    return NONE if value_s is None else _short(1e3 * value_s)


def _short(value: float) -> str:
    """At most five characters for anything below 100,000."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
