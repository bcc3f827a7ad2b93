"""What a scaler measures of a control period in the Python engine is what agents were shown when they were trained."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from fairlead.engine import simulate
from fairlead.engine.sim.compiled import layout as at
from fairlead.learn.environments.tenancy import Tenancy
from fairlead.learn.environments.tenants import Ladder
from fairlead.model import SLO, Configuration, Record, Workflow
from fairlead.policy import Action, Policy, Resize, Scale, Site, View
from fairlead.policy.kit.measuring import Measures, Meter
from fairlead.profile import ScalingLaw
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Listed, Poisson

PERIOD_S, PERIODS = 10.0, 25
LADDER = Ladder(vcpus=(0.5, 1.0, 2.0), memory_gb=(0.25, 0.5), first_vcpus=1.0, first_memory_gb=0.25)
LEAST, MOST, FIRST = 0, 5, 2
COLUMNS = ("arrived", "ran", "busy_s", "held_s", "p99_s", "oldest_s", "replicas", "ready", "vcpus", "memory_gb")


def world():
    """Two workflows over three functions, one of which is in both, on two nodes that are at times too small.

    No sum of these times ends with a period: a rounding error would put a run into one period here, another there.
    """
    functions = {
        name: declared(
            ScalingLaw(t1_s=seconds, fixed=0.2, gamma=1.0),
            memory_gb=0.25,
            cold_start_s=1.3137,
            configurations=tuple(Configuration(vcpus=vcpus) for vcpus in LADDER.vcpus),
        )
        for name, seconds in (("a", 0.9173), ("b", 2.3419), ("c", 0.4297))
    }
    flows = {
        "long": Workflow.chain("long", "a", "b", slo=SLO(latency_s=9.0)),
        "short": Workflow.chain("short", "c", "a", slo=SLO(latency_s=4.0)),
    }
    return scenario(
        functions,
        workflows=flows,
        arrivals=[Poisson("long", 0.6), Poisson("short", 0.9)],
        on=cluster(2, vcpus=5.0, memory_gb=16.0),
        control_period_s=PERIOD_S,
    )


@dataclass
class Replaying(Policy):
    """Does in each control period what agents did, and keeps what the period brought.

    The first period is spent without replicas: there a scaler can act when it ends, agents do before it begins.
    """

    actions: list[list[int]] = field(default_factory=list)
    measured: list[Measures] = field(default_factory=list)

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._meter = Meter(site.functions)
        self._rungs = dict.fromkeys(site.functions, (LADDER.vcpus.index(1.0), 0))

    def observe(self, record: Record) -> None:
        self._meter.observe(record)

    def adjust(self, view: View) -> Iterator[Action]:
        self.measured.append(self._meter.close(view))
        step = len(self.measured) - 1
        if step == 0:
            for function in self._meter.functions:
                yield Scale(function, FIRST, Configuration(vcpus=1.0, memory_gb=0.25))
        if step < len(self.actions):
            for function, action in zip(self._meter.functions, self.actions[step], strict=True):
                yield from self._act(view, function, action)
        self._meter.open(view)

    def _act(self, view: View, function: str, action: int) -> Iterator[Action]:
        wanted = view.scaled(function).instances
        if action in (1, 2):
            wanted += 1 if action == 1 else -1
            if LEAST <= wanted <= MOST:
                yield Scale(function, wanted)
            return
        vcpus, memory = self._rungs[function]
        vcpus += (action == 3) - (action == 4)
        memory += (action == 5) - (action == 6)
        if action == 0 or not wanted or vcpus not in range(3) or memory not in range(2):
            return
        size = LADDER.vcpus[vcpus], LADDER.memory_gb[memory]
        if view.resizes(function, *size):
            self._rungs[function] = vcpus, memory
            yield Resize(function, *size)


def trained(seed: int) -> tuple[list[list[int]], list[tuple[float, str]], list[Measures]]:
    """An episode of the environment: random actions, the arrivals that it drew, and what each period brought."""
    tenancy = Tenancy(world(), periods=PERIODS, ladder=LADDER, replicas=(LEAST, MOST), first_replicas=FIRST)
    tenancy.seed(seed)
    tenancy.reset()
    rng = np.random.default_rng(seed)
    actions, arrivals, found = [], [], []
    names = list(tenancy.world.scenario.workflows)
    for _ in range(PERIODS):
        chosen = rng.choice(7, size=3, p=[0.2, 0.2, 0.15, 0.15, 0.1, 0.1, 0.1])
        assert not tenancy.step(chosen).is_cut or len(actions) == PERIODS - 1
        memory = tenancy.world.lowered.memory
        for instant, workflow in zip(memory[at.ARRIVAL_AT], memory[at.ARRIVAL_WORKFLOW], strict=True):
            if instant == np.inf:
                break
            arrivals.append((float(instant), names[workflow]))
        actions.append(chosen.tolist())
        measured = tenancy.measures
        found.append(replace(measured, **{name: getattr(measured, name).copy() for name in COLUMNS}))
    return actions, arrivals, found


@pytest.mark.parametrize("seed", range(4))
def test_both_engines_measure_the_same(seed):
    actions, arrivals, expected = trained(seed)
    assert len(arrivals) > 200
    listed = tuple(
        Listed(name, tuple(PERIOD_S + instant for instant, workflow in arrivals if workflow == name))
        for name in ("long", "short")
    )
    scaler = Replaying(actions=actions)
    recording = simulate(replace(world(), arrivals=listed), "least-loaded", scaler=scaler)
    assert not recording.refusals
    for period, (ours, theirs) in enumerate(zip(scaler.measured[1:], expected, strict=False)):
        for name in COLUMNS:
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name), abs=1e-6), (period, name)
