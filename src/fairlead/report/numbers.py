"""Numbers for people: three digits, the unit that suits the size, and never more certainty than there is."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Literal

from fairlead.report.metrics import Aggregate, Estimate

Kind = Literal["share", "seconds", "usd", "rate", "count", "ratio"]

NONE = "–"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One number of a summary: its dotted name, its heading, and what kind of number it is.

    An `optional` one is worth showing only where some run has it above 0. Where there is no room for all columns, the
    ones with the highest `rank` are left out first.
    """

    key: str
    heading: str
    kind: Kind
    note: str
    rank: int = 0
    optional: bool = False


COLUMNS = (
    Column(key="slo_attainment", heading="in time", kind="share", note="Share of all requests that met their SLO"),
    Column(key="goodput_rps", heading="goodput /s", kind="rate", note="Answers in time per second", rank=1),
    Column(key="latency_s.p50", heading="latency p50", kind="seconds", note="Half of the answers came within", rank=2),
    Column(key="latency_s.p95", heading="latency p95", kind="seconds", note="95 % of the answers came within", rank=5),
    Column(key="latency_s.p99", heading="latency p99", kind="seconds", note="99 % of the answers came within", rank=3),
    Column(key="wait_s.mean", heading="mean wait", kind="seconds", note="From ready to start, per invocation", rank=8),
    Column(key="cost_usd", heading="cost", kind="usd", note="Allocated vCPU and vGPU time", rank=6),
    Column(
        key="node_hours", heading="node hours", kind="rate", note="Time that nodes were billed", rank=4, optional=True
    ),
    Column(key="cold_starts", heading="cold starts", kind="count", note="Batches that started their instance", rank=7),
    Column(
        key="cold_waits",
        heading="cold waits",
        kind="count",
        note="Batches placed on an instance that was still starting",
        rank=8,
        optional=True,
    ),
    Column(
        key="jain_slowdown",
        heading="fairness",
        kind="ratio",
        note="Jain's index of the workflows' slowdowns: 1 when all are slowed down alike",
        rank=8,
        optional=True,
    ),
    Column(key="rejected", heading="rejected", kind="count", note="Refused at arrival", rank=4, optional=True),
    Column(key="dropped", heading="dropped", kind="count", note="Given up after admission", rank=4, optional=True),
    Column(key="failed", heading="failed", kind="count", note="Ended with an error", rank=4, optional=True),
    Column(key="cancelled", heading="cancelled", kind="count", note="Withdrawn by the caller", rank=4, optional=True),
    Column(key="unfinished", heading="unfinished", kind="count", note="Open when the run ended", rank=4, optional=True),
)


def shown_columns(rows: Sequence[Aggregate]) -> list[Column]:
    """The columns worth showing for these rows."""
    return [
        column
        for column in COLUMNS
        if not column.optional or any(row.estimates[column.key].mean > 0 for row in rows if column.key in row.estimates)
    ]


def find_column(key: str) -> Column:
    """The column of that dotted name; a plain one is made up for a name that has none."""
    for column in COLUMNS:
        if column.key == key:
            return column
    kind: Kind = "count"
    for part, found in (
        ("_s", "seconds"),
        ("usd", "usd"),
        ("slowdown", "ratio"),
        ("jain_throughput", "ratio"),
        ("ratio", "share"),
        ("attainment", "share"),
        ("rps", "rate"),
    ):
        if key.split(".")[-1].endswith(part) or key.split(".")[-2:][0].endswith(part):
            kind = found  # type: ignore[assignment]
            break
    return Column(key=key, heading=key.replace("_", " "), kind=kind, note="")


def show(value: float | None, kind: Kind) -> str:
    """The number with its unit."""
    if value is None:
        return NONE
    factor, before, after = _unit(value, kind)
    return f"{before}{_number(value * factor, kind)}{after}"


def show_estimate(estimate: Estimate | None, kind: Kind) -> str:
    """The mean and, over several seeds, ± the half-width, in one unit."""
    if estimate is None:
        return NONE
    if estimate.half_width is None:
        return show(estimate.mean, kind)
    factor, before, after = _unit(estimate.mean, kind)
    mean, half = estimate.mean * factor, estimate.half_width * factor
    places = 1 if kind in ("share", "count") else _places(mean if mean else half)
    if kind == "count" and half == 0:  # every seed has the same whole number
        places = 0
    text = _percentage(mean) if kind == "share" else f"{mean:,.{places}f}"
    return f"{before}{text} ± {half:,.{places}f}{after}"


def show_plain(value: float) -> str:
    """A number of four digits without an exponent, down to a millionth of a millionth: `0.000055`."""
    text = f"{value:.4g}"
    if "e-" not in text or abs(value) < 1e-12:
        return text
    return f"{float(text):.16f}".rstrip("0")


def _unit(value: float, kind: Kind) -> tuple[float, str, str]:
    if kind == "share":
        return 100.0, "", " %"
    if kind == "usd":
        return 1.0, "$", ""
    if kind != "seconds" or value == 0:
        return 1.0, "", " s" if kind == "seconds" else ""
    size = abs(value)
    if size < 0.9995e-3:
        return 1e6, "", " µs"
    return (1e3, "", " ms") if size < 0.9995 else (1.0, "", " s")


def _number(value: float, kind: Kind) -> str:
    if kind == "share":
        return _percentage(value)
    if kind == "count" and value == round(value):
        return f"{value:,.0f}"
    return f"{value:,.{_places(value)}f}"


def _percentage(value: float) -> str:
    # Neither all nor nothing unless it is.
    if 99.95 <= value < 100:
        return f"{min(value, 99.99):.2f}"
    if 0 < value < 0.05:
        return "<0.1"
    return f"{value:.1f}"


def _places(value: float) -> int:
    if value == 0:
        return 0
    return min(9, max(0, 2 - floor(log10(abs(value) * 1.0005))))
