"""The whole workflow on one type of resource, the quickest that meets both objectives on paper.

A. Ramkumar, "Making the Most of Serverless Accelerators" (UCB/EECS-2022-88, 2022), sections 4.2 and 4.3: the "naive
version of Clockwork" that Table 4.1 compares with. Clockwork proper is another policy.

**Differs from the paper:**

* The rule is only sketched there. This is the one that yields the printed figures: all on the GPU if both SLOs hold
  for that, else all on the CPU, else skip; older requests first. Queues are not looked at, so the admitted come late.
* Where there are other kinds than a CPU and a GPU, they are tried in order of the workflow's latency, quickest first.
* An arm of a branch counts as taken and a map as its greatest number of items: what is admitted costs no more.
* There every run loads its function. Here one that stays loaded (with a keep-alive) counts without its cold start: else
  no request would ever be admitted where a cold start is longer than the objective.
* Removal (`post`, 0 in the table) takes no time in our simulator; "skip" is a rejection.
* A kind without a single node up is passed over, for what starts while it is away.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.model import SLO, Workflow
from fairlead.policy.base import Action, Policy, Reject, Site, View
from fairlead.policy.kit.remaining import critical_path_s
from fairlead.policy.kit.resource_types import OldestFirst, ResourceType, types_of

_TOLERANCE = 1e-9  # relative: an objective that is missed by rounding only is met

OnKind = Mapping[str, ResourceType]  # by function, all of one kind


@dataclass
class ClockworkNaive(Policy):
    """Run each workflow on the quickest kind of node that meets its SLO when nothing else runs, or reject it."""

    paper: ClassVar[str] = "Serverless accelerators (UCB 2022), 4.3"

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        types = {name: types_of(site.functions[name], site.profiles[name], site.cluster) for name in site.functions}
        stays = {name for name, function in site.functions.items() if function.keep_alive_s > 0}
        self._choices = {name: _in_objective(workflow, types, stays) for name, workflow in site.workflows.items()}
        self._queue = OldestFirst(
            site, lambda invocation: [on[invocation.function] for on in self._choices[invocation.workflow]]
        )

    def decide(self, view: View) -> Iterator[Action]:
        for request in view.fresh:
            if not self._choices[request.workflow]:
                yield Reject(request.id, "no kind of node alone meets its objectives")
        yield from self._queue.starts(view)


def _in_objective(
    workflow: Workflow, types: Mapping[str, tuple[ResourceType, ...]], stays: Set[str]
) -> tuple[OnKind, ...]:
    """The kinds on which the whole workflow meets its SLO, the quickest first. Functions in `stays` are loaded."""
    found: list[tuple[float, OnKind]] = []
    for kind in {choice.kind: None for function in workflow.functions for choice in types[function]}:
        on = {
            choice_of: choice for choice_of in workflow.functions for choice in types[choice_of] if choice.kind == kind
        }
        if len(on) == len(workflow.functions):
            seconds = {name: choice.run_s if name in stays else choice.seconds for name, choice in on.items()}
            latency_s = critical_path_s(workflow, seconds)
            if _meets(workflow.slo, latency_s, _most_usd(workflow, on)):
                found.append((latency_s, on))
    return tuple(on for _, on in sorted(found, key=lambda pair: pair[0]))


def _most_usd(workflow: Workflow, on: OnKind) -> float:
    items = {stage.name: stage.map[1] for stage in workflow.stages if stage.map}
    return sum(
        on[stage.function].cost_usd * items.get(workflow.regions[stage.name] or "", 1) for stage in workflow.stages
    )


def _meets(slo: SLO, latency_s: float, cost_usd: float) -> bool:
    return latency_s <= slo.latency_s * (1 + _TOLERANCE) and cost_usd <= slo.cost_usd * (1 + _TOLERANCE)
