"""What an invocation met when it became ready: instances of its function, and the room that there was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from fairlead.model import CACHED, Recording


@dataclass(frozen=True, kw_only=True)
class Met:
    """What an invocation met when it became ready.

    Args:
        function: What it is to run.
        instances: Of the function with the vGPUs of its configuration, ready ones.
        busy: How many of these had a batch.
        usable: How many of the others were where its vCPUs and vGPUs were free.
        starting: Instances that were not ready yet.
        went_first: Invocations of the function that were started before it.
        vcpus_in_use: Share of all vCPUs that runs and starting instances had.
        vgpus_in_use: Likewise; None where there are none.
        starting_elsewhere: Instances of other functions that were starting.
    """

    function: str
    instances: int
    busy: int
    usable: int
    starting: int
    went_first: int
    vcpus_in_use: float | None
    vgpus_in_use: float | None
    starting_elsewhere: int


def meet(recording: Recording, function: str, vcpus: float, vgpus: float, ready: float, until: float) -> Met:
    """What an invocation met that waited from one instant to the other."""
    running = recording.invocations.filter((pl.col("start") <= ready) & (pl.col("end") > ready)).unique("batch")
    there = recording.instances.filter(pl.col("function") == function, pl.col("vgpus") == vgpus, _lives(ready))
    able = there.filter(pl.col("ready") <= ready)
    first = (pl.col("start") >= ready) & (pl.col("start") < until) & (pl.col("ready") < until)
    is_busy = pl.col("instance").is_in(running["instance"].implode())
    nodes = recording.cluster.nodes
    all_vcpus = sum(node.vcpus for node in nodes)
    all_vgpus = sum(device.vgpus for node in nodes for device in node.devices)
    free = {(node.name, -1): node.vcpus for node in nodes}
    free |= {(node.name, place): device.vgpus for node in nodes for place, device in enumerate(node.devices)}
    columns = ("node", "device", "vcpus", "vgpus")
    is_starting = pl.col("ready").is_null() | (pl.col("ready") > ready)
    starting = recording.instances.filter(_lives(ready), is_starting, ~is_busy)
    using = pl.concat([running.select(columns), starting.select(columns)])
    for name, device, used_vcpus, used_vgpus in using.iter_rows():
        free[name, -1] = free.get((name, -1), 0.0) - used_vcpus
        if device >= 0:
            free[name, device] = free.get((name, device), 0.0) - used_vgpus
    idle = able.filter(~is_busy).select("node", "device").rows()
    return Met(
        function=function,
        instances=able.height,
        busy=able.filter(is_busy).height,
        usable=sum(
            free.get((name, -1), 0.0) >= vcpus - 1e-9 and (device < 0 or free.get((name, device), 0.0) >= vgpus - 1e-9)
            for name, device in idle
        ),
        starting=there.height - able.height,
        went_first=recording.invocations.filter(
            pl.col("function") == function, first, pl.col("outcome") != CACHED
        ).height,
        vcpus_in_use=float(using["vcpus"].sum()) / all_vcpus if all_vcpus else None,
        vgpus_in_use=float(using["vgpus"].sum()) / all_vgpus if all_vgpus else None,
        starting_elsewhere=starting.filter(pl.col("function") != function).height,
    )


def idle_elsewhere(recording: Recording, row: Mapping[str, Any]) -> int:
    """Other nodes of the same kind that had an idle instance of the same GPU share when this attempt was started."""
    kinds = {node.name: node.kind for node in recording.cluster.nodes}
    others = [name for name, kind in kinds.items() if kind == kinds.get(row["node"]) and name != row["node"]]
    alike = [pl.col(name) == row[name] for name in ("function", "vgpus")]
    at = row["start"]
    running = recording.invocations.filter((pl.col("start") <= at) & (pl.col("end") > at))["instance"]
    idle = recording.instances.filter(*alike, _lives(at), pl.col("ready") <= at, pl.col("node").is_in(others))
    return idle.filter(~pl.col("instance").is_in(running.implode()))["node"].n_unique()


def _lives(at: float) -> pl.Expr:
    return (pl.col("started") <= at) & (pl.col("stopped").is_null() | (pl.col("stopped") > at))
