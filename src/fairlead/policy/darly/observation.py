"""What an agent of Darly sees: seven counters of each node, and how things stand.

For four nodes and three groups these are 35 numbers: 4 x 7 counters, the node of each group, replicas of the detector
and of the models, the objective, and the class of the input.

**As published**, the authors' code lays the counters of node n at index n and not 7 n, so that those of different nodes
are added into each other: ten distinct values arrive, and 18 zeros. All else is passed on as it is, also an objective
of 35 within a box that ends at 20. Otherwise each counter has its own place, and everything is on a scale near 1.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairlead.policy.darly.actions import MAX_REPLICAS

Floats = NDArray[np.float32]

COUNTERS = 7
QOS_SCALE_S = 35.0
"""The looser of the two published objectives: it is seen as 1, the stricter (26 s) as 0.74."""
INPUT_CLASSES = 4
"""Inputs of 7, 16, 32 or 65 frames are of class 1 to 4. Only 16 frames were trained with."""
_SCALES = np.array([2.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0])  # instructions per cycle reach 2, and so do misses
_HIGHEST = 4.0  # a probe that was held up for long says no more than that


def observation_size(nodes: int, groups: int) -> int:
    """How many numbers an agent sees."""
    return COUNTERS * nodes + groups + 4


def observe(
    counters: ArrayLike,
    positions: Sequence[int],
    detector_replicas: int,
    models_replicas: int,
    qos_s: float,
    input_class: int,
    *,
    is_as_published: bool = False,
    qos_scale_s: float = QOS_SCALE_S,
    max_replicas: int = MAX_REPLICAS,
) -> Floats:
    """The numbers for one decision.

    Args:
        counters: A row for each node, in the order of `fairlead.monitor.COUNTERS`.
        positions: The node of each group, counted from 1.
        detector_replicas: Of the last group but one.
        models_replicas: Of the last group.
        qos_s: The objective.
        input_class: From 1.
        is_as_published: See the module.
        qos_scale_s: The objective that is seen as 1.
        max_replicas: The number of replicas that is seen as 1.
    """
    rows = np.asarray(counters, float)
    if rows.ndim != 2 or rows.shape[1] != COUNTERS:
        raise ValueError(f"counters must be {COUNTERS} for each node; got {rows.shape}.")
    nodes = len(rows)
    if any(not 1 <= position <= nodes for position in positions):
        raise ValueError(f"positions must be from 1 to {nodes}; got {tuple(positions)}.")
    rows = np.nan_to_num(rows, nan=0.0, posinf=_HIGHEST, neginf=0.0)
    seen = np.zeros(observation_size(nodes, len(positions)))
    rest = np.array([*positions, detector_replicas, models_replicas, qos_s, input_class], float)
    if is_as_published:
        for number, row in enumerate(rows):
            seen[number : number + COUNTERS] += row
    else:
        seen[: rows.size] = np.clip(rows / _SCALES, 0.0, _HIGHEST).ravel()
        many = len(positions)
        rest[:many] /= nodes
        rest[many:] /= [max_replicas, max_replicas, qos_scale_s, INPUT_CLASSES]
    seen[rows.size :] = rest
    return seen.astype(np.float32)
