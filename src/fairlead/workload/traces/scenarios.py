"""A trace as a scenario: one workflow of one stage per function, on a cluster of equal nodes."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from fairlead.model import SLO, Cluster, Function, Node, Workflow
from fairlead.profile import Constant, LogNormal, Profile
from fairlead.workload.arrivals import MINUTE_S, MinuteCounts
from fairlead.workload.scenario import Scenario

if TYPE_CHECKING:
    from fairlead.workload.traces.trace import Trace

_MB_PER_GB = 1024


def scenario_of(
    trace: Trace,
    *,
    nodes: int,
    vcpus: float,
    memory_gb: float,
    cold_start_s: float = 1.0,
    keep_alive_s: float = 600.0,
    slo_s: float = inf,
    is_streamed: bool = False,
    name: str = "trace",
) -> Scenario:
    """The scenario; see `Trace.scenario`."""
    if nodes < 1:
        raise ValueError(f"nodes must be at least 1; got {nodes}.")
    largest_gb = float(trace.column("memory_mb").max()) / _MB_PER_GB
    if largest_gb > memory_gb:
        raise ValueError(
            f"memory_gb must hold the largest function, which takes {largest_gb:.3g} GB; got {memory_gb:g}."
        )
    width = len(str(nodes - 1))
    cluster = Cluster(
        nodes=tuple(
            Node(name=f"n{number:0{width}}", kind="node", vcpus=vcpus, memory_gb=memory_gb) for number in range(nodes)
        )
    )
    functions, profiles, workflows = {}, {}, {}
    slo = SLO(latency_s=slo_s)
    fitted = trace.functions.select("median_s", "sigma", "memory_mb")
    for own, (median_s, sigma, memory_mb) in zip(trace.names, fitted.iter_rows(), strict=True):
        law = LogNormal(median_s, sigma) if sigma > 0 else Constant(median_s)
        functions[own] = Function(
            name=own, memory_gb=memory_mb / _MB_PER_GB, keep_alive_s=keep_alive_s, idle_holds="memory"
        )
        profiles[own] = Profile(law=law, cold_start_s=cold_start_s)
        workflows[own] = Workflow.chain(own, own, slo=slo)
    return Scenario(
        name=name,
        description=f"{len(trace)} functions over {trace.minutes} minutes: {trace.source}",
        cluster=cluster,
        functions=functions,
        profiles=profiles,
        workflows=workflows,
        arrivals=() if is_streamed else _arrivals(trace),
        duration_s=trace.minutes * MINUTE_S,
    )


def _arrivals(trace: Trace) -> tuple[MinuteCounts, ...]:
    return tuple(
        MinuteCounts(own, tuple(trace.rows(number, number + 1)[0].tolist()))
        for number, own in enumerate(trace.names)
        if trace.calls[number]
    )
