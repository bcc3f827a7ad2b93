"""The cheapest way to run a workflow within its objective: one configuration, on one kind of node, per stage.

An outline, not a schedule: warm runs in full batches, every item of a map at once, nobody waiting. What does not fit
even so cannot be promised to anyone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from fairlead.model import Configuration, Stage
from fairlead.model.slots import slots
from fairlead.planning.front import Front
from fairlead.planning.placement import placement_front
from fairlead.profile import Estimate
from fairlead.workload import Scenario
from fairlead.workload.parse.load import expected_runs

_ROUNDING = 1 + 1e-9  # 0.1 s and 0.02 s make 0.12 s


@dataclass(frozen=True, kw_only=True)
class StageChoice:
    """How one stage is run. `cost_usd` is its share of a request: by its runs per request, in full batches."""

    stage: str
    function: str
    configuration: Configuration
    kind: str
    latency_s: float
    runs: float
    cost_usd: float


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What to choose. If the objective cannot be met, the fastest there is. `front` holds every trade worth making."""

    workflow: str
    slo_s: float
    cost_limit_usd: float
    is_met: bool
    latency_s: float
    cost_usd: float
    stages: tuple[StageChoice, ...]
    front: Front


def outline(scenario: Scenario, workflow: str, *, slo_s: float | None = None) -> Outline:
    """The cheapest choice for this workflow within its SLO, or another latency. Of a branch, the longest arm counts."""
    flow = scenario.workflows[workflow]
    runs = expected_runs(flow)
    ways = [list(_ways(scenario, stage, runs[stage.name])) for stage in flow.stages]
    position = {stage.name: i for i, stage in enumerate(flow.stages)}
    graph = [[position[name] for name in stage.after] for stage in flow.stages]
    front = placement_front(graph, [[(way.latency_s, way.cost_usd) for way in own] for own in ways])
    assert len(front), "a scenario has a configuration for every function"
    limit_s = flow.slo.latency_s if slo_s is None else slo_s
    meeting = front.within(limit_s * _ROUNDING, flow.slo.cost_usd * _ROUNDING)
    is_met = meeting.stop > meeting.start
    chosen = meeting.stop - 1 if is_met else 0  # the cheapest that is fast enough, or the fastest
    return Outline(
        workflow=workflow,
        slo_s=limit_s,
        cost_limit_usd=flow.slo.cost_usd,
        is_met=is_met,
        latency_s=float(front.latency_s[chosen]),
        cost_usd=float(front.cost_usd[chosen]),
        stages=tuple(own[option] for own, option in zip(ways, front.choices[chosen], strict=True)),
        front=front,
    )


def _ways(scenario: Scenario, stage: Stage, runs: float) -> Iterator[StageChoice]:
    function = scenario.functions[stage.function]
    estimate = Estimate(scenario.profiles[stage.function], scenario.cluster)
    for configuration in estimate.configurations:
        for kind, node in scenario.cluster.kinds.items():
            latency_s = estimate.latency_s(configuration, kind)
            if latency_s < inf and slots(node, function, configuration):
                yield StageChoice(
                    stage=stage.name,
                    function=stage.function,
                    configuration=configuration,
                    kind=kind,
                    latency_s=latency_s,
                    runs=runs,
                    cost_usd=estimate.cost_usd(configuration, kind) / configuration.batch * runs,
                )
