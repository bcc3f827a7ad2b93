"""What a placement can promise: the latencies and costs that no other placement beats."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Front:
    """Placements of a workflow that no other beats, the fastest and dearest first.

    Attributes:
        latency_s: Critical path of each member, ascending. cost_usd: Sum over the stages of each member, strictly
        descending. choices: For each member (row) and stage (column) the index of the option taken. epsilon: 0 for an
        exact front. Otherwise every possible placement has a member that is at most (1 + epsilon) times as
            slow and at most (1 + epsilon) times as dear.
    """

    latency_s: NDArray[np.float64]
    cost_usd: NDArray[np.float64]
    choices: NDArray[np.int16]
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        for array in (self.latency_s, self.cost_usd, self.choices):
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.latency_s)

    def within(self, latency_s: float, cost_usd: float) -> slice:
        """The members that meet both objectives: an intersection, and one slice; empty if there are none.

        Who is fast enough is a beginning of the front, who is cheap enough an end of it: two binary searches.
        """
        stop = int(np.searchsorted(self.latency_s, latency_s, side="right"))
        start = len(self) - int(np.searchsorted(self.cost_usd[::-1], cost_usd, side="right"))
        return slice(start, max(start, stop))
