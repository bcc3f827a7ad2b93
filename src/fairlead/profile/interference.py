"""Interference: how much slower a run goes because of what else its node and its device do.

Each gives a factor, at least 1, by which work takes longer; a run feels the product of those that apply to it.
"""

from collections.abc import Sequence


def slowdown(sensitivity: float, others_load: float, pressure: float) -> float:
    """What the rest of the node costs a run.

    Linear in the load around it: `others_load` is the share of the node's vCPUs (weighted by the pressure each
    function exerts) used by everything but the run itself; `pressure` is load from outside Fairlead, as a share.
    """
    return 1.0 + sensitivity * (max(0.0, others_load) + pressure)


def under_pressure(curve: Sequence[tuple[float, float]], pressure: float) -> float:
    """What load from outside costs a run whose sensitivity to it was measured, point by point.

    Straight lines between the points (pressure, factor), which rise in pressure, from (0, 1); the last line goes on.
    """
    before, after = (0.0, 1.0), (1.0, 1.0)
    for i, point in enumerate(curve):
        before, after = (before if i == 0 else curve[i - 1]), point
        if pressure <= point[0]:
            break
    if after[0] == before[0]:
        return after[1]
    slope = (after[1] - before[1]) / (after[0] - before[0])
    return max(1.0, before[1] + slope * (pressure - before[0]))


def contention(running_share: float, pressure: float) -> float:
    """What sharing the vCPUs of an overcommitted node costs every run there.

    `running_share` is the vCPUs of all runs at work over those of the machine, the run itself included; `pressure` as
    above. Nothing while there is enough for all. Beyond that the vCPUs are divided in proportion to what each holds,
    as by CPU shares: of k vCPUs a run with s of all S gets k x s / S, so that it goes at 1 / (S / k) of its pace.
    """
    return max(1.0, running_share + pressure)


def device_slowdown(gpu_sensitivity: float, others_share: float) -> float:
    """What the others on the same device cost a run where MPS lets them run side by side.

    Linear in `others_share`, the part of the device's vGPUs on which others run: cache, memory bandwidth and power
    are not divided with the vGPUs.
    """
    return 1.0 + gpu_sensitivity * others_share


def turn_slowdown(runs: int, slice_overhead: float) -> float:
    """What it costs each of so many runs to take turns on the whole of a device; alone, a run pays nothing."""
    return runs * (1.0 + slice_overhead) if runs > 1 else 1.0
