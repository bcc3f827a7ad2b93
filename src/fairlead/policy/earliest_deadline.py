"""Earliest deadline first, on the cheapest configuration that still makes it.

A baseline, not a paper: the simplest policy that looks at both time and money, and does not collapse under overload
because it gives up what cannot be saved.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fairlead.model import Configuration, Workflow
from fairlead.policy.base import Action, Policy, Reject, Site, Start, View
from fairlead.profile import Estimate


@dataclass
class EarliestDeadline(Policy):
    """Start the most urgent invocation first, as cheaply as its deadline allows.

    Args:
        headroom: Share of the remaining time left unplanned, in [0, 1). Absorbs latency noise; at 0 every late
            sample is a violation.
        drop_late: Whether a request that cannot be answered in time any more, even at the fastest, is given up.
    """

    headroom: float = 0.1
    drop_late: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.headroom < 1:
            raise ValueError(f"headroom must be in [0, 1); got {self.headroom}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._functions = len(site.functions)
        fastest = {name: _fastest_s(profile) for name, profile in site.profiles.items()}
        self._rest_s = {
            (workflow.name, stage): seconds
            for workflow in site.workflows.values()
            for stage, seconds in _longest_after(workflow, fastest).items()
        }

    def decide(self, view: View) -> Iterator[Action]:
        full: set[str] = set()  # functions for which there is no room: the less urgent of them must not overtake
        for invocation in view.by_deadline():
            if invocation.function in full or not view.is_waiting(invocation):
                continue
            profile = view.profile(invocation.function)
            slack_s = view.slack_s(invocation) - self._rest_s[invocation.workflow, invocation.stage]
            if self.drop_late and slack_s < _fastest_s(profile):
                yield Reject(invocation.request, "its deadline cannot be met any more")
                continue
            configuration = self._choose(profile, slack_s * (1 - self.headroom))
            node = view.place(invocation.function, configuration)
            if node is None:
                full.add(invocation.function)
                if len(full) == self._functions:
                    return
            else:
                yield Start((invocation,), configuration, node)

    def _choose(self, profile: Estimate, budget_s: float) -> Configuration:
        in_time = [c for c in profile.configurations if profile.latency_s(c) <= budget_s]
        if not in_time:  # late already, or nearly so: every second more is waste, so be quick
            return min(profile.configurations, key=profile.latency_s)
        return min(in_time, key=profile.cost_usd)


def _fastest_s(profile: Estimate) -> float:
    return min(profile.latency_s(configuration) for configuration in profile.configurations)


def _longest_after(workflow: Workflow, fastest_s: dict[str, float]) -> dict[str, float]:
    """For each stage, the time that the longest path after it takes at the fastest."""
    rest_s = {stage.name: 0.0 for stage in workflow.stages}
    for stage in reversed(workflow.stages):
        for predecessor in stage.after:
            rest_s[predecessor] = max(rest_s[predecessor], rest_s[stage.name] + fastest_s[stage.function])
    return rest_s
