"""A scenario turned into arrays: what is declared, and the state at the beginning of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import msgspec
import numpy as np

from fairlead.engine.core.capacity import mebi, milli
from fairlead.engine.core.placement import Levels
from fairlead.engine.core.site import make_site
from fairlead.engine.sim.compiled import layout as at
from fairlead.engine.sim.compiled.flow import TALLY_COLUMNS
from fairlead.engine.sim.compiled.memory import Memory
from fairlead.engine.sim.sharing import has_interference
from fairlead.model import Configuration
from fairlead.policy.kit.batching.gathering import by_batch
from fairlead.policy.kit.remaining import fastest_s, longest_after
from fairlead.profile import Profile
from fairlead.workload import Scenario


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How a compiled run decides: one of the dispatch rules of `layout`, and its settings."""

    number: int
    batching: int = at.NO_BATCHING
    batch_wait_s: float = 0.0
    queue_limit: int = -1
    headroom: float = 0.0
    drops_late: bool = False


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """A run ready to go, and what the numbers in its records stand for."""

    memory: Memory
    functions: tuple[str, ...]
    nodes: tuple[str, ...]
    workflows: tuple[str, ...]
    stages: tuple[tuple[str, str, str], ...]  # (workflow, stage, function)
    shapes: tuple[tuple[str, Configuration], ...]
    draws: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)  # by workflow: (stage, what it draws)


def lower(
    scenario: Scenario,
    rule: Rule,
    *,
    scaler: int = 0,
    instances: int = 1024,
    requests: int = 1024,
    sizes: Mapping[str, Sequence[Configuration]] | None = None,
) -> Lowered:
    """The arrays of a run that is about to begin.

    Args:
        scenario: What to run; the caller has made sure that it is covered.
        rule: How to dispatch.
        scaler: Number of the built-in scaler, 0 for none.
        instances: How many there is room for at first; as are requests.
        requests: Likewise.
        sizes: Further configurations of functions, for whoever resizes them.
    """
    memory = Memory()
    memory.whole(at.COUNT, at.COUNTS)
    memory.real(at.CLOCK, at.CLOCKS)
    c, x = memory[at.COUNT], memory[at.CLOCK]
    _lower_nodes(memory, scenario)
    further = _further(scenario, sizes or {}, bool(scaler))
    shapes = _lower_functions(memory, scenario, further)
    stages, draws = _lower_workflows(memory, scenario)
    _lower_sharing(memory, scenario, shapes)
    functions, nodes = len(scenario.functions), len(scenario.cluster.nodes)
    c[at.RULE], c[at.BATCHING], c[at.QUEUE_LIMIT] = rule.number, rule.batching, rule.queue_limit
    c[at.DROP_LATE] = rule.drops_late
    c[at.LEARNS] = c[at.HAS_DEADLINES] = rule.number == at.EARLIEST_DEADLINE
    c[at.HAS_FUNCTION_LINES] = rule.batching == at.FULL
    c[at.HAS_QUEUES] = rule.number == at.LEAST_LOADED
    c[at.HAS_LINE] = rule.number in (at.FIFO, at.USER, at.CALLED, at.OUTSIDE) and rule.batching == at.NO_BATCHING
    c[at.COUNTS_IDLE] = rule.number in (at.USER, at.CALLED, at.OUTSIDE)
    c[at.SCALER] = scaler
    c[at.BILLS_COLD] = scenario.cluster.price.bill_cold_start
    x[at.HEADROOM], x[at.BATCH_WAIT] = rule.headroom, rule.batch_wait_s
    x[at.MB_PER_S] = scenario.cluster.bandwidth_gbps * 125
    x[at.CONTROL_PERIOD] = scenario.control_period_s
    x[at.SOONEST] = x[at.STOP_AT] = inf
    flavours = c[at.FLAVOURS]
    memory.whole(at.WARM_MASKS, flavours * c[at.WORDS])
    memory.whole(at.WARM_NODES, flavours)
    memory.whole(at.IDLE_LAST, flavours * nodes)
    memory.whole(at.IDLE_COUNT, flavours * nodes if c[at.COUNTS_IDLE] else 0)
    for name in (at.QUEUE_FIRST, at.QUEUE_LAST):
        memory.whole(name, c[at.QUEUES], -1)
    memory.whole(at.QUEUE_SIZE, c[at.QUEUES])
    memory.whole(at.QUEUE_MASK, (c[at.QUEUES] + 63) // 64)
    memory[at.LINE] = np.array([-1, -1])
    for name in (
        *(at.FUNCTION_FIRST_WAITING, at.FUNCTION_LAST_WAITING, at.FUNCTION_URGENT),
        *(at.SET_FIRST, at.SET_LAST, at.FREE_FIRST, at.FREE_LAST),
    ):
        memory.whole(name, functions, -1)
    for name in (
        at.FUNCTION_WAITING,
        at.FUNCTION_CLOSED,
        at.SCALED,
        at.TARGET,
        at.SET_SIZE,
        at.SET_ORDER,
        at.SET_COUNT,
        at.SET_IS_SHORT,
    ):
        memory.whole(name, functions)
    memory.real(at.FUNCTION_WAKE, functions, -1.0)
    has_replicas = bool(scaler or sizes)
    memory.whole(at.IDLE_REPLICAS, functions * nodes if has_replicas else 0)
    _lower_replicas(memory, shapes if has_replicas else ())
    memory.whole(at.TALLY, functions * TALLY_COLUMNS)
    _make_instances(memory, instances)
    _make_requests(memory, requests)
    memory.real(at.EVENT_AT, 4 * instances + 64 + len(scenario.pressures))
    c[at.EVENT_ROOM] = len(memory[at.EVENT_AT])
    node_numbers = {node.name: i for i, node in enumerate(scenario.cluster.nodes)}
    memory[at.PRESSURE_NODE] = np.array([node_numbers[p.node] for p in scenario.pressures], np.int64)
    memory[at.PRESSURE] = np.array([p.pressure for p in scenario.pressures], float)
    return Lowered(
        memory=memory,
        functions=tuple(scenario.functions),
        nodes=tuple(node_numbers),
        workflows=tuple(scenario.workflows),
        stages=stages,
        shapes=shapes,
        draws=draws,
    )


def _make_instances(memory: Memory, slots: int) -> None:
    c = memory[at.COUNT]
    memory.whole(at.I_ID, slots, -1)
    memory[at.I_NEXT] = np.append(np.arange(1, slots), -1)
    for name in (at.READY_NOW, at.FINISHED_NOW, at.EXPIRED_NOW):
        memory.whole(name, slots)
    c[at.INSTANCE_SLOTS] = c[at.FREE_INSTANCES] = slots
    c[at.FREE_INSTANCE] = 0


def _make_requests(memory: Memory, slots: int) -> None:
    c = memory[at.COUNT]
    memory.whole(at.R_ID, slots, -1)
    memory[at.R_NEXT] = np.append(np.arange(1, slots), -1)
    memory.whole(at.FRESH, slots)
    memory.whole(at.T_ID, slots << c[at.STAGE_BITS])
    memory.real(at.R_DRAWS, slots * c[at.DRAWS])
    c[at.REQUEST_SLOTS] = slots
    c[at.FREE_REQUEST] = 0


def grow_instances(memory: Memory, slots: int) -> None:
    """Make room for more instances."""
    c, old = memory[at.COUNT], int(memory[at.COUNT][at.INSTANCE_SLOTS])
    for name in (at.I_ID, at.READY_NOW, at.FINISHED_NOW, at.EXPIRED_NOW):
        memory.grow(name, slots)
    memory[at.I_ID][old:] = -1
    memory[at.I_NEXT][old:] = np.append(np.arange(old + 1, slots), c[at.FREE_INSTANCE])
    c[at.FREE_INSTANCE] = old
    c[at.FREE_INSTANCES] += slots - old
    c[at.INSTANCE_SLOTS] = slots


def grow_requests(memory: Memory, slots: int) -> None:
    """Make room for more open requests."""
    c, old = memory[at.COUNT], int(memory[at.COUNT][at.REQUEST_SLOTS])
    for name in (at.R_ID, at.FRESH):
        memory.grow(name, slots)
    memory.grow(at.T_ID, slots << int(c[at.STAGE_BITS]))
    memory.grow(at.R_DRAWS, slots * int(c[at.DRAWS]))
    memory[at.R_ID][old:] = -1
    memory[at.R_NEXT][old:] = np.append(np.arange(old + 1, slots), c[at.FREE_REQUEST])
    c[at.FREE_REQUEST] = old
    c[at.REQUEST_SLOTS] = slots


def _lower_nodes(memory: Memory, scenario: Scenario) -> None:
    c = memory[at.COUNT]
    nodes = scenario.cluster.nodes
    kinds = {kind: i for i, kind in enumerate(scenario.cluster.kinds)}
    count, words = len(nodes), (len(nodes) + 63) // 64
    summaries = (words + 63) // 64
    c[at.NODES], c[at.WORDS], c[at.SUMMARIES], c[at.KINDS] = count, words, summaries, len(kinds)
    memory[at.NODE_TOTAL] = total = np.array([milli(node.capacity_vcpus) for node in nodes])
    memory[at.NODE_MEMORY] = np.array([mebi(node.memory_gb) for node in nodes])
    memory[at.NODE_KIND] = np.array([kinds[node.kind] for node in nodes])
    devices = [device for node in nodes for device in node.devices]
    memory[at.NODE_DEVICE] = np.cumsum([0, *(len(node.devices) for node in nodes)])
    memory[at.DEVICE_TOTAL] = np.array([milli(device.vgpus) for device in devices], np.int64)
    memory[at.DEVICE_MEMORY] = np.array([mebi(device.usable_gb) for device in devices], np.int64)
    largest = np.array([max((milli(d.vgpus) for d in node.devices), default=0) for node in nodes])
    for totals, unit_at, factor_at, levels_at, top_at, masks_at, words_at, level_at in (
        (total, at.CPU_UNIT, at.CPU_FACTOR, at.CPU_LEVELS, at.CPU_TOP, at.CPU_MASKS, at.CPU_WORDS, at.NODE_LEVEL),
        (largest, at.GPU_UNIT, at.GPU_FACTOR, at.GPU_LEVELS, at.GPU_TOP, at.GPU_MASKS, at.GPU_WORDS, at.NODE_GPU_LEVEL),
    ):
        unit = Levels(totals.tolist()).unit
        level = totals // unit
        levels = int(level.max()) + 1
        masks = np.zeros((levels, words), np.uint64)
        np.bitwise_or.at(
            masks, (level, np.arange(count) // 64), np.uint64(1) << (np.arange(count) % 64).astype(np.uint64)
        )
        summary = np.zeros((levels, summaries), np.uint64)
        for word in range(words):
            summary[masks[:, word] != 0, word // 64] |= np.uint64(1) << np.uint64(word % 64)
        c[unit_at], c[levels_at], c[top_at] = unit, levels, levels - 1
        c[factor_at] = -(-(1 << at.LEVEL_BITS) // unit)
        memory[masks_at], memory[words_at], memory[level_at] = masks.view(np.int64), summary.view(np.int64), level
    memory[at.NODE_FREE] = memory[at.NODE_TOTAL].copy()
    memory[at.NODE_MEMORY_FREE] = memory[at.NODE_MEMORY].copy()
    memory[at.DEVICE_FREE] = memory[at.DEVICE_TOTAL].copy()
    memory[at.DEVICE_MEMORY_FREE] = memory[at.DEVICE_MEMORY].copy()
    for name in (at.NODE_HELD, at.NODE_MEMORY_HELD):
        memory.whole(name, count)
    for name in (at.NODE_OLDEST, at.NODE_NEWEST):
        memory.whole(name, count, -1)
    for name in (at.DEVICE_HELD, at.DEVICE_MEMORY_HELD):
        memory.whole(name, len(devices))


def _lower_functions(
    memory: Memory, scenario: Scenario, sizes: Mapping[str, Sequence[Configuration]]
) -> tuple[tuple[str, Configuration], ...]:
    """Functions, their flavours and shapes; gives the shapes."""
    c, cluster = memory[at.COUNT], scenario.cluster
    kinds = [(kind, node.speed) for kind, node in cluster.kinds.items()]
    estimates = make_site(scenario).profiles
    flavours: dict[tuple[str, int, int], int] = {}
    shapes: list[tuple[str, Configuration]] = []
    first, size_first, size_batch, size_shape, favourite = [0], [0], [], [], []
    for name in scenario.functions:
        profile = scenario.profiles[name]
        places = {configuration: len(shapes) + i for i, configuration in enumerate(profile.configurations)}
        shapes += [(name, configuration) for configuration in profile.configurations]
        first.append(len(shapes))
        favourite.append(places[estimates[name].cheapest()])
        for batch, some in by_batch(profile.configurations).items():
            size_batch.append(batch)
            size_shape.append(places[min(some, key=estimates[name].cost_usd)])
        size_first.append(len(size_batch))
    shapes += [(name, configuration) for name, some in sizes.items() for configuration in some]
    flavour_of = []
    for name, configuration in shapes:
        key = (name, milli(configuration.vgpus), mebi(configuration.memory_gb or scenario.functions[name].memory_gb))
        flavour_of.append(flavours.setdefault(key, len(flavours)))
    numbers = {name: i for i, name in enumerate(scenario.functions)}
    functions = list(scenario.functions.values())
    keeps: dict[float, int] = {}
    classes = [-1 if f.keep_alive_s == inf else keeps.setdefault(f.keep_alive_s, len(keeps)) for f in functions]
    c[at.FUNCTIONS], c[at.FLAVOURS], c[at.CLASSES] = len(functions), len(flavours), len(keeps)
    c[at.MOST_TASKS] = max(configuration.batch for _, configuration in shapes)
    memory[at.FUNCTION_CLASS] = np.array(classes)
    memory[at.CLASS_KEEP] = np.array(list(keeps), float)
    for field_, value in ((at.CLASS_FIRST, -1), (at.CLASS_LAST, -1), (at.CLASS_ORDER, 0), (at.CLASS_KNOWN, 0)):
        memory.whole(field_, len(keeps), value)
    memory[at.FUNCTION_SHAPE], memory[at.FUNCTION_FIRST] = np.array(favourite), np.array(first)
    memory[at.SHAPES] = np.arange(len(shapes))
    memory[at.SIZE_FIRST], memory[at.SIZE_BATCH], memory[at.SIZE_SHAPE] = (
        np.array(size_first),
        np.array(size_batch),
        np.array(size_shape),
    )
    declared = [scenario.functions[name] for name, _, _ in flavours]
    memory[at.FLAVOUR_FUNCTION] = np.array([numbers[name] for name, _, _ in flavours])
    memory[at.FLAVOUR_VGPUS] = vgpus = np.array([vgpus for _, vgpus, _ in flavours])
    memory[at.FLAVOUR_MEMORY] = held = np.array([megabytes for _, _, megabytes in flavours])
    memory[at.FLAVOUR_DEVICE_MEMORY] = np.where(vgpus > 0, [mebi(f.device_memory_gb) for f in declared], 0)
    memory[at.FLAVOUR_KEEPS_SLICE] = keeps_slice = np.array([f.idle_holds == "slice" for f in declared])
    memory[at.FLAVOUR_WEIGHTLESS] = (vgpus == 0) & (held == 0) & ~keeps_slice
    memory[at.SHAPE_FUNCTION] = np.array([numbers[name] for name, _ in shapes])
    memory[at.SHAPE_FLAVOUR] = np.array(flavour_of)
    memory[at.SHAPE_VCPUS] = np.array([milli(configuration.vcpus) for _, configuration in shapes])
    memory[at.SHAPE_BATCH] = np.array([configuration.batch for _, configuration in shapes])
    memory.whole(at.SHAPE_BLOCKED, len(shapes), -1)
    memory[at.SHAPE_USD] = np.array([cluster.price.usd_per_s(size.vcpus, size.vgpus) for _, size in shapes], float)
    profiles = scenario.profiles
    seconds = np.array(
        [[profiles[n].latency_s(size, kind, speed) for kind, speed in kinds] for n, size in shapes], float
    )
    bias = np.array([[profiles[name].bias] for name, _ in shapes], float)
    memory[at.SHAPE_DECLARED], memory[at.SHAPE_BASE] = seconds, seconds * bias
    memory.real(at.SHAPE_CORRECTION, seconds.size, 1.0)
    memory.whole(at.SHAPE_SEEN, seconds.size)
    memory[at.SHAPE_SHARE] = np.array(
        [configuration.vcpus or configuration.vgpus for _, configuration in shapes], float
    )
    memory[at.FUNCTION_COLD] = np.array([[profiles[n].cold_s(kind) for kind, _ in kinds] for n in numbers], float)
    memory[at.FUNCTION_SENSITIVITY] = np.array([profiles[name].sensitivity for name in numbers], float)
    memory[at.FUNCTION_PRESSURE] = np.array([profiles[name].pressure for name in numbers], float)
    memory[at.FUNCTION_OUTPUT] = np.array([f.output_mb for f in functions], float)
    c[at.MOVES_DATA] = any(f.output_mb for f in functions)
    return tuple(shapes)


def replica_size(profile: Profile, size: Configuration, batch: int) -> Configuration | None:
    """The configuration in which a replica of a size runs batches of so many; None if the function has none."""
    wanted = msgspec.structs.replace(size, batch=batch)
    known = (wanted, msgspec.structs.replace(wanted, memory_gb=0.0))  # memory may be given besides
    return wanted if any(one in profile.configurations for one in known) else None


def _further(
    scenario: Scenario, sizes: Mapping[str, Sequence[Configuration]], is_scaled: bool
) -> dict[str, list[Configuration]]:
    """By function, the sizes of replicas that are not among its configurations, each for every size of batch."""
    found: dict[str, list[Configuration]] = {}
    for name, profile in scenario.profiles.items():
        known = profile.configurations
        own = [*(known[:1] if is_scaled else ()), *sizes.get(name, ())]
        batches = sorted({configuration.batch for configuration in known})
        wanted = [replica_size(profile, size, batch) for size in own for batch in batches]
        further = [size for size in dict.fromkeys(wanted) if size is not None and size not in known]
        if further:
            found[name] = further
    return found


def _lower_replicas(memory: Memory, shapes: Sequence[tuple[str, Configuration]]) -> None:
    """By size of a replica, the shapes in which it runs batches."""
    numbers = {shape: i for i, shape in enumerate(shapes)}
    largest: dict[str, int] = {}
    for name, size in shapes:
        largest[name] = max(size.batch, largest.get(name, 0))
    first: list[int] = []
    found: list[int] = []
    for name, size in shapes:
        first.append(len(found))
        batches = range(1, largest[name] + 1)
        found += [numbers.get((name, msgspec.structs.replace(size, batch=batch)), -1) for batch in batches]
    memory[at.BATCH_FIRST], memory[at.BATCH_SHAPE] = np.array(first, np.int64), np.array(found, np.int64)


def _lower_workflows(
    memory: Memory, scenario: Scenario
) -> tuple[tuple[tuple[str, str, str], ...], dict[str, list[tuple[str, str]]]]:
    """Stages and how they follow each other; gives their names, and what each workflow draws."""
    c = memory[at.COUNT]
    numbers = {name: i for i, name in enumerate(scenario.functions)}
    fastest = {name: fastest_s(profile) for name, profile in make_site(scenario).profiles.items()}
    names: list[tuple[str, str, str]] = []
    queues: dict[tuple[str, str], int] = {}
    draws: dict[str, list[tuple[str, str]]] = {}
    first, entry_first, then_first, before_first = [0], [0], [0], [0]
    entries: list[int] = []
    successors: list[int] = []
    predecessors: list[int] = []
    queue_of, spread, noise, rest = [], [], [], []
    for name, workflow in scenario.workflows.items():
        local = {stage.name: i for i, stage in enumerate(workflow.stages)}
        rest_s = longest_after(workflow, fastest)
        own = draws[name] = []
        for stage in workflow.stages:
            names.append((name, stage.name, stage.function))
            queue_of.append(queues.setdefault((name, stage.function), len(queues)))
            profile = scenario.profiles[stage.function]
            spread.append(len(own) if profile.spread is not None else -1)
            own += [(stage.name, "spread")] if profile.spread is not None else []
            noise.append(len(own) if profile.noise else -1)
            own += [(stage.name, "noise")] if profile.noise else []
            rest.append(rest_s[stage.name])
            successors += [local[other.name] for other in workflow.stages if stage.name in other.after]
            then_first.append(len(successors))
            predecessors += [local[other] for other in stage.after]
            before_first.append(len(predecessors))
        entries += [local[stage.name] for stage in workflow.stages if not stage.after]
        entry_first.append(len(entries))
        first.append(len(names))
    most = max(len(workflow.stages) for workflow in scenario.workflows.values())
    c[at.STAGE_BITS] = (most - 1).bit_length()
    c[at.DRAWS], c[at.QUEUES] = max(map(len, draws.values())), len(queues)
    memory[at.WORKFLOW_FIRST], memory[at.WORKFLOW_ENTRY], memory[at.ENTRIES] = map(
        np.array, (first, entry_first, entries)
    )
    memory[at.WORKFLOW_DRAWS] = np.array([len(own) for own in draws.values()])
    memory[at.WORKFLOW_SLO] = np.array([workflow.slo.latency_s for workflow in scenario.workflows.values()], float)
    memory[at.STAGE_FUNCTION] = np.array([numbers[function] for _, _, function in names])
    memory[at.STAGE_QUEUE] = np.array(queue_of)
    latest = dict.fromkeys(numbers, -1)
    siblings = []
    for queue, (_, function) in enumerate(queues):
        siblings.append(latest[function])
        latest[function] = queue
    memory[at.FUNCTION_QUEUE], memory[at.QUEUE_SIBLING] = np.array(list(latest.values())), np.array(siblings)
    memory[at.STAGE_FAN_IN] = np.diff(before_first)
    memory[at.STAGE_THEN], memory[at.SUCCESSORS] = np.array(then_first), np.array(successors, np.int64)
    memory[at.STAGE_BEFORE], memory[at.PREDECESSORS] = np.array(before_first), np.array(predecessors, np.int64)
    memory[at.STAGE_SPREAD], memory[at.STAGE_NOISE] = np.array(spread), np.array(noise)
    memory[at.STAGE_REST] = np.array(rest, float)
    return tuple(names), draws


def _lower_sharing(memory: Memory, scenario: Scenario, shapes: Sequence[tuple[str, Configuration]]) -> None:
    c = memory[at.COUNT]
    c[at.IS_SHARED] = has_interference(scenario.cluster, scenario.profiles)
    keys: dict[tuple[str, float], int] = {}
    if any(profile.sensitivity for profile in scenario.profiles.values()):
        of = [keys.setdefault((name, float(size.vcpus or size.vgpus)), len(keys)) for name, size in shapes]
    else:  # all runs of a node go at one rate, on one clock; what they add to its load slows nobody down
        keys[shapes[0][0], 0.0] = 0
        of = [0] * len(shapes)
    c[at.CLOCK_KEYS] = len(keys)
    nodes = scenario.cluster.nodes
    numbers = {name: i for i, name in enumerate(scenario.functions)}
    memory[at.SHAPE_CLOCK] = np.array(of)
    memory[at.KEY_FUNCTION] = np.array([numbers[name] for name, _ in keys])
    clocks = len(nodes) * len(keys) if c[at.IS_SHARED] else 0
    for name in (at.CLOCK_FIRST, at.CLOCK_NEXT):
        memory.whole(name, clocks, -1)
    memory.whole(at.CLOCK_NUMBER, clocks)
    for name in (at.CLOCK_RATE, at.CLOCK_VIRTUAL):
        memory.real(name, clocks)
    own: list[float] = []
    if clocks:
        for node in nodes:
            vcpus = node.vcpus or sum(device.vgpus for device in node.devices)
            own += [share / vcpus * scenario.profiles[name].pressure for name, share in keys]
    memory[at.CLOCK_LOAD] = np.array(own, float)
    memory.whole(at.NODE_CLOCK, len(nodes), -1)
    memory[at.NODE_CORES] = np.array([milli(node.vcpus) if node.overcommit > 1 else 0 for node in nodes])
    for name in (at.NODE_CLOCKS, at.NODE_VERSION, at.NODE_RUNS, at.NODE_BUSY):
        memory.whole(name, len(nodes))
    for name in (at.NODE_SHARED_AT, at.NODE_LOAD, at.NODE_PRESSURE):
        memory.real(name, len(nodes))
