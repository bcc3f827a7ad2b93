"""The tasks of a workflow, and the ways to run each.

A *task* is one run that a request may need: a stage, an item of a map, a copy of a competing stage. Branches and maps
are planned for in full (every arm, the greatest number of items), and what turns out not to be needed is given back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf

from fairlead.model import Configuration, Function, Workflow
from fairlead.planning.feasibility import could_run
from fairlead.planning.timeline import Demand
from fairlead.policy.base import Site
from fairlead.policy.kit.reservations import held_when_idle, mebi, milli, taken_by_run

TaskKey = tuple[str, int, int]  # stage, item, copy
Pool = tuple[str, int, int, int]  # function, vGPUs, memory, device (-1 for none)


class Way:
    """A function in one configuration on one kind of node: what a run takes, and what it leaves behind.

    `larger` holds the ways with the same share and a larger batch, the next larger first. `has_seats` tells whether
    it is worth knowing what is warm: a cold start takes time, and an instance outlives its run. `share` is which part
    of all vCPUs and of all vGPUs of the kind a run uses, `node_share` the greater part of one node. The buffers of a
    kernel that `may_be_evicted` are not counted on: others may need their room before the run.
    """

    def __init__(self, function: Function, configuration: Configuration, kind: str, site: Site) -> None:
        self.function = function.name
        self.configuration = configuration
        self.kind = kind
        self.cold_s = site.profiles[function.name].cold_start_s(kind)
        self.keep_alive_s = function.keep_alive_s
        self.keeps_slice = function.idle_holds == "slice"
        self.needs_device = configuration.vgpus > 0
        self.usd_per_s = site.cluster.price.usd_per_s(configuration.vcpus, configuration.vgpus)
        self.larger: tuple[Way, ...] = ()
        self._holding: dict[int, Way | None] = {}  # by number of members
        self.has_seats = self.cold_s > 0 and function.keep_alive_s > 0
        self.may_be_evicted = bool(function.constant_mb) and _exceed_memory(site, kind)
        vcpus, vgpus = milli(configuration.vcpus), milli(configuration.vgpus)
        memory = mebi(configuration.memory_gb or function.memory_gb)
        self.is_weightless = vgpus == 0 and memory == 0 and not self.keeps_slice
        self.size = (kind, function.name, vcpus, vgpus, memory)
        # Instances that keep no vCPUs when idle stand in for each other whatever their vCPUs, which are resized.
        self.seat_key = self.size if self.keeps_slice else (kind, function.name, -1, vgpus, memory)
        pattern = site.cluster.kinds[kind]
        nodes = [node for node in site.cluster.nodes if node.kind == kind]  # which may differ in their devices
        devices = range(max(len(node.devices) for node in nodes)) if vgpus else (None,)
        self._demands = {device: taken_by_run(function, configuration, device) for device in devices}
        self._held = {device: held_when_idle(function, configuration, device) for device in devices}
        on_node = sum(device.vgpus for device in pattern.devices)
        total_vgpus = sum(device.vgpus for node in nodes for device in node.devices)
        self.node_share = max(_part(configuration.vcpus, pattern.vcpus), _part(configuration.vgpus, on_node))
        self.share = (
            _part(configuration.vcpus, sum(node.vcpus for node in nodes)),
            _part(configuration.vgpus, total_vgpus),
        )

    def demand(self, device: int | None) -> Demand:
        """What a run takes on a node and on one of its devices."""
        return self._demands[device]

    def held(self, device: int | None) -> Demand:
        """What an idle instance keeps on a node and on one of its devices."""
        return self._held[device]

    def holding(self, members: int) -> "Way | None":
        """The way with the share of this one and the smallest batch that holds this number; None if it is too large."""
        if members not in self._holding:
            ways = (self, *self.larger)
            self._holding[members] = next((way for way in ways if way.configuration.batch >= members), None)
        return self._holding[members]

    def pool(self, device: int | None) -> Pool:
        """Which instances could stand in for one of this: the controller resizes vCPUs in place."""
        _, function, _, vgpus, memory = self.size
        return function, vgpus, memory, -1 if device is None else device


def _part(used: float, total: float) -> float:
    return used / total if total else 0.0


@dataclass(frozen=True)
class Task:
    """One run of a stage: which task indices come before and after it, and what the outputs of those before weigh.

    `is_sure` unless it may turn out not to be needed: in a branch, as an item that may not be, as a competing copy.
    `rivals` are the other copies of a competing stage.
    """

    key: TaskKey
    stage: int
    function: str
    after: tuple[int, ...]
    then: tuple[int, ...]
    inputs_mb: tuple[float, ...]
    is_sure: bool
    rivals: tuple[int, ...] = ()
    has_inputs: bool = False  # whether any of them weighs something


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


def _exceed_memory(site: Site, kind: str) -> bool:
    """Whether some device of a kind cannot hold the constants of all kernels beside the largest run."""
    kernels = [function for function in site.functions.values() if function.buffers]
    constants_gb = sum(ceil(b.size_mb) for f in kernels for b in f.buffers if b.kind == "constant") / 1024
    most_gb = max([f.footprint_gb - ceil(f.constant_mb) / 1024 for f in kernels], default=0.0)
    devices = [device for node in site.cluster.nodes if node.kind == kind for device in node.devices]
    return any(constants_gb + most_gb > device.usable_gb for device in devices)


def _share(configuration: Configuration) -> tuple[float, float, float]:
    return configuration.vcpus, configuration.vgpus, configuration.memory_gb


def tasks_of(workflow: Workflow, functions: Mapping[str, Function]) -> tuple[Task, ...]:
    """The tasks of a workflow with its greatest numbers of items and all copies, in topological order."""
    stages = {stage.name: stage for stage in workflow.stages}
    keys: list[TaskKey] = []
    of_stage: dict[str, list[int]] = {}
    of_item: dict[tuple[str, int], list[int]] = {}
    for stage in workflow.stages:
        items = _items(workflow, stage.name)[1]
        for key in [(stage.name, item, copy) for item in range(items) for copy in range(stage.compete)]:
            of_stage.setdefault(stage.name, []).append(len(keys))
            of_item.setdefault(key[:2], []).append(len(keys))
            keys.append(key)
    after: list[list[int]] = []
    then: list[list[int]] = [[] for _ in keys]
    for i, (name, item, _) in enumerate(keys):
        own: list[int] = []
        for predecessor in stages[name].after:
            region = workflow.regions[predecessor]
            is_same = region is not None and region == workflow.regions[name]
            own += of_item[predecessor, item] if is_same else of_stage[predecessor]
        after.append(own)
        for j in own:
            then[j].append(i)
    position = {stage.name: i for i, stage in enumerate(workflow.stages)}
    sure = {stage.name: _sure_items(workflow, stage.name) for stage in workflow.stages}
    return tuple(
        Task(
            key=(name, item, copy),
            stage=position[name],
            function=stages[name].function,
            after=tuple(after[i]),
            then=tuple(then[i]),
            inputs_mb=tuple(functions[stages[keys[j][0]].function].output_mb for j in after[i]),
            has_inputs=any(functions[stages[keys[j][0]].function].output_mb for j in after[i]),
            is_sure=item < sure[name],
            rivals=tuple(j for j in of_item[name, item] if j != i),
        )
        for i, (name, item, copy) in enumerate(keys)
    )


def _items(workflow: Workflow, name: str) -> tuple[int, int]:
    """The least and the greatest number of items of a stage; one outside of maps."""
    region = workflow.regions[name]
    opener = next((stage.map for stage in workflow.stages if stage.name == region), None)
    return (1, 1) if opener is None else opener


def _sure_items(workflow: Workflow, name: str) -> int:
    """How many items of a stage every request needs, whatever its input."""
    stages = {stage.name: stage for stage in workflow.stages}
    before = [stages[name]]
    for each in before:  # grows to all that lead there
        before += [stages[other] for other in each.after if stages[other] not in before]
    if stages[name].compete > 1 or any(each.when is not None for each in before):
        return 0
    return _items(workflow, name)[0]
