"""The Azure Functions trace of 2021: one line per call, with its end and its duration in seconds.

Cite Y. Zhang et al., "Faster and Cheaper Serverless Computing on Harvested Resources", SOSP 2021; the data are licensed
CC-BY. It names neither owner, trigger nor memory: an app stands for its owner, the trigger is `unknown`, and every
function takes the memory that the reader of 2019 gives where there is no file.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.workload.chunks import Chunk
from fairlead.workload.traces.azure2019 import OTHER_MEMORY_MB
from fairlead.workload.traces.fit import fitted
from fairlead.workload.traces.stream import CHUNK
from fairlead.workload.traces.tables import NUMBER, TEXT, check_header, read_table
from fairlead.workload.traces.trace import MEMORY_COLUMNS, Trace, by_minute

COLUMNS = ("app", "func", "end_timestamp", "duration")
_PERCENTILES = (0, 1, 25, 50, 75, 99, 100)


@dataclass(frozen=True, eq=False, kw_only=True)
class Invocations:
    """Every call with its own start and duration, in order of start; `trace` is the same by minute."""

    trace: Trace
    starts_s: NDArray[np.float64]
    called: NDArray[np.int32]
    durations_s: NDArray[np.float64]

    def chunks(self, chunk: int = CHUNK) -> Iterator[Chunk]:
        """The calls as they were, as a stream: a draw is the recorded duration over the mean of the function's law.

        A function whose percentiles are all the same has no spread, and takes that time in every call.
        """
        sigma = self.trace.column("sigma")
        means_s = self.trace.column("median_s") * np.exp(sigma**2 / 2)
        for first in range(0, self.starts_s.size, chunk):
            piece = slice(first, first + chunk)
            called = self.called[piece]
            draws = (self.durations_s[piece] / means_s[called])[sigma[called] > 0]
            yield Chunk(self.starts_s[piece], called, draws)


def read_azure_2021(path: Path) -> Invocations:
    """A file of calls; time 0 is where its clock begins. Raises `ConfigError` with its faults.

    A call that began before the clock did is taken to begin with it.
    """
    table = read_table(path, lambda header: _kinds(path, header))
    functions = table.group_by("app", "func", maintain_order=True).agg(
        pl.col("duration").mean().alias("Average") * 1000,
        pl.len().cast(pl.Int64).alias("Count"),
        pl.col("duration").min().alias("Minimum") * 1000,
        pl.col("duration").max().alias("Maximum") * 1000,
        *(
            pl.col("duration").quantile(percentile / 100, "linear").alias(f"percentile_Average_{percentile}") * 1000
            for percentile in _PERCENTILES
        ),
    )
    numbered = functions.select("app", "func").with_row_index("number")
    calls = table.join(numbered, on=["app", "func"], how="left", maintain_order="left")
    starts_s = calls["end_timestamp"].to_numpy() - calls["duration"].to_numpy()
    early = int((starts_s < 0).sum())
    starts_s = np.maximum(starts_s, 0.0)
    order = np.argsort(starts_s, kind="stable")
    starts_s = starts_s[order]
    called = calls["number"].to_numpy()[order].astype(np.int32)
    no_memory = (pl.lit(None, dtype=pl.Float64).alias(name) for name in MEMORY_COLUMNS)
    recorded = functions.rename({"func": "name"}).with_columns(
        pl.col("app").alias("owner"), pl.lit("unknown").alias("trigger"), *no_memory
    )
    functions, _, without_memory = fitted(recorded, OTHER_MEMORY_MB)
    notes = {"calls begun before the clock": early, "functions without memory": without_memory}
    first, who, counts = _counts(starts_s, called)
    trace = Trace(
        source=str(path),
        functions=functions,
        starts=first,
        called=who,
        counts=counts,
        notes={what: number for what, number in notes.items() if number},
    )
    return Invocations(trace=trace, starts_s=starts_s, called=called, durations_s=calls["duration"].to_numpy()[order])


def _kinds(path: Path, header: list[str]) -> dict[str, str]:
    check_header(str(path), header, COLUMNS)
    return {name: TEXT if name in COLUMNS[:2] else NUMBER for name in header}


def _counts(
    starts_s: NDArray[np.float64], called: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    minutes = (starts_s // 60.0).astype(np.int64)
    total = int(minutes[-1]) + 1
    cells, counts = np.unique(called.astype(np.int64) * total + minutes, return_counts=True)
    return by_minute(
        (cells // total).astype(np.int32), (cells % total).astype(np.int32), counts.astype(np.int32), total
    )
