"""A trace written as the three CSV files it could have been read from."""

from pathlib import Path

import polars as pl

from fairlead.workload.traces.azure2019 import KEY, SHORT_NAMES, Progress
from fairlead.workload.traces.trace import DURATION_COLUMNS, MEMORY_COLUMNS, Trace

_BLOCK = 2048  # functions at once: a full day of all would be a table of several hundred MB


def write(trace: Trace, folder: Path, progress: Progress = lambda share, doing: None) -> tuple[Path, ...]:
    """Write `invocations.csv`, `durations.csv` and `memory.csv`; gives their paths. What has no record has no row."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = trace.functions.rename(dict(zip(("owner", "app", "name", "trigger"), (*KEY, "Trigger"), strict=True)))
    files = {kind: folder / name for kind, name in SHORT_NAMES.items()}
    minutes = [str(trace.first_minute + minute) for minute in range(trace.minutes)]
    with files["invocations"].open("wb") as out:
        for first in range(0, len(trace), _BLOCK):
            last = min(first + _BLOCK, len(trace))
            counts = pl.DataFrame(trace.rows(first, last), schema=minutes, orient="row")
            block = pl.concat([labels[first:last].select(*KEY, "Trigger"), counts], how="horizontal")
            block.write_csv(out, include_header=first == 0)
            progress(last / len(trace), "writing calls")
    for kind, columns in (("durations", DURATION_COLUMNS), ("memory", MEMORY_COLUMNS)):
        labels.select(*KEY, *columns).drop_nulls(columns[0]).write_csv(files[kind])
    return tuple(files.values())
