"""Warnings about scalers whose replicas had no room on the nodes, which no table of results shows."""

import polars as pl

from fairlead.model import Configuration, Node, Recording
from fairlead.report import Summary
from fairlead.report.labels import policy_label
from fairlead.report.numbers import show
from fairlead.workload import Scenario

FEW_IN_TIME, MOST_IN_TIME = 0.5, 0.95
"""Shares of requests in time below which a warning is worth it: where no further replica fits, and where none does."""

_ROUNDING = 1e-9
_ADVICE = (
    "Let the scaler keep fewer or smaller replicas (--set scaler.…), or enlarge the cluster (--set cluster.nodes.…)."
)


def room_warnings(scenario: Scenario, recording: Recording, summary: Summary) -> tuple[str, ...]:
    """A warning, if any: which functions have no replica, or could have no further one, what is there, and what to do.

    The nodes are looked at when arrivals end. Runs without a scaler are left alone: there, instances come and go with
    the requests.
    """
    if recording.scaler is None or not summary.requests:
        return ()
    used = [name for workflow in summary.by_workflow for name in scenario.workflows[workflow].functions]
    alive = recording.instances.filter(
        (pl.col("started") <= recording.duration_s)
        & (pl.col("stopped").is_null() | (pl.col("stopped") > recording.duration_s))
    )
    full = [name for name in dict.fromkeys(used) if not _has_room(scenario, name, alive)]
    counts = dict(alive["function"].value_counts().iter_rows())
    without = [name for name in full if name not in counts]
    if not full or (summary.slo_attainment or 0.0) >= (MOST_IN_TIME if without else FEW_IN_TIME):
        return ()
    who = policy_label(recording.policy, recording.scaler)
    held, total = float(alive["vcpus"].sum()), sum(node.capacity_vcpus for node in recording.cluster.nodes)
    if without:
        needs = ", ".join(f"{name} (needs {_least(scenario, name)})" for name in without)
        what = f"no node had room for a replica of {needs}"
    else:
        what = (
            f"no node had room for another replica of {', '.join(f'{name} ({counts.get(name, 0)})' for name in full)}"
        )
    others = ", ".join(f"{count} of {name}" for name, count in sorted(counts.items()))
    there = f"Replicas at the end of arrivals: {others or 'none'}, on {held:g} of {total:g} vCPUs."
    share = show(summary.slo_attainment, "share")
    return (f"{who}: {what}; {share} of the requests were in time. {there} {_ADVICE}",)


def _has_room(scenario: Scenario, name: str, alive: pl.DataFrame) -> bool:
    """Whether some node can hold one more instance in some configuration."""
    function, profile = scenario.functions[name], scenario.profiles[name]
    for node in scenario.cluster.nodes:
        here = alive.filter(pl.col("node") == node.name)
        for configuration in profile.configurations:
            memory_gb = configuration.memory_gb or function.memory_gb
            if _fits(node, here, configuration, memory_gb):
                return True
    return False


def _fits(node: Node, here: pl.DataFrame, configuration: Configuration, memory_gb: float) -> bool:
    if configuration.vcpus > node.capacity_vcpus - float(here["vcpus"].sum()) + _ROUNDING:
        return False
    if memory_gb > node.memory_gb - float(here["memory_gb"].sum()) + _ROUNDING:
        return False
    if not configuration.vgpus:
        return True
    used = {
        int(device): float(vgpus) for device, vgpus in here.group_by("device").agg(pl.col("vgpus").sum()).iter_rows()
    }
    return any(
        configuration.vgpus <= device.vgpus - used.get(number, 0.0) + _ROUNDING
        for number, device in enumerate(node.devices)
    )


def _least(scenario: Scenario, name: str) -> str:
    """What the smallest configuration of a function takes."""
    least = min(scenario.profiles[name].configurations, key=lambda one: (one.vgpus, one.vcpus))
    memory_gb = least.memory_gb or scenario.functions[name].memory_gb
    sizes = ((least.vcpus, "vCPU"), (least.vgpus, "vGPU"), (memory_gb, "GB"))
    return ", ".join(f"{size:g} {unit}" for size, unit in sizes if size)
