"""Earliest deadline first, on the cheapest configuration that still makes it.

A baseline, not a paper: the simplest policy that looks at both time and money, and does not collapse under overload
because it gives up what cannot be saved.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fairlead.model import Configuration, Record
from fairlead.policy.base import Action, Policy, Reject, Site, Start, View
from fairlead.policy.kit.batching import Batching, check_batching, make_batcher
from fairlead.policy.kit.remaining import fastest_s, longest_after
from fairlead.profile import Estimate


@dataclass
class EarliestDeadline(Policy):
    """Start the most urgent invocation first, as cheaply as its deadline allows.

    Args:
        headroom: Share of the remaining time left unplanned, in [0, 1). Absorbs latency noise; at 0 every late
            sample is a violation.
        drop_late: Whether a request that cannot be answered in time any more, even at the fastest, is given up.
        batching: Who runs together: `none`, nobody; `full`, as many as the largest batch size holds; `aimd`, as many
            as have met the latency objective so far; `deadline`, as many as break no deadline.
        batch_wait_s: With `full` and `aimd`, how long the first of a batch that is not full waits for others, in
            seconds.
    """

    headroom: float = 0.1
    drop_late: bool = True
    batching: Batching = "none"
    batch_wait_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.headroom < 1:
            raise ValueError(f"headroom must be in [0, 1); got {self.headroom}.")
        check_batching(self.batching, self.batch_wait_s)

    @property
    def observes(self) -> bool:
        return self.batching == "aimd"

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        fastest = {name: fastest_s(profile) for name, profile in site.profiles.items()}
        self._rest_s = {
            (workflow.name, stage): seconds
            for workflow in site.workflows.values()
            for stage, seconds in longest_after(workflow, fastest).items()
        }
        self._batcher = make_batcher(
            self.batching, site, batch_wait_s=self.batch_wait_s, headroom=self.headroom, urgency="deadline"
        )

    def decide(self, view: View) -> Iterator[Action]:
        waiting = len({function for _, function in view.queues()})
        full: set[str] = set()  # functions that have no room, or gather: the less urgent of them must not overtake
        for invocation in view.by_deadline():
            if invocation.function in full or not view.is_waiting(invocation):
                continue
            profile = view.profile(invocation.function)
            slack_s = view.slack_s(invocation) - self._rest_s[invocation.workflow, invocation.stage]
            if self.drop_late and slack_s < fastest_s(profile):
                yield Reject(invocation.request, "its deadline cannot be met any more")
                continue
            if self._batcher is not None:
                while view.is_waiting(invocation) and invocation.function not in full:
                    step = self._batcher.next(view, invocation)
                    if step.action is not None:
                        yield step.action
                    if step.is_full or step.is_held:
                        full.add(invocation.function)
                if len(full) == waiting:
                    return
                continue
            configuration = self._choose(profile, slack_s * (1 - self.headroom))
            node = view.place(invocation.function, configuration)
            if node is None:
                full.add(invocation.function)
                if len(full) == waiting:
                    return
            else:
                yield Start((invocation,), configuration, node)

    def observe(self, record: Record) -> None:
        if self._batcher is not None:
            self._batcher.observe(record)

    def _choose(self, profile: Estimate, budget_s: float) -> Configuration:
        in_time = [c for c in profile.configurations if profile.latency_s(c) <= budget_s]
        if not in_time:  # late already, or nearly so: every second more is waste, so be quick
            return min(profile.configurations, key=profile.latency_s)
        return min(in_time, key=profile.cost_usd)
