"""How long a scenario runs in a league: long enough to be steady, short enough for a thousand runs."""

from dataclasses import replace
from math import isfinite

from fairlead.league.catalogue import TimesRule
from fairlead.league.load import offered_rps
from fairlead.workload import Arrivals, Burst, ClosedLoop, Listed, Pillar, Scenario, Share, Window


def shortened(scenario: Scenario, load: float, rule: TimesRule) -> Scenario:
    """A shipped scenario with the warm-up and duration that it has in a league at this load; its arrivals are kept.

    `league.yaml` states the rule. The scenario is given as shipped, at load 1.
    """
    if _has_own_times(scenario):
        return scenario
    settled_s = min(scenario.duration_s, max(rule.slos * longest_slo_s(scenario), rule.cold_starts * _cold_s(scenario)))
    own_s = scenario.warmup_s
    warmup_s = own_s if load <= 1 else min(own_s, max(own_s / load, settled_s))
    counted_s = max(rule.requests / offered_rps(scenario), settled_s - own_s)
    return replace(scenario, warmup_s=warmup_s, duration_s=warmup_s + min(counted_s, scenario.duration_s - own_s))


def steady(scenario: Scenario, rule: TimesRule) -> Scenario:
    """An app's scenario with a warm-up, and enough time after it for the requests of the rule, at the load it has."""
    settled_s = max(rule.slos * longest_slo_s(scenario), rule.cold_starts * _cold_s(scenario))
    warmup_s = settled_s / 2
    counted_s = max(rule.requests / offered_rps(scenario), settled_s)
    return replace(scenario, warmup_s=warmup_s, duration_s=warmup_s + counted_s)


def longest_slo_s(scenario: Scenario) -> float:
    """The longest latency objective of the scenario's workflows, in seconds; 0 without any."""
    slos = (workflow.slo.latency_s for workflow in scenario.workflows.values())
    return max((slo for slo in slos if isfinite(slo)), default=0.0)


def _cold_s(scenario: Scenario) -> float:
    """The longest cold start of any function on any kind of node, in seconds."""
    return max(
        (profile.cold_s(kind) for profile in scenario.profiles.values() for kind in scenario.cluster.kinds),
        default=0.0,
    )


def _has_own_times(scenario: Scenario) -> bool:
    """Whether a shorter run would be another scenario: what is fixed in it would be cut off, or come faster."""
    return bool(scenario.node_faults or scenario.pressures) or any(_is_fixed(one) for one in scenario.arrivals)


def _is_fixed(process: Arrivals | ClosedLoop) -> bool:
    inner = process.process if isinstance(process, Share) else process
    return isinstance(inner, ClosedLoop | Burst | Pillar | Listed | Window)
