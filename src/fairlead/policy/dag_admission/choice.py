"""Which placement to take: the order in which those that could meet both objectives are tried."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.dag_admission.placements import DagPlan

Selection = Literal["random", "cheapest", "fastest", "balanced"]

Pressure = NDArray[np.float64]  # per kind: seconds of work ahead of all its vCPUs, and of all its vGPUs


def candidates(
    dag: DagPlan,
    latency_s: float,
    cost_usd: float,
    selection: Selection,
    sample: int,
    pressure: Pressure,
    rng: np.random.Generator,
) -> list[int]:
    """At most `sample` (0: all) placements that could meet both objectives, in the order to try them.

    `random` draws them from the front without replacement, as published. `cheapest` and `fastest` take the first of
    the front by cost or latency. `balanced` takes those that leave the least work ahead of the busiest resource; for
    it alone, placements that spare a resource count too.
    """
    if selection == "balanced":
        members = np.flatnonzero((dag.latency_s <= latency_s) & (dag.cost_usd <= cost_usd))
        if len(members) > 1:
            after = (dag.work_s[members] + pressure).max(axis=1)
            members = members[np.argsort(after, kind="stable")]
    else:
        within = dag.front.within(latency_s, cost_usd)
        members = np.arange(within.start, within.stop)
    if selection == "cheapest":
        members = members[::-1]  # the front is sorted by latency, which on a front is by cost, dearest first
    count = len(members) if sample == 0 else min(sample, len(members))
    if selection == "random":
        members = rng.choice(members, size=count, replace=False) if count else members
    chosen: list[int] = members[:count].tolist()
    return chosen
