"""Random runs that the compiled core covers: scenarios in small numbers, with a dispatcher and perhaps a scaler.

Times lie on a grid of tenths and quarters, so that many events fall on one instant, where the order decides.
"""

from dataclasses import dataclass, replace
from math import inf

from hypothesis import strategies as st
from msgspec import structs

from fairlead.model import SLO, Cluster, Configuration, Device, Node, Price, Stage, Workflow
from fairlead.model.slots import slots
from fairlead.policy import Policy, make_policy
from fairlead.profile import Constant, Estimate, Exponential, LogNormal, Profile, Row, ScalingLaw, Sum, Table, space
from fairlead.testing import Declared, declared, scenario
from fairlead.workload import (
    AzureLike,
    Burst,
    Deterministic,
    Listed,
    Pillar,
    Poisson,
    PolicyChoice,
    PressureChange,
    Scenario,
    Share,
    UniformInterval,
    Window,
)

DURATION_S = 8.0

SECONDS = st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 1.0, 1.5])
INSTANTS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.1, 2.0, 2.5, 3.0, 4.0, 5.5, 7.0])


@dataclass(frozen=True)
class World:
    """A run that both engines can do. Its scenario names the policies; `by_object` hands them over as objects."""

    scenario: Scenario
    seed: int
    by_object: bool

    def policies(self) -> tuple[Policy, Policy | None]:
        """Dispatcher and scaler; new ones each time, since a policy keeps what it has seen."""
        scaler = self.scenario.scaler
        return _made(self.scenario.policy), None if scaler is None else _made(scaler)

    def __repr__(self) -> str:
        return f"World(seed={self.seed}, by_object={self.by_object}, scenario={self.scenario!r})"


def _made(choice: PolicyChoice) -> Policy:
    return make_policy(choice.name, choice.parameters)


def rarely(draw: st.DrawFn, one_in: int) -> bool:
    return draw(st.integers(1, one_in)) == one_in  # small numbers are what shrinking goes to


# --- the cluster -----------------------------------------------------------------------------------------------------


@st.composite
def devices(draw, is_roomy):
    memory_gb = draw(st.sampled_from([20, inf] if is_roomy else [4, 9, inf]))
    reserve_gb = draw(st.sampled_from([0, 0, 1])) if memory_gb < inf else 0
    vgpus = draw(st.sampled_from([7, 7.5] if is_roomy else [1, 2, 2.5, 7]))
    return Device(vgpus=vgpus, memory_gb=memory_gb, reserve_gb=reserve_gb)


@st.composite
def clusters(draw, is_roomy):
    """Up to three kinds of node. Replicas keep what they have, so that on small nodes most of them starve others."""
    sizes = [8, 8.5, 16, 200] if is_roomy else [1, 1, 2, 2, 4, 4.5, 0.5, 200]
    nodes = []
    is_shared = rarely(draw, 3)  # runs share vCPUs
    for kind in ("plain", "fast", "odd")[: draw(st.integers(1, 3))]:
        speed = draw(st.sampled_from([0.5, 1.0, 1.0, 2.0]))
        many = 70 if rarely(draw, 40) else draw(st.integers(1, 2))  # more than the bits of a machine word
        first = len(nodes)
        for _ in range(min(many, 2)):
            gpus = tuple(draw(st.lists(devices(is_roomy), max_size=2)))
            without = [0.0] if gpus and not is_roomy else []
            vcpus = draw(st.sampled_from([*sizes, *without]))
            nodes.append(
                Node(
                    name=f"n{len(nodes)}",
                    kind=kind,
                    vcpus=vcpus,
                    memory_gb=draw(st.sampled_from([24, inf] if is_roomy else [4, 8, inf])),
                    devices=gpus,
                    speed=speed,
                    overcommit=draw(st.sampled_from([1, 1, 1.5, 4])) if vcpus and is_shared else 1,
                )
            )
        nodes += [structs.replace(nodes[first], name=f"n{first + i}") for i in range(2, many)]
    price = Price(bill_cold_start=draw(st.booleans()), bill_idle=draw(st.booleans()))
    return Cluster(nodes=tuple(nodes), bandwidth_gbps=draw(st.sampled_from([inf, 0.1, 1])), price=price)


# --- functions -------------------------------------------------------------------------------------------------------


@st.composite
def laws(draw, on):
    """A law and the configurations to choose from (none: the law's own)."""
    seconds = draw(SECONDS)
    kind = draw(st.sampled_from(list(on.kinds)))
    has_gpus = any(node.devices for node in on.nodes)
    cpu_only = (
        Constant(seconds),
        Exponential(seconds),
        LogNormal(median_s=seconds, sigma=draw(st.sampled_from([0, 0.5, 1]))),
        Sum((Constant(seconds), Constant(0.1))),
        Table((Row(seconds=seconds), Row(vcpus=2, seconds=seconds / 2), Row(seconds=0.2, kind=kind))),
        Table((Row(seconds=seconds), Row(batch=2, seconds=1.5 * seconds), Row(batch=4, seconds=2 * seconds))),
        Table((Row(seconds=seconds, kind=kind), Row(batch=3, seconds=2 * seconds, kind=kind))),
    )
    with_gpus = (
        Table(
            (
                *(Row(vgpus=size, seconds=seconds / size) for size in (1, 2)),
                Row(batch=2, vgpus=1, seconds=1.5 * seconds),
                Row(batch=4, vgpus=2, seconds=2 * seconds),
            )
        ),
        Table((Row(seconds=seconds), Row(vgpus=1, vcpus=0.5, seconds=seconds / 2))),
        Table((Row(vcpus=0, vgpus=1, seconds=seconds), Row(vcpus=0, vgpus=0.5, batch=3, seconds=2 * seconds))),
    )
    if rarely(draw, 6):
        more = space(batch=(1, 2), vgpus=(1, 2)) if has_gpus else space(batch=(1, 4))
        return ScalingLaw(t1_s=seconds), draw(st.sampled_from([space(batch=(1, 3), vcpus=(1, 2)), more]))
    if rarely(draw, 10):
        law = draw(st.sampled_from([Constant(seconds), Exponential(seconds)]))
        return law, (Configuration(vcpus=0.5), Configuration(batch=2, vcpus=0.5), Configuration(memory_gb=2))
    return draw(st.sampled_from((*cpu_only, *with_gpus, *with_gpus) if has_gpus else cpu_only)), ()


@st.composite
def functions(draw, on, is_scaled):
    """Anything a function may be; now and then one that fits nowhere, so that it waits to the end and holds others up.

    With a scaler such a run goes on for ten thousand control periods, so it must be rare. Replicas have the size of the
    first configuration: each batch size must exist in it, since a start in another one would be refused for ever.
    """
    law, configurations = draw(laws(on))
    kinds = list(on.kinds)
    whole = declared(
        law,
        configurations=configurations,
        memory_gb=draw(st.sampled_from([0, 0, 0.5, 3])),
        device_memory_gb=draw(st.sampled_from([0, 1, 3])),
        output_mb=draw(st.sampled_from([0, 0, 10])),
        keep_alive_s=draw(st.sampled_from([0, 0.5, 3, 3, inf])),
        idle_holds=draw(st.sampled_from(["slice", "memory"])),
        cold_start_s=draw(SECONDS),
        cold_start_by_kind=draw(st.sampled_from([{}, {}, {kinds[0]: 0.2}, {kinds[-1]: 0.0}])),
        noise=draw(st.sampled_from([0, 0, 0.3])),
        bias=draw(st.sampled_from([1, 1, 1.5])),
        sensitivity=draw(st.sampled_from([0, 0, 0, 0, 1.5])),
        pressure=draw(st.sampled_from([1, 1, 0.5])),
        gpu_sensitivity=draw(st.sampled_from([0] * 7 + [2])),
    )
    has_room = _has_room(whole, on) or rarely(draw, 100 if is_scaled else 30)
    if has_room and not (is_scaled and is_uneven(whole.profile)):
        return whole
    return declared(draw(SECONDS), cold_start_s=draw(SECONDS), keep_alive_s=draw(st.sampled_from([0.5, 3])))


def is_uneven(profile: Profile) -> bool:
    """Whether some batch size does not exist in the size of the first configuration."""
    first, *_ = known = profile.configurations
    return any(structs.replace(first, batch=c.batch) not in known for c in known)


def _has_room(whole: Declared, on: Cluster) -> bool:
    """Whether the configurations that policies take, the cheapest and the first, fit on some empty node."""
    return all(
        any(
            slots(node, whole.function, configuration) and whole.profile.latency_s(configuration, node.kind) < inf
            for node in on.nodes
        )
        for configuration in (Estimate(whole.profile, on).cheapest(), whole.profile.configurations[0])
    )


# --- workflows and arrivals ------------------------------------------------------------------------------------------


@st.composite
def workflows(draw, name, names):
    """Chains, forks, joins, several ends: any plain graph."""
    stages: list[Stage] = []
    for i in range(draw(st.sampled_from([1, 1, 2, 3, 4, 5, 6]))):
        known = [stage.name for stage in stages]
        after = tuple(draw(st.lists(st.sampled_from(known), unique=True, max_size=3))) if known else ()
        stages.append(Stage(name=f"s{i}", function=draw(st.sampled_from(names)), after=after))
    slo = SLO(latency_s=draw(st.sampled_from([0.5, 2, 10, inf])), cost_usd=draw(st.sampled_from([inf, inf, 0.01])))
    return Workflow(name=name, stages=tuple(stages), slo=slo)


@st.composite
def arrivals(draw, names):
    workflow = draw(st.sampled_from(names))
    which = draw(st.integers(0, 8))
    if which == 0:
        return [Poisson(workflow, draw(st.sampled_from([0.5, 3, 3, 9])))]
    if which == 1:
        return [Deterministic(workflow, draw(st.sampled_from([0.5, 1.1])), draw(st.sampled_from([0, 0.25])))]
    if which == 2:
        return [Pillar(workflow, count=draw(st.sampled_from([9, 24])), pillars=3)]
    if which == 3:
        return [Burst(workflow, count=20, share=0.5, within=0.25, step_s=draw(st.sampled_from([0, 0.5])))]
    if which == 4:
        return [UniformInterval(workflow, low_s=0.0, high_s=1.0)]
    if which == 5:
        return [AzureLike(workflow, rate_rps=2.0, period_s=1.0)]
    if which == 6:
        stream = draw(st.integers(0, 1))
        process = Poisson(workflow, 4.0)
        last = Share(names[-1], process, 0.3, 1.0, stream)
        return [Share(names[0], process, 0.0, 0.3, stream), last]
    if which == 7:
        return [Window(workflow, Poisson(workflow, 4.0), from_s=draw(st.sampled_from([0.0, 0.5])), until_s=2.0)]
    return [Listed(workflow, tuple(draw(st.lists(INSTANTS, min_size=1, max_size=12))))]


# --- who decides -----------------------------------------------------------------------------------------------------

WAITS = st.sampled_from([0.0, 0.25, 0.5, 1.0])


@st.composite
def dispatchers(draw):
    """The covered dispatchers with their parameters."""
    name = draw(st.sampled_from(["fifo", "fifo", "least-loaded", "earliest-deadline", "earliest-deadline"]))
    parameters: dict[str, object] = {}
    if name == "earliest-deadline":
        parameters |= {"headroom": draw(st.sampled_from([0.0, 0.1, 0.5])), "drop_late": draw(st.booleans())}
    elif draw(st.booleans()):
        parameters |= {"batching": "full", "batch_wait_s": draw(WAITS)}
    if name == "fifo":
        parameters["queue_limit"] = draw(st.sampled_from([None, None, 0, 1, 4]))
    return PolicyChoice(name=name, parameters=parameters)


@st.composite
def scalers(draw):
    """None, or one of the covered scalers; mostly with windows as short as the runs, else as they are by default."""
    name = draw(st.sampled_from([None, None, "knative", "hpa"]))
    if name is None:
        return None
    parameters: dict[str, object] = {"initial": draw(st.sampled_from([1, 1, 2, 3]))}
    if rarely(draw, 6):
        return PolicyChoice(name=name, parameters=parameters)
    parameters["max_replicas"] = draw(st.sampled_from([None, None, 3, 6]))
    if name == "hpa":
        parameters |= {
            "target": draw(st.sampled_from([0.5, 0.8, 1.0])),
            "tolerance": draw(st.sampled_from([0.0, 0.1, 0.5])),
            "period_s": draw(st.sampled_from([0.0, 1.0, 1.5])),
            "stabilisation_s": draw(st.sampled_from([0.0, 1.0, 3.0])),
            "scale_up_replicas": draw(st.sampled_from([1, 4])),
            "scale_up_share": draw(st.sampled_from([0.0, 0.5, 1.0])),
        }
    else:
        stable_window_s = draw(st.sampled_from([1.0, 2.0, 5.0]))
        parameters |= {
            "target": draw(st.sampled_from([1, 1, 2])),
            "utilisation": draw(st.sampled_from([0.5, 0.7, 1.0])),
            "stable_window_s": stable_window_s,
            "panic_window_s": draw(st.sampled_from([0.25, 1.0, stable_window_s])),
            "panic_threshold": draw(st.sampled_from([1.0, 2.0])),
            "max_scale_up_rate": draw(st.sampled_from([1.5, 2.0, 1000.0])),
            "max_scale_down_rate": draw(st.sampled_from([1.5, 2.0, 4.0])),
            "grace_s": draw(st.sampled_from([0.0, 0.5, 30.0])),
            "min_replicas": draw(st.sampled_from([0, 0, 1])),
        }
    return PolicyChoice(name=name, parameters=parameters)


@st.composite
def worlds(draw):
    """Whole runs."""
    scaler = draw(scalers())
    on = draw(clusters(scaler is not None and not rarely(draw, 6)))
    names = ["f", "g", "h", "i"][: draw(st.integers(1, 4))]
    parts = {name: draw(functions(on, scaler is not None)) for name in names}
    flows = {name: draw(workflows(name, names)) for name in ("one", "two", "three")[: draw(st.integers(1, 3))]}
    nodes = st.sampled_from([node.name for node in on.nodes[:4]])
    changes = st.builds(PressureChange, node=nodes, at_s=INSTANTS, pressure=st.sampled_from([0, 0.5, 2]))
    streams = draw(st.lists(arrivals(list(flows)), min_size=1, max_size=3))
    whole = scenario(
        parts,
        workflows=flows,
        arrivals=[process for stream in streams for process in stream],
        on=on,
        duration_s=DURATION_S,
        warmup_s=draw(st.sampled_from([0, 2])),
        policy=draw(dispatchers()),
        pressures=tuple(draw(st.lists(changes, max_size=3))),
        control_period_s=draw(st.sampled_from([0.25, 0.7, 1.0, 2.0])),
    )
    if scaler is not None:
        whole = replace(whole, scaler=scaler)
    return World(whole, draw(st.integers(0, 3)), draw(st.booleans()))


def long_worlds() -> list[World]:
    """Runs of thousands of requests, one per dispatcher: several blocks of random numbers, and lines that grow long."""
    on = Cluster(nodes=tuple(Node(name=f"n{i}", kind="plain", vcpus=2) for i in range(6)), bandwidth_gbps=1)
    parts = {
        "f": declared(Exponential(0.02), cold_start_s=0.1, keep_alive_s=0.5, output_mb=1, idle_holds="memory"),
        "g": declared(Table((Row(seconds=0.03), Row(batch=8, seconds=0.1))), cold_start_s=0.1, noise=0.3),
        "h": declared(LogNormal(0.01, 1.0), cold_start_s=0.05, keep_alive_s=0.2),
    }
    flows = {"one": ("f", "g"), "two": ("g", "h")}
    choices = [
        PolicyChoice(name="fifo"),
        PolicyChoice(name="fifo", parameters={"batching": "full", "batch_wait_s": 0.1, "queue_limit": 50}),
        PolicyChoice(name="least-loaded"),
        PolicyChoice(name="least-loaded", parameters={"batching": "full", "batch_wait_s": 0.02}),
        PolicyChoice(name="earliest-deadline"),
    ]
    return [
        World(
            scenario(
                parts,
                workflows=flows,
                arrivals=[Poisson("one", 150), AzureLike("two", 50, period_s=1)],
                on=on,
                slo_s=1.0,
                duration_s=12.0,
                policy=choice,
            ),
            seed=3,
            by_object=False,
        )
        for choice in choices
    ]
