"""What requests need at least: how often each stage runs, with which options, and what these take of the cluster.

Everything is counted in favour of the dispatcher. Batches are full, every instance is warm, nothing is sent from node
to node, and where the time of a run varies it is the shortest possible when a deadline is tested. What a run takes of
a node is the mean: no dispatcher knows the luck of a run before it starts it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import NDArray

from fairlead.engine.core.effects import RunBatch
from fairlead.engine.sim.arrivals import open_arrivals
from fairlead.engine.sim.physics import Physics
from fairlead.model import Cluster, Configuration, Function, Invocation, Node, Stage, Workflow
from fairlead.model.mig import MIG_EIGHTHS
from fairlead.planning.feasibility import could_run
from fairlead.profile import Profile
from fairlead.workload import Scenario

Reals = NDArray[np.float64]
Visits = tuple[int, ...]
"""How often a request runs each stage of its workflow, in the order of the stages."""

_MOST_NOISE = 3.0  # standard deviations at which the simulator truncates it
_LEAST_FACTOR = 0.05  # of the mean, whatever the noise


class Pools:
    """The resources that are counted: for each kind of node vCPUs, vGPUs and, of MIG devices, eighths of the memory."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.names: list[tuple[str, str]] = []
        for kind in cluster.kinds:
            sizes = [self._size(node) for node in cluster.nodes if node.kind == kind]
            self.names += [(kind, what) for what in sizes[0] if any(size[what] for size in sizes)]

    @staticmethod
    def _size(node: Node) -> dict[str, float]:
        return {
            "vcpus": node.vcpus,
            "vgpus": sum(device.vgpus for device in node.devices),
            "eighths": sum(8.0 for device in node.devices if device.sharing == "mig"),
        }

    def capacity(self, scenario: Scenario, start: float, end: float) -> Reals:
        """Resource-seconds between two instants, less what lost nodes and load from outside take."""
        total: Reals = np.zeros(len(self.names))
        for node in self._cluster.nodes:
            own = self._size(node)
            size = np.array([own[what] if kind == node.kind else 0.0 for kind, what in self.names])
            total += size * _usable_s(scenario, node, start, end)
        return total

    def taken(self, kind: str, node: Node, configuration: Configuration, profile: Profile, weight: float) -> Reals:
        """What a run keeps from others while it makes a second of progress, at the pace of an undisturbed one.

        Runs that disturb each other make less progress together than alone. With a share p of its node and a
        sensitivity s, a run counts as p (1 + s (1 - p)), or as the whole node where s p > 1: for no set of runs that
        fit on a node is the progress, counted so, above 1.
        """
        held = {"vcpus": configuration.vcpus, "vgpus": configuration.vgpus, "eighths": 0.0}
        device = node.devices[0] if node.devices else None
        if device is not None and configuration.vgpus:
            if device.sharing == "mig":
                held["eighths"] = float(MIG_EIGHTHS[int(configuration.vgpus)])
            elif device.sharing == "time":  # by turns, each with the whole device
                held["vgpus"] = device.vgpus
            else:
                held["vgpus"] = device.vgpus * _blocked(configuration.vgpus / device.vgpus, profile.gpu_sensitivity)
        if node.vcpus:
            held["vcpus"] = node.vcpus * _blocked(configuration.vcpus / node.vcpus, profile.sensitivity * weight)
        return np.array([held[what] if kind == own else 0.0 for own, what in self.names])


def _blocked(share: float, sensitivity: float) -> float:
    return max(share, min(1.0, share * (1 + sensitivity * (1 - share)) if sensitivity * share <= 1 else 1.0))


def _usable_s(scenario: Scenario, node: Node, start: float, end: float) -> float:
    """Seconds that a node is up, shortened by what load from outside takes at least."""
    changes = [one for one in scenario.pressures if one.node == node.name]
    downs = [
        (fault.at_s, fault.at_s + (inf if fault.back_s is None else fault.back_s))
        for fault in scenario.node_faults
        if fault.node == node.name
    ]
    ends = {start, end, *(one.at_s for one in changes), *(at for down in downs for at in down)}
    inside = sorted(at for at in ends if start <= at <= end)
    total = 0.0
    for low, high in pairwise(inside):
        if not any(down <= low < back for down, back in downs):
            pressure = next((one.pressure for one in reversed(changes) if one.at_s <= low), 0.0)
            total += (high - low) * _pace(scenario, pressure)
    return total


def _pace(scenario: Scenario, pressure: float) -> float:
    """The progress that the least sensitive function makes under load from outside, compared with none."""
    profiles = scenario.profiles.values()
    if not pressure or any(profile.pressure_curves for profile in profiles):
        return 1.0
    weight = max(profile.pressure for profile in profiles)
    alone = ((1 + profile.sensitivity * weight, profile.sensitivity) for profile in profiles)
    return max(before / (before + sensitivity * pressure) for before, sensitivity in alone)


@dataclass(frozen=True)
class Options:
    """The ways to run a function, one entry each: shortest time, mean use of each pool and money per invocation."""

    least_s: Reals
    use: Reals
    usd: Reals


def options(scenario: Scenario, pools: Pools, function: Function, most_batch: float = inf) -> Options:
    """Every configuration on every kind of node that could run it, with batches up to this size."""
    profile = scenario.profiles[function.name]
    cluster = scenario.cluster
    weight = min(one.pressure for one in scenario.profiles.values())
    is_loaded_each_time = function.keep_alive_s <= 0 and not function.warm
    factor = 0.0 if profile.spread is not None else max(_LEAST_FACTOR, 1 - _MOST_NOISE * profile.noise)
    least_s, use, usd = [], [], []
    for kind, node in cluster.kinds.items():
        cold_s = profile.cold_s(kind) if is_loaded_each_time else 0.0
        for configuration in profile.configurations:
            if configuration.batch > most_batch or not any(
                could_run(one, function, configuration) for one in cluster.nodes if one.kind == kind
            ):
                continue
            mean_s = _mean_s(profile, configuration, node)
            if mean_s == inf:
                continue
            taken = pools.taken(kind, node, configuration, profile, weight)
            least_s.append(mean_s * factor + cold_s + profile.overhead_s)
            use.append(taken * (mean_s + cold_s) / configuration.batch)
            per_s = cluster.price.usd_per_s(configuration.vcpus, configuration.vgpus)
            usd.append(per_s * mean_s * factor / configuration.batch)
    return Options(np.array(least_s), np.array(use).reshape(-1, len(pools.names)), np.array(usd))


def _mean_s(profile: Profile, configuration: Configuration, node: Node) -> float:
    """The true mean; on a device that is used by turns, that of the fastest share of it."""
    same = [configuration]
    if configuration.vgpus and any(device.sharing == "time" for device in node.devices):
        same += [
            one
            for one in profile.configurations
            if (one.batch, one.vcpus) == (configuration.batch, configuration.vcpus) and one.vgpus
        ]
    return min(profile.latency_s(one, node.kind, node.speed) for one in same) * profile.bias


@dataclass(frozen=True)
class Kind:
    """Requests of one workflow that run each stage equally often."""

    workflow: str
    visits: Visits


Requests = Sequence[tuple[float, Kind]]
"""Arrival and kind of each."""


def counted_requests(scenario: Scenario, seed: int) -> Requests:
    """Arrival and kind of every request that counts, in order of arrival. Closed loops are not in it."""
    physics = Physics(scenario, seed)
    names = list(scenario.workflows)
    ordinals: Counter[str] = Counter()
    found = []
    for at, number in zip(*open_arrivals(scenario, seed), strict=True):
        name = names[number]
        if at >= scenario.warmup_s:
            visits = _visits(scenario.workflows[name], physics, ordinals[name])
            found.append((float(at), Kind(name, visits)))
        ordinals[name] += 1
    return found


def _visits(workflow: Workflow, physics: Physics, ordinal: int) -> Visits:
    """How often the n-th request of a workflow runs each stage: its branches and items are drawn, whoever decides."""
    if not any(stage.map or stage.when is not None for stage in workflow.stages):
        return (1,) * len(workflow.stages)
    entry_items = physics.admit(ordinal, ordinal, workflow.name)
    runs: dict[str, dict[int, tuple[str | None, int]]] = {}  # by stage and item: the arm and items that come of it
    for stage in workflow.stages:
        items = range(entry_items) if stage.map and not stage.after else _items(stage, runs)
        runs[stage.name] = {item: _outcome(workflow, stage, physics, ordinal, item) for item in items}
    physics.forget(ordinal)
    return tuple(len(runs[stage.name]) for stage in workflow.stages)


def _items(stage: Stage, runs: dict[str, dict[int, tuple[str | None, int]]]) -> Iterator[int]:
    """The items for which a stage runs, as its predecessors leave them."""
    if not stage.after:
        yield 0
        return
    chosen = {
        item: count
        for name in stage.after
        for item, (arm, count) in runs[name].items()
        if stage.when is None or arm == stage.name
    }
    if stage.map:
        yield from range(next(iter(chosen.values()), 0))
    elif stage.join:
        yield from (0,) * bool(chosen)
    else:
        yield from sorted(chosen)


def _outcome(workflow: Workflow, stage: Stage, physics: Physics, ordinal: int, item: int) -> tuple[str | None, int]:
    """The arm that is taken after a run, and the number of items that come of it."""
    attempt = 1
    while True:
        run = Invocation(
            ordinal, ordinal, workflow.name, stage.name, stage.function, 0.0, inf, item=item, attempt=attempt
        )
        outcomes = physics.outcomes(RunBatch(0.0, 0, 0, stage.function, (run,), Configuration(), "", -1, 0.0))
        if outcomes is None:
            return None, 1
        if outcomes[0].ok:
            return outcomes[0].arm, outcomes[0].items
        attempt += 1


def by_kind(requests: Requests) -> Counter[Kind]:
    """How many requests there are of each kind."""
    return Counter(kind for _, kind in requests)
