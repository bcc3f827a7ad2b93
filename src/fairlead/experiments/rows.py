"""Rows of an experiment: written to a table, read back with their types, and the figures with intervals in them.

A figure `wait` that was measured with several seeds has its mean in the column `wait`, and either every seed's value in
`wait_by_seed`, in the order of the seeds, or half of its 95 % interval in `wait_interval` or `wait_half_width`.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from statistics import fmean
from typing import Any

from fairlead.experiments.claims import Measured, around, exact, paired, paired_ratio, sampled
from fairlead.report import estimate

Row = Mapping[str, Any]
Rows = Sequence[Row]

BY_SEED = "_by_seed"
_HALF_WIDTHS = ("_interval", "_half_width")
_WORDS: Mapping[str, object] = {"": None, "True": True, "False": False}


def to_csv(rows: Iterable[Mapping[str, object]]) -> str:
    """The rows as a table with a header; what a row does not have is empty."""
    rows = list(rows)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def from_csv(text: str) -> list[Row]:
    """The rows of a table with their types. An empty cell is None; every row has every column."""
    return [{key: _typed(cell) for key, cell in row.items()} for row in csv.DictReader(io.StringIO(text))]


def committed_rows(package: str) -> list[Row]:
    """The rows of the last full run of an experiment's package, as committed; none if no full run was yet."""
    file = files(package) / "expected.csv"
    return from_csv(file.read_text(encoding="utf-8")) if file.is_file() else []


def _typed(cell: str) -> object:
    if cell in _WORDS:
        return _WORDS[cell]
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            pass
    return cell


def by_seed(values: Iterable[float], digits: int = 4) -> str:
    """The values of all seeds in one cell."""
    return " ".join(f"{value:.{digits}f}" for value in values)


def columns(figure: str, values: Sequence[float], digits: int) -> dict[str, object]:
    """The columns of a figure that was measured with several seeds: mean, half of its interval, and every seed."""
    found = estimate(values)
    half = None if found.half_width is None else round(found.half_width, digits)
    mean = round(found.mean, digits)
    return {figure: mean, f"{figure}_half_width": half, f"{figure}{BY_SEED}": by_seed(values, digits)}


def seeds_of(row: Row, figure: str) -> list[float] | None:
    """The value of every seed, if the row has them."""
    cell = row.get(figure + BY_SEED)
    return None if cell is None else [float(value) for value in str(cell).split()]


def values_of(row: Row, figure: str) -> list[float]:
    """The value of every seed; the mean alone if the row has no seeds, which is then a single sample."""
    return seeds_of(row, figure) or [float(row[figure])]


def measured(row: Row, figure: str) -> Measured:
    """A figure of a row with its interval, which is not known if the row has neither seeds nor a half width."""
    values = seeds_of(row, figure)
    if values is not None:
        return sampled(values)
    return around(
        float(row[figure]), next((row[figure + s] for s in _HALF_WIDTHS if row.get(figure + s) is not None), None)
    )


def number(row: Row, figure: str) -> Measured:
    """A deterministic figure of a row."""
    return exact(float(row[figure]))


def difference(row: Row, other: Row, figure: str, factor: float = 1.0) -> Measured:
    """A figure of one row minus `factor` times that of another: seed by seed if both rows have them."""
    ours, theirs = seeds_of(row, figure), seeds_of(other, figure)
    if ours is not None and theirs is not None:
        return paired(ours, theirs, factor)
    return measured(row, figure).minus(measured(other, figure), factor)


def quotient(row: Row, other: Row, figure: str) -> Measured:
    """A figure of one row over that of another: seed by seed if both rows have them."""
    ours, theirs = seeds_of(row, figure), seeds_of(other, figure)
    if ours is not None and theirs is not None:
        return paired_ratio(ours, theirs)
    return measured(row, figure).over(measured(other, figure))


def averaged(rows: Rows, figure: str) -> Measured:
    """The mean of a figure over rows of the same seeds, seed by seed; not known if a row has no seeds."""
    values = [seeds_of(row, figure) for row in rows]
    whole = [own for own in values if own is not None]
    if len(whole) < len(rows):
        return around(fmean(float(row[figure]) for row in rows), None)
    return sampled([fmean(own) for own in zip(*whole, strict=True)])


def pick(rows: Rows, **wanted: object) -> Row:
    """The one row with these values."""
    (found,) = select(rows, **wanted)
    return found


def select(rows: Rows, **wanted: object) -> list[Row]:
    """All rows with these values; None stands for an empty cell."""
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
