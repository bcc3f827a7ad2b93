"""Rows and demands as tables on the screen, as Markdown for the documentation, and as JSON."""

from collections.abc import Iterable, Sequence

from groups import Group, best
from measure import Answer, Gate, Row
from rich.console import Console
from rich.table import Table

_WORDS = {None: "not measured", True: "met", False: "missed"}
_COLOURS = {None: "yellow", True: "green", False: "red"}


def cells(group: Group, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings and lines of a group's table, the fastest first."""
    has_answers = any(row.answer for row in rows)
    headings = ["program", "best", "worst", *(f"over {name.split()[0].strip(',')}" for name in group.against)]
    headings += ["cold starts", "mean, s"] if has_answers else []
    others = [best(rows, name) for name in group.against]
    lines = []
    for row in sorted(rows, key=lambda row: -(row.best or 0)):
        if row.best is not None:
            worst = figure(min(row.rates)) if len(row.rates) > 1 else ""
            ratios = [f"{figure(row.best / other)}x" if other else "" for other in others]
            lines.append([row.name, figure(row.best), worst, *ratios, *(_told(row.answer) if has_answers else [])])
    return headings, lines


def show(console: Console, group: Group, rows: Sequence[Row]) -> None:
    """A group's table, with what has to be known to read it."""
    headings, lines = cells(group, rows)
    table = Table(title=f"{group.title}: {group.unit} per second of CPU time", title_justify="left")
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    if lines:
        console.print(table, highlight=False)
    for row in rows:
        if row.note and row.best is not None:
            console.print(f"  [dim]{row.name}: {row.note}[/]", highlight=False)
        if row.missing:
            console.print(f"  [yellow]not measured[/] {row.name}: {row.missing}", highlight=False)


def show_gates(console: Console, gates: Iterable[Gate]) -> None:
    """Each demand, met or missed."""
    for gate in gates:
        verdict = f"[{_COLOURS[gate.is_met]}]{_WORDS[gate.is_met]:6}[/]"
        detail = f" ({gate.detail})" if gate.detail else ""
        console.print(f"{verdict} {gate.name}: {_reached(gate)}, {_limit(gate)}{detail}", highlight=False)


def markdown(title: str, headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """One table for the documentation."""
    rule = ["---", *("---:" for _ in headings[1:])]
    table = "\n".join(f"| {' | '.join(line)} |" for line in (headings, rule, *lines))
    return f"{title}:\n\n{table}\n"


def gates_markdown(gates: Iterable[Gate]) -> str:
    """The demands for the documentation."""
    lines = [
        [
            gate.name,
            _limit(gate),
            _reached(gate),
            f"**{_WORDS[gate.is_met]}**" if gate.is_met is False else _WORDS[gate.is_met],
        ]
        for gate in gates
    ]
    return markdown("What was asked for", ["demand", "limit", "measured", ""], lines)


def row_json(row: Row) -> dict[str, object]:
    answer = row.answer
    return {
        "program": row.name,
        "note": row.note,
        "missing": row.missing,
        "best_per_cpu_s": row.best,
        "rates_per_cpu_s": row.rates,
        "cold_starts": answer.cold_starts if answer else None,
        "latency_mean_s": answer.latency_mean_s if answer else None,
        "rejected": answer.rejected if answer else None,
    }


def gate_json(gate: Gate) -> dict[str, object]:
    return {
        "gate": gate.name,
        "figure": gate.figure,
        "limit": gate.limit,
        "is_least": gate.is_least,
        "met": gate.is_met,
        "detail": gate.detail,
    }


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _told(answer: Answer | None) -> list[str]:
    if answer is None:
        return ["", ""]
    mean_s = answer.latency_mean_s
    return [f"{answer.cold_starts:,}", "" if mean_s is None else f"{mean_s:.9f}"]


def _reached(gate: Gate) -> str:
    return "–" if gate.figure is None else figure(gate.figure)


def _limit(gate: Gate) -> str:
    return f"{'at least' if gate.is_least else 'at most'} {figure(gate.limit)}"
