"""A profile: the latency and cost of a function, and how it behaves beside others."""

from collections.abc import Mapping
from math import inf

import msgspec

from fairlead.model import Configuration
from fairlead.profile.laws import Law, Spread


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What is declared or was measured of a function.

    `configurations` is the space a policy may choose from. `cold_start_by_kind` overrides `cold_start_s`.
    The rest is how reality departs from the law in a simulation: `noise` is the standard deviation of a truncated
    Gaussian factor, `bias` a constant factor the declared law does not know of, `failure_rate` the share of
    attempts that fail. `sensitivity` and `pressure` drive `interference.slowdown` on the node, `gpu_sensitivity`
    `interference.device_slowdown` on a device that MPS shares. `pressure_curves` has, by kind of node, what load from
    outside costs where it was measured: points (pressure, factor) for `interference.under_pressure`. `overhead_s` is
    what each run takes besides its work, on no CPU: the way through a queue, say. `assumed_most_s` says that the law
    is an assumption, which the first runs replace, and what they are believed to take at most; None where it is not.
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
    assumed_most_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("cold_start_s", "noise", "sensitivity", "pressure", "gpu_sensitivity", "overhead_s"):
            value = getattr(self, name)
            if not 0 <= value < inf:
                raise ValueError(f"{name} must be finite and not negative; got {value}.")
        if self.assumed_most_s is not None and not self.assumed_most_s > 0:
            raise ValueError(f"assumed_most_s must be positive, or None; got {self.assumed_most_s}.")
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
