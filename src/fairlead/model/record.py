"""What a run leaves behind: all that passes from the engine to the report.

Three tables: one row per request, per invocation attempt, and per instance. A `Record` is the
same as a row of the second, made on demand for a policy's `observe`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import polars as pl

if TYPE_CHECKING:
    from fairlead.model.cluster import Cluster

REQUEST_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "request": pl.Int64,
    "workflow": pl.String,
    "arrival": pl.Float64,
    "deadline": pl.Float64,
    "budget_usd": pl.Float64,
    "end": pl.Float64,  # when it was answered, rejected, dropped or failed; null while unfinished
    "outcome": pl.String,  # completed, rejected, dropped, failed, cancelled, unfinished
    "reason": pl.String,  # why it was not completed
    "retry_after_s": pl.Float64,
    "promised": pl.Float64,  # the finish that the policy planned, where it did
    "plan": pl.String,  # the steps it planned, joined by " -> "
    "offer_latency_s": pl.Float64,  # what could have been promised instead, where a refusal says so
    "offer_cost_usd": pl.Float64,
    "cost_usd": pl.Float64,
}

INVOCATION_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "request": pl.Int64,
    "workflow": pl.String,
    "stage": pl.String,
    "function": pl.String,
    "item": pl.Int64,
    "attempt": pl.Int64,
    "batch": pl.Int64,  # id of the batch it ran in
    "batch_size": pl.Int64,
    "instance": pl.Int64,
    "node": pl.String,
    "device": pl.Int64,  # -1 without an accelerator
    "vcpus": pl.Float64,
    "vgpus": pl.Float64,
    "ready": pl.Float64,
    "start": pl.Float64,
    "cold_s": pl.Float64,  # time after the start until the instance was ready
    "transfer_s": pl.Float64,
    "end": pl.Float64,
    "is_cold": pl.Boolean,  # its start is what started the instance
    "cost_usd": pl.Float64,  # its share of the batch
    "outcome": pl.String,  # done, failed, lost, discarded, preempted
}

INSTANCE_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "instance": pl.Int64,
    "function": pl.String,
    "node": pl.String,
    "device": pl.Int64,
    "vcpus": pl.Float64,
    "vgpus": pl.Float64,
    "memory_gb": pl.Float64,
    "started": pl.Float64,
    "ready": pl.Float64,  # null if it never was
    "stopped": pl.Float64,  # null if it lived to the end of the run
    "busy_s": pl.Float64,
    "cause": pl.String,  # what stopped it: expired, evicted, retired, drained, lost, limit, preempted
    "on_demand": pl.Boolean,  # started by a run that needed it (a cold start), not ahead of time
}


class Record(msgspec.Struct, frozen=True, gc=False):
    """One finished invocation, as `observe` shows it to a policy."""

    request: int
    workflow: str
    stage: str
    function: str
    node: str
    device: int
    ready: float
    start: float
    cold_s: float
    transfer_s: float
    end: float
    batch_size: int
    vcpus: float
    vgpus: float
    cost_usd: float
    deadline: float
    outcome: str
    invocation: int = -1  # its id


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An action that the controller did not carry out, and why."""

    now: float
    action: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class DeviceMemoryUse:
    """What happened in the memory of one device that the system manages for kernels.

    A start of a run is a hit or a miss for each constant that the run needs. A miss is for lack of capacity if the
    buffer was there before and was evicted, and compulsory otherwise.
    """

    node: str
    device: int
    hits: int = 0
    compulsory_misses: int = 0
    capacity_misses: int = 0
    evictions: int = 0
    executor_starts: int = 0
    loaded_mb: float = 0.0  # constants, copied to the device
    input_mb: float = 0.0  # inputs, likewise
    output_mb: float = 0.0  # outputs, written back


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One whole run: who decided, what happened, and what was measured on the way.

    `decision_s` (per call of the policy) and `run_wall_s` depend on the machine; everything else is
    a pure function of scenario and seed.
    """

    scenario: str
    policy: str
    scaler: str | None
    seed: int
    parameters: Mapping[str, object]
    cluster: Cluster
    warmup_s: float
    duration_s: float
    end_s: float
    requests: pl.DataFrame
    invocations: pl.DataFrame
    instances: pl.DataFrame
    refusals: tuple[Refusal, ...] = ()
    stale_events: int = 0
    decision_s: tuple[float, ...] = field(default=(), repr=False)
    run_wall_s: float = 0.0
    engine: str = "python"
    point: Mapping[str, object] = field(default_factory=dict)
    device_memory: tuple[DeviceMemoryUse, ...] = ()
