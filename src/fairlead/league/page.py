"""The page and the heat map of a league."""

from collections.abc import Sequence
from html import escape

from fairlead.league.plan import Cell, Entrant
from fairlead.league.standing import HOLDS, Break, Result, Standing, Table, breaks, standings
from fairlead.report.heatmap import Box, draw_heat_map, stand_alone
from fairlead.report.numbers import Kind, show, show_estimate
from fairlead.report.page import page_table, whole_page
from fairlead.report.svg import Drawing

SIGNS = {"error": "err", "too slow": "slow"}
"""What stands in a box that has no figure."""


def heat_map(table: Table, title: str = "SLO attainment") -> Drawing:
    """Scenarios by policies, the policy with the lowest mean regret first; in each box one sub-box per load."""
    policies = [one.policy for one in standings(table)]
    loads = sorted({load for _, load in table.rows})
    rows = {
        entrant.name: [[_box(table, Cell(entrant.name, load, policy)) for load in loads] for policy in policies]
        for entrant in table.plan.entrants
    }
    legend = "requests in time; underlined: within a point of the best"
    if len(loads) > 1:
        legend += f"; boxes from left to right: load {', '.join(f'{load:g}' for load in loads)}"
    return draw_heat_map(rows, policies, [f"{load:g}" for load in loads], title=title, legend=legend)


def heat_map_file(table: Table) -> str:
    """The heat map as an SVG file."""
    return stand_alone(heat_map(table))


def render_league(table: Table, command: str) -> str:
    """The page of a league as text: the same results give the same text, but for measured decision times."""
    ranked = standings(table)
    plan = table.plan
    facts = [
        _count(len(plan.entrants), "scenario"),
        _count(len(plan.policies), "policy", "policies"),
        _count(len({load for _, load in table.rows}), "load"),
        _count(len(plan.seeds), "seed"),
    ]
    body = [
        f'<header><h1>League</h1><p class="facts">{escape(" · ".join(facts))}</p>'
        f'<p class="finding">{escape(finding(table))}</p>'
        f'<p class="command">Run it again: <code>{escape(command)}</code></p></header>',
        _standings(ranked),
        f'<section class="heatmap"><h2>Requests in time</h2><p class="note">In per cent, mean over the seeds. '
        f"{escape(_empty(table))}</p>"
        f'<div class="scroll">{heat_map(table)}</div></section>',
        *(_breaks(entrant, breaks(table, entrant.name)) for entrant in plan.entrants if len(entrant.at) > 1),
        *(_cells(table, entrant) for entrant in plan.entrants),
        _notes(table),
    ]
    return whole_page("League", "<main>\n" + "\n".join(part for part in body if part) + "\n</main>\n")


def finding(table: Table) -> str:
    """The result in one or two sentences."""
    ranked = standings(table)
    if not ranked:
        return "No cell has a result."
    first = ranked[0]
    text = (
        f"{first.policy} is closest to the best: level with it in {first.level} of {first.cells} cells, "
        f"{points(first.mean_regret)} behind on average and {points(first.worst_regret)} at worst"
    )
    if first.worst_regret > 0:
        text += f" ({first.worst_at.scenario} at load {first.worst_at.load:g})"
    return f"{text}."


def points(share: float) -> str:
    """A difference of shares in percentage points."""
    value = 100 * share
    return f"{value:.1f} point{'' if f'{value:.1f}' == '1.0' else 's'}"


def describe_failures(table: Table) -> list[str]:
    """One sentence per kind of cell without figures, with its cells."""
    found = []
    slow = [result for result in table.failed if result.status == "too slow"]
    if slow:
        cells = ", ".join(str(result.cell) for result in slow)
        found.append(f"Too slow in {_count(len(slow), 'cell')}, counted as 0 %: {cells}.")
    for result in table.failed:
        if result.status == "error":
            found.append(f"Error, counted as 0 %: {result.cell}: {result.reason}")
    return found


def _box(table: Table, cell: Cell) -> Box | None:
    result = table.results.get(cell)
    if result is None:
        return None
    if result.attainment is None:
        return Box(share=None, title=f"{cell}: {result.status}: {result.reason}", sign=SIGNS[result.status])
    title = f"{cell}: {show_estimate(result.attainment, 'share')}; cost {show_estimate(result.cost_usd, 'usd')}"
    return Box(share=result.share, title=title, is_best=result.is_best)


def _standings(ranked: Sequence[Standing]) -> str:
    heads = ["<th>policy</th>", "<th>level with the best</th>", "<th>mean in time</th>", "<th>mean regret</th>"]
    heads += ["<th>worst regret</th>", '<th class="left">where</th>', "<th>without a result</th>"]
    rows = [
        f'<tr><th scope="row">{escape(one.policy)}</th><td>{one.level} of {one.cells}</td>'
        f"<td>{show(one.mean_attainment, 'share')}</td><td>{points(one.mean_regret)}</td>"
        f"<td>{points(one.worst_regret)}</td>"
        f'<td class="left">{escape(_where(one))}</td>'
        f"<td>{one.failed or ''}</td></tr>"
        for one in ranked
    ]
    note = (
        "Regret: in time for the best policy of the scenario and load, less the own. Level: within one point. "
        "A cell that is too slow or ends in an error counts as 0 %."
    )
    return f'<section><h2>Standings</h2><p class="note">{note}</p>{page_table(heads, rows)}</section>'


def _where(one: Standing) -> str:
    """The cell in which a policy is furthest behind the best; a dash for one that never is."""
    return f"{one.worst_at.scenario}, load {one.worst_at.load:g}" if one.worst_regret > 0 else "–"


def _breaks(entrant: Entrant, found: Sequence[Break]) -> str:
    if not entrant.is_app:
        return ""
    heads = ["<th>policy</th>", "<th>holds to load</th>", "<th>requests per second</th>", "<th>breaks at</th>"]
    rows = [
        f'<tr><th scope="row">{escape(one.policy)}</th><td>{_load(one.highest)}</td>'
        f"<td>{'–' if one.highest is None else show(one.highest * entrant.rate_rps, 'rate')}</td>"
        f"<td>{_load(one.fails_at)}</td></tr>"
        for one in found
    ]
    note = f"The highest load up to which at least {HOLDS:.0%} of the requests are answered in time."
    heading = f"{escape(entrant.name)}: load held"
    return f'<section><h2>{heading}</h2><p class="note">{note}</p>{page_table(heads, rows)}</section>'


def _cells(table: Table, entrant: Entrant) -> str:
    """All figures of one scenario, folded away."""
    columns: list[tuple[str, str, Kind]] = [
        ("in time", "attainment", "share"),
        ("regret", "regret", "share"),
        ("worst workflow", "worst_attainment", "share"),
        ("goodput /s", "goodput_rps", "rate"),
        ("cost", "cost_usd", "usd"),
        ("per decision", "decision_s", "seconds"),
    ]
    heads = ["<th>policy</th>", "<th>load</th>", *(f"<th>{heading}</th>" for heading, _, _ in columns)]
    rows = []
    for load in entrant.at:
        for result in table.row(entrant.name, load):
            cells = "".join(f"<td>{_value(result, key, kind)}</td>" for _, key, kind in columns)
            if result.status != "done":
                cells = f'<td class="left" colspan="{len(columns)}">{result.status}: {escape(result.reason)}</td>'
            rows.append(f'<tr><th scope="row">{escape(result.cell.policy)}</th><td>{load:g}</td>{cells}</tr>')
    times = ", ".join(
        f"load {load:g}: {scenario.duration_s:.4g} s, the first {scenario.warmup_s:.4g} s not counted"
        for load, scenario in entrant.at.items()
    )
    return (
        f"<section><details><summary>{escape(entrant.name)}</summary>"
        f'<p class="note">{escape(times)}.</p>{page_table(heads, rows)}</details></section>'
    )


def _value(result: Result, key: str, kind: Kind) -> str:
    text, _, half = show_estimate(getattr(result, key), kind).partition(" ± ")
    if half:
        amount, _, unit = half.partition(" ")
        text += f" {unit}<small>± {amount}</small>" if unit else f"<small>± {amount}</small>"
    return text


def _notes(table: Table) -> str:
    notes = [*table.plan.notes, *describe_failures(table)]
    items = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<section><h2>Notes</h2>{items}</section>" if notes else ""


def _empty(table: Table) -> str:
    rows = table.empty_rows
    if not rows:
        return ""
    return f"In {_count(len(rows), 'row')} no policy answers one request of a hundred in time: all are level there."


def _load(load: float | None) -> str:
    return "–" if load is None else f"{load:g}"


def _count(number: int, what: str, several: str = "") -> str:
    return f"{number} {what}" if number == 1 else f"{number} {several or what + 's'}"
