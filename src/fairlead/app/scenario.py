"""An app as a scenario: what the simulator, the planner and the live controller work from.

How long a function takes is measured (`fairlead profile`) or, until then, assumed: a prior, which the controller
corrects from what it sees.
"""

import os
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import cast

import msgspec

from fairlead.app.composed import with_fused
from fairlead.app.load import split_address
from fairlead.app.manifest import FunctionSpec, KernelBuffer, KernelSpec, Manifest, WorkflowSpec
from fairlead.app.snapshot import Snapshot
from fairlead.errors import ConfigError, Fault
from fairlead.model import SLO, Buffer, BufferKind, Cluster, Configuration, Device, Function, Node, Stage, Workflow
from fairlead.profile import Profile, Row, Table, space
from fairlead.profile.measured import MeasuredDevice, MeasuredProfiles, parse_measured, read_measured
from fairlead.workload.arrivals import Poisson
from fairlead.workload.scenario import PolicyChoice, Scenario

PRIOR_S = 0.010
"""Assumed for one invocation, in any configuration."""

PRIOR_GROWTH = 0.2
"""Assumed for each further invocation of a batch, as a share of the first."""

PRIOR_COLD_START_S = 0.3

KERNEL_LOAD_LIMIT_S = 60.0
"""How long a device may take to compile and load a kernel; the limit of its run counts from then on."""

_LARGE_BYTES = 1 << 20  # of a constant that is counted by itself

ANY_DEVICE = "numpy"
"""The device of kernels where an app names none and the machine has not been looked at yet."""

RATE_RPS = 10.0
"""Requests per second of every workflow in a simulation, if nothing is said."""


def scenario_of(
    manifest: Manifest,
    *,
    profiles: Mapping[str, Profile] = {},
    cluster: Cluster | None = None,
    rate_rps: float = RATE_RPS,
    duration_s: float = 60.0,
    no_gpu: str = "",
) -> Scenario:
    """The scenario of an app: its functions and workflows, on its nodes, each workflow called at random at this rate.

    A function without a profile gets the prior. Configurations that no node can hold, or of which a profile says
    nothing, are left out. Raises `ConfigError` if that leaves a function with none; `no_gpu` says why there is no GPU.
    """
    cluster = cluster or cluster_of(manifest)
    found: dict[str, Profile] = {}
    faults = []
    for spec in manifest.functions:
        try:
            found[spec.name] = _profile(spec, profiles.get(spec.name), cluster, _share_s(manifest, spec.name), no_gpu)
        except ValueError as error:
            faults.append(Fault(f"functions.{spec.name}", str(error)))
    if faults:
        raise ConfigError(manifest.name, faults)
    return Scenario(
        name=manifest.name,
        cluster=cluster,
        functions={spec.name: _function(spec) for spec in manifest.functions},
        profiles=found,
        workflows={spec.name: workflow_of(spec) for spec in manifest.workflows},
        arrivals=tuple(Poisson(spec.name, rate_rps=rate_rps) for spec in manifest.workflows),
        duration_s=duration_s,
        policy=PolicyChoice(name=manifest.policy, parameters=manifest.parameters),
        on_loss=manifest.on_loss,
    )


def measured_beside(path: str | Path) -> MeasuredProfiles | None:
    """What was measured of an app and lies beside its file, as `fairlead profile` writes it; None without."""
    beside = place_of_profile(path)
    return read_measured(beside) if beside.is_file() else None


def profile_beside(path: str | Path) -> dict[str, Profile]:
    """The measured profiles that lie beside an app file; empty without any."""
    measured = measured_beside(path)
    return {} if measured is None else measured.profiles()


def place_of_profile(path: str | Path) -> Path:
    """Where the measured profile of an app file lies."""
    file, _ = split_address(path)
    return file.with_suffix(".profile.json")


def profiles_of(snapshot: Snapshot) -> dict[str, Profile]:
    """The measured profiles that a snapshot holds; of a fused function that was not measured, one from its parts."""
    measured = measured_in(snapshot)
    return {} if measured is None else with_fused(measured, snapshot.manifest).profiles()


def measured_in(snapshot: Snapshot) -> MeasuredProfiles | None:
    """All that was measured of an app, as its snapshot holds it."""
    if snapshot.profile is None:
        return None
    return parse_measured(snapshot.profile.encode(), str(place_of_profile(snapshot.path)))


def cluster_of(manifest: Manifest, measured: MeasuredProfiles | None = None) -> Cluster:
    """The nodes that an app asks for. Where it has kernels and names no device, the first node has those measured."""
    found = declared_nodes(manifest)
    if manifest.has_kernels and not any(node.devices for node in found):
        names = (measured.devices if measured is not None else {}) or (ANY_DEVICE,)
        devices = tuple(_device(name, 0) for name in names)
        found = (msgspec.structs.replace(found[0], devices=devices), *found[1:])
    return Cluster(nodes=with_measured_devices(found, measured))


def with_measured_devices(nodes: Sequence[Node], measured: MeasuredProfiles | None) -> tuple[Node, ...]:
    """The nodes with the rates that were measured of their devices."""
    if measured is None or not measured.devices:
        return tuple(nodes)
    return tuple(
        msgspec.structs.replace(node, devices=tuple(_measured(device, measured.devices) for device in node.devices))
        for node in nodes
    )


def _measured(device: Device, devices: Mapping[str, MeasuredDevice]) -> Device:
    found = devices.get(device.name)
    if found is None:
        return device
    return msgspec.structs.replace(
        device,
        load_gb_per_s=found.load_gb_per_s,
        allocation_s=found.allocation_s,
        executor_start_s=found.executor_start_s,
    )


def declared_nodes(manifest: Manifest) -> tuple[Node, ...]:
    """The nodes that an app asks for, each a kind of its own; without any, this machine as one node `local`."""
    nodes = [
        Node(
            name=spec.name,
            kind=spec.name,
            vcpus=spec.vcpus,
            memory_gb=inf if spec.memory_gb is None else spec.memory_gb,
            speed=spec.speed,
            devices=tuple(_device(name, spec.device_memory_bytes) for name in spec.devices),
        )
        for spec in manifest.nodes
    ]
    return tuple(nodes) or (_this_machine(),)


def _device(name: str, memory_bytes: int) -> Device:
    """A device that runs one kernel at a time."""
    return Device(vgpus=1, name=name, serves="kernels", memory_gb=memory_bytes / 2**30 or inf)


def workflow_of(spec: WorkflowSpec) -> Workflow:
    """The graph of a workflow, and its objective."""
    stages = [
        Stage(
            name=stage.name,
            function=stage.function,
            after=stage.after,
            when=stage.when,
            map=stage.map,
            join=stage.join,
            compete=stage.compete,
        )
        for stage in spec.stages
    ]
    latency_s = inf if spec.slo_s is None else spec.slo_s
    cost_usd = inf if spec.cost_usd is None else spec.cost_usd
    return Workflow(name=spec.name, stages=tuple(stages), slo=SLO(latency_s=latency_s, cost_usd=cost_usd))


def document_of(scenario: Scenario) -> dict[object, object]:
    """The scenario of an app as a scenario file has it, so that every setting of it can be set otherwise."""
    document: dict[object, object] = {
        "name": scenario.name,
        "duration_s": scenario.duration_s,
        "cluster": {"nodes": [_plain(node, leave_out=("devices",)) | _group(node) for node in scenario.cluster.nodes]},
        "functions": {
            name: _plain(function, leave_out=("name", "buffers"))
            | _latency(scenario.profiles[name])
            | ({"buffers": [_plain(buffer) for buffer in function.buffers]} if function.buffers else {})
            for name, function in scenario.functions.items()
        },
        "workflows": {
            name: {
                "stages": {
                    stage.name: {
                        key: value for key, value in _plain(stage).items() if key != "name" and value is not None
                    }
                    for stage in workflow.stages
                },
                "slo": _plain(workflow.slo),
            }
            for name, workflow in scenario.workflows.items()
        },
        "arrivals": [{"process": "poisson", **_plain(each)} for each in scenario.arrivals if isinstance(each, Poisson)],
        "policy": {"dispatch": scenario.policy.name, **scenario.policy.parameters},
        "on_loss": scenario.on_loss,
    }
    if scenario.host is not None:
        document["host"] = _plain(scenario.host)
    return document


def _group(node: Node) -> dict[str, object]:
    """The devices of a node, which are all alike but for their names, as a scenario file has them."""
    if not node.devices:
        return {}
    first = node.devices[0]
    return {
        "devices": len(node.devices),
        "vgpus": first.vgpus,
        "device_memory_gb": first.memory_gb,
        "load_gb_per_s": first.load_gb_per_s,
        "allocation_s": first.allocation_s,
        "executor_start_s": first.executor_start_s,
    }


def _latency(profile: Profile) -> dict[str, object]:
    assert isinstance(profile.law, Table)
    rows = [{key: value for key, value in _plain(row).items() if value is not None} for row in profile.law.rows]
    cold_start = dict(profile.cold_start_by_kind) or profile.cold_start_s
    found: dict[str, object] = {
        "latency": {"table": rows},
        "configurations": [_plain(configuration) for configuration in profile.configurations],
        "cold_start_s": cold_start,
        "noise": profile.noise,
    }
    if profile.assumed_most_s is not None:
        found["assumed_most_s"] = profile.assumed_most_s
    return found if profile.bias == 1 else found | {"bias": profile.bias}


def _plain(value: msgspec.Struct, leave_out: tuple[str, ...] = ()) -> dict[str, object]:
    plain = {key: msgspec.to_builtins(each) for key, each in msgspec.structs.asdict(value).items()}
    return {key: list(each) if isinstance(each, tuple) else each for key, each in plain.items() if key not in leave_out}


def _function(spec: FunctionSpec) -> Function:
    run_limit_s = inf if spec.run_limit_s is None else spec.run_limit_s
    return Function(
        name=spec.name,
        memory_gb=spec.memory_gb,
        keep_alive_s=spec.keep_alive_s,
        warm=spec.warm,
        # A process without work takes no CPU time, but what it was given of a GPU when it started stays its own.
        # A kernel is no process.
        idle_holds="slice" if spec.vgpus[-1] and spec.kernel is None else "memory",
        retries=spec.retries,
        run_limit_s=run_limit_s + KERNEL_LOAD_LIMIT_S if spec.kernel is not None else run_limit_s,
        start_limit_s=inf if spec.start_limit_s is None else spec.start_limit_s,
        buffers=() if spec.kernel is None else scheduled_buffers(spec.kernel),
    )


def scheduled_buffer(buffer: KernelBuffer) -> str:
    """The buffer as which a scheduler counts a buffer of a kernel.

    Sizes count in whole MB, so all small constants are one, and so is all of a kind that belongs to a run.
    """
    if buffer.kind != "constant":
        return f"every-{buffer.kind}"
    return buffer.name if buffer.bytes >= _LARGE_BYTES else "small-constants"


def scheduled_buffers(kernel: KernelSpec) -> tuple[Buffer, ...]:
    """The buffers of a kernel as a scheduler counts them."""
    sizes: dict[tuple[str, str], int] = {}
    for buffer in kernel.buffers:
        place = scheduled_buffer(buffer), buffer.kind
        sizes[place] = sizes.get(place, 0) + buffer.bytes
    return tuple(
        Buffer(name=name, size_mb=size / 2**20, kind=cast(BufferKind, kind)) for (name, kind), size in sizes.items()
    )


def _profile(spec: FunctionSpec, measured: Profile | None, cluster: Cluster, share_s: float, no_gpu: str) -> Profile:
    declared = space(spec.batch, spec.vcpus, spec.vgpus)
    fitting = [each for each in declared if any(_holds(node, each, spec) for node in cluster.nodes)]
    if not fitting:
        nodes = ", ".join(f"{node.vcpus:g} vCPU and {node.memory_gb:.3g} GB" for node in cluster.nodes)
        least = f"{declared[0]} and {spec.memory_gb:g} GB" if spec.memory_gb else str(declared[0])
        if spec.kernel is not None and not any(
            device.serves != "functions" for n in cluster.nodes for device in n.devices
        ):
            raise ValueError("it is a kernel, and no node has a device; name one with --device, such as opencl:0.")
        gpus = _gpus(cluster, no_gpu) if declared[0].vgpus else ""
        raise ValueError(f"no node can hold an instance of it: it needs at least {least}; there is {nodes}{gpus}.")
    if spec.kernel is not None:
        _check_memory(spec, cluster)
    if measured is not None:
        known = [each for each in fitting if any(measured.law.mean_s(each, kind) < inf for kind in cluster.kinds)]
        if not known:
            raise ValueError("its profile says nothing of the configurations that it has now; measure it again.")
        return msgspec.structs.replace(measured, configurations=tuple(known))
    count = len(spec.parts) or 1
    rows = [
        Row(seconds=prior_s(each.batch, share_s) * count, batch=each.batch, vcpus=each.vcpus, vgpus=each.vgpus)
        for each in fitting
    ]
    return Profile(
        law=Table(tuple(rows)),
        configurations=tuple(fitting),
        cold_start_s=PRIOR_COLD_START_S,
        assumed_most_s=share_s * count,
    )


def _gpus(cluster: Cluster, no_gpu: str) -> str:
    """What there is of GPUs, and what to do, for an app that asks for what there is not."""
    devices = [
        device for node in cluster.nodes for device in node.devices if not device.is_lost and device.serves != "kernels"
    ]
    if not devices:
        why = f" ({no_gpu})" if no_gpu else ""
        return f" and no GPU{why}. Serve it where there is one, or leave gpu= out"
    sizes = [f"MIG {'+'.join(map(str, d.partition))}" if d.is_fixed else f"{d.vgpus:g} vGPUs" for d in devices]
    return f", and GPUs with {', '.join(sizes)}. Choose a gpu= that one of them has"


def _check_memory(spec: FunctionSpec, cluster: Cluster) -> None:
    """Raise `ValueError` for a kernel that is larger than every device."""
    needed_gb = _function(spec).footprint_gb
    largest_gb = max((device.usable_gb for node in cluster.nodes for device in node.devices), default=0.0)
    if needed_gb > largest_gb:
        raise ValueError(
            f"it needs {1024 * needed_gb:g} MB of device memory for its buffers, and the largest device has "
            f"{1024 * largest_gb:g} MB; give it more with --device-memory."
        )


def prior_s(batch: int, share_s: float = inf) -> float:
    """How long an unmeasured run is assumed to take; one invocation no longer than its share."""
    return round(min(PRIOR_S, share_s) * (1 + PRIOR_GROWTH * (batch - 1)), 9)


def _share_s(manifest: Manifest, function: str) -> float:
    """What a function may take if every stage on its way takes as long and half of the objective is left.

    The tightest workflow counts. With an assumption above this, requests might be refused before anything was seen.
    """
    least_s = inf
    for workflow in manifest.workflows:
        if workflow.slo_s is not None and any(stage.function == function for stage in workflow.stages):
            depth: dict[str, int] = {}
            for stage in workflow.stages:  # in topological order
                depth[stage.name] = 1 + max((depth[name] for name in stage.after), default=0)
            least_s = min(least_s, workflow.slo_s / 2 / max(depth.values()))
    return least_s


def _holds(node: Node, configuration: Configuration, spec: FunctionSpec) -> bool:
    others = "kernels" if spec.kernel is None else "functions"
    devices = [device for device in node.devices if device.serves != others]
    if configuration.vgpus and not any(device.holds(configuration.vgpus) for device in devices):
        return False
    return configuration.vcpus <= node.vcpus and (configuration.memory_gb or spec.memory_gb) <= node.memory_gb


def _this_machine() -> Node:
    vcpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory_gb = inf
    if hasattr(os, "sysconf") and {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= os.sysconf_names.keys():
        memory_gb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return Node(name="local", kind="local", vcpus=vcpus, memory_gb=memory_gb)
