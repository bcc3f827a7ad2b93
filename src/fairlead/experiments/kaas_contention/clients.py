"""The clients of the contention experiment: equal tenants, each with a kernel, an actor, or a quarter of a GPU."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from fairlead.engine import simulate
from fairlead.model import Recording
from fairlead.workload import load_scenario

_MB_PER_GB = 1024


def run_clients(settings: Mapping[str, Any], model: str, way: str, count: int, seed: int) -> Recording:
    """Runs `count` clients of a model that share the GPUs in the given way."""
    kind = settings["ways"][way]["as"]
    scenario = load_scenario(
        "kaas-contention" if kind == "kernel" else "kaas-contention-actors",
        overrides=_overrides(settings, model, way, count),
    )
    recording = simulate(scenario, seed=seed)
    assert not recording.refusals, recording.refusals[0]
    return recording


def answers(recording: Recording) -> list[int]:
    """How many requests of each client were answered between the warm-up and the end of the arrivals, least first."""
    in_time = pl.col("end").is_between(recording.warmup_s, recording.duration_s, closed="right")
    return sorted(recording.requests.group_by("workflow").agg(in_time.sum())["end"].to_list())


def throughput_rps(recording: Recording) -> float:
    """All of those, per second."""
    return sum(answers(recording)) / (recording.duration_s - recording.warmup_s)


def _overrides(settings: Mapping[str, Any], model: str, way: str, count: int) -> dict[str, object]:
    kind = settings["ways"][way]["as"]
    names = [f"client-{i + 1}" for i in range(count)]
    is_contended = kind != "kernel" and count > settings["gpus"] * (4 if kind == "quarter" else 1)
    figures = settings["models"][model]
    warmup_s = figures["warmup_s"]
    if kind != "kernel":
        warmup_s = settings["actor_warmup_starts"] * figures["actor_start_s"]
    run_s = settings["contended_run_s"][model] if is_contended else figures["run_s"]
    function = _kernel(settings, model) if kind == "kernel" else _actor(settings, model, kind)
    users = settings["outstanding"]
    if kind == "quarter":  # one client alone must be able to use all sixteen
        users = max(users, 4 * settings["gpus"] // count)
    return {
        "cluster.nodes.0.count": settings["gpus"],
        "functions": dict.fromkeys(names, function),
        "workflows": {name: {"stages": {name: []}} for name in names},
        "arrivals": [
            {"workflow": name, "process": "closed-loop", "users": users, "think_s": 0, "think": "constant"}
            for name in names
        ],
        "policy": settings["ways"][way]["policy"],
        "warmup_s": warmup_s,
        "duration_s": warmup_s + run_s,
    }


def _kernel(settings: Mapping[str, Any], model: str) -> dict[str, object]:
    figures = settings["models"][model]
    sizes_mb = figures["buffers"]
    device = load_scenario("kaas-contention").cluster.nodes[0].devices[0]
    copied_mb = sizes_mb.get("input", 0) + sizes_mb.get("output", 0)
    copy_s = copied_mb / _MB_PER_GB / device.load_gb_per_s  # part of a request as it was measured
    return {
        "latency": {"constant_s": 1 / figures["kaas_rps"] - copy_s},
        "noise": settings["noise"],
        "keep_alive_s": float("inf"),
        "idle_holds": "memory",
        "configurations": [{"vcpus": 0, "vgpus": 1}],
        "buffers": [{"name": kind, "size_mb": size_mb, "kind": kind} for kind, size_mb in sizes_mb.items()],
    }


def _actor(settings: Mapping[str, Any], model: str, kind: str) -> dict[str, object]:
    figures = settings["models"][model]
    share = 0.25 if kind == "quarter" else 1
    run_s = 4 * settings["gpus"] / figures["quarter_rps"] if kind == "quarter" else 1 / figures["native_rps"]
    return {
        "latency": {"constant_s": run_s},
        "noise": settings["noise"],
        "cold_start_s": figures["actor_start_s"],
        "device_memory_gb": figures["native_gb"],
        "keep_alive_s": float("inf"),
        "idle_holds": "slice",
        "configurations": [{"vcpus": 0, "vgpus": share}],
    }
