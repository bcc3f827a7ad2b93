"""A trace: which functions there are, and how often each was called in each minute.

The counts are kept by minute, the functions that were called and how often, nothing for the others: a day of 80,000
functions fits in a few hundred MB, and a minute is one piece.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.workload.scenario import Scenario
from fairlead.workload.traces.scenarios import scenario_of

MINUTES_PER_DAY = 1440

DURATION_COLUMNS = (
    "Average",
    "Count",
    "Minimum",
    "Maximum",
    "percentile_Average_0",
    "percentile_Average_1",
    "percentile_Average_25",
    "percentile_Average_50",
    "percentile_Average_75",
    "percentile_Average_99",
    "percentile_Average_100",
)
"""What the data set of 2019 records of a function's runs, in ms."""

MEMORY_COLUMNS = (
    "SampleCount",
    "AverageAllocatedMb",
    *(f"AverageAllocatedMb_pct{percentile}" for percentile in (1, 5, 25, 50, 75, 95, 99, 100)),
)
"""What it records of the memory, in MB."""

LABELS = ("owner", "app", "name", "trigger")
FITTED = ("mean_s", "median_s", "sigma", "memory_mb")


@dataclass(frozen=True, eq=False, kw_only=True)
class Trace:
    """Functions, and their calls by minute.

    `functions` has a row per function, in the order of its number: `owner`, `app`, `name` and `trigger`; `median_s` and
    `sigma` of the log-normal law of its runs; `mean_s` and `memory_mb` as recorded; and the columns of the files as
    they were recorded, null where a function has no record and was given the median of the others.

    Minute m (from 0 on) holds the calls `called[starts[m]:starts[m + 1]]` (numbers of functions, rising) with their
    `counts`. `first_minute` is the number that the files give to minute 0. `notes` says by name how often something of
    the files had to be mended.
    """

    source: str
    functions: pl.DataFrame
    starts: NDArray[np.int64]
    called: NDArray[np.int32]
    counts: NDArray[np.int32]
    first_minute: int = 1
    notes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        missing = [name for name in (*LABELS, *FITTED) if name not in self.functions.columns]
        if missing:
            raise ValueError(f"functions must have the columns {', '.join(missing)}.")
        if not self.functions.height:
            raise ValueError("a trace needs at least one function.")
        if self.starts.size < 2 or self.starts[0] != 0 or self.starts[-1] != self.called.size:
            raise ValueError("starts must begin with 0, end with the number of counts, and hold at least one minute.")
        if self.called.size != self.counts.size:
            raise ValueError(f"called and counts must be as many; got {self.called.size} and {self.counts.size}.")

    def __len__(self) -> int:
        return self.functions.height

    @property
    def minutes(self) -> int:
        """How many minutes it covers."""
        return self.starts.size - 1

    @property
    def invocations(self) -> int:
        """All calls of all functions."""
        return int(self.calls_before[-1])

    @cached_property
    def calls_before(self) -> NDArray[np.int64]:
        """Calls before the beginning of each minute, and at last before the end."""
        running = np.zeros(self.counts.size + 1, dtype=np.int64)
        np.cumsum(self.counts, out=running[1:])
        return running[self.starts]

    @cached_property
    def calls(self) -> NDArray[np.int64]:
        """Calls of each function."""
        totals = np.bincount(self.called, weights=self.counts, minlength=len(self))  # exact below 2^53
        return totals.astype(np.int64)

    def column(self, name: str) -> NDArray[np.float64]:
        """A column of `functions` that holds numbers."""
        return self.functions[name].to_numpy()

    @property
    def names(self) -> list[str]:
        """A name of its own for each function: its name, and where several have that, its owner and app before it."""
        names = self.functions["name"].to_list()
        if len(set(names)) == len(names):
            return names
        return [f"{owner}/{app}/{name}" for owner, app, name in self.functions.select(LABELS[:3]).iter_rows()]

    def scenario(
        self,
        *,
        nodes: int,
        vcpus: float,
        memory_gb: float,
        cold_start_s: float = 1.0,
        keep_alive_s: float = 600.0,
        slo_s: float = inf,
        is_streamed: bool = False,
        name: str = "trace",
    ) -> Scenario:
        """A workflow of one stage per function, in order, on a cluster of equal nodes.

        A run takes one vCPU and the function's memory, of which an idle instance keeps the latter. Arrivals are the
        counts by minute; with `is_streamed` there are none, as they come besides, from `chunks`.
        """
        return scenario_of(
            self,
            nodes=nodes,
            vcpus=vcpus,
            memory_gb=memory_gb,
            cold_start_s=cold_start_s,
            keep_alive_s=keep_alive_s,
            slo_s=slo_s,
            is_streamed=is_streamed,
            name=name,
        )

    def minute(self, minute: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Who was called in this minute, from 0 on, and how often."""
        piece = slice(self.starts[minute], self.starts[minute + 1])
        return self.called[piece], self.counts[piece]

    def window(self, start_minute: int = 0, minutes: int | None = None) -> "Trace":
        """Some of its minutes, with all functions; `start_minute` counts from 0."""
        first, last = self.span(start_minute, minutes)
        begin, end = self.starts[first], self.starts[last]
        return replace(
            self,
            starts=self.starts[first : last + 1] - begin,
            called=self.called[begin:end],
            counts=self.counts[begin:end],
            first_minute=self.first_minute + first,
        )

    def span(self, start_minute: int = 0, minutes: int | None = None) -> tuple[int, int]:
        """The first minute and the one after the last, checked; without `minutes`, all that follow."""
        end = self.minutes if minutes is None else start_minute + minutes
        if not 0 <= start_minute < end <= self.minutes:
            raise ValueError(
                f"start_minute and minutes must lie within the {self.minutes} minutes of the trace and leave at least "
                f"one; got {start_minute} and {minutes}."
            )
        return start_minute, end

    def keep(self, numbers: NDArray[np.int64]) -> "Trace":
        """Some of its functions, by number, which are numbered anew in their old order."""
        chosen = np.unique(numbers)
        anew = np.full(len(self), -1, dtype=np.int32)
        anew[chosen] = np.arange(chosen.size, dtype=np.int32)
        called = anew[self.called]
        is_kept = called >= 0
        before = np.concatenate([[0], np.cumsum(is_kept, dtype=np.int64)])
        return replace(
            self,
            functions=self.functions[chosen.tolist()],
            starts=before[self.starts],
            called=called[is_kept],
            counts=self.counts[is_kept],
        )

    @cached_property
    def by_function(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """The same counts by function: where each begins, in which minutes it was called, and how often."""
        order = np.argsort(self.called, kind="stable")
        minutes = np.repeat(np.arange(self.minutes, dtype=np.int32), np.diff(self.starts))
        begins = np.zeros(len(self) + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.called, minlength=len(self)), out=begins[1:])
        return begins, minutes[order], self.counts[order]

    def rows(self, first: int, last: int) -> NDArray[np.int32]:
        """Counts as a table of some functions, a row each, by minute."""
        begins, minutes, counts = self.by_function
        table = np.zeros((last - first, self.minutes), dtype=np.int32)
        piece = slice(begins[first], begins[last])
        table[np.repeat(np.arange(last - first), np.diff(begins[first : last + 1])), minutes[piece]] = counts[piece]
        return table


def by_minute(
    functions: NDArray[np.int32], minutes: NDArray[np.int32], counts: NDArray[np.int32], total_minutes: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Triples in order of function, each function and minute once, as `starts`, `called` and `counts` of a trace."""
    order = np.argsort(minutes, kind="stable")
    starts = np.zeros(total_minutes + 1, dtype=np.int64)
    np.cumsum(np.bincount(minutes, minlength=total_minutes), out=starts[1:])
    return starts, functions[order], counts[order]
