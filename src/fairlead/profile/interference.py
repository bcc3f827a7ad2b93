"""Interference: how much slower a run goes because of what else its node does."""


def slowdown(sensitivity: float, others_load: float, pressure: float) -> float:
    """Factor, at least 1, by which work takes longer.

    Linear in the load around it: `others_load` is the share of the node's vCPUs (weighted by the pressure each
    function exerts) used by everything but the run itself; `pressure` is load from outside Fairlead, as a share.
    """
    return 1.0 + sensitivity * (max(0.0, others_load) + pressure)
