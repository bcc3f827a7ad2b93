"""The rows of a run as Markdown."""

from collections.abc import Iterable, Sequence

from gates import (
    Figures,
    Gate,
    attainment,
    goodput_share,
    p50_s,
    p99_s,
    rate_rps,
    refusal_p50_s,
    refused_in_time,
    shed_share,
)
from rows import CLOSED, LIGHT, SERVICE_S, Row
from systems import BATCHED, CHAIN, NOOP, System

NOTHING = "–"


def noop_table(rows: Sequence[Row], systems: Iterable[System]) -> str:
    """Overhead alone."""
    figures = Figures(rows)
    lines = []
    for system in systems:
        for stage, label in ((NOOP, "1 stage"), (CHAIN, "3 stages")):
            if figures.rows(system.name, stage, LIGHT):
                lines.append(
                    [
                        f"{system.label}, {label}",
                        _ms(figures.get(system.name, stage, LIGHT, p50_s)),
                        _ms(figures.get(system.name, stage, LIGHT, p99_s)),
                        _number(figures.get(system.name, stage, CLOSED, rate_rps)),
                        _probes(figures, system.name, stage, (LIGHT, CLOSED)),
                    ]
                )
    return _table(["no-op", "p50 ms at 20/s", "p99 ms", "32 users, /s", "CPU probe"], lines)


def capacity_table(rows: Sequence[Row], systems: Iterable[System]) -> str:
    """The batched stage under light load, and what a closed loop gets."""
    figures = Figures(rows)
    lines = []
    for system in systems:
        if figures.rows(system.name, BATCHED, LIGHT):
            over = [figures.get(system.name, BATCHED, LIGHT, read) for read in (p50_s, p99_s)]
            lines.append(
                [
                    system.label,
                    *(_ms(None if one is None else one - SERVICE_S) for one in over),
                    _number(figures.get(system.name, BATCHED, CLOSED, rate_rps)),
                    _probes(figures, system.name, BATCHED, (LIGHT, CLOSED)),
                ]
            )
    headings = ["8 + 2n ms stage", "overhead p50 ms", "overhead p99 ms", "capacity, /s", "CPU probe"]
    return _table(headings, lines)


def overload_table(rows: Sequence[Row], systems: Iterable[System]) -> str:
    """The batched stage at shares of its capacity."""
    figures = Figures(rows)
    lines = []
    for system in systems:
        for load in dict.fromkeys(row.load for row in rows if row.share is not None):
            found = figures.rows(system.name, BATCHED, load)
            if found:
                lines.append(
                    [
                        system.label,
                        load.replace("%", " %"),
                        _number(figures.get(system.name, BATCHED, load, lambda row: row.result.offered_rps)),
                        _share(figures.get(system.name, BATCHED, load, attainment)),
                        _share(figures.get(system.name, BATCHED, load, goodput_share)),
                        _ms(figures.get(system.name, BATCHED, load, p50_s)),
                        _share(figures.get(system.name, BATCHED, load, shed_share)),
                        _ms(figures.get(system.name, BATCHED, load, refusal_p50_s)),
                        _share(figures.get(system.name, BATCHED, load, refused_in_time)),
                        _remarks(found),
                    ]
                )
    headings = ["8 + 2n ms stage, in 50 ms", "load", "offered /s", "in time", "goodput / capacity", "answer p50 ms"]
    headings += ["refused", "refusal p50 ms", "refused before the deadline", "remarks"]
    return _table(headings, lines)


def gate_table(found: Iterable[Gate]) -> str:
    """Each demand, with its figure."""
    lines = []
    for gate in found:
        sign = "≥" if gate.is_least else "≤"
        verdict = {None: "not measured", True: "met", False: "**missed**"}[gate.is_met]
        figure = NOTHING if gate.figure is None else f"{gate.figure:.3f}"
        lines.append([gate.name, f"{sign} {gate.limit:.3g}", figure, verdict, gate.detail])
    return _table(["demand", "limit", "figure", "", "from"], lines)


def _remarks(rows: Sequence[Row]) -> str:
    """What a reader has to know to trust a row: the probe, what was not sent, and a generator that was late."""
    parts = [f"probe {max(row.probe for row in rows):.2f}"]
    unsent = sum(row.result.unsent for row in rows) / sum(row.result.offered for row in rows)
    errors = sum(sum(row.result.errors.values()) for row in rows)
    if unsent:
        parts.append(f"{unsent:.0%} not sent")
    if errors:
        parts.append(f"{errors} failed")
    if any(row.result.is_generator_late for row in rows):
        late_s = max(row.result.lag.p99_s or 0.0 for row in rows)
        parts.append(f"generator late by {late_s * 1e3:.0f} ms at p99")
    return ", ".join(parts)


def _probes(figures: Figures, system: str, stage: str, loads: Iterable[str]) -> str:
    return " / ".join(
        f"{max(row.probe for row in found):.2f}" for load in loads if (found := figures.rows(system, stage, load))
    )


def _table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---", *("---:" if not heading or heading[0] != "*" else "---" for heading in headings[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rule, *lines))


def _ms(value_s: float | None) -> str:
    return NOTHING if value_s is None else f"{value_s * 1e3:,.2f}" if value_s < 0.01 else f"{value_s * 1e3:,.1f}"


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1%}"
