"""What the controller believes of functions: declared profiles, corrected by what finished.

A correction is a running mean of observed over declared time, per function, configuration and node kind: one odd
run moves it little, and drift is followed. What was only assumed gives way faster (`assumed`).
"""

from collections.abc import Collection

from fairlead.engine.core.assumed import Assumed
from fairlead.engine.core.capacity import Belief, Shape
from fairlead.engine.core.pool import Pool
from fairlead.model import Configuration
from fairlead.profile import Estimate
from fairlead.profile.spread import FIRST_SPREAD
from fairlead.workload import Scenario


class Beliefs:
    """Shapes by (function, configuration), each with its declared times and corrections."""

    __slots__ = ("_assumed", "_moved", "_pool", "_scenario", "estimates", "shapes")

    def __init__(self, scenario: Scenario, pool: Pool) -> None:
        self._scenario = scenario
        self._pool = pool
        self.shapes: dict[tuple[str, Configuration], Shape | None] = {}
        self.estimates: dict[str, Estimate] = {}
        self._assumed: dict[tuple[str, str], Assumed] = {}  # by function and kind of node, of what was never measured
        self._moved: dict[str, set[Configuration]] = {}  # by function: whose corrections have changed
        for name in scenario.profiles:
            self._estimate(name)

    def _estimate(self, name: str) -> None:
        corrector = Corrector(self, name)
        load_mb = self._scenario.functions[name].constant_mb
        moved = self._moved[name] = set()
        profile = self._scenario.profiles[name]
        self.estimates[name] = Estimate(profile, self._scenario.cluster, corrector, load_mb, corrector.spread, moved)

    def declare_again(self, scenario: Scenario, functions: Collection[str]) -> None:
        """Believe what this scenario declares of some functions, and forget what was believed of them before."""
        self._scenario = scenario
        for name in functions:
            self._estimate(name)
        for (name, configuration), shape in self.shapes.items():
            if shape is not None and name in functions:
                shape.beliefs = self._beliefs(name, configuration)

    def shape(self, function: str, configuration: Configuration) -> Shape | None:
        """A function in one configuration; None if that is not in its space."""
        key = (function, configuration)
        try:
            return self.shapes[key]
        except KeyError:
            shape = self.shapes[key] = self._make(function, configuration)
            return shape

    def _make(self, function: str, configuration: Configuration) -> Shape | None:
        profile = self._scenario.profiles.get(function)
        if profile is None:
            return None
        bare = Configuration(batch=configuration.batch, vcpus=configuration.vcpus, vgpus=configuration.vgpus)
        if bare not in profile.configurations and configuration not in profile.configurations:
            return None
        declared = self._scenario.functions[function]
        cluster = self._scenario.cluster
        flavour = self._pool.flavour(declared, configuration)
        usd_per_s = cluster.price.usd_per_s(configuration.vcpus, configuration.vgpus)
        shape = Shape(declared, configuration, flavour, usd_per_s)
        shape.beliefs = self._beliefs(function, configuration)
        runs_anywhere = len(shape.beliefs) == len(cluster.kinds)
        shape.is_undemanding = runs_anywhere and shape.vgpus == 0 and shape.memory == 0
        return shape

    def _beliefs(self, function: str, configuration: Configuration) -> dict[str, Belief]:
        """By kind of node where the function can run in this configuration."""
        profile = self._scenario.profiles[function]
        found = {}
        for kind, node in self._scenario.cluster.kinds.items():
            seconds = profile.latency_s(configuration, kind, node.speed)
            if seconds < float("inf"):
                assumed = None
                if profile.assumed_most_s is not None:
                    assumed = self._assumed.setdefault((function, kind), Assumed(profile.assumed_most_s))
                found[kind] = Belief(seconds, configuration, self._moved[function], assumed)
        return found


class Corrector:
    """The corrections of one function, for its estimate to read."""

    __slots__ = ("_beliefs", "_function")

    def __init__(self, beliefs: Beliefs, function: str) -> None:
        self._beliefs = beliefs
        self._function = function

    def __call__(self, configuration: Configuration, kind: str) -> float:
        """Factor by which declared time is corrected."""
        shape = self._beliefs.shape(self._function, configuration)
        belief = shape.beliefs.get(kind) if shape else None
        return belief.correction if belief else 1.0

    def spread(self, configuration: Configuration, kind: str) -> float:
        """How far above the corrected time a safe percentile lies, as a factor."""
        shape = self._beliefs.shape(self._function, configuration)
        belief = shape.beliefs.get(kind) if shape else None
        return belief.spread if belief else FIRST_SPREAD
