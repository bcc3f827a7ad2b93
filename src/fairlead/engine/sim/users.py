"""The users of a closed loop."""

import numpy as np

from fairlead.workload import ClosedLoop


class Loop:
    """The users of a closed loop: each sends its next request a think time after the answer to the last."""

    def __init__(self, index: int, spec: ClosedLoop, seed: int, duration_s: float) -> None:
        self.workflow = spec.workflow
        self._spec = spec
        self._until_s = min(spec.until_s, duration_s)
        self._rng = np.random.default_rng((seed, 1_000_005, index))

    def first(self) -> list[float]:
        """When each user calls for the first time."""
        return sorted(self._spec.from_s + self.think() for _ in range(self._spec.users))

    def calls_at(self, now: float) -> bool:
        """Whether users still call at this instant."""
        return now < self._until_s

    def think(self) -> float:
        """How long a user thinks this time."""
        if self._spec.think == "constant":
            return self._spec.think_s
        return float(self._rng.exponential(self._spec.think_s))
