"""A chunk: some of the arrivals of a run, in order, as arrays. A long run is a stream of chunks in bounded memory."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Chunk:
    """Arrivals that follow each other, merged over all workflows; the next chunk begins where this one ends.

    `times` (float64) are seconds from the run's start and never fall. `workflows` (int32) are places in
    `scenario.workflows`, in its order. `draws` (float64) holds the luck of each arrival, one row after the other: as
    many factors as its workflow has random quantities. For a workflow of one stage that is one number where the law has
    a spread, and none where it has not. A factor multiplies the law's mean: its own mean is 1.
    """

    times: NDArray[np.float64]
    workflows: NDArray[np.int32]
    draws: NDArray[np.float64]

    def __post_init__(self) -> None:
        for name, kind in (("times", np.float64), ("workflows", np.int32), ("draws", np.float64)):
            array = getattr(self, name)
            if array.dtype != kind or array.ndim != 1:
                raise ValueError(
                    f"{name} must be one row of {kind.__name__}; got {array.ndim} dimensions of {array.dtype}."
                )
        if len(self.times) != len(self.workflows):
            raise ValueError(f"times and workflows must be as many; got {len(self.times)} and {len(self.workflows)}.")

    def __len__(self) -> int:
        return len(self.times)
