"""An estimate: what a policy believes of a function's times and costs in one cluster."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from math import inf
from types import MappingProxyType

from fairlead.model import Cluster, Configuration
from fairlead.profile.loading import load_s
from fairlead.profile.profile import Profile
from fairlead.profile.spread import FIRST_SPREAD


class Estimate:
    """A profile as a policy sees it in one cluster: declared times, corrected by what was observed.

    Without a `kind`, a question is about the kind where the answer is best. Answers are kept until a correction
    changes, as policies ask for the same ones at every decision.

    Args:
        profile: What was declared or measured.
        cluster: Where the function runs.
        correction: Gives the factor by which the declared time of a configuration on a kind is corrected.
        load_mb: What a kernel must load before it runs where nothing of it is.
        spread: Gives the factor by which a safe percentile lies above the corrected time.
        moved: Where whatever changes corrections notes their configurations; emptied when a time is asked for. Without
            it, corrected times are worked out anew for each question.
    """

    __slots__ = (
        "_cluster",
        "_correction",
        "_declared",
        "_front",
        "_is_kept",
        "_latency_s",
        "_load_mb",
        "_moved",
        "_profile",
        "_quickest",
        "_spread",
    )

    def __init__(
        self,
        profile: Profile,
        cluster: Cluster,
        correction: Callable[[Configuration, str], float] | None = None,
        load_mb: float = 0.0,
        spread: Callable[[Configuration, str], float] | None = None,
        moved: set[Configuration] | None = None,
    ) -> None:
        self._spread = spread
        self._profile = profile
        self._cluster = cluster
        self._correction = correction
        self._load_mb = load_mb
        self._moved = moved
        self._is_kept = correction is None or moved is not None
        self._declared: dict[str, dict[Configuration, float]] = {}  # by kind
        self._latency_s: dict[Configuration, float] = {}  # of the best kind
        self._quickest: Configuration | None = None
        self._front: tuple[list[float], list[Configuration]] | None = None

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """The space to choose from."""
        return self._profile.configurations

    @property
    def overhead_s(self) -> float:
        """Declared time of each run besides its work, on no CPU; `latency_s` is without it."""
        return self._profile.overhead_s

    @property
    def sensitivity(self) -> float:
        """What the rest of a node costs a run, as declared (`interference.slowdown`)."""
        return self._profile.sensitivity

    @property
    def pressure_curves(self) -> Mapping[str, tuple[tuple[float, float], ...]]:
        """What load from outside costs a run, by kind of node, where that was measured."""
        return MappingProxyType(self._profile.pressure_curves)

    def cheapest(self) -> Configuration:
        """The cheapest configuration among those with the smallest batch."""
        least = min(configuration.batch for configuration in self.configurations)
        return min((c for c in self.configurations if c.batch == least), key=self.cost_usd)

    def quickest(self) -> Configuration:
        """The configuration with the least expected time on its best kind; the first declared among equals."""
        self._forget_moved()
        if self._quickest is None:
            self._quickest = min(self.configurations, key=self.latency_s)
        return self._quickest

    def cheapest_within(self, seconds: float) -> Configuration | None:
        """The cheapest configuration whose expected time is at most this; None if all take longer.

        Of equal cost, the first declared. Logarithmic in the number of configurations, unless a correction changed.
        """
        self._forget_moved()
        if self._front is None:
            self._front = self._make_front()
        negated, configurations = self._front
        position = bisect_left(negated, -seconds)
        return configurations[position] if position < len(configurations) else None

    def latency_s(self, configuration: Configuration, kind: str | None = None) -> float:
        """Expected time of a warm run, without transfer; infinity where there is none."""
        if kind is None:
            if self._moved:
                self._forget_moved()
            found = self._latency_s.get(configuration)
            if found is None:
                found = min([self.latency_s(configuration, kind) for kind in self._cluster.kinds])
                if self._is_kept:
                    self._latency_s[configuration] = found
            return found
        try:
            declared = self._declared[kind][configuration]
        except KeyError:
            declared = self._profile.latency_s(configuration, kind, self._cluster.kinds[kind].speed)
            self._declared.setdefault(kind, {})[configuration] = declared
        return declared if self._correction is None else declared * self._correction(configuration, kind)

    def upper_s(self, configuration: Configuration, kind: str | None = None) -> float:
        """Time that a warm run keeps at a safe percentile (0.95), as far as is known; above the mean at first."""
        if kind is None:
            return min([self.upper_s(configuration, kind) for kind in self._cluster.kinds])
        spread = FIRST_SPREAD if self._spread is None else self._spread(configuration, kind)
        return self.latency_s(configuration, kind) * spread

    def cold_start_s(self, kind: str | None = None) -> float:
        """Declared time to start an instance; of a kernel, to load it whole into a device whose executor runs."""
        if kind is None:
            return min([self.cold_start_s(kind) for kind in self._cluster.kinds])
        seconds = self._profile.cold_s(kind)
        if self._load_mb and self._cluster.kinds[kind].devices:
            seconds += load_s(self._cluster.kinds[kind].devices[0], self._load_mb)
        return seconds

    def cost_usd(self, configuration: Configuration, kind: str | None = None) -> float:
        """Expected price of a warm run, of the whole batch."""
        rate = self._cluster.price.usd_per_s(configuration.vcpus, configuration.vgpus)
        return rate * self.latency_s(configuration, kind)

    def _forget_moved(self) -> None:
        """Drop the answers that a changed correction has made wrong."""
        moved = self._moved
        if moved or not self._is_kept:
            self._quickest = self._front = None
            for configuration in moved or ():
                self._latency_s.pop(configuration, None)
            if moved:
                moved.clear()

    def _make_front(self) -> tuple[list[float], list[Configuration]]:
        """The configurations that are quicker than all cheaper ones, cheapest first, and their negated times."""
        negated: list[float] = []
        chosen: list[Configuration] = []
        least_s = inf
        for configuration in sorted(self.configurations, key=self.cost_usd):
            seconds = self.latency_s(configuration)
            if seconds < least_s:
                least_s = seconds
                negated.append(-seconds)
                chosen.append(configuration)
        return negated, chosen
