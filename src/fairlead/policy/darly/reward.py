"""What a request is worth to an agent: equation 1 of the paper, 5.1 of the thesis.

The paper gives its form and k2; the other constants are those of the authors' public code. Two things to know: a
request in time is worth the more, the closer it comes to its limit; and whether one is late by a little or by a lot is
nearly the same.
"""

from typing import NamedTuple

REFUSED = -2.0
"""For an action that cannot be carried out: one replica more than the most, or fewer than one."""


class Weights(NamedTuple):
    """k1 to k3 of the equation, Rs, the most replicas, and a weight of the nodes used, which is 1 there."""

    closeness: float = 3.0
    worst: float = 6.0
    late: float = 4.0
    most_replicas: float = 12.0
    spread: float = 1.0


def reward(
    latency_s: float, qos_s: float, *, nodes_used: int, replicas: int, groups: int = 3, weights: Weights = Weights()
) -> float:
    """The reward for one request.

    Args:
        latency_s: From its arrival to its answer.
        qos_s: Within which it should be.
        nodes_used: Distinct nodes on which the groups are (sp).
        replicas: The detector's, and those of each of the models (r).
        groups: The most nodes that can be used (N): 3, not the 4 nodes that there are.
        weights: The constants.
    """
    quotient = latency_s / qos_s
    if quotient <= 1:
        return weights.spread * groups / nodes_used + weights.most_replicas / replicas + quotient * weights.closeness
    return max(-weights.worst, -weights.late - quotient)
