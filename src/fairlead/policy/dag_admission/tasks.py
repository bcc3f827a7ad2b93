"""A workflow as the admission controller sees it: its tasks, and the ways to run each.

A *task* is one run that a request may need: a stage, an item of a map, a copy of a competing stage. Branches and maps
are planned for in full (every arm, the greatest number of items), and what turns out not to be needed is given back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from fairlead.model import Configuration, Function, Instance, Node, Workflow
from fairlead.planning.feasibility import could_run
from fairlead.planning.timeline import Demand
from fairlead.policy.base import Site

TaskKey = tuple[str, int, int]  # stage, item, copy
Pool = tuple[str, int, int, int]  # function, vGPUs, memory, device (-1 for none)

_UNLIMITED = 1 << 60


def milli(amount: float) -> int:
    """vCPUs or vGPUs in thousandths, as the controller counts them."""
    return round(amount * 1000)


def mebi(amount_gb: float) -> int:
    """Memory in MiB; infinity is a number too large to use up."""
    return _UNLIMITED if amount_gb == inf else round(amount_gb * 1024)


class Way:
    """A function in one configuration on one kind of node: what a run takes, and what it leaves behind."""

    __slots__ = (
        "_demands",
        "cold_s",
        "configuration",
        "function",
        "has_seats",
        "is_weightless",
        "keep_alive_s",
        "keeps_slice",
        "kind",
        "larger",
        "needs_device",
        "node_share",
        "seat_key",
        "share",
        "usd_per_s",
    )

    def __init__(self, function: Function, configuration: Configuration, kind: str, site: Site) -> None:
        self.function = function.name
        self.configuration = configuration
        self.kind = kind
        self.cold_s = site.profiles[function.name].cold_start_s(kind)
        self.keep_alive_s = function.keep_alive_s
        self.keeps_slice = function.idle_holds == "slice"
        self.needs_device = configuration.vgpus > 0
        self.usd_per_s = site.cluster.price.usd_per_s(configuration.vcpus, configuration.vgpus)
        self.larger: tuple[Way, ...] = ()  # the same share with a larger batch, the next larger first
        # Only where a cold start takes time and an instance outlives its run is it worth knowing what is warm.
        self.has_seats = self.cold_s > 0 and function.keep_alive_s > 0
        vcpus, vgpus = milli(configuration.vcpus), milli(configuration.vgpus)
        memory = mebi(configuration.memory_gb or function.memory_gb)
        device_memory = mebi(function.footprint_gb) if vgpus else 0
        self.is_weightless = vgpus == 0 and memory == 0 and not self.keeps_slice
        self.seat_key = (kind, function.name, vcpus, vgpus, memory)
        self._demands: dict[int | None, Demand] = {}
        pattern = site.cluster.kinds[kind]
        nodes = [node for node in site.cluster.nodes if node.kind == kind]  # which may differ in their devices
        for device in range(max(len(node.devices) for node in nodes)) if vgpus else (None,):
            needed = [(0, vcpus), (1, memory)]
            if device is not None:
                needed += [(2 + 2 * device, vgpus), (3 + 2 * device, device_memory)]
            self._demands[device] = tuple((column, amount) for column, amount in needed if amount)
        on_node = sum(device.vgpus for device in pattern.devices)
        self.node_share = max(
            configuration.vcpus / pattern.vcpus if pattern.vcpus else 0.0,
            configuration.vgpus / on_node if on_node else 0.0,
        )
        total_vcpus = sum(node.vcpus for node in nodes)
        total_vgpus = sum(device.vgpus for node in nodes for device in node.devices)
        # Which share of a kind's vCPUs and vGPUs one run uses.
        self.share = (
            configuration.vcpus / total_vcpus if total_vcpus else 0.0,
            configuration.vgpus / total_vgpus if total_vgpus else 0.0,
        )

    def demand(self, device: int | None) -> Demand:
        """What a run takes on a node and on one of its devices."""
        return self._demands[device]

    def holding(self, members: int) -> "Way":
        """The smallest batch with the share of this one, itself the smallest of all, that holds so many."""
        return next(way for way in (self, *self.larger) if way.configuration.batch >= members)

    def pool(self, device: int | None) -> Pool:
        """Which instances could stand in for one of this: the controller resizes vCPUs in place."""
        _, function, _, vgpus, memory = self.seat_key
        return function, vgpus, memory, -1 if device is None else device


@dataclass(frozen=True)
class Task:
    """One run of a stage: which task indices come before it, and what their outputs weigh.

    `is_sure` unless it may turn out not to be needed: in a branch, as an item that may not be, as a competing copy.
    """

    key: TaskKey
    stage: int
    function: str
    after: tuple[int, ...]
    then: tuple[int, ...]
    inputs_mb: tuple[float, ...]
    is_sure: bool


def ways_of(function: Function, site: Site) -> tuple[Way, ...]:
    """Every way to run one invocation of a function: with the smallest batch, on the kinds that can hold it."""
    profile = site.profiles[function.name]
    least = min(configuration.batch for configuration in profile.configurations)
    found = []
    for kind, pattern in site.cluster.kinds.items():
        possible = [
            c for c in profile.configurations if profile.latency_s(c, kind) < inf and could_run(pattern, function, c)
        ]
        ways = {c: Way(function, c, kind, site) for c in possible}
        for configuration, way in ways.items():
            way.larger = tuple(
                ways[c] for c in sorted(ways) if c.batch > configuration.batch and _share(c) == _share(configuration)
            )
            if configuration.batch == least:
                found.append(way)
    return tuple(found)


def _share(configuration: Configuration) -> tuple[float, float, float]:
    return configuration.vcpus, configuration.vgpus, configuration.memory_gb


def tasks_of(workflow: Workflow, functions: Mapping[str, Function]) -> tuple[Task, ...]:
    """The tasks of a workflow with its greatest numbers of items and all copies, in topological order."""
    stages = {stage.name: stage for stage in workflow.stages}
    of_stage: dict[str, list[int]] = {}
    keys: list[TaskKey] = []
    for stage in workflow.stages:
        region = workflow.regions[stage.name]
        opener = stages[region].map if region is not None else None
        items = opener[1] if opener is not None else 1
        of_stage[stage.name] = []
        for item in range(items):
            for copy in range(stage.compete):
                of_stage[stage.name].append(len(keys))
                keys.append((stage.name, item, copy))
    after: list[list[int]] = []
    then: list[list[int]] = [[] for _ in keys]
    for i, (name, item, _) in enumerate(keys):
        own: list[int] = []
        for predecessor in stages[name].after:
            same = workflow.regions[predecessor] is not None and workflow.regions[predecessor] == workflow.regions[name]
            own += [j for j in of_stage[predecessor] if not same or keys[j][1] == item]
        after.append(own)
        for j in own:
            then[j].append(i)
    position = {stage.name: i for i, stage in enumerate(workflow.stages)}
    return tuple(
        Task(
            key=key,
            stage=position[key[0]],
            function=stages[key[0]].function,
            after=tuple(after[i]),
            then=tuple(then[i]),
            inputs_mb=tuple(functions[stages[keys[j][0]].function].output_mb for j in after[i]),
            is_sure=_is_sure(workflow, key),
        )
        for i, key in enumerate(keys)
    )


def _is_sure(workflow: Workflow, key: TaskKey) -> bool:
    """Whether every request needs a task, whatever its input."""
    stages = {stage.name: stage for stage in workflow.stages}
    stage, region = stages[key[0]], workflow.regions[key[0]]
    opener = stages[region].map if region is not None else None
    if stage.compete > 1 or (opener is not None and key[1] >= opener[0]):
        return False
    before = [stage]
    for each in before:  # grows to all that lead there
        before += [stages[name] for name in each.after if stages[name] not in before]
    return all(each.when is None for each in before)


def columns(node: Node) -> tuple[int, ...]:
    """What a node has: vCPUs and memory, then vGPUs and memory of each of its devices."""
    found = [milli(node.vcpus), mebi(node.memory_gb)]
    for device in node.devices:
        found += [milli(device.vgpus), mebi(device.usable_gb)]
    return tuple(found)


def pool_of(instance: Instance) -> Pool:
    """Which instances could stand in for this one."""
    return instance.function, milli(instance.vgpus), mebi(instance.memory_gb), instance.device


def held_by(instance: Instance, function: Function) -> Demand:
    """What an idle instance keeps."""
    keeps_slice = function.idle_holds == "slice"
    found = [(0, milli(instance.vcpus) if keeps_slice else 0), (1, mebi(instance.memory_gb))]
    if instance.device >= 0:
        column = 2 + 2 * instance.device
        found += [(column, milli(instance.vgpus) if keeps_slice else 0), (column + 1, mebi(function.device_memory_gb))]
    return tuple((column, amount) for column, amount in found if amount)
