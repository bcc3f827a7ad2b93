"""What arrives, and when: open-loop processes that give instants, and closed loops that answer to answers.

`streams` has what is made of one process: a share of it for each workflow, or a window in time.
"""

from collections.abc import Callable
from math import inf
from typing import Literal, Protocol, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
Spread = Literal["uniform", "even", "start"]
Think = Literal["exponential", "constant"]

MINUTE_S = 60.0
_BLOCK = 4096  # gaps drawn at once; fixed, so that a longer run begins with the same arrivals as a shorter one


class Arrivals(Protocol):
    """An open-loop process of one workflow."""

    @property
    def workflow(self) -> str:
        """Name of the workflow that is called."""
        ...

    def times(self, rng: np.random.Generator, duration_s: float) -> Times:
        """Sorted instants in [0, duration_s)."""
        ...

    def expected(self, duration_s: float) -> float:
        """How many there will be, about."""
        ...


class Poisson(msgspec.Struct, frozen=True):
    """Independent arrivals at a constant mean rate."""

    workflow: str
    rate_rps: float

    def __post_init__(self) -> None:
        _check_positive(rate_rps=self.rate_rps)

    def times(self, rng: np.random.Generator, duration_s: float) -> Times:
        """Sorted instants; the gaps are exponential."""
        return _renewal(lambda: rng.exponential(1 / self.rate_rps, _BLOCK), duration_s)

    def expected(self, duration_s: float) -> float:
        """Rate times duration."""
        return self.rate_rps * duration_s

    def scaled(self, factor: float) -> "Poisson":
        """The rate multiplied."""
        return Poisson(self.workflow, self.rate_rps * factor)


class UniformInterval(msgspec.Struct, frozen=True):
    """Gaps drawn uniformly between two bounds; the first arrival comes after the first gap."""

    workflow: str
    low_s: float
    high_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.low_s < inf:
            raise ValueError(f"low_s must be finite and not negative; got {self.low_s}.")
        _check_positive(high_s=self.high_s)
        if self.low_s > self.high_s:
            raise ValueError(f"low_s must be at most high_s; got {self.low_s} and {self.high_s}.")

    def times(self, rng: np.random.Generator, duration_s: float) -> Times:
        """Sorted instants."""
        return _renewal(lambda: rng.uniform(self.low_s, self.high_s, _BLOCK), duration_s)

    def expected(self, duration_s: float) -> float:
        """Duration over the mean gap."""
        return 2 * duration_s / (self.low_s + self.high_s)

    def scaled(self, factor: float) -> "UniformInterval":
        """Both bounds divided."""
        return UniformInterval(self.workflow, self.low_s / factor, self.high_s / factor)


class Deterministic(msgspec.Struct, frozen=True):
    """One arrival at `offset_s`, then one every interval."""

    workflow: str
    interval_s: float
    offset_s: float = 0.0

    def __post_init__(self) -> None:
        _check_positive(interval_s=self.interval_s)
        if not 0 <= self.offset_s < inf:
            raise ValueError(f"offset_s must be finite and not negative; got {self.offset_s}.")

    def times(self, rng: np.random.Generator, duration_s: float) -> Times:
        """Sorted instants; draws nothing."""
        count = int(max(0.0, np.ceil(self.expected(duration_s)))) + 1  # one more: rounding may lose the last
        return within(self.offset_s + np.arange(count, dtype=np.float64) * self.interval_s, duration_s)

    def expected(self, duration_s: float) -> float:
        """Time after the offset, over the interval."""
        return max(0.0, duration_s - self.offset_s) / self.interval_s

    def scaled(self, factor: float) -> "Deterministic":
        """The interval divided; the offset stays."""
        return Deterministic(self.workflow, self.interval_s / factor, self.offset_s)


class Burst(msgspec.Struct, frozen=True):
    """A burst at the start: `share` of the requests evenly in the first `within` of the run, the rest evenly after.

    With `step_s`, time goes in steps: each request arrives at the beginning of its step, several of them at once.
    """

    workflow: str
    count: int
    share: float = 0.5
    within: float = 0.1
    step_s: float = 0.0

    def __post_init__(self) -> None:
        _check_count(count=self.count)
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be in [0, 1]; got {self.share}.")
        if not 0 < self.within < 1:
            raise ValueError(f"within must be in (0, 1); got {self.within}.")
        if not 0 <= self.step_s < inf:
            raise ValueError(f"step_s must be finite and not negative; got {self.step_s}.")

    def times(self, rng: np.random.Generator, duration_s: float) -> Times:
        """Sorted instants; draws nothing. Each part begins at its own first instant."""
        first = round(self.count * self.share)
        end_s = duration_s * self.within
        burst = np.linspace(0.0, end_s, first, endpoint=False)
        rest = np.linspace(end_s, duration_s, self.count - first, endpoint=False)
        at = np.concatenate([burst, rest])
        if self.step_s:
            at = np.floor(at / self.step_s + 1e-9) * self.step_s  # what is early by rounding only is in its step
        return within(at, duration_s)

    def expected(self, duration_s: float) -> float:
        """The count."""
        return self.count

    def scaled(self, factor: float) -> "Burst":
        """The count multiplied, and rounded."""
        return Burst(self.workflow, max(1, round(self.count * factor)), self.share, self.within, self.step_s)


class Pillar(msgspec.Struct, frozen=True):
    """Groups of simultaneous arrivals at evenly spaced instants, from 0 on; the first groups take what is left over."""

    workflow: str
    count: int
    pillars: int

    def __post_init__(self) -> None:
        _check_count(count=self.count, pillars=self.pillars)
        if self.pillars > self.count:
            raise ValueError(f"pillars must be at most count; got {self.pillars} of {self.count}.")

    def times(self, rng: np.random.Generator, duration_s: float) -> Times:
        """Sorted instants; draws nothing."""
        at = np.linspace(0.0, duration_s, self.pillars, endpoint=False)
        size, left = divmod(self.count, self.pillars)
        sizes = np.full(self.pillars, size)
        sizes[:left] += 1
        return within(np.repeat(at, sizes), duration_s)

    def expected(self, duration_s: float) -> float:
        """The count."""
        return self.count

    def scaled(self, factor: float) -> "Pillar":
        """The count multiplied, and rounded; at least one per pillar."""
        return Pillar(self.workflow, max(self.pillars, round(self.count * factor)), self.pillars)


class Listed(msgspec.Struct, frozen=True):
    """Exactly these instants; those past the end of the run are left out."""

    workflow: str
    at: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.at:
            raise ValueError("at must list at least one instant.")
        for instant in self.at:
            if not 0 <= instant < inf:
                raise ValueError(f"at must hold finite instants that are not negative; got {instant}.")

    def times(self, rng: np.random.Generator, duration_s: float) -> Times:
        """Sorted instants; draws nothing."""
        return within(np.sort(np.asarray(self.at, dtype=np.float64)), duration_s)

    def expected(self, duration_s: float) -> float:
        """How many lie within the duration."""
        return sum(instant < duration_s for instant in self.at)

    def scaled(self, factor: float) -> "Listed":
        """Itself: instants that are listed have no rate. Any other factor than 1 is a mistake."""
        if factor != 1:
            raise ValueError(f"listed instants have no rate to multiply by {factor:g}.")
        return self


class MinuteCounts(msgspec.Struct, frozen=True):
    """A trace: how many arrive in each minute, spread inside it at random, evenly, or all at its start."""

    workflow: str
    counts: tuple[int, ...]
    spread: Spread = "uniform"

    def __post_init__(self) -> None:
        if not self.counts:
            raise ValueError("counts must list at least one minute.")
        if min(self.counts) < 0:
            raise ValueError(f"counts must not be negative; got {min(self.counts)}.")
        if self.spread not in get_args(Spread):
            raise ValueError(f"spread must be 'uniform', 'even' or 'start'; got {self.spread!r}.")

    def times(self, rng: np.random.Generator, duration_s: float) -> Times:
        """Sorted instants. A last minute that the run cuts off loses what would come after the end."""
        minutes = min(len(self.counts), int(np.ceil(duration_s / MINUTE_S)))
        counts = np.asarray(self.counts[:minutes], dtype=np.int64)
        at = np.repeat(np.arange(minutes) * MINUTE_S, counts)
        if self.spread == "uniform":
            at = np.sort(at + MINUTE_S * rng.random(at.size))
        elif self.spread == "even":
            before = np.cumsum(counts) - counts  # arrivals before each minute
            at = at + MINUTE_S * (np.arange(at.size) - np.repeat(before, counts)) / np.repeat(counts, counts)
        return within(at, duration_s)

    def expected(self, duration_s: float) -> float:
        """The whole minutes' counts, and of the minute that is cut off its share."""
        whole, part = divmod(duration_s / MINUTE_S, 1)
        cut = self.counts[int(whole)] * part if whole < len(self.counts) else 0.0
        return sum(self.counts[: int(whole)]) + cut

    def scaled(self, factor: float) -> "MinuteCounts":
        """The counts multiplied, rounded so that their running sum never drifts."""
        return MinuteCounts(self.workflow, scale_counts(self.counts, factor), self.spread)


class AzureLike(msgspec.Struct, frozen=True):
    """Poisson arrivals whose rate wanders as those of busy cloud functions do: a new level every period.

    Levels are log-normal with mean `rate_rps`: `cv` is their standard deviation over their mean, `correlation` that of
    the logarithms of neighbours. The defaults are the upper quartiles over the 27 busiest of 500 functions of the Azure
    trace of 2019, eight hours by the minute; a shorter period brings the same ups and downs to shorter runs.
    """

    workflow: str
    rate_rps: float
    cv: float = 0.3
    correlation: float = 0.35
    period_s: float = MINUTE_S

    def __post_init__(self) -> None:
        _check_positive(rate_rps=self.rate_rps, period_s=self.period_s)
        if not 0 <= self.cv <= 10:
            raise ValueError(f"cv must be in [0, 10]; got {self.cv}.")
        if not 0 <= self.correlation < 1:
            raise ValueError(f"correlation must be in [0, 1); got {self.correlation}.")

    def times(self, rng: np.random.Generator, duration_s: float) -> Times:
        """Sorted instants. Levels and instants have generators of their own: a longer run begins like a shorter one."""
        levels, instants = rng.spawn(2)
        parts: list[Times] = []
        for period, level in enumerate(self.levels(levels, int(np.ceil(duration_s / self.period_s)))):
            offsets = np.sort(instants.random(int(instants.poisson(self.rate_rps * self.period_s * level))))
            parts.append((period + offsets) * self.period_s)
        return within(np.concatenate(parts), duration_s) if parts else np.empty(0)

    def levels(self, rng: np.random.Generator, periods: int) -> Times:
        """The rate in each of so many periods, over its mean."""
        sigma = float(np.sqrt(np.log1p(self.cv**2)))
        levels = np.empty(periods)
        deviation = float(rng.normal())
        for period in range(periods):
            levels[period] = np.exp(sigma * deviation - sigma**2 / 2)
            deviation = self.correlation * deviation + float(rng.normal()) * float(np.sqrt(1 - self.correlation**2))
        return levels

    def expected(self, duration_s: float) -> float:
        """Mean rate times duration."""
        return self.rate_rps * duration_s

    def scaled(self, factor: float) -> "AzureLike":
        """The mean rate multiplied."""
        return msgspec.structs.replace(self, rate_rps=self.rate_rps * factor)


class ClosedLoop(msgspec.Struct, frozen=True):
    """So many users; each thinks, calls, waits for the answer, and thinks again. The driver runs it.

    They begin to think at `from_s`, and call no more from `until_s` on, or from the end of the run if that is earlier.
    Two calls of one user are at least a millisecond apart, also where both thinking and the answer take no time.
    """

    workflow: str
    users: int
    think_s: float
    think: Think = "exponential"
    from_s: float = 0.0
    until_s: float = inf

    def __post_init__(self) -> None:
        _check_count(users=self.users)
        if not 0 <= self.think_s < inf:
            raise ValueError(f"think_s must be finite and not negative; got {self.think_s}.")
        if self.think not in get_args(Think):
            raise ValueError(f"think must be 'exponential' or 'constant'; got {self.think!r}.")
        check_window(self.from_s, self.until_s)


def scale_counts(counts: tuple[int, ...], factor: float) -> tuple[int, ...]:
    """Counts times a factor as whole numbers, whose running sum is the exact one rounded."""
    if factor == 1:
        return counts
    if sum(counts) * factor > 2**53:
        raise ValueError(f"scale must leave a number that can be counted; got {factor:g}.")
    running = np.rint(np.cumsum(np.asarray(counts, dtype=np.float64)) * factor).astype(np.int64)
    return tuple(np.diff(running, prepend=0).tolist())


def _renewal(draw: Callable[[], Times], duration_s: float) -> Times:
    """Running sums of the gaps that `draw` gives in blocks, as far as the duration."""
    blocks: list[Times] = []
    last = 0.0
    while last < duration_s:
        block = last + np.cumsum(draw())
        blocks.append(block)
        last = float(block[-1])
    return within(np.concatenate(blocks), duration_s) if blocks else np.empty(0)


def within(times: Times, duration_s: float) -> Times:
    """The sorted instants that lie before `duration_s`."""
    return times[: int(np.searchsorted(times, duration_s, side="left"))]


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < inf:
            raise ValueError(f"{name} must be positive and finite; got {value}.")


def check_window(from_s: float, until_s: float) -> None:
    """Raise `ValueError` unless this is a window in time."""
    if not 0 <= from_s < inf:
        raise ValueError(f"from_s must be finite and not negative; got {from_s}.")
    if not until_s > from_s:
        raise ValueError(f"until_s must be above from_s; got {until_s} and {from_s}.")


def _check_count(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}.")
