"""What is made of an open-loop process: a share of it for each of several workflows, or a window in time."""

from math import inf

import msgspec
import numpy as np

from fairlead.workload.arrivals import (
    AzureLike,
    Burst,
    Deterministic,
    Listed,
    MinuteCounts,
    Pillar,
    Poisson,
    Times,
    UniformInterval,
    check_window,
    within,
)


class Share(msgspec.Struct, frozen=True):
    """The part of one stream that calls this workflow: a draw for each arrival says whose part of [0, 1) it falls to.

    All shares of a stream are given the same generator, so that together they are the whole of it.
    """

    workflow: str
    process: "OpenLoop"
    low: float
    high: float
    stream: int

    def times(self, rng: np.random.Generator, duration_s: float) -> Times:
        """Sorted instants."""
        drawn = rng.spawn(1)[0]
        times = self.process.times(rng, duration_s)
        draws = drawn.random(times.size)
        return times[(self.low <= draws) & (draws < self.high)]

    def expected(self, duration_s: float) -> float:
        """Its part of what the stream brings."""
        return self.process.expected(duration_s) * (self.high - self.low)

    def scaled(self, factor: float) -> "Share":
        """The same part of the stream, whose rate is multiplied."""
        return msgspec.structs.replace(self, process=self.process.scaled(factor))


class Window(msgspec.Struct, frozen=True):
    """A process that begins at `from_s` and ends at `until_s`, or with the run if that is earlier.

    Inside, the process behaves as it would in a run that begins at `from_s` and ends at the end of the window: minutes,
    offsets and listed instants count from `from_s`.
    """

    workflow: str
    process: "OpenLoop"
    from_s: float = 0.0
    until_s: float = inf

    def __post_init__(self) -> None:
        check_window(self.from_s, self.until_s)

    def times(self, rng: np.random.Generator, duration_s: float) -> Times:
        """Sorted instants; none if the run ends before the window begins."""
        end_s = min(self.until_s, duration_s)
        if end_s <= self.from_s:
            return np.empty(0)
        return within(self.from_s + self.process.times(rng, end_s - self.from_s), end_s)

    def expected(self, duration_s: float) -> float:
        """What the process brings in that part of the window that lies in the run."""
        length_s = min(self.until_s, duration_s) - self.from_s
        return self.process.expected(length_s) if length_s > 0 else 0.0

    def scaled(self, factor: float) -> "Window":
        """The same window of a process whose rate is multiplied."""
        return msgspec.structs.replace(self, process=self.process.scaled(factor))


OpenLoop = (
    Poisson | UniformInterval | Deterministic | Burst | Pillar | Listed | MinuteCounts | AzureLike | Share | Window
)
