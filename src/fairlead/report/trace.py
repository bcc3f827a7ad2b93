"""A run for trace viewers (Perfetto, chrome://tracing): nodes as processes, instances as threads, in microseconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from fairlead.errors import ConfigError, Fault
from fairlead.model import Recording
from fairlead.report.counted import batches

CLUSTER = 0
"""The process that is no node: what waits, and what was refused."""
ROWS_AT_A_TIME = 50_000

Event = dict[str, object]


def write_trace(recording: Recording, path: Path | str) -> Path:
    """Write the trace, one event at a time, and return where.

    Cold start, transfer and run of a batch are slices on its instance; the number of invocations that wait and
    the vCPUs in use on each node are counters; a request that was rejected or dropped is a mark. Names come first,
    then the slices, the counters one after the other, and the marks: each of these is in the order of time, the file
    as a whole is not.
    """
    path = Path(path)
    encoder = msgspec.json.Encoder()
    head = {
        "scenario": recording.scenario,
        "policy": recording.policy,
        "scaler": recording.scaler,
        "seed": recording.seed,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(b'{"displayTimeUnit":"ms","otherData":' + encoder.encode(head) + b',"traceEvents":[')
            before = b"\n"
            for event in _events(recording):
                file.write(before + encoder.encode(event))
                before = b",\n"
            file.write(b"\n]}\n")
    except OSError as error:
        raise ConfigError(str(path), [Fault("", f"cannot write the trace: {error.strerror or error}.")]) from error
    return path


def _events(recording: Recording) -> Iterator[Event]:
    ran = batches(recording)
    names = [node.name for node in recording.cluster.nodes]
    # Nodes that a scaler added are not in the cluster's list.
    names += sorted((set(ran["node"]) | set(recording.instances["node"])) - set(names))
    pids = {name: place for place, name in enumerate(names, start=1)}
    yield from _names(recording, ran, pids)
    yield from _slices(ran, pids)
    yield from _counters(recording, ran, pids)
    yield from _marks(recording)


def _names(recording: Recording, ran: pl.DataFrame, pids: dict[str, int]) -> Iterator[Event]:
    def name(kind: str, pid: int, tid: int, text: str) -> Event:
        return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": text}}

    yield name("process_name", CLUSTER, 0, f"cluster ({recording.policy})")
    yield name("thread_name", CLUSTER, 0, "refused requests")
    for node, pid in pids.items():
        yield name("process_name", pid, 0, node)
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
    columns = ("instance", "node", "device", "function")
    known = pl.concat([recording.instances.select(columns), ran.select(columns)]).unique(
        "instance", maintain_order=True
    )
    for instance, node, device, function in known.iter_rows():
        where = f"gpu{device} " if device >= 0 else ""
        yield name("thread_name", pids[node], _tid(instance), f"{where}{function} #{instance}")


def _slices(ran: pl.DataFrame, pids: dict[str, int]) -> Iterator[Event]:
    parts = [("start", "warm_at", "cold start"), ("warm_at", "run_at", "transfer"), ("run_at", "end", "run")]
    kept = ("batch", "function", "node", "instance", "request", "workflow", "batch_size", "outcome")
    long = pl.concat(
        ran.select(
            *kept,
            wait_us=(_ns("start") - _ns("ready")) / 1000,
            begin=_ns(begin),
            until=_ns(end),
            part=pl.lit(part),
            rank=pl.lit(rank),
        )
        for rank, (begin, end, part) in enumerate(parts)
    )
    rows = long.filter((pl.col("until") > pl.col("begin")) | (pl.col("part") == "run")).sort("begin", "batch", "rank")
    for row in _rows(rows):
        yield {
            "ph": "X",
            "name": row["function"] if row["part"] == "run" else row["part"],
            "cat": row["part"],
            "pid": pids[row["node"]],
            "tid": _tid(row["instance"]),
            "ts": row["begin"] / 1000,
            "dur": (row["until"] - row["begin"]) / 1000,
            "args": {
                "request": row["request"],
                "workflow": row["workflow"],
                "batch": row["batch"],
                "batch_size": row["batch_size"],
                "wait_us": row["wait_us"],
                "outcome": row["outcome"],
            },
        }


def _counters(recording: Recording, ran: pl.DataFrame, pids: dict[str, int]) -> Iterator[Event]:
    started = recording.invocations.filter(pl.col("start").is_not_null())
    waiting = pl.concat(
        [started.select(at=_ns("ready"), change=pl.lit(1.0)), started.select(at=_ns("start"), change=pl.lit(-1.0))]
    )
    yield from _counter(waiting, "waiting invocations", "invocations", CLUSTER)
    for key, part in ran.group_by("node", maintain_order=True):
        busy = pl.concat(
            [part.select(at=_ns("start"), change="vcpus"), part.select(at=_ns("end"), change=-pl.col("vcpus"))]
        )
        yield from _counter(busy, "busy vCPUs", "vcpus", pids[str(key[0])])


def _counter(changes: pl.DataFrame, name: str, unit: str, pid: int) -> Iterator[Event]:
    """The running total after each instant. Rounding keeps what is empty at 0."""
    steps = changes.group_by("at").agg(pl.col("change").sum()).sort("at")
    levels = steps.select("at", level=pl.col("change").cum_sum().round(6) + 0.0)
    for row in _rows(levels.filter(pl.col("level") != pl.col("level").shift(1).fill_null(float("inf")))):
        yield {"ph": "C", "name": name, "pid": pid, "ts": row["at"] / 1000, "args": {unit: row["level"]}}


def _marks(recording: Recording) -> Iterator[Event]:
    refused = recording.requests.filter(pl.col("outcome").is_in(["rejected", "dropped"]) & pl.col("end").is_not_null())
    rows = refused.select("request", "workflow", "outcome", "reason", "retry_after_s", at=_ns("end"))
    for row in _rows(rows.sort("at", "request")):
        yield {
            "ph": "i",
            "s": "p",
            "name": f"{row['outcome']}: {row['workflow']}",
            "pid": CLUSTER,
            "tid": 0,
            "ts": row["at"] / 1000,
            "args": {key: row[key] for key in ("request", "workflow", "reason", "retry_after_s")},
        }


def _rows(table: pl.DataFrame) -> Iterator[dict[str, Any]]:
    for part in table.iter_slices(ROWS_AT_A_TIME):
        yield from part.iter_rows(named=True)


def _ns(column: str) -> pl.Expr:
    """An instant in whole nanoseconds: slices that touch in the run touch in the trace."""
    return (pl.col(column) * 1e9).round().cast(pl.Int64)


def _tid(instance: int) -> int:
    return instance + 1  # viewers take thread 0 for the process
