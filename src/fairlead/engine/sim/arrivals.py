"""The open-loop arrivals of a run, merged over all processes: the same for every engine."""

import numpy as np
from numpy.typing import NDArray

from fairlead.workload import ClosedLoop, Scenario, Share
from fairlead.workload.arrivals import Times


def open_arrivals(scenario: Scenario, seed: int) -> tuple[Times, NDArray[np.int32]]:
    """Instants, sorted, and the number of each one's workflow; equal times keep the order of declaration."""
    numbers = {name: number for number, name in enumerate(scenario.workflows)}
    parts: list[Times] = [np.empty(0)]
    owners = [0]
    for i, process in enumerate(scenario.arrivals):
        if not isinstance(process, ClosedLoop):
            key = (1_000_006, process.stream) if isinstance(process, Share) else (1_000_004, i)
            rng = np.random.default_rng((seed, *key))
            parts.append(np.asarray(process.times(rng, scenario.duration_s), dtype=float))
            owners.append(numbers[process.workflow])
    times = np.concatenate(parts)
    order = np.argsort(times, kind="stable")
    workflows = np.repeat(np.asarray(owners, dtype=np.int32), [len(part) for part in parts])
    return times[order], workflows[order]
