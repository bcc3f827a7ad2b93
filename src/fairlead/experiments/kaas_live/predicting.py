"""The same clients in the simulator: kernels and actors, with the times that were measured of one client alone."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import polars as pl

from fairlead.engine import simulate
from fairlead.experiments.kaas_served import memory_figures
from fairlead.kaas.graphs import Example
from fairlead.model import Recording
from fairlead.workload import Scenario, load_scenario

_BASE = "kaas-contention"  # all of which but the name is overridden


def predict(scenario: Scenario, seed: int) -> dict[str, float]:
    """Throughput, median latency and what happened in memory, as the simulator has it."""
    recording = simulate(scenario, seed=seed)
    assert not recording.refusals, recording.refusals[0]
    return figures_of(recording, recording.warmup_s, recording.duration_s)


def figures_of(recording: Recording, begin: float, end: float) -> dict[str, float]:
    """Of the requests that ended in a span."""
    answered = recording.requests.filter(
        pl.col("end").is_between(begin, end, closed="right") & (pl.col("outcome") == "completed")
    )
    took = answered.select((pl.col("end") - pl.col("arrival")).median()).item()
    return {
        "rps": answered.height / (end - begin),
        "p50_ms": 1000 * float(took or 0.0),
        **memory_figures(recording, begin, end),
    }


def kernels(
    clients: Mapping[str, Example],
    profiles: Mapping[str, Mapping[str, float]],
    devices: Mapping[str, Any],
    policy: Mapping[str, Any],
    arrivals: Sequence[Mapping[str, object]],
    *,
    duration_s: float,
    warmup_s: float = 0.0,
) -> Scenario:
    """Clients as kernels on one host with all devices.

    Args:
        clients: What each runs.
        profiles: Of each client: `run_s`, `spread` and `load_s`, in seconds.
        devices: As for `served_clients`.
        policy: Its `dispatch` and parameters.
        arrivals: Of each workflow, which is called as its client.
        duration_s: When arrivals stop.
        warmup_s: What is not counted.
    """
    first = next(iter(clients))
    node = {
        "name": "local",
        "vcpus": 2,
        "vgpus": 1,
        "devices": len(devices["names"]),
        "device_memory_gb": devices["memory_mb"] / 1024,
        "load_gb_per_s": _constant_mb(clients[first]) / 1024 / profiles[first]["load_s"],
    }
    functions = {
        name: {
            "latency": {"constant_s": profiles[name]["run_s"]},
            "noise": min(0.3, profiles[name]["spread"] / profiles[name]["run_s"]),
            "keep_alive_s": inf,
            "idle_holds": "memory",
            "configurations": [{"vcpus": 0, "vgpus": 1}],
            # What a run copies is in its measured time, so nothing of it is an input or output here.
            "buffers": [
                {"name": b.name, "size_mb": b.size / 2**20, "kind": "constant" if b.kind == "constant" else "temporary"}
                for b in example.graph.buffers
            ],
        }
        for name, example in clients.items()
    }
    return load_scenario(
        _BASE,
        overrides={
            "cluster": {"nodes": [node]},
            "functions": functions,
            "workflows": {name: {"stages": {name: []}} for name in clients},
            "arrivals": list(arrivals),
            "policy": dict(policy),
            "duration_s": duration_s,
            "warmup_s": warmup_s,
        },
    )


def closed(clients: Sequence[str], outstanding: int, way_s: float) -> list[dict[str, object]]:
    """Closed loops whose users are away for as long as a request is under way outside of the devices."""
    return [
        {"workflow": name, "process": "closed-loop", "users": outstanding, "think_s": way_s, "think": "constant"}
        for name in clients
    ]


def actors(
    clients: Sequence[str],
    run_s: float,
    start_s: float,
    devices: Mapping[str, Any],
    outstanding: int,
    duration_s: float,
) -> Scenario:
    """Clients as processes that own a device each, under the rule of the authors' pool."""
    warmup_s = 4 * start_s
    function = {
        "latency": {"constant_s": run_s}, "noise": 0.02, "cold_start_s": start_s, "device_memory_gb": 0.9,
        "keep_alive_s": inf, "idle_holds": "slice", "configurations": [{"vcpus": 0, "vgpus": 1}],
    }  # fmt: skip
    node = {"name": "local", "vgpus": 1, "devices": len(devices["names"]), "device_memory_gb": 1}
    return load_scenario(
        _BASE,
        overrides={
            "cluster": {"nodes": [node]},
            "functions": dict.fromkeys(clients, function),
            "workflows": {name: {"stages": {name: []}} for name in clients},
            "arrivals": closed(clients, outstanding, 0.0),
            "policy": {"dispatch": "kaas-exclusive-pool"},
            "duration_s": warmup_s + duration_s,
            "warmup_s": warmup_s,
        },
    )


def _constant_mb(example: Example) -> float:
    return sum(b.size for b in example.graph.buffers if b.kind == "constant") / 2**20
