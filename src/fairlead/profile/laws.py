"""Latency laws: how long a run takes, by configuration and node kind.

Every law gives the mean on a node of speed 1. Randomness is apart: a law with a `spread` multiplies each run by a
factor of mean 1, and any profile may carry multiplicative noise.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import product
from math import exp, inf, pow

import msgspec
import numpy as np

from fairlead.model import Configuration

ONE_VCPU = Configuration()
MOST_SIGMA = 5.0  # of a log-normal law: its mean is then 270,000 times its median, and no sample has it any more

Spread = Callable[[np.random.Generator, int], np.ndarray]
"""Draws so many independent factors of mean 1. Whoever needs the very same numbers draws the same blocks."""


class _Law(msgspec.Struct, frozen=True):
    """What holds of a law that does not say otherwise: every run takes the mean, on one vCPU."""

    @property
    def spread(self) -> Spread | None:
        """How runs differ from the mean; None where they do not."""
        return None

    def configurations(self) -> tuple[Configuration, ...]:
        """The space to choose from, where none is given."""
        return (ONE_VCPU,)


class Constant(_Law, frozen=True):
    """The same time in every configuration."""

    seconds: float

    def __post_init__(self) -> None:
        _check_seconds("constant_s", self.seconds)

    def mean_s(self, configuration: Configuration, kind: str) -> float:
        return self.seconds


class Exponential(_Law, frozen=True):
    """Exponentially distributed, with the same mean in every configuration."""

    seconds: float

    def __post_init__(self) -> None:
        _check_seconds("exponential_s", self.seconds)

    def mean_s(self, configuration: Configuration, kind: str) -> float:
        return self.seconds

    @property
    def spread(self) -> Spread:
        return _exponential


class LogNormal(_Law, frozen=True):
    """Log-normally distributed around the same median in every configuration; `sigma` is of the natural logarithm.

    Durations of functions in the cloud are so distributed, with a sigma above 2. The mean, with which a policy plans,
    is then far above the median: median * exp(sigma^2 / 2).
    """

    median_s: float
    sigma: float

    def __post_init__(self) -> None:
        _check_seconds("median_s", self.median_s)
        if not 0 <= self.sigma <= MOST_SIGMA:
            raise ValueError(f"sigma must be in [0, {MOST_SIGMA:g}]; got {self.sigma}.")

    def mean_s(self, configuration: Configuration, kind: str) -> float:
        return self.median_s * exp(self.sigma**2 / 2)

    @property
    def spread(self) -> Spread:
        return self._factors

    def _factors(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return np.exp(self.sigma * rng.standard_normal(count) - self.sigma**2 / 2)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measured point: this configuration takes so long. Without `kind` it holds on every kind."""

    seconds: float
    batch: int = 1
    vcpus: float = 1.0
    vgpus: float = 0.0
    kind: str | None = None

    def __post_init__(self) -> None:
        _check_seconds("seconds", self.seconds)
        self.configuration()

    def configuration(self) -> Configuration:
        return Configuration(batch=self.batch, vcpus=self.vcpus, vgpus=self.vgpus)


class Table(_Law, frozen=True, dict=True):
    """Measured points, looked up exactly; a row that names a kind wins over one that does not."""

    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("a table needs at least one row.")
        keys = [(row.kind, row.configuration()) for row in self.rows]
        if len(set(keys)) < len(keys):
            raise ValueError("two rows of the table name the same configuration.")

    @cached_property
    def _seconds(self) -> Mapping[tuple[str | None, Configuration], float]:
        return {(row.kind, row.configuration()): row.seconds for row in self.rows}

    def mean_s(self, configuration: Configuration, kind: str) -> float:
        key = Configuration(batch=configuration.batch, vcpus=configuration.vcpus, vgpus=configuration.vgpus)
        return self._seconds.get((kind, key), self._seconds.get((None, key), inf))

    def configurations(self) -> tuple[Configuration, ...]:
        return tuple(dict.fromkeys(row.configuration() for row in self.rows))


class ScalingLaw(_Law, frozen=True, kw_only=True):
    """t1 * (a + (1 - a) * batch^beta * vcpus^-gamma * vgpus^-delta): part fixed, part scaling.

    `t1_s` is the time of one invocation on one vCPU and (where used) one vGPU. vCPUs beyond `threads` change nothing:
    code that runs on one thread gains up to one vCPU, and no more.
    """

    t1_s: float
    fixed: float = 0.1  # a
    beta: float = 0.5
    gamma: float = 0.1
    delta: float = 0.5
    threads: float = inf

    def __post_init__(self) -> None:
        _check_seconds("t1_s", self.t1_s)
        if not self.threads >= 1:
            raise ValueError(f"threads must be at least 1; got {self.threads}.")
        if not 0 <= self.fixed <= 1:
            raise ValueError(f"fixed must be in [0, 1]; got {self.fixed}.")
        for name in ("beta", "gamma", "delta"):
            value = getattr(self, name)
            if not 0 <= value <= 2:
                raise ValueError(f"{name} must be in [0, 2]; got {value}.")

    def mean_s(self, configuration: Configuration, kind: str) -> float:
        scale = pow(configuration.batch, self.beta)
        if configuration.vcpus:
            scale *= pow(min(configuration.vcpus, self.threads), -self.gamma)
        if configuration.vgpus:
            scale *= pow(configuration.vgpus, -self.delta)
        return self.t1_s * (self.fixed + (1 - self.fixed) * scale)


class Sum(_Law, frozen=True):
    """One after the other, in the same configuration."""

    parts: "tuple[Law, ...]"

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a sum needs at least one part.")
        if any(part.spread is not None for part in self.parts):
            raise ValueError("a law that spreads its runs cannot be part of a sum, which is distributed otherwise.")

    def mean_s(self, configuration: Configuration, kind: str) -> float:
        return sum(part.mean_s(configuration, kind) for part in self.parts)

    def configurations(self) -> tuple[Configuration, ...]:
        first, *others = (part.configurations() for part in self.parts)
        return tuple(configuration for configuration in first if all(configuration in other for other in others))


Law = Constant | Exponential | LogNormal | Table | ScalingLaw | Sum


def space(
    batch: tuple[int, ...] = (1,), vcpus: tuple[float, ...] = (1.0,), vgpus: tuple[float, ...] = (0.0,)
) -> tuple[Configuration, ...]:
    """Every combination of these, in order."""
    return tuple(_combinations(batch, vcpus, vgpus))


def _combinations(
    batch: tuple[int, ...], vcpus: tuple[float, ...], vgpus: tuple[float, ...]
) -> Iterator[Configuration]:
    for b, c, g in product(batch, vcpus, vgpus):
        yield Configuration(batch=b, vcpus=c, vgpus=g)


def _exponential(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.standard_exponential(count)


def _check_seconds(name: str, value: float) -> None:
    if not 0 <= value < inf:
        raise ValueError(f"{name} must be finite and not negative; got {value}.")
