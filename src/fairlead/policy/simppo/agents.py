"""Who answers for a function: trained networks, found by the function's name or by likeness."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.simppo.checkpoint import Checkpoint, Trained
from fairlead.policy.simppo.network import Layer, forward, probabilities
from fairlead.policy.simppo.observation import Observations
from fairlead.policy.simppo.reward import Actions

NO_ANSWER = -1


class Agents(Protocol):
    """Whoever is asked once per control period what to do: an action per function, or `NO_ANSWER`."""

    def choose(self, seen: Observations, allowed: NDArray[np.bool_]) -> Actions:
        """An action for each function, by what its agent sees and which actions are within the bounds."""
        ...

    def close(self) -> None:
        """Let go of whatever they run on."""
        ...


class Networks:
    """All agents in this process, in one call.

    Args:
        actor: Layers, with one agent per function, or one for all.
        activation: Between the layers.
        rng: Draws actions; without, each agent takes the likeliest one.
    """

    def __init__(self, checkpoint: Checkpoint, numbers: NDArray[np.intp], rng: np.random.Generator | None) -> None:
        layers = checkpoint.actor
        is_shared = checkpoint.description.is_shared
        self._actor = layers if is_shared else [Layer(layer.weight[numbers], layer.bias[numbers]) for layer in layers]
        self._activation = checkpoint.description.activation
        self._rng = rng

    def choose(self, seen: Observations, allowed: NDArray[np.bool_]) -> Actions:
        """The likeliest action, or a drawn one; `NO_ANSWER` where the network gives no number."""
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of that is no answer
            logits = forward(self._actor, seen, self._activation)
        is_sound: NDArray[np.bool_] = np.isfinite(logits.astype(float)).all(axis=1)
        chances = probabilities(np.where(is_sound[:, None], logits, 0.0), allowed)
        if self._rng is None:
            chosen = chances.argmax(axis=1)
        else:
            draws = self._rng.random(len(chances))
            chosen = (np.cumsum(chances, axis=1) < draws[:, None]).sum(axis=1).clip(max=chances.shape[1] - 1)
        return np.where(is_sound, chosen, NO_ANSWER)

    def close(self) -> None:
        """Nothing to let go of."""


def agent_numbers(trained: tuple[Trained, ...], functions: dict[str, float]) -> NDArray[np.intp]:
    """For each function, the number of the agent that serves it: its own, or that of the most alike.

    `functions` has the mean time of a run on one vCPU, by which likeness is judged.
    """
    own = {agent.function: i for i, agent in enumerate(trained)}
    times = np.log(np.maximum(1e-9, [agent.time_s for agent in trained]))
    return np.array(
        [own.get(name, int(np.abs(times - np.log(max(1e-9, time_s))).argmin())) for name, time_s in functions.items()],
        np.intp,  # also of none
    )
