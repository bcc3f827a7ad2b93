"""Tables for the terminal: policies side by side, and one number over a sweep.

A table fits the width it is given: names stay whole, numbers are never cut, and what has no room is left out and said
to be.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from fairlead.report.labels import point_label, shared_key, who_labels
from fairlead.report.metrics import Aggregate, Estimate, Summary, aggregate
from fairlead.report.numbers import Column, find_column, show_estimate, shown_columns

BAR_CELLS = 4
EIGHTHS = " ▏▎▍▌▋▊▉█"
GAP = 2
IN_TIME = "slo_attainment"
LAST_RANK = 9
KEPT_RANK = 2
"""Columns of this rank or below make names wrap before they go."""
SWEPT = {IN_TIME: "answered in time", "latency_s.mean": "mean latency", "cost_usd": "cost"}


def result_tables(summaries: Iterable[Summary], *, title: str, width: int = 80) -> list[Table]:
    """What a set of runs comes to: one comparison, or one table per number where a sweep meets several policies.

    Policies that do not fit side by side are compared row by row at every point.
    """
    runs = list(summaries)
    rows = aggregate(runs)
    if len({point_label(row.point) for row in rows}) > 1 and len(set(who_labels(rows))) > 1:
        swept = dict(SWEPT)
        if all(run.slo_attainment == 1 for run in runs):  # most often, there is no objective
            del swept[IN_TIME]
        tables = [sweep_table(runs, metric, title=f"{title}: {heading}") for metric, heading in swept.items()]
        if all(_width(table) <= width for table in tables):
            return tables
    return [comparison_table(runs, title=title, width=width)]


def comparison_table(summaries: Iterable[Summary], *, title: str | None = None, width: int = 80) -> Table:
    """One row per policy (and sweep point): means, ± the 95 % half-width over several seeds.

    `width` is that of the terminal. Where it does not suffice for every column, the less telling ones are left out,
    and the caption names them.
    """
    rows = aggregate(summaries)
    labels = who_labels(rows)
    key = shared_key(rows)
    points = [_point(row, key) for row in rows]
    names = [(key or "point", points), ("policy", labels)] if any(points) else [("policy", labels)]
    is_all_met = all(row.estimates[IN_TIME].mean == 1 for row in rows if IN_TIME in row.estimates)
    # A column of nothing but 100 % can be said in a sentence, so it is the first to go.
    columns = [
        replace(column, rank=LAST_RANK) if is_all_met and column.key == IN_TIME else column
        for column in shown_columns(rows)
    ]
    cells = {column.key: [_cell(row.estimates.get(column.key), column) for row in rows] for column in columns}
    kept, widths = _fit(names, columns, cells, width)
    if _spare(kept, cells, widths, width) > BAR_CELLS:
        cells[IN_TIME] = _with_bars(rows, cells[IN_TIME])
    left_out = [column for column in columns if column not in kept]
    table = _table(title, _caption(rows, left_out))
    for (heading, _), name_width in zip(names, widths, strict=True):
        table.add_column(Text(heading), width=name_width)
    for column in kept:
        table.add_column(column.heading.replace(" ", "\n"), justify="right", no_wrap=True)
    for place in _by_point(points):
        texts = [Text(values[place], style="bold" if heading == "policy" else "") for heading, values in names]
        table.add_row(*texts, *(cells[column.key][place] for column in kept))
    return table


def sweep_table(summaries: Iterable[Summary], metric: str = IN_TIME, *, title: str | None = None) -> Table:
    """Sweep points as rows, policies as columns, one number of the summary in the cells.

    `metric` is a dotted name, such as `latency_s.p95`.
    """
    rows = aggregate(summaries)
    column = find_column(metric)
    key = shared_key(rows)
    labels = who_labels(rows)
    found = {(_point(row, key), label): row for row, label in zip(rows, labels, strict=True)}
    policies = list(dict.fromkeys(labels))
    table = _table(title or column.heading, _caption(rows))
    table.add_column(Text(key or "point"), no_wrap=True)
    for policy in policies:
        table.add_column(Text(policy), justify="right", no_wrap=True)
    for point in dict.fromkeys(point for point, _ in found):
        cells = [found.get((point, policy)) for policy in policies]
        numbers = [_cell(row.estimates.get(metric) if row else None, column) for row in cells]
        table.add_row(Text(point or "all"), *numbers)
    return table


def _fit(
    names: Sequence[tuple[str, Sequence[str]]], columns: Sequence[Column], cells: dict[str, list[Text]], width: int
) -> tuple[list[Column], list[int]]:
    """The columns that fit, and how wide those of the names are.

    Names stand on one line unless even the most telling columns have no room beside them; then they wrap at blanks.
    """
    full = [max(cell_len(text) for text in (heading, *values)) for heading, values in names]
    words = [max(cell_len(word) for text in (heading, *values) for word in text.split()) for heading, values in names]
    kept = list(columns)
    while _spare(kept, cells, full, width) < 0 and max(column.rank for column in kept) > KEPT_RANK:
        kept.remove(max(reversed(kept), key=lambda column: column.rank))
    if _spare(kept, cells, full, width) >= 0:
        return kept, full
    while _spare(kept, cells, words, width) < 0 and len(kept) > 1:
        kept.remove(max(reversed(kept), key=lambda column: column.rank))
    widths = list(words)
    for _ in range(_spare(kept, cells, words, width)):
        narrow = [place for place in range(len(widths)) if widths[place] < full[place]]
        if narrow:
            widths[min(narrow, key=widths.__getitem__)] += 1
    return kept, widths


def _spare(kept: Sequence[Column], cells: dict[str, list[Text]], names: Sequence[int], width: int) -> int:
    """What is left of the width beside these columns; negative where they do not fit."""
    numbers = [_column_width(column, cells[column.key]) for column in kept]
    return width - sum(numbers) - sum(names) - GAP * (len(numbers) + len(names) - 1)


def _column_width(column: Column, cells: Sequence[Text]) -> int:
    return max(cell_len(text) for text in (*column.heading.split(" "), *(cell.plain for cell in cells)))


def _by_point(points: Sequence[str]) -> list[int]:
    """The places of the rows, those of one point together."""
    order = {point: place for place, point in enumerate(dict.fromkeys(points))}
    return sorted(range(len(points)), key=lambda place: order[points[place]])


def _table(title: str | None, caption: str | None) -> Table:
    return Table(
        title=title,
        caption=caption,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
    )


def _width(table: Table) -> int:
    """How wide a table whose columns do not wrap is."""
    widths = [max(cell_len(str(text)) for text in (column.header, *column.cells)) for column in table.columns]
    return sum(widths) + GAP * (len(widths) - 1)


def _point(row: Aggregate, key: str) -> str:
    return point_label(row.point).removeprefix(f"{key}=") if key else point_label(row.point)


def _cell(estimate: Estimate | None, column: Column) -> Text:
    text = show_estimate(estimate, column.kind).replace(" ± ", " ±")
    if column.key == IN_TIME and estimate is not None:
        return Text(text, style="green" if estimate.mean >= 0.95 else "yellow" if estimate.mean >= 0.8 else "red")
    return Text(text)


def _with_bars(rows: Sequence[Aggregate], cells: Sequence[Text]) -> list[Text]:
    """The shares in time, each behind a bar; the bars stand in line."""
    longest = max((cell_len(cell.plain) for cell in cells), default=0)
    found = [row.estimates.get(IN_TIME) for row in rows]
    return [
        Text(f"{_bar(estimate.mean if estimate else 0.0)} {cell.plain.rjust(longest)}", style=cell.style)
        for estimate, cell in zip(found, cells, strict=True)
    ]


def _bar(share: float) -> str:
    full, rest = divmod(round(min(max(share, 0.0), 1.0) * BAR_CELLS * 8), 8)
    return ("█" * full + (EIGHTHS[rest] if rest else "")).ljust(BAR_CELLS)


def _caption(rows: Sequence[Aggregate], left_out: Sequence[Column] = ()) -> str | None:
    seeds = max((len(row.seeds) for row in rows), default=0)
    parts = [f"Mean ± 95 % confidence half-width over {seeds} seeds."] if seeds > 1 else []
    if any(column.rank == LAST_RANK for column in left_out):
        parts.append("Every request was answered in time.")
    headings = [column.heading for column in left_out if column.rank != LAST_RANK]
    if headings:
        parts.append(f"No room here for: {', '.join(headings)}.")
    return " ".join(parts) or None
