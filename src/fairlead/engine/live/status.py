"""What the runtime tells of itself: read by `/v1/status`, `fairlead top` and the metrics. Plain values, JSON-ready."""

from collections.abc import Mapping

import msgspec

from fairlead.engine.live.gpus import shared
from fairlead.engine.live.kernels.status import DeviceStatus
from fairlead.model import Device


class WorkflowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One workflow: totals since the app was deployed, and its last ten seconds (`recent_`)."""

    name: str
    slo_s: float | None
    open: int  # requests not yet ended
    offered: int
    completed: int
    in_time: int
    rejected: int
    dropped: int
    failed: int
    cancelled: int
    cost_usd: float
    recent_offered_rps: float
    recent_goodput_rps: float
    recent_attainment: float | None
    recent_p50_s: float | None
    recent_p99_s: float | None
    least_slack_s: float | None  # of what waits


class CacheStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The prediction cache of a function: what it holds, and what it was asked for since the app was deployed.

    `hits` were answered when they became ready, `misses` were not; of these, `joined` were answered later, when an
    equal input that was ahead of them had run. `skipped` counts inputs that were too large to be looked up, and answers
    that were too large to be kept or lie on another node.
    """

    entries: int
    max_entries: int
    bytes: int
    max_bytes: int
    hits: int
    misses: int
    joined: int
    skipped: int
    evictions: int

    @property
    def hit_rate(self) -> float | None:
        """Share of the invocations looked up that needed no run of their own; None before the first."""
        asked = self.hits + self.misses
        return (self.hits + self.joined) / asked if asked else None


class GpuStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What one instance has of a GPU: its share, and what it uses where NVML tells."""

    instance: int
    node: str
    device: int
    vgpus: float
    memory_bytes: int | None = None
    utilisation: float | None = None  # share of the GPU's multiprocessors


class FunctionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One function: what waits for it, and its instances."""

    name: str
    waiting: int
    starting: int
    idle: int
    busy: int
    batches: int
    invocations: int
    recent_batch_size: float | None
    predicted_s: float | None  # of the last batch, when it started
    observed_s: float | None
    replicas: int | None = None  # wanted by the scaler or an operator; None while nobody scales it
    replica_vcpus: float | None = None  # of each
    held: str | None = None  # "operator" while an operator's order fixes its replicas
    vcpus: float = 0.0  # held by all its instances
    cpu_s: float | None = None  # CPU time of all its instances so far, ended ones included
    notes: Mapping[str, float] = {}  # of its scaler, as of the last control period
    cache: CacheStatus | None = None  # where it has one
    gpus: tuple[GpuStatus, ...] = ()  # of each instance that has a share of one
    transfer_s: float = 0.0  # that its batches waited for inputs of other nodes, in all


class AcceleratorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator of a node. `used_vgpus` are those that instances of this app hold, idle ones included."""

    name: str
    shared: str  # how: MIG 3+2+1+1, 7 vGPUs by MPS, 7 vGPUs by turns; or lost
    vgpus: float
    used_vgpus: float = 0.0
    is_lost: bool = False


def accelerator_status(device: Device, used_vgpus: float = 0.0) -> AcceleratorStatus:
    """How an accelerator is shown."""
    vgpus = 0.0 if device.is_lost else device.vgpus
    return AcceleratorStatus(
        name=device.name or "GPU", shared=shared(device), vgpus=vgpus, used_vgpus=used_vgpus, is_lost=device.is_lost
    )


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One node; `pressure` and `signals` are known where the monitor watches it.

    Where apps share it, `lease_vcpus` is how many of its vCPUs this app may use; `load` is the share of them in use.
    """

    name: str
    vcpus: float
    load: float  # share of its vCPUs in use
    instances: int
    lease_vcpus: float | None = None
    state: str = "up"  # or moving, draining, leaving: see `fairlead nodes`
    speed: float = 1.0
    pressure: float | None = None  # share of it that others take
    signals: Mapping[str, float] = {}  # the mean of the last samples: the seven counters, and all else that is known
    accelerators: tuple[AcceleratorStatus, ...] = ()


class NodeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One node as a whole, whatever apps have of it. `memory_gb` is None where it is not limited.

    `state` is up, moving (its instances are started elsewhere), draining (it takes no more work) or leaving.
    """

    name: str
    kind: str
    vcpus: float
    memory_gb: float | None
    speed: float
    state: str
    accelerators: list[AcceleratorStatus] = []


class NodeList(msgspec.Struct, frozen=True):
    """All nodes of a gateway."""

    nodes: list[NodeSummary]


class MonitorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Who watches the nodes of an app."""

    provider: str
    overhead: float  # CPU time of sampling, as a share of one core


class AppStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One app, in its current generation; older ones that still drain are counted only."""

    name: str
    generation: int
    policy: str
    scaler: str | None = None
    uptime_s: float
    draining: int
    refused_actions: int
    workflows: tuple[WorkflowStatus, ...]
    functions: tuple[FunctionStatus, ...]
    nodes: tuple[NodeStatus, ...]
    monitor: MonitorStatus | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is served."""

    uptime_s: float
    is_ready: bool
    obstacles: tuple[str, ...] = ()  # why workflows cannot run now
    is_draining: bool
    apps: tuple[AppStatus, ...]
    state: str | None = None  # the state folder, on the machine of the gateway
    devices: tuple[DeviceStatus, ...] = ()  # that run kernels
