"""An estimate: what a policy believes of a function's times and costs in one cluster."""

from bisect import bisect_left, insort
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
        "_spread",
        "_stale",
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
        self._front: _Front | None = None
        self._stale: set[Configuration] = set()  # whose times in the front are no longer right

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """The space to choose from."""
        return self._profile.configurations

    @property
    def is_assumed(self) -> bool:
        """Whether the declared times are an assumption, which the first runs replace."""
        return self._profile.assumed_most_s is not None

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
        return self._current().quickest

    def cheapest_within(self, seconds: float) -> Configuration | None:
        """The cheapest configuration whose expected time is at most this; None if all take longer.

        Of equal cost, the first declared. Logarithmic in the number of configurations, unless a correction changed.
        """
        return self._current().within(seconds)

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
        if moved:
            for configuration in moved:
                self._latency_s.pop(configuration, None)
            self._stale |= moved
            moved.clear()

    def _current(self) -> "_Front":
        """The front of what is believed now."""
        if self._moved:
            self._forget_moved()
        if self._front is None or not self._is_kept:
            self._front = _Front(self.configurations, self.latency_s, self._cluster.price.usd_per_s)
        elif self._stale:
            self._front.renew(self._stale)
        self._stale.clear()
        return self._front


class _Front:
    """The configurations that are quicker than all cheaper ones, kept as times change one by one."""

    __slots__ = (
        "_at",
        "_chosen",
        "_configurations",
        "_latency_s",
        "_negated",
        "_ranked",
        "_rates",
        "_times",
        "quickest",
    )

    def __init__(
        self,
        configurations: tuple[Configuration, ...],
        latency_s: Callable[[Configuration], float],
        usd_per_s: Callable[[float, float], float],
    ) -> None:
        self._configurations = configurations
        self._latency_s = latency_s
        self._at = {configuration: i for i, configuration in enumerate(configurations)}
        self._rates = [usd_per_s(configuration.vcpus, configuration.vgpus) for configuration in configurations]
        self._times = [latency_s(configuration) for configuration in configurations]
        self._ranked = sorted((self._cost_usd(i), i) for i in range(len(configurations)))
        self._negated: list[float] = []
        self._chosen: list[Configuration] = []
        self._select()

    def within(self, seconds: float) -> Configuration | None:
        """The cheapest that takes no longer; None if there is none."""
        position = bisect_left(self._negated, -seconds)
        return self._chosen[position] if position < len(self._chosen) else None

    def renew(self, stale: set[Configuration]) -> None:
        """Take over the times of these configurations, which have changed."""
        for configuration in stale:
            i = self._at.get(configuration)
            if i is not None:
                del self._ranked[bisect_left(self._ranked, (self._cost_usd(i), i))]
                self._times[i] = self._latency_s(configuration)
                insort(self._ranked, (self._cost_usd(i), i))
        self._select()

    def _cost_usd(self, i: int) -> float:
        return self._rates[i] * self._times[i] if self._times[i] < inf else inf

    def _select(self) -> None:
        times = self._times
        self.quickest = self._configurations[times.index(min(times))]
        self._negated.clear()
        self._chosen.clear()
        least_s = inf
        for _, i in self._ranked:
            if times[i] < least_s:
                least_s = times[i]
                self._negated.append(-least_s)
                self._chosen.append(self._configurations[i])
