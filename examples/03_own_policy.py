"""Write a policy, and run it beside the built-in ones."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fairlead import Policy, simulate
from fairlead.policy import Action, Reject, Site, Start, View
from fairlead.report import summarise
from fairlead.workload import load_scenario


@dataclass
class InTimeOrNotAtAll(Policy):
    """Start the most urgent first, as cheaply as possible, and drop a request that can no longer be in time.

    Args:
        reserve_s: Time, in seconds, that must be left beyond the expected time of the next stage. Not negative.
    """

    reserve_s: float = 0.0

    def __post_init__(self) -> None:
        if self.reserve_s < 0:
            raise ValueError(f"reserve_s must not be negative; got {self.reserve_s}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        """Choose the cheapest configuration of each function once."""
        self._cheapest = {
            name: min(profile.configurations, key=profile.cost_usd) for name, profile in site.profiles.items()
        }

    def decide(self, view: View) -> Iterator[Action]:
        """Drop what is late; start what fits; what does not fit is passed over, not waited for."""
        for invocation in view.by_deadline():
            function, configuration = invocation.function, self._cheapest[invocation.function]
            needed_s = view.profile(function).latency_s(configuration) + self.reserve_s
            if view.slack_s(invocation) < needed_s:
                yield Reject(invocation.request, "it could no longer be answered in time")
            elif (node := view.place(function, configuration)) is not None:
                yield Start((invocation,), configuration, node)


# At 1.3 times its rate, quickstart offers its vCPUs more than they can do: somebody has to be turned away.
scenario = load_scenario("quickstart", overrides={"duration_s": 20, "rate_scale": 1.3})
for policy in ("fifo", "least-loaded", InTimeOrNotAtAll(), InTimeOrNotAtAll(reserve_s=0.1)):
    recording = simulate(scenario, policy, seed=0)
    assert not recording.refusals, recording.refusals[0]
    summary = summarise(recording)
    print(
        f"{summary.policy:18} {dict(summary.parameters)!s:20} in time {summary.slo_attainment:6.1%}, "
        f"goodput {summary.goodput_rps:5.1f} /s, dropped {summary.dropped}"
    )
