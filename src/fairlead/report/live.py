"""A live run's folder as a recording: of a run that has ended, still goes on, or was killed.

What has not ended is not in the rows yet: requests that are open come from their arrivals, and instances that still
live from what ran on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import msgspec
import polars as pl

from fairlead.errors import ConfigError, FairleadError, Fault
from fairlead.model import CACHED, INSTANCE_SCHEMA, INVOCATION_SCHEMA, REQUEST_SCHEMA, Recording, Refusal
from fairlead.policy import make_policy
from fairlead.report.files import RUN, read_run
from fairlead.runlog import HEAD, Kind, RunHead, Tail, read_frames, read_head
from fairlead.runlog.segments import ARRIVED, READY
from fairlead.workload import PolicyChoice

Row = Sequence[object]
Schema = Mapping[str, type[pl.DataType]]

ENGINE = "live"
_LEAST_S = 1e-3  # a run in which nothing happened yet has a duration nevertheless


def is_run(folder: Path) -> bool:
    """Whether a run, simulated or live, is in this folder."""
    return (folder / RUN).exists() or (folder / HEAD).exists()


def read_any_run(folder: Path, newest_bytes: int | None = None) -> Recording:
    """The run in a folder, simulated or live; of a live one perhaps only the last `newest_bytes` of it."""
    return read_live_run(folder, newest_bytes) if (folder / HEAD).exists() else read_run(folder)


def read_live_run(folder: Path | str, newest_bytes: int | None = None) -> Recording:
    """The run that `fairlead serve` leaves, or is writing, in a folder. For `newest_bytes`, see `read_frames`."""
    folder = Path(folder)
    head = read_head(folder)
    found = _Found()
    try:
        for frame in read_frames(folder, found.tail, newest_bytes):
            found.take(frame.kind, frame.entries)
    except (OSError, msgspec.ValidationError, ValueError, TypeError) as error:
        raise ConfigError(str(folder), [Fault("", f"its segments cannot be read: {error}")]) from error
    try:
        return _recording(head, found)
    except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
        message = f"its rows are not those of a run: {str(error).splitlines()[0]}"
        raise ConfigError(str(folder), [Fault("", message)]) from error


def latest_run(state: Path) -> Path | None:
    """The newest run under a folder of state (`runs/<n>`), or under a folder that holds several of them."""
    numbered = chain(state.glob("runs/*"), state.glob("*/runs/*"))
    runs = [folder for folder in numbered if folder.is_dir() and is_run(folder)]
    return max(runs, key=lambda folder: (folder / HEAD).stat().st_mtime, default=None)


class _Found:
    """What the frames of a folder hold, taken apart."""

    def __init__(self) -> None:
        self.tail = Tail()
        self.rows: dict[int, list[Row]] = {Kind.REQUESTS: [], Kind.INVOCATIONS: [], Kind.INSTANCES: []}
        self.refusals: list[Refusal] = []
        self.arrivals: dict[object, Row] = {}
        self.ready: dict[object, float] = {}
        self.times_s: list[float] = []
        self.last = 0.0
        self.end: Row | None = None

    def take(self, kind: int, entries: list[list[object]]) -> None:
        if kind in self.rows:
            self.rows[kind] += entries
        elif kind == Kind.REFUSALS:
            self.refusals += [Refusal(now=_number(now), action=str(a), reason=str(r)) for now, a, r in entries]
        elif kind == Kind.INSTANTS:
            for now, events in entries:
                self.last = _number(now)
                for event in msgspec.convert(events, list[list[object]]):
                    if event[0] == ARRIVED:
                        self.arrivals[event[1]] = event[1:]
                    elif event[0] == READY:
                        self.ready[event[1]] = self.last
        elif kind == Kind.DECISIONS:
            self.times_s += [_number(time_s) for (time_s,) in entries]
        elif kind == Kind.END:
            self.end = entries[-1]


def _recording(head: RunHead, found: _Found) -> Recording:
    requests = _requests(found)
    invocations = _table(found.rows[Kind.INVOCATIONS], INVOCATION_SCHEMA)
    instances = _with_busy(_table(_instances(head, found, invocations), INSTANCE_SCHEMA), invocations)
    end_s = max(found.last, _number(found.end[0]) if found.end else 0.0)
    first, last = requests["arrival"].min(), requests["arrival"].max()
    scenario = head.scenario
    scaler = scenario.scaler
    return Recording(
        scenario=head.app,
        policy=scenario.policy.name,
        scaler=scaler.name if scaler else None,
        seed=head.seed,
        parameters={
            **_parameters(scenario.policy),
            **({f"scaler.{name}": value for name, value in _parameters(scaler).items()} if scaler else {}),
        },
        cluster=scenario.cluster,
        # The time before the first request is the caller's: goodput and attainment are not averaged over it.
        warmup_s=float(first) if isinstance(first, int | float) else 0.0,
        duration_s=max(float(last) if isinstance(last, int | float) else 0.0, _LEAST_S),
        end_s=end_s,
        requests=requests,
        invocations=invocations,
        instances=instances,
        refusals=tuple(found.refusals),
        stale_events=int(_number(found.end[1])) if found.end else 0,
        decision_s=tuple(found.times_s),
        engine=ENGINE,
    )


def _parameters(choice: PolicyChoice) -> Mapping[str, object]:
    """All of them, as a simulated run tells; only those given, where the policy is not installed any more."""
    try:
        return asdict(make_policy(choice.name, choice.parameters))
    except FairleadError:
        return choice.parameters


def _requests(found: _Found) -> pl.DataFrame:
    """The rows, and an unfinished one per request that came and has not ended."""
    rows = found.rows[Kind.REQUESTS]
    ended = {row[0] for row in rows}
    nothing = (None,) * (len(REQUEST_SCHEMA) - 8)
    still_open = [
        (id, workflow, arrival, deadline, budget, None, "unfinished", *nothing, 0.0)
        for id, (_, workflow, arrival, deadline, budget, _) in found.arrivals.items()
        if id not in ended
    ]
    return _table([*rows, *still_open], REQUEST_SCHEMA)


def _instances(head: RunHead, found: _Found, invocations: pl.DataFrame) -> list[Row]:
    """The rows, and one per instance that is known by its runs only. When it was started is a guess: at its first."""
    rows = found.rows[Kind.INSTANCES]
    ended = {row[0] for row in rows}
    columns = ("instance", "function", "node", "device", "vcpus", "vgpus", "start", "cold_s", "is_cold")
    alive: dict[object, Row] = {}
    runs = invocations.filter(pl.col("outcome") != CACHED).select(columns)
    for run in runs.unique("instance", keep="first", maintain_order=True).iter_rows(named=True):
        id, function = run["instance"], head.scenario.functions.get(run["function"])
        if id not in ended:
            ready = found.ready.get(id, run["start"] + run["cold_s"])
            share = (run["vcpus"], run["vgpus"], function.memory_gb if function else 0.0)
            times = (min(ready, run["start"]), ready, None, 0.0)
            alive[id] = (id, run["function"], run["node"], run["device"], *share, *times, None, run["is_cold"])
    return [*rows, *alive.values()]


def _with_busy(instances: pl.DataFrame, invocations: pl.DataFrame) -> pl.DataFrame:
    """How long each instance was busy, from the batches that ran on it, each counted once."""
    busy = (
        invocations.unique("batch", maintain_order=True)
        .group_by("instance")
        .agg(busy=(pl.col("end") - pl.col("start") - pl.col("cold_s")).clip(lower_bound=0).sum())
    )
    joined = instances.join(busy, on="instance", how="left", maintain_order="left")
    return joined.with_columns(busy_s=pl.col("busy").fill_null(0.0)).drop("busy")


def _table(rows: Iterable[Row], schema: Schema) -> pl.DataFrame:
    columns = list(zip(*rows, strict=True))
    if not columns:
        return pl.DataFrame(schema=schema)
    if len(columns) != len(schema):
        raise ValueError(f"rows of {len(columns)} columns where {len(schema)} are needed: {', '.join(schema)}.")
    return pl.DataFrame(
        [pl.Series(name, column, dtype=kind) for (name, kind), column in zip(schema.items(), columns, strict=True)]
    )


def _number(value: object) -> float:
    return msgspec.convert(value, float)
