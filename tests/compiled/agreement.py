"""Whether two recordings of one run are the same, to the last bit; and if not, where they part."""

from dataclasses import fields

import numpy as np
import polars as pl

from fairlead.model import Recording

TABLES = ("requests", "invocations", "instances")
MEASURED = ("decision_s", "run_wall_s", "engine")  # of the machine, or of who did the run


def assert_same(python: Recording, compiled: Recording) -> None:
    """Raise AssertionError with the first difference, the earliest in the run where tables differ."""
    for table in TABLES:
        _assert_same_columns(table, getattr(python, table), getattr(compiled, table))
    first = [
        found
        for table in TABLES
        if (found := first_difference(table, getattr(python, table), getattr(compiled, table))) is not None
    ]
    if first:
        raise AssertionError("\n".join(first))
    for field in fields(Recording):
        if field.name not in (*TABLES, *MEASURED):
            one, other = getattr(python, field.name), getattr(compiled, field.name)
            assert type(one) is type(other), f"{field.name}: {one!r} by python, {other!r} by the compiled core"
            assert one == other, f"{field.name}: {one!r} by python, {other!r} by the compiled core"


def first_difference(table: str, one: pl.DataFrame, other: pl.DataFrame) -> str | None:
    """The first row in which two tables of the same columns differ, told in full; None if they are the same."""
    height = min(one.height, other.height)
    differing: dict[str, np.ndarray] = {}
    for name in one.columns:
        unlike = _unlike(one[name].head(height), other[name].head(height))
        if unlike.any():
            differing[name] = unlike
    if not differing:
        if one.height == other.height:
            return None
        longer, who = (one, "python") if one.height > height else (other, "the compiled core")
        return (
            f"{table}: {one.height} rows by python, {other.height} by the compiled core; the first {height} are the"
            f" same. {who} has also:\n    {longer.row(height, named=True)}"
        )
    row = min(int(unlike.argmax()) for unlike in differing.values())
    names = [name for name, unlike in differing.items() if unlike[row]]
    lines = [f"{table}: row {row} of {one.height} and {other.height} differs in {', '.join(names)}."]
    for name in names:
        ours, theirs = one[name][row], other[name][row]
        gap = f" (apart by {theirs - ours!r})" if isinstance(ours, float) and isinstance(theirs, float) else ""
        lines.append(f"  {name}: {ours!r} by python, {theirs!r} by the compiled core{gap}")
    lines.append(f"  python    {one.row(row, named=True)}")
    lines.append(f"  compiled  {other.row(row, named=True)}")
    if row:
        lines.append(f"  before    {one.row(row - 1, named=True)}")
    return "\n".join(lines)


def _assert_same_columns(table: str, one: pl.DataFrame, other: pl.DataFrame) -> None:
    assert one.columns == other.columns, f"{table}: columns {one.columns} and {other.columns}"
    assert one.dtypes == other.dtypes, f"{table}: types {one.schema} and {other.schema}"


def _unlike(one: pl.Series, other: pl.Series) -> np.ndarray:
    """Where two columns differ; floats by their bits, so that 0.0 is not -0.0 and a last digit counts."""
    if one.dtype != pl.Float64:
        return one.ne_missing(other).to_numpy()
    bits = [column.fill_null(0.0).to_numpy().view(np.uint64) for column in (one, other)]
    return (bits[0] != bits[1]) | (one.is_null() != other.is_null()).to_numpy()
