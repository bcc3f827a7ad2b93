"""What agents saw, did and got while they serve, for those that are retrained. Bounded, and gaps are allowed."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.simppo.observation import Floats, Observations
from fairlead.policy.simppo.reward import Actions

Flags = NDArray[np.bool_]


class Transitions:
    """Steps of all agents. A step is begun in one control period, and ended by the reward in the next.

    Args:
        steps: How many there is room for; at least 1.
        agents: How many there are.
        inputs: Length of an observation.
        actions: How many there are to choose from.
    """

    def __init__(self, steps: int, agents: int, inputs: int, actions: int) -> None:
        self._arrays: dict[str, NDArray[np.generic]] = {
            "observations": np.zeros((steps, agents, inputs), np.float32),
            "actions": np.zeros((steps, agents), np.int64),
            "log_probs": np.zeros((steps, agents), np.float32),
            "values": np.zeros((steps, agents), np.float32),
            "rewards": np.zeros((steps, agents), np.float32),
            "next_values": np.zeros((steps, agents), np.float32),
            "is_present": np.zeros((steps, agents), np.bool_),
            "masks": np.zeros((steps, agents, actions), np.bool_),
        }
        self._steps, self._length, self._is_begun = steps, 0, False

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another step."""
        return self._length == self._steps

    def begin(
        self,
        seen: Observations,
        allowed: Flags,
        answers: Actions,
        log_probs: Observations,
        values: Observations,
        counts: Flags,
    ) -> None:
        """What each agent sees and does now; `counts` says of whom it is kept."""
        rows: dict[str, NDArray[np.generic]] = {
            "observations": seen,
            "actions": answers,
            "log_probs": log_probs,
            "values": values,
            "masks": allowed,
            "is_present": counts,
        }
        for name, row in rows.items():
            self._arrays[name][self._length] = row
        self._is_begun = True

    def end(self, rewards: Floats, next_values: Observations, is_known: Flags) -> None:
        """What came of the step that was begun last. It is lost for those of whom that is not known.

        What follows is worth what the critic says, also where the next step is lost and the episode thus cut.
        """
        if not self._is_begun:
            return
        at = self._length
        self._arrays["is_present"][at] &= is_known
        self._arrays["rewards"][at] = np.where(is_known, rewards, 0.0)
        self._arrays["next_values"][at] = np.where(is_known, next_values, 0.0)
        self._length, self._is_begun = at + 1, False

    def clear(self) -> None:
        """Forget all steps."""
        self._length, self._is_begun = 0, False

    def arrays(self) -> Mapping[str, NDArray[np.generic]]:
        """The steps so far, by the names of the learner's rollout; [steps, agents, ...]."""
        return {name: array[: self._length] for name, array in self._arrays.items()}
