"""What a run tries: features that its scenario declares and that were seen in its records.

A random generator can fall silent: a limit too high, and nothing is ever evicted. So a comparison counts the features
of its runs, and `REQUIRED` lists those that must have occurred.
"""

from collections.abc import Iterator
from math import inf

import polars as pl

from fairlead.model import Recording
from fairlead.profile import Constant, Exponential, LogNormal, Profile, ScalingLaw, Sum, Table
from fairlead.workload import ClosedLoop, Scenario

LAWS = {Constant: "constant", Exponential: "exponential", LogNormal: "lognormal", ScalingLaw: "scaling", Table: "table"}


def beyond(scenario: Scenario) -> list[str]:
    """What a scenario asks for that the compiled core does not claim to do, in words of our own; empty if nothing."""
    stages = [stage for flow in scenario.workflows.values() for stage in flow.stages]
    functions, profiles = scenario.functions.values(), scenario.profiles.values()
    devices = [device for node in scenario.cluster.nodes for device in node.devices]
    claims = {
        "map": any(stage.map or stage.join for stage in stages),
        "branch": any(stage.when is not None for stage in stages),
        "compete": any(stage.compete > 1 for stage in stages),
        "failures": any(profile.failure_rate for profile in profiles),
        "limits": any(function.run_limit_s < inf or function.start_limit_s < inf for function in functions),
        "kernels": any(function.buffers for function in functions),
        "node faults": bool(scenario.node_faults),
        "sharing": any(device.sharing != "mps" for device in devices),
        "closed loop": any(isinstance(process, ClosedLoop) for process in scenario.arrivals),
        "decision time": bool(scenario.decision.fixed_s or scenario.decision.per_step_s),
    }
    return [what for what, is_asked in claims.items() if is_asked]


def unsettled(scenario: Scenario, *, is_scaled: bool = False) -> list[str]:
    """What the compiled core may do or refuse: if it says that it covers it, it must agree."""
    is_scaled |= scenario.scaler is not None
    configurations = [c for profile in scenario.profiles.values() for c in profile.configurations]
    claims = {
        "sum of laws": any(isinstance(profile.law, Sum) for profile in scenario.profiles.values()),
        "gpu sensitivity": any(profile.gpu_sensitivity for profile in scenario.profiles.values()),
        "memory of a configuration": any(c.memory_gb for c in configurations),
        "warm": any(function.warm for function in scenario.functions.values()),
        "replicas of several sizes": is_scaled and any(map(_has_sizes, scenario.profiles.values())),
    }
    return [what for what, is_asked in claims.items() if is_asked]


def _has_sizes(profile: Profile) -> bool:
    return len({(c.vcpus, c.vgpus, c.memory_gb) for c in profile.configurations}) > 1


def features(scenario: Scenario, recording: Recording) -> set[str]:
    """Everything in `REQUIRED` that applies to this run, and `unsettled` as it is named there."""
    shared = {"seen: runs share vCPUs"} if _is_shared(scenario, recording) else set()
    return {*_declared(scenario), *_seen(recording), *shared, *unsettled(scenario)}


def _declared(scenario: Scenario) -> Iterator[str]:
    yield from _of_functions(scenario)
    yield from _of_workflows(scenario)
    devices = [node.devices for node in scenario.cluster.nodes]
    choice, scaler = scenario.policy, scenario.scaler
    parameters = choice.parameters
    claims = {
        "several kinds of node": len(scenario.cluster.kinds) > 1,
        "more nodes than a word has bits": len(scenario.cluster.nodes) > 64,
        "several devices on a node": any(len(some) > 1 for some in devices),
        "memory of a node is limited": any(node.memory_gb < inf for node in scenario.cluster.nodes),
        "memory of a device is limited": any(d.memory_gb < inf for some in devices for d in some),
        "transfer takes time": scenario.cluster.bandwidth_gbps < inf,
        "cold starts are free": not scenario.cluster.price.bill_cold_start,
        "pressure changes": bool(scenario.pressures),
        **_of_shared_vcpus(scenario),
        "limited queue": parameters.get("queue_limit") is not None,
        "late ones are dropped": bool(parameters.get("drop_late")),
        "batches wait": bool(parameters.get("batch_wait_s")),
    }
    yield from (what for what, holds in claims.items() if holds)
    yield f"{choice.name}, batching {parameters.get('batching', 'none')}"
    yield "no scaler" if scaler is None else f"scaler {scaler.name}"


def _of_shared_vcpus(scenario: Scenario) -> dict[str, bool]:
    shared = {node.name for node in scenario.cluster.nodes if node.overcommit > 1}
    is_sensitive = any(profile.sensitivity for profile in scenario.profiles.values())
    return {
        "overcommitted, someone sensitive": bool(shared) and is_sensitive,
        "overcommitted, nobody sensitive": bool(shared) and not is_sensitive,
        "overcommitted, beside a node that is not": 0 < len(shared) < len(scenario.cluster.nodes),
        "overcommitted, pressure changes": any(change.node in shared for change in scenario.pressures),
        "overcommitted, with a scaler": bool(shared) and scenario.scaler is not None,
    }


def _is_shared(scenario: Scenario, recording: Recording) -> bool:
    """Whether at some instant the runs at work on a node held more vCPUs than it has."""
    runs = recording.invocations.unique("batch").with_columns(began=pl.col("start") + pl.col("cold_s"))
    for node in scenario.cluster.nodes:
        mine = runs.filter((pl.col("node") == node.name) & (pl.col("end") > pl.col("began")))
        steps = [(at, size) for at, size in mine.select("began", "vcpus").iter_rows()]
        steps += [(at, -size) for at, size in mine.select("end", "vcpus").iter_rows()]
        held = 0.0
        for _, size in sorted(steps):
            held += size
            if held > node.vcpus + 1e-9:
                return True
    return False


def _of_functions(scenario: Scenario) -> Iterator[str]:
    has_devices = any(node.devices for node in scenario.cluster.nodes)
    for name in {stage.function for flow in scenario.workflows.values() for stage in flow.stages}:
        function, profile = scenario.functions[name], scenario.profiles[name]
        rows = profile.law.rows if isinstance(profile.law, Table) else ()
        yield f"law {LAWS.get(type(profile.law), 'other')}"
        claims = {
            "table by kind": any(row.kind for row in rows),
            "on a device": has_devices and any(c.vgpus for c in profile.configurations),
            "without vCPUs": any(not c.vcpus for c in profile.configurations),
            "takes no time": profile.law.mean_s(profile.configurations[0], next(iter(scenario.cluster.kinds))) == 0,
            "noise": profile.noise > 0,
            "bias": profile.bias != 1,
            "sensitivity": profile.sensitivity > 0,
            "cold start by kind": bool(profile.cold_start_by_kind),
            "never kept": function.keep_alive_s == 0,
            "always kept": function.keep_alive_s == inf,
            f"idle holds {function.idle_holds}": True,
        }
        yield from (what for what, holds in claims.items() if holds)


def _of_workflows(scenario: Scenario) -> Iterator[str]:
    flows = list(scenario.workflows.values())
    used = [set(flow.functions) for flow in flows]
    if any(one & other for i, one in enumerate(used) for other in used[:i]):
        yield "function of several workflows"
    for flow in flows:
        before = [name for stage in flow.stages for name in stage.after]
        claims = {
            "fork": len(set(before)) < len(before),
            "join": any(len(stage.after) > 1 for stage in flow.stages),
            "several first stages": sum(not stage.after for stage in flow.stages) > 1,
            "six stages": len(flow.stages) == 6,
        }
        yield from (what for what, holds in claims.items() if holds)


def _seen(recording: Recording) -> Iterator[str]:
    requests, runs, instances = recording.requests, recording.invocations, recording.instances
    yield from (f"request {outcome}" for outcome in requests["outcome"].unique())
    yield from (f"run {outcome}" for outcome in runs["outcome"].unique())
    yield from (f"instance {cause}" for cause in instances["cause"].drop_nulls().unique())
    starts = runs.unique("batch")["start"]
    claims = {
        "seen: cold start": runs["is_cold"].any(),
        "seen: warm start": not runs["is_cold"].all(),
        "seen: wait": (runs["start"] > runs["ready"]).any(),
        "seen: transfer": (runs["transfer_s"] > 0).any(),
        "seen: batch": (runs["batch_size"] > 1).any(),
        "seen: on a device": (runs["device"] >= 0).any(),
        "seen: on a second device": (runs["device"] > 0).any(),
        "seen: arrivals at one instant": requests["arrival"].is_duplicated().any(),
        "seen: starts at one instant": starts.is_duplicated().any(),
        "seen: ends at an arrival": runs["end"].is_in(requests["arrival"].implode()).any(),
        "seen: run of no time": (runs["end"] == runs["start"]).any(),
        "seen: replica": not instances["on_demand"].all(),
        "seen: more than a hundred runs": runs.height > 100,
    }
    yield from (what for what, holds in claims.items() if holds)
    if runs.height and runs.select(pl.len().over("instance").max()).item() > 5:
        yield "seen: instance used more than five times"


REQUIRED = (
    *(f"law {name}" for name in LAWS.values()),
    *(f"fifo, batching {how}" for how in ("none", "full")),
    *(f"least-loaded, batching {how}" for how in ("none", "full")),
    "earliest-deadline, batching none",
    "no scaler",
    "scaler knative",
    "scaler hpa",
    "several kinds of node",
    "more nodes than a word has bits",
    "several devices on a node",
    "memory of a node is limited",
    "memory of a device is limited",
    "transfer takes time",
    "cold starts are free",
    "pressure changes",
    "overcommitted, someone sensitive",
    "overcommitted, nobody sensitive",
    "overcommitted, beside a node that is not",
    "overcommitted, pressure changes",
    "overcommitted, with a scaler",
    "seen: runs share vCPUs",
    "limited queue",
    "late ones are dropped",
    "batches wait",
    "table by kind",
    "on a device",
    "without vCPUs",
    "takes no time",
    "noise",
    "bias",
    "sensitivity",
    "cold start by kind",
    "never kept",
    "always kept",
    "idle holds slice",
    "idle holds memory",
    "function of several workflows",
    "fork",
    "join",
    "several first stages",
    "six stages",
    "request completed",
    "request rejected",
    "request dropped",
    "request unfinished",
    "run done",
    "run discarded",
    "instance expired",
    "instance evicted",
    "instance retired",
    "instance drained",
    "seen: cold start",
    "seen: warm start",
    "seen: wait",
    "seen: transfer",
    "seen: batch",
    "seen: on a device",
    "seen: on a second device",
    "seen: arrivals at one instant",
    "seen: starts at one instant",
    "seen: ends at an arrival",
    "seen: run of no time",
    "seen: replica",
    "seen: more than a hundred runs",
    "seen: instance used more than five times",
)
