"""The defect behind the published table: one placement per workflow, overwritten on each arrival.

Nobody is refused, and a stage runs on whatever type the map names when its turn comes, whoever it was drawn for.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from fairlead.model import Invocation
from fairlead.policy.base import Action, Site, View
from fairlead.policy.dag_admission.placements import DagPlan
from fairlead.policy.kit.resource_types import OldestFirst, ResourceType


class SharedMap:
    """The map, and the queues that are served by it, older requests first."""

    def __init__(self, site: Site, dags: Mapping[str, DagPlan], rng: np.random.Generator) -> None:
        self._dags = dags
        self._rng = rng
        self._types: dict[tuple[str, str], tuple[ResourceType, ...]] = {}  # by workflow and stage
        self._queue = OldestFirst(site, self._choices)

    def decide(self, view: View) -> Iterator[Action]:
        """Draw for each arrival, then start what can be started."""
        for request in view.fresh:
            dag = self._dags[request.workflow]
            within = dag.front.within(request.deadline - request.arrival, request.budget_usd)
            count = within.stop - within.start
            if count or request.workflow not in {workflow for workflow, _ in self._types}:
                member = within.start + int(self._rng.integers(count)) if count else 0
                for stage, way in zip(dag.workflow.stages, dag.placement(member), strict=True):
                    profile = view.profile(way.function)
                    run_s = profile.latency_s(way.configuration, way.kind)
                    cost_usd = profile.cost_usd(way.configuration, way.kind)
                    drawn = ResourceType(way.kind, way.configuration, way.cold_s, run_s, cost_usd)
                    self._types[request.workflow, stage.name] = (drawn,)
        yield from self._queue.starts(view)

    def _choices(self, invocation: Invocation) -> tuple[ResourceType, ...]:
        return self._types[invocation.workflow, invocation.stage]
