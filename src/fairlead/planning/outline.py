"""The cheapest ways to run a workflow within its objective: one configuration, on one kind of node, per stage.

An outline, not a schedule: warm runs in full batches, every item of a map at once, nobody waiting. What does not fit
even so cannot be promised to anyone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from fairlead.model import Configuration, Stage
from fairlead.model.slots import slots
from fairlead.planning.decomposition import Graph
from fairlead.planning.front import Front
from fairlead.planning.placement import Options, placement_front
from fairlead.planning.search import top_paths
from fairlead.profile import Estimate
from fairlead.workload import Scenario
from fairlead.workload.parse.load import expected_runs

NEAR = 1.2  # times the fastest: where the next look for a cheaper one goes
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
class Choice:
    """One way to run all stages, and what a request then takes and costs."""

    latency_s: float
    cost_usd: float
    stages: tuple[StageChoice, ...]


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What to choose. If the objective cannot be met, the fastest there is.

    Attributes:
        top: The cheapest choices within the objective, cheapest first; of equal ones, the fastest. Of a chain of
            stages, the cheapest of all; of another graph, of those on the front. The first is what to choose.
        in_time: The cheapest within the latency, whatever the limit on the cost; None if nothing is as fast.
        fastest: Of all there are; of equal ones, the cheapest.
        near_fastest: The cheapest that takes at most `NEAR` times as long as the fastest.
        front: Every trade worth making.
    """

    workflow: str
    slo_s: float
    cost_limit_usd: float
    chosen: Choice
    top: tuple[Choice, ...]
    in_time: Choice | None
    fastest: Choice
    near_fastest: Choice
    front: Front

    @property
    def is_met(self) -> bool:
        """Whether any choice meets the objective."""
        return bool(self.top)

    @property
    def latency_s(self) -> float:
        """What the choice takes: the longest path through the workflow."""
        return self.chosen.latency_s

    @property
    def cost_usd(self) -> float:
        """What the choice costs per request."""
        return self.chosen.cost_usd

    @property
    def stages(self) -> tuple[StageChoice, ...]:
        """The choice itself."""
        return self.chosen.stages


def outline(scenario: Scenario, workflow: str, *, slo_s: float | None = None, top: int = 5) -> Outline:
    """The cheapest choices for this workflow within its SLO, or another latency. Of a branch, the longest arm counts.

    Args:
        top: How many to name at most, at least 1.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1; got {top}.")
    flow = scenario.workflows[workflow]
    runs = expected_runs(flow)
    ways = [list(_ways(scenario, stage, runs[stage.name])) for stage in flow.stages]
    options = [[(way.latency_s, way.cost_usd) for way in own] for own in ways]
    position = {stage.name: i for i, stage in enumerate(flow.stages)}
    graph = [[position[name] for name in stage.after] for stage in flow.stages]
    front = placement_front(graph, options)
    assert len(front), "a scenario has a configuration for every function"

    def member(index: int) -> Choice:
        return _choice(ways, front.latency_s[index], front.cost_usd[index], front.choices[index])

    limit_s = flow.slo.latency_s if slo_s is None else slo_s
    meeting = front.within(limit_s * _ROUNDING, flow.slo.cost_usd * _ROUNDING)
    found = [member(index) for index in range(meeting.start, meeting.stop)[-top:]][::-1]
    if found and _is_chain(graph):
        found = _of_chain(ways, options, limit_s * _ROUNDING, flow.slo.cost_usd * _ROUNDING, found[0], top)
    in_time = front.within(limit_s * _ROUNDING, inf)
    near = front.within(float(front.latency_s[0]) * NEAR * _ROUNDING, inf)
    return Outline(
        workflow=workflow,
        slo_s=limit_s,
        cost_limit_usd=flow.slo.cost_usd,
        chosen=found[0] if found else member(0),
        top=tuple(found),
        in_time=member(in_time.stop - 1) if in_time.stop else None,
        fastest=member(0),
        near_fastest=member(near.stop - 1),
        front=front,
    )


def _is_chain(graph: Graph) -> bool:
    """Whether each stage waits for the one before it, and so for all before it; it may name others as well."""
    return all(stage - 1 in predecessors for stage, predecessors in enumerate(graph) if stage)


def _of_chain(
    ways: Sequence[Sequence[StageChoice]], options: Options, limit_s: float, limit_usd: float, first: Choice, top: int
) -> list[Choice]:
    """The cheapest choices of a chain, not only those on its front. `first` is the fastest of the cheapest."""
    paths = [path for path in top_paths(options, limit_s, k=top) if path.cost_usd <= limit_usd]
    others = [_choice(ways, path.latency_s, path.cost_usd, path.choice) for path in paths]
    if others and others[0].cost_usd * _ROUNDING < first.cost_usd:
        return others  # the front was too large to be exact
    return [first, *(other for other in others if other.stages != first.stages)][:top]


def _choice(ways: Sequence[Sequence[StageChoice]], latency_s: float, cost_usd: float, options: Iterable[int]) -> Choice:
    stages = tuple(own[option] for own, option in zip(ways, options, strict=True))
    return Choice(latency_s=float(latency_s), cost_usd=float(cost_usd), stages=stages)


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
