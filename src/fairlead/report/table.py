"""Tables for the terminal: policies side by side, and one number over a sweep."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from fairlead.report.metrics import Aggregate, Estimate, Summary, aggregate, point_label, policy_label, shared_key
from fairlead.report.numbers import Column, find_column, show_estimate, shown_columns

BAR_CELLS = 4
EIGHTHS = " ▏▎▍▌▋▊▉█"


def comparison_table(summaries: Iterable[Summary], *, title: str | None = None, width: int = 80) -> Table:
    """One row per policy (and sweep point): means, ± the 95 % half-width over several seeds.

    `width` is that of the terminal: below 110 the columns stand closer together.
    """
    rows = aggregate(summaries)
    columns = shown_columns(rows)
    # Units without a blank and ± on a line of its own: the usual columns then fit a terminal of 80.
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption=_caption(rows))
    table.caption_justify = "left"
    table.padding = (0, 0 if width < 110 else 1)
    has_points = any(row.point for row in rows)
    key = shared_key(rows)
    if has_points:
        table.add_column(Text(key or "point"), overflow="fold", max_width=24)
    table.add_column("policy", overflow="fold", min_width=8)
    for column in columns:
        table.add_column(column.heading.replace(" ", "\n"), justify="right", no_wrap=True)
    for row in rows:
        cells = [_cell(row.estimates.get(column.key), column) for column in columns]
        name = Text(policy_label(row.policy, row.scaler), style="bold")
        table.add_row(*([Text(_point(row, key))] if has_points else []), name, *cells)
    return table


def sweep_table(summaries: Iterable[Summary], metric: str = "slo_attainment", *, title: str | None = None) -> Table:
    """Sweep points as rows, policies as columns, one number of the summary in the cells.

    `metric` is a dotted name, such as `latency_s.p95`.
    """
    rows = aggregate(summaries)
    column = find_column(metric)
    key = shared_key(rows)
    points = list(dict.fromkeys(_point(row, key) for row in rows))
    policies = list(dict.fromkeys(policy_label(row.policy, row.scaler) for row in rows))
    found = {(_point(row, key), policy_label(row.policy, row.scaler)): row for row in rows}
    table = Table(title=title or column.heading, box=box.SIMPLE_HEAD, caption=_caption(rows), caption_justify="left")
    table.add_column(Text(key or "point"), overflow="fold")
    for policy in policies:
        table.add_column(Text(policy), justify="right")
    for point in points:
        cells = [found.get((point, policy)) for policy in policies]
        table.add_row(
            Text(point or "all"), *(_cell(row.estimates.get(metric) if row else None, column) for row in cells)
        )
    return table


def _point(row: Aggregate, key: str) -> str:
    return point_label(row.point).removeprefix(f"{key}=") if key else point_label(row.point)


def _cell(estimate: Estimate | None, column: Column) -> Text:
    mean, _, half = show_estimate(estimate, column.kind).replace(" ", "").partition("±")
    text = Text(mean)
    if column.key == "slo_attainment" and estimate is not None:
        style = "green" if estimate.mean >= 0.95 else "yellow" if estimate.mean >= 0.8 else "red"
        text = Text(f"{_bar(estimate.mean)} {mean}", style=style)
    if half:
        text.append(f"\n±{half}", style="dim")
    return text


def _bar(share: float) -> str:
    full, rest = divmod(round(min(max(share, 0.0), 1.0) * BAR_CELLS * 8), 8)
    return ("█" * full + (EIGHTHS[rest] if rest else "")).ljust(BAR_CELLS)


def _caption(rows: Sequence[Aggregate]) -> str | None:
    seeds = max((len(row.seeds) for row in rows), default=0)
    return f"mean ± 95 % confidence half-width over {seeds} seeds" if seeds > 1 else None
