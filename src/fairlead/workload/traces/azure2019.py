"""The Azure Functions data set of 2019: a folder with the three CSV files of a day.

Calls per minute and function, percentiles of the run times, percentiles of the memory; under the names that Microsoft
gave them, or as `invocations.csv`, `durations.csv` and `memory.csv`. Cite M. Shahrad et al., "Serverless in the Wild",
USENIX ATC 2020; the data are licensed CC-BY.

What the files are known for, and what becomes of it here: memory is recorded per app, and is divided evenly among the
functions of the app that are in the trace, unless the file names functions itself; a function may have several rows (of
calls, which are added up; of times and memory, of which the first counts); the last days have no file of memory.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.errors import ConfigError, Fault
from fairlead.workload.traces.fit import fitted
from fairlead.workload.traces.tables import COUNT, MAYBE, NUMBER, TEXT, WHOLE, check_header, read_table
from fairlead.workload.traces.trace import DURATION_COLUMNS, MEMORY_COLUMNS, Trace

Progress = Callable[[float, str], None]
"""Is told the share that is done, in [0, 1], and what is being done."""

KEY = ("HashOwner", "HashApp", "HashFunction")
SHORT_NAMES = {"invocations": "invocations.csv", "durations": "durations.csv", "memory": "memory.csv"}
LONG_NAMES = {
    "invocations": "invocations_per_function_md.anon.d{day:02d}.csv",
    "durations": "function_durations_percentiles.anon.d{day:02d}.csv",
    "memory": "app_memory_percentiles.anon.d{day:02d}.csv",
}
OTHER_MEMORY_MB = 140.0
"""Per function, where there is no file of memory: about the median of the Burr law of the generator."""

_DAYS = range(1, 15)
_OWN_TYPES = {"Count": WHOLE, "SampleCount": WHOLE, "Minimum": MAYBE, "Maximum": MAYBE}  # the last two may be missing


def read_azure_2019(folder: Path, day: int | None = None, progress: Progress = lambda share, doing: None) -> Trace:
    """A day of the data set. Raises `ConfigError` with the faults of the first file that has any."""
    files = _files(folder, day)
    progress(0.0, "reading calls")
    first_minute, labels, calls = _calls(files["invocations"])
    progress(0.6, "reading times")
    durations = read_table(
        files["durations"], lambda header: _kinds(files["durations"], header, DURATION_COLUMNS), may_be_empty=True
    )
    notes = {"rows of calls merged": labels.height}
    labels, starts, called, counts = _merged(labels, calls)
    del calls  # a table of the whole day
    notes["rows of calls merged"] -= labels.height
    durations, notes["rows of times beyond the first"] = _firsts(durations, KEY)
    recorded = labels.join(durations, on=KEY, how="left", maintain_order="left")
    progress(0.9, "reading memory")
    if "memory" in files:
        memory = read_table(files["memory"], lambda header: _memory_kinds(files["memory"], header), may_be_empty=True)
        recorded, notes["rows of memory beyond the first"] = _with_memory(recorded, memory)
    else:
        recorded = recorded.with_columns(pl.lit(None, dtype=pl.Float64).alias(name) for name in MEMORY_COLUMNS)
    functions, notes["functions without times"], notes["functions without memory"] = fitted(recorded, OTHER_MEMORY_MB)
    progress(1.0, "done")
    return Trace(
        source=str(folder),
        functions=functions.rename(
            {"HashOwner": "owner", "HashApp": "app", "HashFunction": "name", "Trigger": "trigger"}
        ),
        starts=starts,
        called=called,
        counts=counts,
        first_minute=first_minute,
        notes=MappingProxyType({what: number for what, number in notes.items() if number}),
    )


def _files(folder: Path, day: int | None) -> Mapping[str, Path]:
    if not folder.is_dir():
        reason = "is a file; the folder of its three files is wanted" if folder.exists() else "there is no such folder"
        raise ConfigError(str(folder), [Fault("", f"{reason}.")])
    days = [each for each in _DAYS if (folder / LONG_NAMES["invocations"].format(day=each)).is_file()]
    if day is not None:
        names = {kind: name.format(day=day) for kind, name in LONG_NAMES.items()}
    elif (folder / SHORT_NAMES["invocations"]).is_file():
        names = SHORT_NAMES
    elif len(days) > 1:
        listed = ", ".join(map(str, days))
        raise ConfigError(
            str(folder), [Fault("", f"holds several days ({listed}); choose one, as in --day {days[0]}.")]
        )
    else:
        names = {kind: name.format(day=days[0] if days else 1) for kind, name in LONG_NAMES.items()}
    files = {kind: folder / name for kind, name in names.items() if (folder / name).is_file()}
    if "invocations" not in files:
        asked = names["invocations"]
        either = asked if day is not None else f"{SHORT_NAMES['invocations']} or {asked}"
        raise ConfigError(str(folder), [Fault("", f"holds no trace: {either} is wanted.")])
    if "durations" not in files:
        raise ConfigError(str(folder), [Fault(names["durations"], "is missing; it must be beside the calls.")])
    return files


def _calls(path: Path) -> tuple[int, pl.DataFrame, pl.DataFrame]:
    """The number of the first minute, the labels, and a table of a column per minute."""
    table = read_table(path, lambda header: _call_kinds(str(path), header))
    labels = table.select(*KEY, "Trigger")
    minutes = sorted((name for name in table.columns if name not in labels.columns), key=int)
    return int(minutes[0]), labels, table.select(minutes)


def _call_kinds(source: str, header: list[str]) -> Mapping[str, str]:
    numbers = [name for name in header if name.isascii() and name.isdigit()]
    first = min(map(int, numbers), default=1)
    wanted = [str(first + i) for i in range(len(numbers))]
    check_header(source, header, [*KEY, "Trigger", *wanted])
    if not numbers:
        raise ConfigError(source, [Fault("line 1", "there is no minute; columns named by their number are wanted.")])
    return {name: TEXT if name in (*KEY, "Trigger") else COUNT for name in header}


def _kinds(path: Path, header: list[str], columns: tuple[str, ...]) -> Mapping[str, str]:
    check_header(str(path), header, [*KEY, *columns])
    return {name: TEXT if name in KEY else _OWN_TYPES.get(name, NUMBER) for name in header}


def _memory_kinds(path: Path, header: list[str]) -> Mapping[str, str]:
    check_header(str(path), header, [*KEY, *MEMORY_COLUMNS], missing_ok=["HashFunction"])
    return {name: TEXT if name in KEY else _OWN_TYPES.get(name, NUMBER) for name in header}


def _merged(
    labels: pl.DataFrame, calls: pl.DataFrame
) -> tuple[pl.DataFrame, NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Functions in order of first appearance, and their calls by minute; rows of one function are added up."""
    distinct = labels.unique(subset=KEY, keep="first", maintain_order=True)
    is_merged = distinct.height < labels.height
    number_of = None
    if is_merged:
        numbered = distinct.select(*KEY).with_row_index("number")
        number_of = labels.join(numbered, on=KEY, how="left", maintain_order="left")["number"].to_numpy()
    called, counts = [], []
    starts = np.zeros(calls.width + 1, dtype=np.int64)
    for minute, name in enumerate(calls.columns):
        column = calls[name].to_numpy()
        if number_of is not None:
            column = np.bincount(number_of, weights=column, minlength=distinct.height).astype(np.int32)
        (numbers,) = np.nonzero(column)
        called.append(numbers.astype(np.int32))
        counts.append(column[numbers].astype(np.int32))
        starts[minute + 1] = starts[minute] + numbers.size
    return distinct, starts, np.concatenate(called), np.concatenate(counts)


def _firsts(table: pl.DataFrame, key: tuple[str, ...]) -> tuple[pl.DataFrame, int]:
    firsts = table.unique(subset=key, keep="first", maintain_order=True)
    return firsts, table.height - firsts.height


def _with_memory(recorded: pl.DataFrame, memory: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The memory of each function; that of an app is divided among its functions here."""
    key = KEY if "HashFunction" in memory.columns else KEY[:2]
    memory, beyond = _firsts(memory, key)
    joined = recorded.join(memory, on=key, how="left", maintain_order="left")
    if key != KEY:
        amounts = [name for name in MEMORY_COLUMNS if name != "SampleCount"]
        joined = joined.with_columns(pl.col(amounts) / pl.len().over(key))
    return joined, beyond
