"""What the dashboard is told of an app once per second: stages, nodes with their devices, and every instance."""

from collections.abc import Mapping

import msgspec

from fairlead.engine.core.capacity import UNLIMITED, DeviceState, NodeState
from fairlead.engine.core.controller import Controller
from fairlead.engine.live.status import FunctionStatus

MOST_INSTANCES = 5_000
"""Instances that are named one by one; of more, the first are."""


class StageGlance(msgspec.Struct, frozen=True, gc=False):
    """One stage of a workflow: totals since the app was deployed, and what waits for its function now.

    `wait_s`, `cold_s`, `transfer_s` and `run_s` are sums over its `runs`; so is `batched`, of the sizes of batches.
    """

    workflow: str
    stage: str
    function: str
    waiting: int
    runs: int
    wait_s: float
    cold_s: float
    transfer_s: float
    run_s: float
    batched: int


class DeviceGlance(msgspec.Struct, frozen=True, gc=False):
    """One device: vGPUs and memory, in all and in use. `memory_gb` is None where it is not limited."""

    sharing: str
    vgpus: float
    used_vgpus: float
    memory_gb: float | None
    used_memory_gb: float


class NodeGlance(msgspec.Struct, frozen=True):
    """One node as an app may use it. `idle_memory_gb` is what idle instances hold, besides what is in use."""

    name: str
    kind: str
    state: str
    speed: float
    vcpus: float
    used_vcpus: float
    memory_gb: float | None
    used_memory_gb: float
    idle_memory_gb: float
    pressure: float | None
    devices: tuple[DeviceGlance, ...]


class InstanceGlance(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One instance. `node` is a place in the list of nodes, `state` 0 starting, 1 idle, 2 busy, 3 leaving."""

    id: int
    function: str
    node: int
    device: int | None
    state: int
    vcpus: float
    vgpus: float
    memory_gb: float
    age_s: float


class AppGlance(msgspec.Struct, frozen=True, kw_only=True):
    """One app. `open` has its requests on their way, by workflow."""

    name: str
    generation: int
    policy: str
    scaler: str | None
    uptime_s: float
    draining: int
    open: dict[str, int]
    functions: tuple[FunctionStatus, ...]
    stages: tuple[StageGlance, ...]
    nodes: tuple[NodeGlance, ...]
    instances: tuple[InstanceGlance, ...]


def nodes_of(controller: Controller, states: Mapping[str, str]) -> tuple[NodeGlance, ...]:
    """Every node; `states` says of those that are being drained how far they are."""
    return tuple(_node(node, states.get(name, "up")) for name, node in controller.nodes.items() if node.is_up)


def _node(state: NodeState, stage: str) -> NodeGlance:
    overcommit = state.node.overcommit
    return NodeGlance(
        name=state.name,
        kind=state.kind,
        state=stage,
        speed=state.node.speed,
        vcpus=round(state.total / 1000 / overcommit, 3),
        used_vcpus=round((state.total - state.free) / 1000 / overcommit, 3),
        memory_gb=_gb(state.memory_total),
        used_memory_gb=round((state.memory_total - state.memory_free) / 1024, 3),
        idle_memory_gb=round(state.memory_held / 1024, 3),
        pressure=state.pressure or None,
        devices=tuple(map(_device, state.devices)),
    )


def _device(state: DeviceState) -> DeviceGlance:
    return DeviceGlance(
        sharing="mig" if state.slices is not None else "shared",
        vgpus=state.total / 1000,
        used_vgpus=round((state.total - state.free) / 1000, 3),
        memory_gb=_gb(state.memory_total),
        used_memory_gb=round((state.memory_total - state.memory_free) / 1024, 3),
    )


def _gb(mebibytes: int) -> float | None:
    return None if mebibytes >= UNLIMITED else round(mebibytes / 1024, 3)


def instances_of(controller: Controller, now: float) -> tuple[InstanceGlance, ...]:
    """Every instance, or the first if there are very many."""
    places = {name: place for place, name in enumerate(name for name, node in controller.nodes.items() if node.is_up)}
    found: list[InstanceGlance] = []
    for instance in controller.pool.instances.values():
        if len(found) == MOST_INSTANCES:
            break
        flavour = instance.flavour
        state = 0 if not instance.is_ready else 3 if instance.is_draining else 1 if instance.batch < 0 else 2
        found.append(
            InstanceGlance(
                instance.id,
                flavour.function.name,
                places.get(instance.node.name, -1),
                None if instance.device is None else instance.device.index,
                state,
                instance.vcpus / 1000,
                flavour.vgpus / 1000,
                0.0 if flavour.memory >= UNLIMITED else round(flavour.memory / 1024, 3),
                round(now - instance.started, 1),
            )
        )
    return tuple(found)
