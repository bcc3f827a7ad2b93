"""The page of a live league."""

from html import escape

from fairlead.league.live.charts import draw_bars, draw_scatter
from fairlead.league.live.compare import FEWEST, FIFO, LIGHT, Order, Verdict, judge, off
from fairlead.league.live.document import Cell, Entrant, League
from fairlead.league.live.figures import Figures
from fairlead.report.numbers import Kind, show
from fairlead.report.page import page_table, whole_page

MOST_OFF = 10.0
"""From here on, the part by which a latency is off is not told exactly."""

_COLUMNS: tuple[tuple[str, str, Kind], ...] = (
    ("in time", "share", "share"),
    ("goodput /s", "goodput_rps", "rate"),
    ("p50", "p50_s", "seconds"),
    ("p99", "p99_s", "seconds"),
    ("cost", "cost_usd", "usd"),
    ("requests", "requests", "count"),
    ("answers", "answers", "count"),
)


def render_live(league: League, command: str) -> str:
    """The page as text: the same league gives the same text."""
    verdict = judge(league)
    facts = [
        f"{len(league.apps)} app{'s' if len(league.apps) != 1 else ''}",
        f"{len(league.policies)} policies",
        f"{league.seconds:g} s per cell after {league.warm_up_s:g} s of warm-up",
        f"seed {league.seed}",
        *([league.machine] if league.machine else []),
    ]
    body = [
        f'<header><h1>Live league</h1><p class="facts">{escape(" · ".join(facts))}</p>'
        f'<p class="finding">{escape(finding(verdict))}</p>'
        f'<p class="command">Run it again: <code>{escape(command)}</code></p></header>',
        _verdict(verdict, league),
        *(_bars(league, app) for app in league.apps),
        f'<div class="pair">{_scatter(league)}{_orders(verdict)}</div>',
        *(_cells(league, app) for app in league.apps),
        _notes(league),
    ]
    return whole_page("Live league", "<main>\n" + "\n".join(part for part in body if part) + "\n</main>\n")


def finding(verdict: Verdict) -> str:
    """The result in one sentence."""
    if not verdict.share.of:
        return "No cell has both a live run and a prediction."
    share = verdict.share.met / verdict.share.of
    return (
        f"The predicted share in time is within 3 points of the live one in {verdict.share.met} of {verdict.share.of} "
        f"cells ({share:.0%})."
    )


def verdict_rows(verdict: Verdict) -> list[tuple[str, str]]:
    """What was asked, and what came out, as two columns."""
    tau = [one.tau for one in verdict.orders if one.tau is not None]
    apart = sum(one.apart for one in verdict.orders)
    right = apart - sum(len(one.wrong) for one in verdict.orders)
    return [
        ("share in time within 3 points", str(verdict.share)),
        ("the same, live share from 5 to 95 %", str(verdict.middle)),
        ("p50 within 15 %", str(verdict.p50)),
        (f"p99 within 30 %, at least {FEWEST} answers", str(verdict.p99)),
        ("order kept, pairs over 5 points apart", f"{right} of {apart}"),
        ("mean Kendall tau of the order", f"{sum(tau) / len(tau):.2f}" if tau else "–"),
        (f"below {FIFO} at load {LIGHT:g}", _behind(verdict)),
        ("marked: other programs were busy", str(verdict.marked)),
        *([("without a live run or a prediction", str(verdict.failed))] if verdict.failed else []),
    ]


def _behind(verdict: Verdict) -> str:
    found = [
        f"{one.policy} on {one.app} ({100 * one.share:.1f} against {100 * one.fifo_share:.1f} %)"
        for one in verdict.behind
    ]
    return ", ".join(found) or "none"


def _verdict(verdict: Verdict, league: League) -> str:
    rows = [
        f'<tr><th scope="row">{escape(name)}</th><td class="left">{escape(value)}</td></tr>'
        for name, value in verdict_rows(verdict)
    ]
    capacities = "; ".join(_capacity(app) for app in league.apps)
    note = f"Capacity, which loads are relative to: {capacities}."
    table = page_table(["<th>claim</th>", '<th class="left">cells</th>'], rows)
    return f'<section><h2>Predictions and live runs</h2><p class="note">{escape(note)}</p>{table}</section>'


def _capacity(app: Entrant) -> str:
    return f"{app.name} {show(app.capacity_rps, 'rate')} requests/s{' (given)' if app.is_given else ''}"


def _bars(league: League, app: Entrant) -> str:
    note = "Full colour: live. Pale, below it: predicted. * marks a live run in which something else was busy."
    return (
        f'<section class="heatmap"><h2>{escape(app.name)}: share in time</h2><p class="note">{note}</p>'
        f'<div class="scroll">{draw_bars(league, app.name)}</div></section>'
    )


def _scatter(league: League) -> str:
    loads = sorted({cell.load for cell in league.cells})
    legend = "".join(
        f'<li class="c{place % 8}"><i class="swatch"></i>load {load:g}</li>' for place, load in enumerate(loads)
    )
    note = "A dot per cell; in the band, predictions are within 3 points."
    return (
        f'<section><h2>Predicted against live</h2><p class="note">{note}</p><ul class="legend">{legend}</ul>'
        f"{draw_scatter(league.cells)}</section>"
    )


def _orders(verdict: Verdict) -> str:
    heads = ["<th>app</th>", "<th>load</th>", "<th>Kendall tau</th>", "<th>pairs over 5 points apart</th>"]
    heads += ["<th>predicted in another order</th>"]
    rows = [
        f'<tr><th scope="row">{escape(one.app)}</th><td>{one.load:g}</td>'
        f"<td>{'–' if one.tau is None else f'{one.tau:.2f}'}</td><td>{one.apart}</td>"
        f"<td{_wrong_title(one)}>{len(one.wrong)}</td></tr>"
        for one in verdict.orders
    ]
    note = "By share in time. Without tau, all are level, live or predicted. Pointing at a number names its pairs."
    return f'<section><h2>Order of the policies</h2><p class="note">{note}</p>{page_table(heads, rows)}</section>'


def _wrong_title(one: Order) -> str:
    pairs = ", ".join(f"{better} before {worse}" for better, worse in one.wrong)
    return f' title="live: {escape(pairs)}"' if pairs else ""


def _cells(league: League, app: Entrant) -> str:
    heads = ["<th>policy</th>", "<th>load</th>", *(f"<th>{heading}</th>" for heading, _, _ in _COLUMNS)]
    heads += ["<th>off: points</th>", "<th>p50</th>", "<th>p99</th>"]
    heads += ["<th>CPU s: gateway, instances</th>", "<th>CPU per decision</th>", "<th>others</th>"]
    rows = [_row(cell, len(heads)) for one, _, cells in league.rows() if one.name == app.name for cell in cells]
    note = "Live, and below it predicted. CPU seconds are of the whole load, with its warm-up."
    table = page_table(heads, rows)
    parts = "".join(_workflows(cell) for one, _, cells in league.rows() if one.name == app.name for cell in cells)
    more = ""
    if parts:
        columns = ["<th>policy</th>", "<th>load</th>", '<th class="left">workflow</th>']
        columns += [f"<th>{heading}</th>" for heading, _, _ in _COLUMNS]
        more = f"<details><summary>By workflow</summary>{page_table(columns, [parts])}</details>"
    return f'<section><h2>{escape(app.name)}: all figures</h2><p class="note">{note}</p>{table}{more}</section>'


def _row(cell: Cell, width: int) -> str:
    head = f'<tr><th scope="row">{escape(cell.policy)}</th><td>{cell.load:g}</td>'
    live = cell.live
    if live is None:
        return f'{head}<td class="left" colspan="{width - 2}">failed: {escape(cell.failure)}</td></tr>'
    found = off(cell)
    cells = _pairs(live.live, cell.predicted)
    cells += f"<td>{'–' if found is None else f'{100 * found.points:+.1f}'}</td>"
    for part in (None, None) if found is None else (found.p50, found.p99):
        cells += f"<td>{'–' if part is None else f'{part:+.0%}' if part < MOST_OFF else f'over {MOST_OFF:.0%}'}</td>"
    cells += f"<td>{live.gateway_cpu_s:.2f}<small>{live.instances_cpu_s:.2f}</small></td>"
    cells += (
        f"<td>{show(live.decisions.mean_s, 'seconds')}<small>p99 {show(live.decisions.p99_s, 'seconds')}</small></td>"
    )
    mark = f' title="{escape("; ".join(live.marks))}"' if live.marks else ""
    cells += f"<td{mark}>{live.others:.0%}{' *' if live.marks else ''}</td>"
    return f"{head}{cells}</tr>"


def _workflows(cell: Cell) -> str:
    if cell.live is None or len(cell.live.live.by_workflow) < 2:
        return ""
    predicted = cell.predicted.by_workflow if cell.predicted is not None else {}
    return "".join(
        f'<tr><th scope="row">{escape(cell.policy)}</th><td>{cell.load:g}</td><td class="left">{escape(name)}</td>'
        f"{_pairs(part, predicted.get(name))}</tr>"
        for name, part in cell.live.live.by_workflow.items()
    )


def _pairs(live: Figures, predicted: Figures | None) -> str:
    cells = ""
    for _, key, kind in _COLUMNS:
        below = "" if predicted is None else f"<small>{show(getattr(predicted, key), kind)}</small>"
        cells += f"<td>{show(getattr(live, key), kind)}{below}</td>"
    return cells


def failures(league: League) -> list[str]:
    """Why cells have no live run or no prediction."""
    return [f"{_where(cell)}: {cell.failure}" for cell in league.cells if cell.failure]


def _where(cell: Cell) -> str:
    return f"{cell.app} x{cell.load:g} {cell.policy}"


def _notes(league: League) -> str:
    notes = [f"{app.name}: {note}" for app in league.apps for note in app.notes]
    notes += failures(league)
    notes += [f"{_where(cell)}: {', '.join(cell.live.marks)}" for cell in league.cells if cell.live and cell.live.marks]
    items = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<section><h2>Notes</h2>{items}</section>" if items else ""
