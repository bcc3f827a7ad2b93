"""Tables whose columns are not known beforehand, and values of any kind in them."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from fairlead.report.numbers import show_plain

NOTHING = "–"


def fit_table(
    headings: Sequence[str], lines: Sequence[Sequence[Text]], width: int, title: str | None = None
) -> Table | None:
    """A table of this width at most whose words stay whole; None if they cannot.

    Every column has room for its longest word; what is left goes to the narrowest that wants more.
    """
    columns = [[Text(heading), *(line[i] for line in lines)] for i, heading in enumerate(headings)]
    widths = [max(len(word) for cell in cells for word in (cell.plain.split() or [""])) for cells in columns]
    wanted = [max(len(cell) for cell in cells) for cells in columns]
    left = width - sum(widths) - 2 * len(columns) - 1
    if left < 0:
        return None
    for _ in range(left):
        narrow = [i for i in range(len(columns)) if widths[i] < wanted[i]]
        if narrow:
            widths[min(narrow, key=widths.__getitem__)] += 1
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for i, heading in enumerate(headings):
        is_number = all(_is_number(line[i].plain) for line in lines)
        table.add_column(heading, width=widths[i], justify="right" if is_number else "left")
    for line in lines:
        table.add_row(*line)
    return table


def hanging(mark: str, text: str) -> Table:
    """A paragraph beside its mark."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row(Text(mark), Text(text))
    return grid


def show_value(value: object) -> str:
    """A number with four digits, a dash for nothing, several values side by side, anything else as it is."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {show_value(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(show_value(item) for item in value)
    if isinstance(value, float):
        return show_plain(value) if abs(value) < 1e4 else f"{value:,.0f}"
    return str(value)


def _is_number(text: str) -> bool:
    return not text or text == NOTHING or text.replace(",", "").replace(".", "").replace("-", "").isdigit()
