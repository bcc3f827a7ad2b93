"""The worlds in which every policy must behave: small, different, and known by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from fairlead.model import SLO, Buffer, Cluster, Configuration, Device, Node, Stage, Workflow
from fairlead.profile import Row, ScalingLaw, Table, space
from fairlead.testing.builders import Declared, cluster, declared, scenario
from fairlead.workload import ClosedLoop, DecisionTime, Listed, NodeFault, PressureChange, Scenario


def _every(interval_s: float, count: int = 40) -> tuple[float, ...]:
    """Instants with some of them twice, so that arrivals, ends and each other fall together."""
    return tuple(sorted(interval_s * (i - i % 3 // 2) for i in range(count)))


def _chain() -> Scenario:
    functions = {
        "fetch": declared(0.2, cold_start_s=0.5, output_mb=5),
        "detect": declared(0.5, cold_start_s=1.0, output_mb=1, noise=0.1),
        "label": declared(0.1, cold_start_s=0.2, keep_alive_s=2),
    }
    return scenario(functions, arrivals=_every(0.25), on=cluster(2, vcpus=2, bandwidth_gbps=0.1), slo_s=3)


def _fork_join() -> Scenario:
    stages = (
        Stage(name="split", function="cut"),
        Stage(name="left", function="work", after=("split",)),
        Stage(name="right", function="work", after=("split",)),
        Stage(name="extra", function="cut", after=("left",)),
        Stage(name="merge", function="sum", after=("extra", "right")),
    )
    functions = {"cut": declared(0.1), "work": declared(0.4, noise=0.2), "sum": declared(0.2, cold_start_s=0.3)}
    return scenario(functions, workflows={"main": Workflow(name="main", stages=stages)}, arrivals=_every(0.4))


def _branch() -> Scenario:
    stages = (
        Stage(name="look", function="look"),
        Stage(name="easy", function="quick", after=("look",), when=0.5),
        Stage(name="hard", function="slow", after=("look",), when=0.3),
        Stage(name="more", function="quick", after=("hard",)),
        Stage(name="tell", function="look", after=("easy", "more")),
    )
    functions = {"look": declared(0.1), "quick": declared(0.2), "slow": declared(1.0, cold_start_s=0.5)}
    return scenario(functions, workflows={"main": Workflow(name="main", stages=stages)}, arrivals=_every(0.3))


def _map_join() -> Scenario:
    stages = (
        Stage(name="split", function="split"),
        Stage(name="each", function="work", after=("split",), map=(1, 6)),
        Stage(name="then", function="split", after=("each",)),
        Stage(name="maybe", function="work", after=("then",), when=0.5),
        Stage(name="all", function="split", after=("then", "maybe"), join=True),
    )
    functions = {"split": declared(0.1), "work": declared(0.3, noise=0.3)}
    return scenario(functions, workflows={"main": Workflow(name="main", stages=stages)}, arrivals=_every(1.0, 20))


_SLICES = (
    Row(vgpus=1, seconds=0.6),
    Row(vgpus=2, seconds=0.35),
    Row(vgpus=4, seconds=0.2),
    Row(batch=4, vgpus=2, seconds=0.8),
    Row(batch=4, vgpus=4, seconds=0.5),
)


def _gpu_mps() -> Scenario:
    functions = {
        "decode": declared(0.1),
        "infer": declared(Table(_SLICES), cold_start_s=1.5, device_memory_gb=4, memory_gb=2),
    }
    on = cluster(2, vcpus=4, vgpus=7, devices=2, device_memory_gb=16, memory_gb=32)
    flows = {"main": ("decode", "infer"), "other": ("infer",)}
    return scenario(
        functions, workflows=flows, arrivals=[*_every(0.3), Listed("other", _every(0.5, 20))], on=on, slo_s=4
    )


def _gpu_mig() -> Scenario:
    rows = (*(Row(vgpus=size, seconds=1 / size) for size in (1, 2, 3, 4, 7)), Row(batch=2, vgpus=3, seconds=0.5))
    functions = {
        "small": declared(Table(rows), cold_start_s=0.5, device_memory_gb=5),
        "kernel": declared(Table(rows[1:4]), cold_start_s=0.2, device_memory_gb=5, idle_holds="memory"),
    }
    on = cluster(1, vcpus=8, vgpus=7, devices=2, sharing="mig", device_memory_gb=40)
    flows = {"main": ("small",), "other": ("kernel", "small")}
    return scenario(
        functions, workflows=flows, arrivals=[*_every(0.2), Listed("other", _every(0.4, 20))], on=on, slo_s=3
    )


def _cpu_only() -> Scenario:
    law = ScalingLaw(t1_s=0.8, gamma=0.6)
    functions = {
        "scale": declared(law, configurations=space(batch=(1, 4), vcpus=(1, 2, 4)), cold_start_s=0.4),
        "plain": declared(0.3, cold_start_by_kind={"slow": 1.0}),
    }
    on = cluster(2, vcpus=4, kind="slow", speed=0.5, beside=cluster(1, vcpus=8, kind="fast", speed=2.0))
    return scenario(functions, arrivals=_every(0.2), on=on, slo_s=4)


def _node_loss() -> Scenario:
    functions = {"one": declared(0.5, cold_start_s=0.5), "two": declared(0.7)}
    faults = (
        NodeFault(node="n0", at_s=2.25, back_s=3),
        NodeFault(node="n1", at_s=4),
        NodeFault(node="n0", at_s=9, back_s=1),
    )
    return scenario(functions, arrivals=_every(0.3), on=cluster(3, vcpus=2), node_faults=faults)


def _retries() -> Scenario:
    functions = {
        "flaky": declared(0.3, failure_rate=0.3, retries=2),
        "slow": declared(0.5, noise=0.5, run_limit_s=0.7, retries=1),
    }
    return scenario(functions, arrivals=_every(0.3), retry_delay_s=0.5)


def _tight_memory() -> Scenario:
    functions = {
        name: declared(0.2 + 0.1 * i, memory_gb=3 + i, cold_start_s=0.4, idle_holds="memory" if i % 2 else "slice")
        for i, name in enumerate("abc")
    }
    flows = {name: (name,) for name in functions}
    more = (Listed("b", _every(0.7, 20)), Listed("c", _every(0.9, 20)))
    return scenario(functions, workflows=flows, arrivals=(*_every(0.3), *more), on=cluster(2, vcpus=4, memory_gb=8))


def _kernels() -> Scenario:
    """Kernels of three sizes on devices that cannot hold all of them, two runs at a time."""

    def kernel(seconds: float, weights_mb: float) -> Declared:
        buffers = (
            Buffer(name="weights", size_mb=weights_mb),
            Buffer(name="input", size_mb=64, kind="input"),
            Buffer(name="layers", size_mb=256, kind="temporary"),
        )
        sizes = (Configuration(vcpus=0, vgpus=0.5), Configuration(vcpus=0, vgpus=1))
        return declared(seconds, configurations=sizes, idle_holds="memory", buffers=buffers)

    functions = {"prepare": declared(0.1), "a": kernel(0.3, 1024), "b": kernel(0.2, 1536), "c": kernel(0.5, 2048)}
    gpu = Device(vgpus=1, memory_gb=4, load_gb_per_s=8, allocation_s=0.01, executor_start_s=0.5)
    on = Cluster(nodes=tuple(Node(name=f"n{i}", kind="gpu", vcpus=2, devices=(gpu,)) for i in range(2)))
    flows = {"main": ("prepare", "a"), "other": ("b",), "third": ("c", "a")}
    more = (Listed("other", _every(0.5, 30)), Listed("third", _every(0.9, 20)))
    return scenario(functions, workflows=flows, arrivals=(*_every(0.4), *more), on=on, slo_s=5)


def _closed_loop() -> Scenario:
    functions = {"a": declared(0.2, noise=0.3), "b": declared(0.3, cold_start_s=0.2)}
    loops = (ClosedLoop("main", users=5, think_s=1), ClosedLoop("main", users=1, think_s=0.5, think="constant"))
    return scenario(functions, arrivals=loops, on=cluster(1, vcpus=3), duration_s=8)


def _crowded() -> Scenario:
    functions = {"a": declared(0.5, sensitivity=1.0, noise=0.2), "b": declared(0.3, sensitivity=0.5, pressure=2.0)}
    pressures = (PressureChange(node="n0", at_s=2, pressure=0.5), PressureChange(node="n0", at_s=5, pressure=0))
    return scenario(functions, arrivals=_every(0.25), on=cluster(2, vcpus=3), pressures=pressures)


def _thinking() -> Scenario:
    return scenario(
        {"a": declared(0.4, cold_start_s=0.3)},
        arrivals=_every(0.2),
        decision=DecisionTime(fixed_s=0.02, per_step_s=0.001),
    )


def _cached() -> Scenario:
    """A prediction cache answers the first, a middle or the last stage of some requests, and all of others."""
    stages = (
        Stage(name="look", function="look"),
        Stage(name="left", function="work", after=("look",)),
        Stage(name="right", function="tell", after=("look",)),
        Stage(name="all", function="tell", after=("left", "right")),
    )
    functions = {
        "look": declared(0.2, cold_start_s=0.3, hit_rate=0.5),
        "work": declared(0.3, noise=0.2),
        "tell": declared(0.1, hit_rate=0.6),
    }
    return scenario(
        functions,
        workflows={
            "main": Workflow(name="main", stages=stages, slo=SLO(latency_s=2.0)),
            "short": ("look", "tell"),
        },
        arrivals=[*_every(0.3), Listed("short", _every(0.5, 20))],
        on=cluster(2, vcpus=2),
        slo_s=1,
    )


SCENARIOS: Mapping[str, Callable[[], Scenario]] = MappingProxyType(
    {
        "chain": _chain,
        "fork-join": _fork_join,
        "branch": _branch,
        "map-join": _map_join,
        "gpu-mps": _gpu_mps,
        "gpu-mig": _gpu_mig,
        "cpu-only": _cpu_only,
        "node-loss": _node_loss,
        "retries": _retries,
        "tight-memory": _tight_memory,
        "kernels": _kernels,
        "closed-loop": _closed_loop,
        "crowded": _crowded,
        "thinking": _thinking,
        "cached": _cached,
    }
)
