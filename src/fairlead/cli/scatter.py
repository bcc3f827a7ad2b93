"""Points as a small picture of characters, for a terminal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log


@dataclass(frozen=True, kw_only=True)
class Ink:
    """The characters that a picture is drawn with."""

    point: str = "·"
    mark: str = "●"
    limit: str = "┆"
    side: str = "│"
    corner: str = "└"
    floor: str = "─"


ASCII = Ink(point=".", mark="@", limit=":", side="|", corner="+", floor="-")


def scatter(
    points: Sequence[tuple[float, float]],
    *,
    mark: tuple[float, float],
    limit: float | None,
    limit_label: str,
    width: int,
    height: int = 10,
    x_text: Callable[[float], str] = "{:g}".format,
    y_text: Callable[[float], str] = "{:g}".format,
    ink: Ink | None = None,
) -> list[str]:
    """Lines of at most this width: the points, one of them marked, and a limit on x as an upright line.

    Both axes are logarithmic, unless a value is 0. The least and greatest values are written at them.
    """
    ink = ink or Ink()
    xs, ys = [x for x, _ in points], [y for _, y in points]
    if limit is not None:
        xs.append(limit)
    high, low = y_text(max(ys)), y_text(min(ys))
    margin = max(len(high), len(low)) + 1
    columns = max(10, width - margin - 2)
    across, up = _axis(xs, columns), _axis(ys, height)
    grid = [[" "] * columns for _ in range(height)]
    if limit is not None:
        for row in grid:
            row[across(limit)] = ink.limit
    for x, y in points:
        grid[height - 1 - up(y)][across(x)] = ink.point
    grid[height - 1 - up(mark[1])][across(mark[0])] = ink.mark
    labels = {height - 1: low, 0: high}
    lines = [f"{labels.get(i, ''):>{margin}}{ink.side}{''.join(row)}".rstrip() for i, row in enumerate(grid)]
    lines.append(" " * margin + ink.corner + ink.floor * columns)
    lines.append(" " * (margin + 1) + _ruler(xs, across, columns, limit, limit_label, x_text))
    return lines


def _axis(values: Sequence[float], cells: int) -> Callable[[float], int]:
    """Which of the cells a value falls into."""
    low, high = min(values), max(values)

    def place(value: float) -> int:
        if not high > low:
            return cells // 2
        share = log(value / low) / log(high / low) if low > 0 else (value - low) / (high - low)
        return min(cells - 1, max(0, round(share * (cells - 1))))

    return place


def _ruler(
    xs: Sequence[float],
    across: Callable[[float], int],
    columns: int,
    limit: float | None,
    limit_label: str,
    x_text: Callable[[float], str],
) -> str:
    """The texts below the axis: the limit, then the ends, each if there is room for it."""
    row = [" "] * columns
    wanted = [(across(x), x_text(x)) for x in dict.fromkeys((min(xs), max(xs))) if x != limit]
    if limit is not None:
        wanted.insert(0, (across(limit), limit_label))
    for middle, text in wanted:
        start = max(0, min(middle - len(text) // 2, columns - len(text)))
        room = row[max(0, start - 2) : start + len(text) + 2]
        if start + len(text) <= columns and all(each == " " for each in room):
            row[start : start + len(text)] = text
    return "".join(row).rstrip()
