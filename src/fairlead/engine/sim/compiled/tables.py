"""Records of a compiled run: columns of numbers that were written inside the loop, turned into the three tables."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from fairlead.engine.sim.compiled import layout as at
from fairlead.engine.sim.compiled.lower import Lowered
from fairlead.engine.sim.tables import with_busy
from fairlead.model import INSTANCE_SCHEMA, INVOCATION_SCHEMA, REQUEST_SCHEMA
from fairlead.workload import Scenario

_OUTCOMES = ("completed", "rejected", "dropped", "unfinished")
_CAUSES = (None, "expired", "evicted", "retired", "drained")
Rows = Sequence[tuple[np.ndarray, np.ndarray]]


def request_table(rows: Rows, scenario: Scenario, lowered: Lowered, queue_limit: int) -> pl.DataFrame:
    """The requests, in the order in which they ended."""
    whole, real = _joined(rows, at.REQUEST_INT_COLUMNS, at.REQUEST_REAL_COLUMNS)
    slos = [scenario.workflows[name].slo for name in lowered.workflows]
    workflow, outcome, reason = whole[:, 1], whole[:, 2] & 15, whole[:, 2] >> 4
    arrival, end = real[:, 0], pl.Series(real[:, 1])
    reasons = (
        None,
        f"{queue_limit} invocations wait already",
        "its deadline cannot be met any more",
        "the placement refused it",
    )
    nothing = pl.Series([None] * len(whole), dtype=pl.Float64)
    columns = {
        "request": whole[:, 0],
        "workflow": _named(lowered.workflows, workflow),
        "arrival": arrival,
        "deadline": arrival + np.array([slo.latency_s for slo in slos])[workflow],
        "budget_usd": np.array([slo.cost_usd for slo in slos])[workflow],
        "end": end.fill_nan(None),
        "outcome": _named(_OUTCOMES, outcome),
        "reason": _named(reasons, reason),
        "retry_after_s": nothing,
        "promised": nothing,
        "plan": pl.Series([None] * len(whole), dtype=pl.String),
        "offer_latency_s": nothing,
        "offer_cost_usd": nothing,
        "cost_usd": real[:, 2],
    }
    return _table(columns, REQUEST_SCHEMA)


def invocation_table(rows: Rows, scenario: Scenario, lowered: Lowered) -> pl.DataFrame:
    """The invocations, in the order in which they ended. What each cost follows from the rest, as in the loop."""
    whole, real = _joined(rows, at.INVOCATION_INT_COLUMNS, at.INVOCATION_REAL_COLUMNS)
    stage, node = whole[:, 2] & 0xFFFFFFFF, whole[:, 2] >> 32
    packed, shape = whole[:, 3], whole[:, 3] >> 32
    count, tasks = len(whole), (packed >> 16) & 0xFFFF
    seconds = real[:, 4] - real[:, 1]
    if not scenario.cluster.price.bill_cold_start:
        seconds -= real[:, 2]
    columns = {
        "request": whole[:, 0],
        "workflow": _named([workflow for workflow, _, _ in lowered.stages], stage),
        "stage": _named([name for _, name, _ in lowered.stages], stage),
        "function": _named([function for _, _, function in lowered.stages], stage),
        "item": np.zeros(count, np.int64),
        "attempt": np.ones(count, np.int64),
        "batch": whole[:, 1] >> 32,
        "batch_size": tasks,
        "instance": whole[:, 1] & 0xFFFFFFFF,
        "node": _named(lowered.nodes, node),
        "device": ((packed >> 2) & 0x3FFF) - 1,
        "vcpus": np.array([float(size.vcpus) for _, size in lowered.shapes])[shape],
        "vgpus": np.array([float(size.vgpus) for _, size in lowered.shapes])[shape],
        "ready": real[:, 0],
        "start": real[:, 1],
        "cold_s": real[:, 2],
        "transfer_s": real[:, 3],
        "end": real[:, 4],
        "is_cold": (packed & 2) != 0,
        "cost_usd": seconds * lowered.memory[at.SHAPE_USD][shape] / tasks,
        "outcome": _named(("done", "discarded"), packed & 1),
    }
    return _table(columns, INVOCATION_SCHEMA)


def instance_table(rows: Rows, scenario: Scenario, lowered: Lowered, invocations: pl.DataFrame) -> pl.DataFrame:
    """The instances, in the order in which they ended, with how long each was busy."""
    whole, real = _joined(rows, at.INSTANCE_INT_COLUMNS, at.INSTANCE_REAL_COLUMNS)
    shape = whole[:, 1]
    memory = [float(size.memory_gb or scenario.functions[name].memory_gb) for name, size in lowered.shapes]
    columns = {
        "instance": whole[:, 0],
        "function": _named([name for name, _ in lowered.shapes], shape),
        "node": _named(lowered.nodes, whole[:, 2]),
        "device": whole[:, 3],
        "vcpus": np.array([float(size.vcpus) for _, size in lowered.shapes])[shape],
        "vgpus": np.array([float(size.vgpus) for _, size in lowered.shapes])[shape],
        "memory_gb": np.array(memory)[shape],
        "started": real[:, 0],
        "ready": pl.Series(real[:, 1]).fill_nan(None),
        "stopped": pl.Series(real[:, 2]).fill_nan(None),
        "busy_s": np.zeros(len(whole)),
        "cause": _named(_CAUSES, whole[:, 4] >> 1),
        "on_demand": (whole[:, 4] & 1) != 0,
    }
    return with_busy(_table(columns, INSTANCE_SCHEMA), invocations)


def _joined(rows: Rows, whole: int, real: int) -> tuple[np.ndarray, np.ndarray]:
    if not rows:
        return np.empty((0, whole), np.int64), np.empty((0, real))
    return np.concatenate([w for w, _ in rows]).reshape(-1, whole), np.concatenate([r for _, r in rows]).reshape(
        -1, real
    )


def _named(names: Sequence[str | None], numbers: np.ndarray) -> pl.Series:
    return pl.Series(names, dtype=pl.String).gather(numbers)


def _table(columns: dict[str, np.ndarray | pl.Series], schema: object) -> pl.DataFrame:
    return pl.DataFrame(columns, schema=dict(schema))  # type: ignore[call-overload]
