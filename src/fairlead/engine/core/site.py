"""What a policy is told once, before a run: the same in every engine."""

from collections.abc import Sequence
from types import MappingProxyType

from fairlead.policy.base import Site
from fairlead.profile import Estimate
from fairlead.workload import Scenario


def make_site(scenario: Scenario, arrivals: Sequence[tuple[float, str]] | None = None) -> Site:
    """The site of a scenario; `arrivals` for a clairvoyant policy only."""
    return Site(
        cluster=scenario.cluster,
        functions=MappingProxyType(dict(scenario.functions)),
        workflows=MappingProxyType(dict(scenario.workflows)),
        profiles=MappingProxyType(
            {
                name: Estimate(profile, scenario.cluster, load_mb=scenario.functions[name].constant_mb)
                for name, profile in scenario.profiles.items()
            }
        ),
        arrivals=arrivals,
        step_s=scenario.decision.per_step_s,
    )
