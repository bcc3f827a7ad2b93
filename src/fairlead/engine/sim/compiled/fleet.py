"""A long stream of arrivals through the compiled engine, in bounded memory: sums by function, records of a sample.

The state of a run is what runs, what waits and what is idle; a day of 10^9 calls needs no more than an hour of it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.engine.sim.compiled import layout as at
from fairlead.engine.sim.compiled.flow import TALLY_COLUMNS
from fairlead.engine.sim.compiled.keep_alive import KeepAlive, make_keep_alive
from fairlead.engine.sim.compiled.loop import advance
from fairlead.engine.sim.compiled.placements import Placement
from fairlead.engine.sim.compiled.run import CompiledRun
from fairlead.policy import Policy, make_policy
from fairlead.workload import Scenario
from fairlead.workload.chunks import Chunk

Progress = Callable[[int, float], None]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Record every so many requests, in the order of their arrival; the first is one of them."""

    every: int = 1000

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every must be at least 1; got {self.every}.")


@dataclass(frozen=True)
class Windows:
    """Record the requests that arrive in some stretches of time: (from, until) in seconds, until not included."""

    spans: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        for begin, end in self.spans:
            if not begin < end:
                raise ValueError(f"a window must begin before it ends; got {begin} to {end}.")


Record = Literal["none", "sample", "all"] | Sample | Windows


@dataclass(frozen=True, kw_only=True, eq=False)
class FleetResult:
    """What a stream came to.

    Memory is counted until the last arrival, `last_arrival_s`: `wasted_gb_s` for instances that were idle, `used_gb_s`
    for those at work or starting. All else is counted until nothing is left to do, `end_s`. `calls` and `cold` are by
    function, in the scenario's order: runs, and those of them that waited for a new instance. `requests` and
    `invocations` are tables of what was recorded, None if nothing was to be.
    """

    invocations: int
    completed: int
    rejected: int
    dropped: int
    unfinished: int
    cold_starts: int
    prewarmed: int
    evicted: int
    wasted_gb_s: float
    used_gb_s: float
    latency_mean_s: float
    last_arrival_s: float
    end_s: float
    wall_s: float
    cpu_s: float
    functions: tuple[str, ...]
    calls: NDArray[np.int64]
    cold: NDArray[np.int64]
    requests: pl.DataFrame | None = None
    invocation_records: pl.DataFrame | None = None

    @property
    def cold_share(self) -> float:
        """Share of all runs that were cold, in [0, 1]; 0 without any."""
        return self.cold_starts / self.invocations if self.invocations else 0.0

    @property
    def cold_shares(self) -> NDArray[np.float64]:
        """The same by function; NaN for those that never ran."""
        with np.errstate(invalid="ignore"):
            return np.divide(self.cold, self.calls)

    def cold_share_percentile(self, percentile: float) -> float:
        """A percentile, in [0, 100], over the functions that ran, of their own shares of cold runs."""
        shares = self.cold_shares
        return float(np.percentile(shares[~np.isnan(shares)], percentile))


def run_stream(
    scenario: Scenario,
    chunks: Iterable[Chunk],
    *,
    policy: str | Policy | Placement = "fifo",
    keep_alive: KeepAlive | str | None = None,
    record: Record = "none",
    seed: int = 0,
    progress: Progress | None = None,
) -> FleetResult:
    """Run a stream of arrivals to its end.

    Args:
        scenario: Cluster, functions and workflows; its own arrivals are not looked at.
        chunks: The arrivals, in order, with their random factors, as `fairlead.workload.traces.chunks` gives them.
        policy: How to dispatch: by name, or anything that the compiled engine covers.
        keep_alive: How long idle instances stay: a rule, or its name. None leaves each function its own time.
        record: What to record of which requests: `none`, `sample` (one in a thousand), `all`, or some of your own.
        seed: For what is drawn besides the arrivals; no covered policy draws anything.
        progress: Called after every chunk with how many requests have come, and the simulated time.

    Raises:
        UncoveredError: The compiled engine does not cover the scenario or the policy.
        PolicyError: A placement failed.
    """
    rule = make_keep_alive(keep_alive) if isinstance(keep_alive, str) else keep_alive
    dispatcher = make_policy(policy) if isinstance(policy, str) else policy
    run = _Stream(
        scenario if rule is None else rule.scenario(scenario), dispatcher, chunks, rule, record, seed, progress
    )
    clock, cpu = perf_counter(), process_time()
    run.go()
    return run.result(perf_counter() - clock, process_time() - cpu)


class _Stream(CompiledRun):
    """A run that counts its memory until the last arrival."""

    def __init__(
        self,
        scenario: Scenario,
        policy: Policy | Placement,
        chunks: Iterable[Chunk],
        keep_alive: KeepAlive | None,
        record: Record,
        seed: int,
        progress: Progress | None,
    ) -> None:
        self._progress: Progress | None = None  # not before anything has run
        self._memory_mb_s = (0.0, 0.0)
        sample = Sample() if record == "sample" else record
        super().__init__(scenario, policy, seed=seed, record="none" if sample == "none" else "all", arrivals=chunks)
        c = self._c
        c[at.TALLIES] = 1
        if sample != "none":
            c[at.RECORDS] = at.KEEP_REQUESTS | at.KEEP_INVOCATIONS
        self._sample = sample
        if isinstance(sample, Sample):
            c[at.SAMPLING], c[at.SAMPLE_EVERY] = at.EVERY_SO_MANY, sample.every
        elif isinstance(sample, Windows):
            c[at.SAMPLING] = at.IN_WINDOWS
            self.memory[at.RECORD_WINDOWS] = np.array(sample.spans, float)
        if keep_alive is not None:
            keep_alive.prepare(self.memory)
        self._progress = progress

    def go(self) -> None:
        """Run to the end."""
        while True:
            status = advance(self.memory.h, self._pick, self._call)
            if status == at.NEEDS_ARRIVALS:
                self._feed()
            elif status == at.NEEDS_ROOM:
                self._make_room()
            elif status == at.BAD_DECISION:
                raise self._failure()
            elif status == at.STOPPED:
                self._count_memory()
            else:
                assert status == at.DONE, status
                break
        if self._x[at.STOP_AT] < np.inf:
            self._count_memory()
        self._finish()

    def _feed(self) -> None:
        super()._feed()
        if self._c[at.MORE_ARRIVALS] == 0:
            self._x[at.STOP_AT] = self.now  # where the last arrival is; what happens then still belongs to it
        if self._progress is not None:
            self._progress(int(self._c[at.NEXT_REQUEST]), self.now)

    def _count_memory(self) -> None:
        """How much memory was idle and at work until the last arrival."""
        memory, x = self.memory, self._x
        at_s = float(x[at.STOP_AT])
        living = np.flatnonzero(memory[at.I_ID] >= 0)
        megabytes = memory[at.FLAVOUR_MEMORY][memory[at.I_FLAVOUR][living]]
        is_idle = (memory[at.I_STATE][living] & at.IDLE) != 0
        idle = float(x[at.IDLE_MB_S] + ((at_s - memory[at.I_SINCE][living]) * megabytes)[is_idle].sum())
        life = float(x[at.LIFE_MB_S] + ((at_s - memory[at.I_STARTED][living]) * megabytes).sum())
        self._memory_mb_s = (idle, life - idle)
        self._last_arrival_s = at_s
        x[at.STOP_AT] = np.inf

    def _finish(self) -> None:
        super()._finish()
        if isinstance(self._sample, Sample | Windows):
            whole, real = self.requests.pop()  # those that are still open
            ids, arrivals = whole[:: at.REQUEST_INT_COLUMNS], real[:: at.REQUEST_REAL_COLUMNS]
            if isinstance(self._sample, Sample):
                kept = ids % self._sample.every == 0
            else:
                spans = self._sample.spans
                kept = np.any([(begin <= arrivals) & (arrivals < end) for begin, end in spans], axis=0)
            self.requests.append(
                (
                    whole.reshape(-1, at.REQUEST_INT_COLUMNS)[kept].reshape(-1),
                    real.reshape(-1, at.REQUEST_REAL_COLUMNS)[kept].reshape(-1),
                )
            )

    def result(self, wall_s: float, cpu_s: float) -> FleetResult:
        """What it came to."""
        totals, c = self.totals(), self._c
        tally = self.memory[at.TALLY].reshape(-1, TALLY_COLUMNS)
        requests = invocations = None
        if self._sample != "none":
            requests, invocations, _ = self.tables()
        wasted, used = self._memory_mb_s
        return FleetResult(
            invocations=totals.invocations,
            completed=totals.completed,
            rejected=totals.rejected,
            dropped=totals.dropped,
            unfinished=totals.unfinished,
            cold_starts=totals.cold_starts,
            prewarmed=int(c[at.PREWARMED]),
            evicted=int(c[at.EVICTIONS]),
            wasted_gb_s=wasted / 1024,
            used_gb_s=used / 1024,
            latency_mean_s=totals.latency_mean_s,
            last_arrival_s=self._last_arrival_s,
            end_s=totals.end_s,
            wall_s=wall_s,
            cpu_s=cpu_s,
            functions=self.lowered.functions,
            calls=tally[:, 1].copy(),
            cold=tally[:, 2].copy(),
            requests=requests,
            invocation_records=invocations,
        )
