"""What a run leaves behind: all that passes from the engine to the report.

Three tables, whose columns are in `tables`: one row per request, per invocation attempt, and per instance. A `Record`
is the same as a row of the second, made on demand for a policy's `observe`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import polars as pl

    from fairlead.model.cluster import Cluster


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
    item: int = 0
    attempt: int = 1
    batch: int = -1  # id of the batch that it ran in
    instance: int = -1  # id of the instance that ran it


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
class NodeLife:
    """A node from when it was asked for until it left, which is what is billed.

    `joined` is None if it did not come before the end of the run, `left` if it stayed until then.
    """

    node: str
    kind: str
    asked: float
    joined: float | None
    left: float | None
    usd_per_hour: float


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One whole run: who decided, what happened, and what was measured on the way.

    `decision_s` (per call of the policy) and `run_wall_s` depend on the machine; everything else is
    a pure function of scenario and seed. `nodes` is empty for a cluster that cannot change by the scenario's `growth`,
    and was not changed by a policy.
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
    nodes: tuple[NodeLife, ...] = ()
