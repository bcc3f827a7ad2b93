"""Random scenarios and policies for property tests: everything the engine supports, in small numbers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

import numpy as np
from hypothesis import strategies as st

from fairlead.model import SLO, Cluster, Configuration, Device, Node, Price, Record, Stage, Workflow
from fairlead.policy import (
    Action,
    Cancel,
    Grow,
    Move,
    Plan,
    Policy,
    Reject,
    Resize,
    Retire,
    Scale,
    Searched,
    Shrink,
    Site,
    Start,
    View,
    Wake,
    Warm,
    make_policy,
    policy_class,
    policy_names,
    role,
)
from fairlead.profile import Constant, Exponential, Row, ScalingLaw, Table, space
from fairlead.testing import declared, scenario
from fairlead.workload import (
    ClosedLoop,
    DecisionTime,
    Deterministic,
    Listed,
    NodeFault,
    Pillar,
    Poisson,
    PressureChange,
)

DISPATCHERS = [name for name in policy_names() if role(policy_class(name)) == "dispatch"]
DURATION_S = 8.0

# A grid of tenths and quarters, so that events often fall on one instant.
SECONDS = st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 1.0, 1.5])
COPIES = st.sampled_from([1, 1, 1, 1, 2, 3])
INSTANTS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.1, 2.0, 2.5, 3.0, 4.0, 5.5, 7.0])


@st.composite
def clusters(draw):
    nodes = []
    for kind in ("plain", "fast", "odd")[: draw(st.integers(1, 3))]:
        speed = draw(st.sampled_from([0.5, 1.0, 2.0]))
        for _ in range(draw(st.integers(1, 2))):
            sharing = draw(st.sampled_from(["mps", "mig", "time"]))
            partitions = [(), (), (3, 2, 1, 1), (2, 2, 2)] if sharing == "mig" else [()]
            device = Device(
                vgpus=7 if sharing == "mig" else draw(st.sampled_from([1, 2.5, 7])),
                memory_gb=draw(st.sampled_from([4, 9, inf])),
                sharing=sharing,
                partition=draw(st.sampled_from(partitions)),
                repartition_s=draw(st.sampled_from([0, 0.25])),
                slice_overhead=draw(st.sampled_from([0, 0.5])),
            )
            nodes.append(
                Node(
                    name=f"n{len(nodes)}",
                    kind=kind,
                    vcpus=draw(st.sampled_from([1, 2, 4, 4.5])),
                    memory_gb=draw(st.sampled_from([4, 8, inf])),
                    devices=(device,) * draw(st.integers(0, 2)),
                    speed=speed,
                )
            )
    price = Price(bill_cold_start=draw(st.booleans()))
    return Cluster(nodes=tuple(nodes), bandwidth_gbps=draw(st.sampled_from([inf, 0.1, 1])), price=price)


@st.composite
def laws(draw):
    seconds = draw(SECONDS)
    which = draw(st.integers(0, 4))
    if which == 0:
        return Exponential(seconds), ()
    if which == 1:
        return ScalingLaw(t1_s=seconds), space(batch=(1, 3), vcpus=(1, 2))
    if which == 2:
        rows = tuple(Row(vgpus=size, seconds=seconds / size) for size in (1, 2, 3))
        return Table((*rows, Row(batch=2, vgpus=1, seconds=1.5 * seconds))), ()
    if which == 3:
        return Table(
            (Row(seconds=seconds), Row(vgpus=1, vcpus=0.5, seconds=seconds / 2), Row(seconds=0.2, kind="fast"))
        ), ()
    return Constant(seconds), ()


@st.composite
def functions(draw):
    law, configurations = draw(laws())
    return declared(
        law,
        configurations=configurations,
        memory_gb=draw(st.sampled_from([0, 0.5, 3])),
        device_memory_gb=draw(st.sampled_from([0, 3])),
        output_mb=draw(st.sampled_from([0, 10])),
        keep_alive_s=draw(st.sampled_from([0, 0.5, 3, inf])),
        idle_holds=draw(st.sampled_from(["slice", "memory"])),
        retries=draw(st.integers(0, 2)),
        run_limit_s=draw(st.sampled_from([0.9, inf, inf])),
        start_limit_s=draw(st.sampled_from([0.4, inf, inf])),
        cold_start_s=draw(SECONDS),
        noise=draw(st.sampled_from([0, 0.3])),
        bias=draw(st.sampled_from([1, 1.5])),
        failure_rate=draw(st.sampled_from([0, 0, 0.3])),
        sensitivity=draw(st.sampled_from([0, 0, 0, 1.5])),
        gpu_sensitivity=draw(st.sampled_from([0, 0, 2])),
    )


@st.composite
def workflows(draw, name, names):
    """Fan-out, fan-in, branches, maps, joins and competing copies, as far as they go together."""
    stages: list[Stage] = []
    regions: dict[str, str | None] = {}
    arms: dict[str, int] = {}
    for i in range(draw(st.integers(1, 5))):
        known = [stage.name for stage in stages]
        after = tuple(draw(st.lists(st.sampled_from(known), unique=True, max_size=2))) if known else ()
        around = {regions[p] for p in after} - {None}
        is_join = bool(around) and (len(around) > 1 or draw(st.booleans()))
        is_map = not around and len(after) <= 1 and draw(st.integers(0, 3)) == 0
        when = None
        if len(after) == 1 and not is_join and arms.get(after[0], 0) < 3 and draw(st.integers(0, 2)) == 0:
            arms[after[0]] = arms.get(after[0], 0) + 1
            when = 0.3
        stage = Stage(
            name=f"s{i}",
            function=draw(st.sampled_from(names)),
            after=after,
            when=when,
            map=(1, 3) if is_map else None,
            join=is_join,
            compete=draw(COPIES),
        )
        stages.append(stage)
        regions[stage.name] = stage.name if is_map else None if is_join or not around else around.pop()
    slo = SLO(latency_s=draw(st.sampled_from([0.5, 2, 10, inf])))
    return Workflow(name=name, stages=tuple(stages), slo=slo)


@st.composite
def arrivals(draw, workflow):
    which = draw(st.integers(0, 4))
    if which == 0:
        return Poisson(workflow, draw(st.sampled_from([0.5, 3])))
    if which == 1:
        return Deterministic(workflow, draw(st.sampled_from([0.5, 1.1])))
    if which == 2:
        return Pillar(workflow, count=9, pillars=3)
    if which == 3:
        think = draw(st.sampled_from(["exponential", "constant"]))
        return ClosedLoop(
            workflow, users=draw(st.integers(1, 3)), think_s=draw(st.sampled_from([0.25, 1])), think=think
        )
    return Listed(workflow, tuple(draw(st.lists(INSTANTS, min_size=1, max_size=10))))


@st.composite
def scenarios(draw):
    on = draw(clusters())
    names = ["f", "g", "h"][: draw(st.integers(1, 3))]
    parts = {name: draw(functions()) for name in names}
    flows = {name: draw(workflows(name, names)) for name in ("one", "two")[: draw(st.integers(1, 2))]}
    nodes = st.sampled_from([node.name for node in on.nodes])
    back = st.sampled_from([None, 0.5, 2.0])
    losses = st.builds(NodeFault, node=nodes, at_s=INSTANTS, back_s=back)
    pressures = st.builds(PressureChange, node=nodes, at_s=INSTANTS, pressure=st.sampled_from([0, 0.5, 2]))
    times = [DecisionTime(), DecisionTime(fixed_s=0.05), DecisionTime(per_step_s=0.01)]
    return scenario(
        parts,
        workflows=flows,
        arrivals=[draw(arrivals(name)) for name in flows],
        on=on,
        duration_s=DURATION_S,
        decision=draw(st.sampled_from(times)),
        node_faults=tuple(draw(st.lists(losses, max_size=3))),
        pressures=tuple(draw(st.lists(pressures, max_size=2))),
        on_loss=draw(st.sampled_from(["retry", "fail"])),
        max_attempts=draw(st.integers(1, 3)),
        retry_delay_s=draw(st.sampled_from([0, 0.3])),
        control_period_s=0.7,
        provision_s=1.0,
    )


@dataclass
class Adversary(Policy):
    """Does whatever its random numbers say; what it tries may be impossible.

    Args:
        meekness: Share of attempts that are checked with the view first.
        budget: How often it may cancel, warm, retire, reject or wake in all, so that a run comes to its end.
    """

    meekness: float = 0.9
    budget: int = 40
    running: list[int] = field(default_factory=list)

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._rng = rng
        self._functions = sorted(site.functions)
        self._left = self.budget
        self.running = []

    def decide(self, view: View) -> Iterator[Action]:
        for _ in range(int(self._rng.integers(1, 6))):
            action = self._anything(view)
            if action is not None:
                yield action
        if self._rng.random() < 0.7:
            yield from self._starts(view)

    def _starts(self, view: View) -> Iterator[Action]:
        for invocation in view.by_ready():
            action = self._start(view, (invocation,))
            if action is not None:
                yield action

    def _anything(self, view: View) -> Action | None:
        which = int(self._rng.integers(8))
        if which <= 1:
            waiting = [i for i, _ in zip(view.by_ready(), range(4), strict=False)]
            alike = tuple(i for i in waiting if i.function == waiting[0].function)
            return self._start(view, alike[: int(self._rng.integers(1, 4))]) if waiting else None
        if which == 2:
            return Searched(int(self._rng.integers(5)))
        self._left -= 1
        if self._left < 0:
            return None
        if which == 3 and self.running:
            return Cancel(self.running[int(self._rng.integers(len(self.running)))])
        if which == 4:
            return self._warm(view)
        if which == 5:
            idle = [i.id for f in self._functions for i in view.instances(f) if i.is_idle]
            return Retire(idle[int(self._rng.integers(len(idle)))]) if idle else None
        if which == 6:
            return Wake(view.now + float(self._rng.choice([0.05, 0.25, 1.0])))
        oldest = view.oldest()
        if oldest is None:
            return None
        return Reject(oldest.request, "for fun") if self._rng.random() < 0.3 else Plan(oldest.request, (), view.now + 1)

    def _start(self, view: View, batch) -> Action | None:
        function = batch[0].function
        place = self._place(view, function)
        if place is None:
            return None
        configuration, node = place
        if len(batch) > configuration.batch and self._rng.random() < self.meekness:
            batch = batch[: configuration.batch]
        self.running = [*self.running[-10:], batch[0].id]
        return Start(tuple(batch), configuration, node)

    def _warm(self, view: View) -> Action | None:
        function = self._functions[int(self._rng.integers(len(self._functions)))]
        place = self._place(view, function)
        return None if place is None else Warm(function, *place)

    def _place(self, view: View, function: str) -> tuple[Configuration, str] | None:
        configurations = view.profile(function).configurations
        configuration = configurations[int(self._rng.integers(len(configurations)))]
        if not view.nodes:
            return None
        node = view.nodes[int(self._rng.integers(len(view.nodes)))].name
        if self._rng.random() < self.meekness and not view.fits(function, configuration, node):
            return None
        return configuration, node


@dataclass
class Restless(Policy):
    """Scales whatever its random numbers say; what it tries may be impossible.

    Args:
        budget: How many actions in all, the last of which give every function replicas again.
    """

    budget: int = 12

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._rng = rng
        self._functions = sorted(site.functions)
        self._kinds = sorted(site.cluster.kinds)
        self._left = self.budget

    def adjust(self, view: View) -> Iterator[Action]:
        if self._left > 0:
            self._left -= 1
            yield self._anything(view)
        elif self._left == 0:
            self._left = -1
            for function in self._functions:
                yield Scale(function, 1)

    def _anything(self, view: View) -> Action:
        function = self._functions[int(self._rng.integers(len(self._functions)))]
        kind = self._kinds[int(self._rng.integers(len(self._kinds)))]
        configurations = view.profile(function).configurations
        configuration = configurations[int(self._rng.integers(len(configurations)))]
        which = int(self._rng.integers(8))
        if which <= 2:
            return Scale(function, int(self._rng.integers(4)), configuration if which else None)
        if which == 3:
            return Resize(function, configuration.vcpus, float(self._rng.choice([0.0, 1.0])))
        if which <= 5 and view.nodes:
            return Move(function, view.nodes[int(self._rng.integers(len(view.nodes)))].name)
        return Grow(kind) if which == 6 else Shrink(kind)


@dataclass
class Impatient(Policy):
    """Another dispatcher, until it is late: then everything that waits is given up, so that a run comes to its end."""

    inner: Policy
    until: float = 5 * DURATION_S

    @property
    def clairvoyant(self) -> bool:
        return self.inner.clairvoyant

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self.inner.prepare(site, rng)

    def decide(self, view: View) -> Iterator[Action]:
        if view.now < self.until:
            yield from self.inner.decide(view)
        else:
            while (oldest := view.oldest()) is not None:
                yield Reject(oldest.request, "it is late")

    def observe(self, record: Record) -> None:
        self.inner.observe(record)


MAKERS = st.sampled_from([*DISPATCHERS, "adversary"])


def made(name: str) -> Policy:
    return Adversary() if name == "adversary" else make_policy(name)
