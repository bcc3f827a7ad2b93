"""The same clients in the simulator: kernels and actors, with the times that were measured of one client alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import msgspec
import polars as pl

from fairlead.engine import simulate
from fairlead.experiments.kaas_alone import Times, users_of
from fairlead.experiments.kaas_served import memory_figures
from fairlead.kaas.graphs import Example
from fairlead.model import Recording
from fairlead.profile import Host
from fairlead.workload import Scenario, load_scenario

_BASE = "kaas-contention"  # all of which but the name is overridden
_APART_S, _BETWEEN_S = 0.1, 1.0  # between two requests that come one after the other, and between two points


def predict(scenario: Scenario, seed: int) -> Recording:
    """One run in the simulator, in which the policy asks for nothing impossible."""
    recording = simulate(scenario, seed=seed)
    assert not recording.refusals, recording.refusals[0]
    return recording


@dataclass(frozen=True)
class Session:
    """What is asked of one gateway, point after point: what happened before decides what is protected from eviction.

    Args:
        clients: All of them; at first each asks this many `rounds`, one after the other.
        counts: The points: how many clients keep requests open, each from an instant on.
        outstanding: Requests that each keeps open.
        settle_s: How long that is done before each point.
        seconds: How long each point is.
    """

    clients: Sequence[str]
    rounds: int
    counts: Sequence[int]
    outstanding: int
    settle_s: float
    seconds: float

    @property
    def begins(self) -> list[float]:
        """When each point begins; before it, the same clients settle."""
        first = _APART_S * len(self.clients) * self.rounds + _BETWEEN_S
        step = self.settle_s + self.seconds + 2 * _BETWEEN_S
        return [first + i * step + self.settle_s + _BETWEEN_S for i in range(len(self.counts))]

    @property
    def end_s(self) -> float:
        """When everything is over."""
        return self.begins[-1] + self.seconds + _BETWEEN_S

    def arrivals(self) -> list[dict[str, object]]:
        """As a scenario has them."""
        apart_s = _APART_S * len(self.clients)
        found: list[dict[str, object]] = [
            {
                "workflow": client,
                "process": "list",
                "at": [_APART_S * i + apart_s * turn for turn in range(self.rounds)],
            }
            for i, client in enumerate(self.clients)
        ]
        for begin, count in zip(self.begins, self.counts, strict=True):
            settling = begin - self.settle_s - _BETWEEN_S
            for from_s, until_s in ((settling, settling + self.settle_s), (begin, begin + self.seconds)):
                found += [users_of(client, self.outstanding, from_s, until_s) for client in self.clients[:count]]
        return found

    def figures(self, recording: Recording) -> list[dict[str, float]]:
        """Of each point, until the last of its answers."""
        found = []
        for begin in self.begins:
            asked = recording.requests.filter(pl.col("arrival").is_between(begin, begin + self.seconds))
            found.append(figures_of(recording, begin, float(asked["end"].max())))  # type: ignore[arg-type]
        return found


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
    times: Mapping[str, Times],
    host: Host,
    devices: Mapping[str, Any],
    policy: Mapping[str, Any],
    arrivals: Sequence[Mapping[str, object]],
    *,
    duration_s: float,
) -> Scenario:
    """Clients as kernels on one host with all devices.

    Args:
        clients: What each runs.
        times: Of each client's kernel.
        host: The machine, whose cores the devices use too.
        devices: As for `served_clients`.
        policy: Its `dispatch` and parameters.
        arrivals: Of each workflow, which is called as its client.
        duration_s: When arrivals stop.
    """
    first = next(iter(clients))
    node = {
        "name": "local",
        "vcpus": 2,
        "vgpus": 1,
        "devices": len(devices["names"]),
        "device_memory_gb": devices["memory_mb"] / 1024,
        "load_gb_per_s": _constant_mb(clients[first]) / 1024 / times[first].load_s,
    }
    functions = {
        name: {
            "latency": {"constant_s": times[name].run_s},
            "noise": min(0.3, times[name].spread / times[name].run_s),
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
    scenario = load_scenario(
        _BASE,
        overrides={
            "cluster": {"nodes": [node]},
            "functions": functions,
            "workflows": {name: {"stages": {name: []}} for name in clients},
            "arrivals": list(arrivals),
            "policy": dict(policy),
            "duration_s": duration_s,
            "warmup_s": 0,
        },
    )
    shares = {name: one.share for name, one in times.items()}
    return replace(scenario, host=msgspec.structs.replace(host, cpu_share=shares))


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
            "arrivals": [users_of(client, outstanding, 0.0, warmup_s + duration_s) for client in clients],
            "policy": {"dispatch": "kaas-exclusive-pool"},
            "duration_s": warmup_s + duration_s,
            "warmup_s": warmup_s,
        },
    )


def _constant_mb(example: Example) -> float:
    return sum(b.size for b in example.graph.buffers if b.kind == "constant") / 2**20
