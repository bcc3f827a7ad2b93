"""What a policy is told once, before a run: the same in every engine."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import msgspec
import numpy as np

from fairlead.errors import ConfigError, FairleadError, Fault, PolicyError
from fairlead.policy.base import Policy, Site
from fairlead.profile import Estimate, Row, Table
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
        growth=MappingProxyType(dict(scenario.growth)),
        provision_s=scenario.provision_s,
    )


def with_tried(scenario: Scenario, times: Mapping[str, tuple[Row, ...]]) -> Scenario:
    """The scenario with these times for functions that were tried, which are not assumed any more."""
    tried = {
        name: msgspec.structs.replace(scenario.profiles[name], law=Table(rows), assumed_most_s=None)
        for name, rows in times.items()
    }
    return replace(scenario, profiles={**scenario.profiles, **tried})


def prepare(
    policies: Sequence[Policy | None],
    names: Sequence[str],
    scenario: Scenario,
    seed: int,
    arrivals: Sequence[tuple[float, str]] | None = None,
) -> None:
    """Tell policies what there is; `arrivals` only those that must know the future.

    Raises `ConfigError` where a policy cannot do there what its parameters say, as a name that nothing has, and
    `PolicyError` with whatever else it raised.
    """
    for i, (policy, name) in enumerate(zip(policies, names, strict=True)):
        if policy is None:
            continue
        site = make_site(scenario, arrivals if policy.clairvoyant else None)
        try:
            policy.prepare(site, np.random.default_rng((seed, 1_000_003, i)))
        except FairleadError:
            raise
        except ValueError as error:
            raise ConfigError(f"policy {name}", [Fault("", str(error))]) from error
        except Exception as error:
            raise PolicyError(name, 0.0, error) from error
