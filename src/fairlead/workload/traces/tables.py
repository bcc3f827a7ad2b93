"""CSV files read strictly: as fast as the table library can, and once more by the line where something is wrong.

A fault names the line, the column, what was found and what is wanted; all faults of a file are told at once, up to
twenty.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from math import isfinite
from pathlib import Path

import polars as pl

from fairlead.errors import ConfigError, Fault, suggestion

MOST_FAULTS = 20

TEXT, COUNT, WHOLE, NUMBER, MAYBE = "text", "count", "whole", "number", "maybe"
"""Kinds of columns: words; whole numbers from 0 on, small or large; numbers from 0 on; any, which may be left out."""

_TYPES = {TEXT: pl.String, COUNT: pl.Int32, WHOLE: pl.Int64, NUMBER: pl.Float64, MAYBE: pl.Float64}
_MOST = {COUNT: 2**31 - 1, WHOLE: 2**63 - 1}

Kinds = Callable[[list[str]], Mapping[str, str]]
"""Gives the kind of each column of a header, or raises `ConfigError`."""


def read_table(path: Path, kinds: Kinds, *, may_be_empty: bool = False) -> pl.DataFrame:
    """A file with a header, whole. Raises `ConfigError`."""
    header = _header(path)
    wanted = kinds(header)
    types = {name: _TYPES[kind] for name, kind in wanted.items()}
    try:
        table = pl.read_csv(path, schema_overrides=types, infer_schema_length=0)
    except pl.exceptions.PolarsError as error:
        raise _told(path, wanted, str(error).splitlines()[0]) from None
    except OSError as error:
        raise ConfigError(str(path), [Fault("", f"cannot be read: {error.strerror or error}.")]) from None
    if table.height == 0 and not may_be_empty:
        raise ConfigError(str(path), [Fault("", "holds no rows; a line per function is wanted after the header.")])
    if not _is_sound(table, wanted):
        raise _told(path, wanted, "a value is missing or out of range")
    return table


def check_header(source: str, header: Sequence[str], known: Sequence[str], missing_ok: Sequence[str] = ()) -> None:
    """Raise `ConfigError` unless the header has each known column once and no other, in any order."""
    faults = [
        Fault("line 1", f"column {name!r} is missing; it must be there.")
        for name in known
        if name not in header and name not in missing_ok
    ]
    faults += [
        Fault("line 1", f"column {name!r} is not known.{suggestion(name, known)} Leave it out or rename it.")
        for name in dict.fromkeys(header)
        if name not in known
    ]
    faults += [
        Fault("line 1", f"column {name!r} is there {header.count(name)} times; leave one.")
        for name in dict.fromkeys(header)
        if header.count(name) > 1
    ]
    if faults:
        raise ConfigError(source, _few(faults))


def _header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), [])
    except OSError as error:
        raise ConfigError(str(path), [Fault("", f"cannot be read: {error.strerror or error}.")]) from None
    except (UnicodeDecodeError, csv.Error):
        raise ConfigError(str(path), [Fault("line 1", "is not text; a CSV file with a header is wanted.")]) from None
    if not header:
        raise ConfigError(str(path), [Fault("line 1", "is empty; a header with the names of the columns is wanted.")])
    return header


def _is_sound(table: pl.DataFrame, kinds: Mapping[str, str]) -> bool:
    """Whether every value is there and in range; the line-by-line reading says which is not."""
    checks = []
    for name, kind in kinds.items():
        column = pl.col(name)
        if kind == TEXT:
            checks.append(column.is_not_null().all() & (column != "").all())
        elif kind == MAYBE:
            checks.append((column.is_null() | column.is_finite()).all())
        else:
            in_range = (column >= 0) & (column.is_finite() if kind == NUMBER else pl.lit(True))
            checks.append(in_range.fill_null(False).all())
    return all(table.select(check.alias(str(i)) for i, check in enumerate(checks)).row(0))


def _told(path: Path, kinds: Mapping[str, str], reason: str) -> ConfigError:
    faults = list(islice(_faults(path, kinds), MOST_FAULTS + 1))
    if not faults:
        faults = [Fault("", f"is not a CSV file that can be read: {reason}.")]
    return ConfigError(str(path), _few(faults))


def _few(faults: list[Fault]) -> list[Fault]:
    if len(faults) <= MOST_FAULTS:
        return faults
    return [*faults[:MOST_FAULTS], Fault("", f"and more; the first {MOST_FAULTS} are listed.")]


def _faults(path: Path, kinds: Mapping[str, str]) -> Iterator[Fault]:
    columns = list(kinds.items())
    with path.open(encoding="utf-8-sig", newline="", errors="replace") as file:
        lines = csv.reader(file)
        next(lines, None)
        try:
            for cells in lines:
                if not cells:
                    continue
                where = f"line {lines.line_num}"
                if len(cells) != len(columns):
                    yield Fault(where, f"has {len(cells)} cells; the header has {len(columns)}. Mend or drop the line.")
                    continue
                for (name, kind), cell in zip(columns, cells, strict=True):
                    wanted = _wanted(kind, cell)
                    if wanted:
                        yield Fault(f"{where}, column {name}", f"must be {wanted}; got {cell[:40]!r}.")
        except csv.Error as error:
            yield Fault(f"line {lines.line_num}", f"is not CSV: {error}.")


def _wanted(kind: str, cell: str) -> str:
    """What the cell should be; empty where it is that."""
    if kind == TEXT:
        return "" if cell else "a name"
    if kind in _MOST:
        is_count = cell.isascii() and cell.isdigit() and int(cell) <= _MOST[kind]
        return "" if is_count else f"a whole number from 0 to {_MOST[kind]}"
    if kind == MAYBE and not cell:
        return ""
    try:
        value = float(cell)
    except ValueError:
        value = float("nan")
    if kind == MAYBE:
        return "" if isfinite(value) else "a number, or empty"
    return "" if isfinite(value) and value >= 0 else "a number that is not negative"
