"""What a step was worth: utilisation and SLO preservation, and -1 for what should not be done.

The weights 0.3 and 0.7 and the three rules are those of the code of a successor of SIMPPO; the paper's are not public.
"""

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.simppo.observation import Floats, State

SLO_WEIGHT = 0.7
"""The weight of SLO preservation; the rest is that of CPU utilisation."""

NOTHING, OUT, IN, MORE_VCPUS, LESS_VCPUS, MORE_MEMORY, LESS_MEMORY = range(7)
"""Actions: a replica more or less, a step more or less of vCPUs, or of memory, for each replica."""

Actions = NDArray[np.int64]


def rewards(
    state: State,
    actions: Actions,
    before: Actions,
    is_refused: NDArray[np.bool_],
    *,
    slo_weight: float = SLO_WEIGHT,
    has_penalties: bool = True,
    is_workflow_aware: bool = False,
) -> Floats:
    """The reward of each function's last step, in [-1, 1].

    -1 for an action that could not be done, for taking back the replica of the step before, and for arrivals where no
    replica is wanted. Workflow-aware, the SLO is the whole workflow's, up to the function's place.
    """
    kept = state.on_time if is_workflow_aware else state.slo_preservation
    worth = slo_weight * kept + (1 - slo_weight) * state.cpu_utilisation
    if has_penalties:
        is_reversed = (actions == OUT) & (before == IN) | (actions == IN) & (before == OUT)
        is_without = (state.replicas == 0) & (state.arrival_rate > 0)
        worth = np.where(is_reversed | is_without | is_refused, -1.0, worth)
    return np.where(state.is_present, worth, 0.0)


def steps(actions: Actions) -> tuple[Floats, Floats]:
    """The horizontal and the vertical step that each action is: -1, 0 or 1."""
    horizontal = (actions == OUT).astype(float) - (actions == IN)
    up = (actions == MORE_VCPUS) | (actions == MORE_MEMORY)
    down = (actions == LESS_VCPUS) | (actions == LESS_MEMORY)
    return horizontal, up.astype(float) - down
