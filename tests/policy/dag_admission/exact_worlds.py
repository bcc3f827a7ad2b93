"""Random worlds in which times are exact: what was declared is what happens."""

from math import inf

from hypothesis import strategies as st

from fairlead.model import SLO, Cluster, Device, Node, Price, Stage, Workflow
from fairlead.profile import Constant, Row, ScalingLaw, Table, space
from fairlead.testing import declared, scenario
from fairlead.workload import Burst, Deterministic, Listed, Pillar, Poisson

SECONDS = st.sampled_from([0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 0.7])
INSTANTS = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.55, 1.0, 1.5, 2.0, 3.0, 5.0])


@st.composite
def clusters(draw):
    nodes = []
    for kind in ("cpu", "gpu", "fast")[: draw(st.integers(1, 3))]:
        speed = draw(st.sampled_from([0.5, 1.0, 2.0]))
        device = Device(vgpus=draw(st.sampled_from([1, 2, 4])), memory_gb=draw(st.sampled_from([4, inf])))
        devices = (device,) * (draw(st.integers(0, 2)) if kind == "fast" else kind == "gpu")
        memory_gb = draw(st.sampled_from([3, 6, inf]))
        vcpus = draw(st.sampled_from([1, 2, 4]))
        for _ in range(draw(st.integers(1, 3))):
            nodes.append(
                Node(name=f"n{len(nodes)}", kind=kind, vcpus=vcpus, memory_gb=memory_gb, devices=devices, speed=speed)
            )
    price = Price(bill_cold_start=draw(st.booleans()))
    return Cluster(nodes=tuple(nodes), bandwidth_gbps=draw(st.sampled_from([inf, inf, 1])), price=price)


@st.composite
def functions(draw):
    seconds = draw(SECONDS)
    law, configurations = draw(
        st.sampled_from(
            [
                (Constant(seconds), ()),
                (ScalingLaw(t1_s=seconds), space(batch=(1, 2, 4), vcpus=(1, 2))),
                (
                    Table(
                        (
                            Row(seconds=seconds),
                            Row(batch=4, seconds=2.5 * seconds),
                            Row(vgpus=1, vcpus=0, seconds=seconds / 2),
                            Row(vgpus=1, vcpus=0, batch=4, seconds=seconds * 0.75),
                        )
                    ),
                    (),
                ),
                (Table((Row(seconds=seconds), Row(vgpus=1, vcpus=1, seconds=seconds / 3, kind="gpu"))), ()),
            ]
        )
    )
    return declared(
        law,
        configurations=configurations,
        memory_gb=draw(st.sampled_from([0, 1, 2.5])),
        device_memory_gb=draw(st.sampled_from([0, 3])),
        output_mb=draw(st.sampled_from([0, 10])),
        keep_alive_s=draw(st.sampled_from([0, 0.4, 2, inf])),
        idle_holds=draw(st.sampled_from(["slice", "memory"])),
        cold_start_s=draw(st.sampled_from([0, 0.05, 0.3, 1.0])),
    )


@st.composite
def workflows(draw, name, names):
    stages: list[Stage] = []
    regions: dict[str, str | None] = {}
    arms: dict[str, int] = {}
    for i in range(draw(st.integers(1, 5))):
        known = [stage.name for stage in stages]
        after = tuple(draw(st.lists(st.sampled_from(known), unique=True, max_size=3))) if known else ()
        around = {regions[p] for p in after} - {None}
        is_join = bool(around) and (len(around) > 1 or draw(st.booleans()))
        is_map = not around and len(after) <= 1 and draw(st.integers(0, 4)) == 0
        when = None
        if len(after) == 1 and not is_join and arms.get(after[0], 0) < 3 and draw(st.integers(0, 3)) == 0:
            arms[after[0]] = arms.get(after[0], 0) + 1
            when = 0.3
        stage = Stage(
            name=f"s{i}",
            function=draw(st.sampled_from(names)),
            after=after,
            when=when,
            map=(1, 3) if is_map else None,
            join=is_join,
            compete=draw(st.sampled_from([1, 1, 1, 1, 2])),
        )
        stages.append(stage)
        regions[stage.name] = stage.name if is_map else None if is_join or not around else around.pop()
    slo = SLO(
        latency_s=draw(st.sampled_from([0.3, 0.6, 1, 2, 5, inf])),
        cost_usd=draw(st.sampled_from([inf, inf, 2e-5, 1e-4])),
    )
    return Workflow(name=name, stages=tuple(stages), slo=slo)


@st.composite
def arrivals(draw, workflow):
    which = draw(st.integers(0, 4))
    if which == 0:
        return Poisson(workflow, draw(st.sampled_from([1, 5, 20])))
    if which == 1:
        return Deterministic(workflow, draw(st.sampled_from([0.5, 4])))
    if which == 2:
        return Pillar(workflow, count=20, pillars=3)
    if which == 3:
        return Burst(workflow, count=30)
    return Listed(workflow, tuple(draw(st.lists(INSTANTS, min_size=1, max_size=20))))


@st.composite
def exact_worlds(draw):
    """A scenario without noise, failures, limits or interference; every node of a kind is the same."""
    names = [f"f{i}" for i in range(draw(st.integers(1, 3)))]
    flows = [draw(workflows(f"w{i}", names)) for i in range(draw(st.integers(1, 2)))]
    return scenario(
        functions={name: draw(functions()) for name in names},
        workflows={flow.name: flow for flow in flows},
        arrivals=tuple(draw(arrivals(flow.name)) for flow in flows),
        on=draw(clusters()),
        duration_s=6.0,
    )
