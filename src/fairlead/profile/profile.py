"""A profile: the latency and cost of a function, and how it behaves beside others."""

from collections.abc import Callable, Mapping
from math import inf
from types import MappingProxyType

import msgspec

from fairlead.model import Cluster, Configuration
from fairlead.profile.laws import Law, Spread
from fairlead.profile.loading import load_s
from fairlead.profile.spread import FIRST_SPREAD


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What is declared or was measured of a function.

    `configurations` is the space a policy may choose from. `cold_start_by_kind` overrides `cold_start_s`.
    The rest is how reality departs from the law in a simulation: `noise` is the standard deviation of a truncated
    Gaussian factor, `bias` a constant factor the declared law does not know of, `failure_rate` the share of
    attempts that fail. `sensitivity` and `pressure` drive `interference.slowdown` on the node, `gpu_sensitivity`
    `interference.device_slowdown` on a device that MPS shares. `pressure_curves` has, by kind of node, what load from
    outside costs where it was measured: points (pressure, factor) for `interference.under_pressure`. `overhead_s` is
    what each run takes besides its work, on no CPU: the way through a queue, say.
    """

    law: Law
    configurations: tuple[Configuration, ...] = ()
    cold_start_s: float = 0.0
    cold_start_by_kind: Mapping[str, float] = {}
    noise: float = 0.0
    bias: float = 1.0
    failure_rate: float = 0.0
    sensitivity: float = 0.0
    pressure: float = 1.0
    gpu_sensitivity: float = 0.0
    pressure_curves: Mapping[str, tuple[tuple[float, float], ...]] = {}
    overhead_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("cold_start_s", "noise", "sensitivity", "pressure", "gpu_sensitivity", "overhead_s"):
            value = getattr(self, name)
            if not 0 <= value < inf:
                raise ValueError(f"{name} must be finite and not negative; got {value}.")
        for kind, seconds in self.cold_start_by_kind.items():
            if not 0 <= seconds < inf:
                raise ValueError(f"cold_start_by_kind.{kind} must be finite and not negative; got {seconds}.")
        if not 0 < self.bias < inf:
            raise ValueError(f"bias must be positive and finite; got {self.bias}.")
        if self.noise > 0.5:
            raise ValueError(f"noise must be at most 0.5; got {self.noise}.")
        if not 0 <= self.failure_rate <= 1:
            raise ValueError(f"failure_rate must be in [0, 1]; got {self.failure_rate}.")
        for kind, curve in self.pressure_curves.items():
            pressures = [at for at, _ in curve]
            if not curve or pressures != sorted(set(pressures)) or pressures[0] < 0:
                raise ValueError(f"pressure_curves.{kind} must have points whose pressure rises from 0; got {curve}.")
            if any(not 1 <= factor < inf for _, factor in curve):
                raise ValueError(f"pressure_curves.{kind} must have factors of at least 1; got {curve}.")
        if not self.configurations:
            msgspec.structs.force_setattr(self, "configurations", self.law.configurations())

    @property
    def spread(self) -> Spread | None:
        """What draws the factors by which runs differ from the declared mean; None where they do not."""
        return self.law.spread

    def latency_s(self, configuration: Configuration, kind: str, speed: float = 1.0) -> float:
        """Declared mean of one run; infinity where the law knows no such run."""
        return self.law.mean_s(configuration, kind) / speed

    def cold_s(self, kind: str) -> float:
        """How long an instance takes to start on this kind."""
        return self.cold_start_by_kind.get(kind, self.cold_start_s)


class Estimate:
    """A profile as a policy sees it in one cluster: declared times, corrected by what was observed.

    Without a `kind`, a question is about the kind where the answer is best. `load_mb` is what a kernel must load before
    it runs where nothing of it is.
    """

    __slots__ = ("_cluster", "_correction", "_load_mb", "_profile", "_spread")

    def __init__(
        self,
        profile: Profile,
        cluster: Cluster,
        correction: Callable[[Configuration, str], float] | None = None,
        load_mb: float = 0.0,
        spread: Callable[[Configuration, str], float] | None = None,
    ) -> None:
        self._spread = spread
        self._profile = profile
        self._cluster = cluster
        self._correction = correction
        self._load_mb = load_mb

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

    def latency_s(self, configuration: Configuration, kind: str | None = None) -> float:
        """Expected time of a warm run, without transfer; infinity where there is none."""
        if kind is None:
            return min(self.latency_s(configuration, kind) for kind in self._cluster.kinds)
        declared = self._profile.latency_s(configuration, kind, self._cluster.kinds[kind].speed)
        return declared if self._correction is None else declared * self._correction(configuration, kind)

    def upper_s(self, configuration: Configuration, kind: str | None = None) -> float:
        """Time that a warm run keeps at a safe percentile (0.95), as far as is known; above the mean at first."""
        if kind is None:
            return min(self.upper_s(configuration, kind) for kind in self._cluster.kinds)
        spread = FIRST_SPREAD if self._spread is None else self._spread(configuration, kind)
        return self.latency_s(configuration, kind) * spread

    def cold_start_s(self, kind: str | None = None) -> float:
        """Declared time to start an instance; of a kernel, to load it whole into a device whose executor runs."""
        if kind is None:
            return min(self.cold_start_s(kind) for kind in self._cluster.kinds)
        seconds = self._profile.cold_s(kind)
        if self._load_mb and self._cluster.kinds[kind].devices:
            seconds += load_s(self._cluster.kinds[kind].devices[0], self._load_mb)
        return seconds

    def cost_usd(self, configuration: Configuration, kind: str | None = None) -> float:
        """Expected price of a warm run, of the whole batch."""
        rate = self._cluster.price.usd_per_s(configuration.vcpus, configuration.vgpus)
        return rate * self.latency_s(configuration, kind)
