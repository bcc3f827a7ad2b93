"""What scales a function while its agent does not: a rule that looks at nothing but the function itself.

The square-root rule of staffing (R + sqrt(R) servers for an offered load of R), made careful: it lets go of one replica
per control period at most, and of none while anything waits or is late.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.simppo.rungs import Rungs, Size


@dataclass(frozen=True, kw_only=True)
class Need:
    """What the rule knows of one function: the last control period, and the time of a run at its size."""

    rate_rps: float
    time_s: float  # believed mean of a run on the present rung
    slo_s: float
    p99_s: float
    oldest_s: float  # how long what has waited longest has waited
    is_starved: bool  # it has not one instance: none found room


def staffed(own: Rungs, size: Size, need: Need) -> Size:
    """The size that the rule wants.

    * R + sqrt(R) replicas where R are busy on average, in the bounds of the function.
    * Fewer only one at a time, and not while anything waits or the 99th percentile is over the SLO.
    * One more than there are while a queue stands longer than the SLO: the load is then not what it seems.
    * One rung up while a run takes longer than the SLO by itself; one down, and no more memory than needed, while not
      one replica finds room.
    """
    load = need.rate_rps * need.time_s
    replicas = ceil(load + sqrt(load))
    is_late = need.p99_s > need.slo_s
    least = size.replicas - 1 if need.oldest_s <= 0 and not is_late else size.replicas
    if need.oldest_s > need.slo_s:
        least = size.replicas + 1
    rung, memory_gb = size.rung, size.memory_gb
    if need.is_starved:
        rung, memory_gb = max(rung - 1, 0), own.least_gb
    elif need.time_s > need.slo_s:
        rung = min(rung + 1, len(own.vcpus) - 1)
    return Size(replicas=min(max(replicas, least, own.least), own.most), rung=rung, memory_gb=memory_gb)


def relief(
    rungs: Sequence[Rungs], sizes: Sequence[Size], vcpus: NDArray[np.float64], is_starved: NDArray[np.bool_]
) -> dict[int, Size]:
    """Who has to give so that nobody is left without: one function for each that starves, those with the most vCPUs.

    It gives a replica, or if it has no more than it must have, a rung of each.
    """
    found: dict[int, Size] = {}
    for i in np.argsort(-vcpus, kind="stable").tolist():
        if len(found) == int(is_starved.sum()):
            break
        if not is_starved[i] and sizes[i].replicas > rungs[i].least:
            found[i] = replace(sizes[i], replicas=sizes[i].replicas - 1)
        elif not is_starved[i] and sizes[i].rung > 0:
            found[i] = replace(sizes[i], rung=sizes[i].rung - 1)
    return found
