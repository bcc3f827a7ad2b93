"""Which configurations a request is given: Orion's search, over tables that are renewed now and then."""

from dataclasses import dataclass
from math import floor, inf

from fairlead.model import Configuration, Workflow
from fairlead.policy.base import Site, View
from fairlead.policy.kit.options import Options, all_options
from fairlead.policy.orion.latency import Latency, Relative, State, likely_times
from fairlead.policy.orion.sizing import next_larger, search
from fairlead.profile import Estimate

_BINS = 250  # up to the objective: 100 ms for one of 25 s, as published


@dataclass(frozen=True)
class Sized:
    """Sizes for a request: a configuration for each stage by name, its percentile, and how many states it took."""

    configurations: dict[str, Configuration]
    percentile_s: float
    states: int


@dataclass(frozen=True)
class Limits:
    """What bounds a search: the percentile that must meet the target, and the states, each of which takes its time."""

    percentile: float
    states_most: int
    state_s: float = 0.0


class Planner:
    """Gives sizes for a workflow and the time that is left. Profiles and observations are taken over now and then."""

    def __init__(self, site: Site, limits: Limits, refresh_s: float) -> None:
        self._site = site
        self._limits = limits
        self._refresh_s = refresh_s
        self._due = refresh_s
        self._relative = {name: Relative() for name in site.functions}
        self.options = all_options(site)
        self._moves = {name: next_larger(each) for name, each in self.options.items()}
        self._load(dict(site.profiles))

    def refresh(self, view: View) -> bool:
        """Take over what was learned, if it is time."""
        if view.now < self._due:
            return False
        self._due = view.now + self._refresh_s
        profiles = {name: view.profile(name) for name in self._site.functions}
        self.options = all_options(self._site, profiles)
        self._load(profiles)
        return True

    def see(self, function: str, configuration: Configuration, seconds: float) -> None:
        """Take in how long a run took."""
        expected_s = self.mean_s[function][configuration]
        if expected_s > 0:
            self._relative[function].see(seconds / expected_s)

    def sized(self, workflow: str, left_s: float) -> Sized:
        """Configurations for all stages of a request that must be answered in so much time."""
        return self._flows[workflow].sized(left_s)

    def _load(self, profiles: dict[str, Estimate]) -> None:
        known = self.options
        self.mean_s = {
            name: {c: profiles[name].latency_s(c) for c in each.configurations} for name, each in known.items()
        }
        times = {
            name: [likely_times(profiles[name], c, self._relative[name]) for c in each.configurations]
            for name, each in known.items()
        }
        self._flows: dict[str, _Flow] = {}
        for name, workflow in self._site.workflows.items():
            functions = [stage.function for stage in workflow.stages]
            options = [known[function] for function in functions]
            # Bins are for the objective. Where the smallest sizes need more than twice that, or there is none, they are
            # wider: the search must see how far off it is.
            least_s = sum(each.latency_s[each.least] for each in options)
            slo_s = workflow.slo.latency_s
            scale_s = max(slo_s, least_s / 2) if slo_s < inf else least_s
            latency = Latency(workflow, [times[function] for function in functions], scale_s / _BINS or 1.0, _BINS)
            moves = [self._moves[function] for function in functions]
            self._flows[name] = _Flow(workflow, latency, options, moves, self._limits)


class _Flow:
    """One workflow. What a state takes is kept, and what was found for a target, as both come again and again."""

    def __init__(
        self, workflow: Workflow, latency: Latency, options: list[Options], moves: list[list[list[int]]], limits: Limits
    ) -> None:
        self._names = [stage.name for stage in workflow.stages]
        self._latency = latency
        self._options = options
        self._moves = moves
        self._limits = limits
        self._start: State = tuple(each.least for each in options)
        self._bins: dict[State, int] = {}
        self._found: dict[float, Sized] = {}
        cheapest = tuple(min(range(len(each.cost_usd)), key=each.cost_usd.__getitem__) for each in options)
        self._late = self._sized(cheapest, 0)

    def sized(self, left_s: float) -> Sized:
        bin_s, limits = self._latency.bin_s, self._limits
        target: float = floor(left_s / bin_s) if left_s < inf else inf
        if target < 0:
            return self._late  # nothing meets what is past, so nothing is looked for
        found = self._found.get(target)
        if found is None:
            state_time = limits.state_s / bin_s
            known = (self._start, self._moves, self._percentile, self._cost_usd)
            sizing = search(*known, target, limits.states_most, state_time)
            found = self._found[target] = self._sized(sizing.state, sizing.states)
        return found

    def _sized(self, state: State, states: int) -> Sized:
        chosen = zip(self._names, self._options, state, strict=True)
        configurations = {name: options.configurations[i] for name, options, i in chosen}
        return Sized(configurations, self._percentile(state) * self._latency.bin_s, states)

    def _percentile(self, state: State) -> int:
        found = self._bins.get(state)
        if found is None:
            found = self._bins[state] = self._latency.distribution(state).quantile(self._limits.percentile)
        return found

    def _cost_usd(self, state: State) -> float:
        return sum(each.cost_usd[i] for each, i in zip(self._options, state, strict=True))
