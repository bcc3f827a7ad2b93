"""Traces in the format of the Azure Functions data set of 2019: invocations per minute and function.

A row holds HashOwner, HashApp, HashFunction, Trigger, and one count per minute. The minute columns are numbered
and may begin anywhere, so that an excerpt of a day keeps the numbers of the day.
"""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fairlead.errors import ConfigError, Fault, suggestion

LABELS = ("HashOwner", "HashApp", "HashFunction", "Trigger")


@dataclass(frozen=True, kw_only=True)
class MinuteTrace:
    """Counts per minute of every function; `first_minute` is the number of the first column."""

    source: str
    first_minute: int
    functions: tuple[str, ...]
    table: pl.DataFrame  # one row per function, one column per minute

    @property
    def last_minute(self) -> int:
        """The number of the last column."""
        return self.first_minute + self.table.width - 1

    def counts(self, function: str | int, minutes: tuple[int, int] | None = None) -> tuple[int, ...]:
        """Counts of one function, by its hash or its row (the first is 1), or of all as `total`.

        `minutes` are the numbers of the first and the last column to take. Raises `ValueError`.
        """
        first, last = minutes or (self.first_minute, self.last_minute)
        if not self.first_minute <= first <= last <= self.last_minute:
            raise ValueError(
                f"minutes must be in order and from {self.first_minute} to {self.last_minute}; got {first} to {last}."
            )
        part = self.table[:, first - self.first_minute : last - self.first_minute + 1]
        row = part.sum() if function == "total" else part[self._row(function)]
        return tuple(int(count) for count in row.row(0))

    def _row(self, function: str | int) -> int:
        if isinstance(function, int):
            if not 1 <= function <= len(self.functions):
                raise ValueError(f"function must be a row from 1 to {len(self.functions)}; got {function}.")
            return function - 1
        rows = [i for i, name in enumerate(self.functions) if name == function]
        if not rows:
            raise ValueError(f"function {function!r} is not in the trace.{suggestion(function, self.functions)}")
        if len(rows) > 1:
            raise ValueError(f"function {function!r} has {len(rows)} rows; name one by its number, as {rows[0] + 1}.")
        return rows[0]


def read_trace(path: Path) -> MinuteTrace:
    """A trace file, whole. Raises `ConfigError` with the row and column of what is wrong."""
    source = str(path)
    if not path.is_file():
        raise _error(source, "", "there is no such file.")
    try:
        text = pl.read_csv(path, infer_schema=False)  # as text, so that a wrong cell can be shown
    except OSError as error:
        raise _error(source, "", f"cannot be read: {error.strerror or error}.") from None
    except pl.exceptions.PolarsError as error:
        raise _error(source, "", f"is not a CSV file: {str(error).splitlines()[0]}.") from None
    first_minute = _check_header(text.columns, source)
    if text.height == 0:
        raise _error(source, "", "holds no functions.")
    minutes = text[:, len(LABELS) :]
    table = minutes.select(pl.all().cast(pl.Int64, strict=False))
    _check_counts(minutes, table, source)
    names = text["HashFunction"]
    if names.null_count():
        raise _error(source, f"row {_first(names.is_null()) + 1}", "has no HashFunction.")
    return MinuteTrace(source=source, first_minute=first_minute, functions=tuple(names), table=table)


def _check_header(columns: list[str], source: str) -> int:
    if tuple(columns[: len(LABELS)]) != LABELS:
        found = ",".join(columns[: len(LABELS)])
        raise _error(source, "header", f"must begin with {','.join(LABELS)}; got {found[:80]!r}.")
    numbers = columns[len(LABELS) :]
    if not numbers:
        raise _error(source, "header", "there is no minute column.")
    if not (numbers[0].isascii() and numbers[0].isdigit()):
        raise _error(source, "header", f"a minute column is named by its number; got {numbers[0]!r}.")
    first = int(numbers[0])
    for expected, found in enumerate(numbers, start=first):
        if found != str(expected):
            raise _error(source, "header", f"minutes must be numbered without gaps; got {found!r} for {expected}.")
    return first


def _check_counts(text: pl.DataFrame, table: pl.DataFrame, source: str) -> None:
    for column in table.columns:
        wrong = table[column].is_null() | (table[column] < 0).fill_null(True)
        if wrong.any():
            row = _first(wrong)
            where = f"row {row + 1}, minute {column}"
            raise _error(source, where, f"must be a whole number that is not negative; got {text[column][row]!r}.")


def _first(mask: pl.Series) -> int:
    return int(mask.arg_true()[0])


def _error(source: str, path: str, message: str) -> ConfigError:
    return ConfigError(source, [Fault(path, message)])
