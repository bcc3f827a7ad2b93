"""Earliest deadline first, on the cheapest configuration that still makes it.

A baseline, not a paper: the simplest policy that looks at both time and money.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.model import Configuration, Invocation
from fairlead.policy.base import Action, Policy, Start, View


@dataclass
class EarliestDeadline(Policy):
    """Start the most urgent invocation first, as cheaply as its deadline allows.

    Args:
        headroom: Share of the remaining time left unplanned, in [0, 1). Absorbs latency noise and the stages
            still to come; at 0 every late sample is a violation.
    """

    headroom: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.headroom < 1:
            raise ValueError(f"headroom must be in [0, 1); got {self.headroom}.")

    def decide(self, view: View) -> Iterator[Action]:
        for invocation in view.by_deadline():
            configuration = self._choose(invocation, view)
            node = view.place(invocation.function, configuration)
            if node is None:
                return  # strict order: nobody overtakes the most urgent
            yield Start((invocation,), configuration, node)

    def _choose(self, invocation: Invocation, view: View) -> Configuration:
        profile = view.profile(invocation.function)
        budget_s = view.slack_s(invocation) * (1 - self.headroom)
        in_time = [c for c in profile.configurations if profile.latency_s(c) <= budget_s]
        if not in_time:  # already late: every second more is waste, so be quick
            return min(profile.configurations, key=profile.latency_s)
        return min(in_time, key=profile.cost_usd)
