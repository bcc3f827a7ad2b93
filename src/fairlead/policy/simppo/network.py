"""The agents' networks as plain arrays: all of them in one call, with NumPy alone.

Layer i has `weight` (agents, inputs, outputs) and `bias` (agents, outputs); one agent in the arrays serves all, if the
weights are shared.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Activation = Literal["relu", "tanh"]
Array = NDArray[np.float32]


class Layer(NamedTuple):
    """One layer of every agent's network."""

    weight: Array
    bias: Array


def layers_of(arrays: Mapping[str, Array], network: str) -> list[Layer]:
    """The layers of a network, `actor` or `critic`, from the arrays of a checkpoint."""
    layers: list[Layer] = []
    while f"{network}.{len(layers)}.weight" in arrays:
        name = f"{network}.{len(layers)}"
        layers.append(Layer(arrays[f"{name}.weight"], arrays[f"{name}.bias"]))
    return layers


def forward(layers: Sequence[Layer], seen: Array, activation: Activation = "relu") -> Array:
    """What the networks give for what each agent sees, a row each."""
    is_shared = len(layers[0].weight) == 1
    values = seen if is_shared else seen[:, None, :]
    for number, (weight, bias) in enumerate(layers):
        values = values @ weight[0] + bias[0] if is_shared else np.matmul(values, weight) + bias[:, None, :]
        if number < len(layers) - 1:
            values = np.tanh(values) if activation == "tanh" else np.maximum(values, 0)
    result: Array = values if is_shared else values[:, 0, :]
    return result


def probabilities(logits: Array, allowed: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
    """The chance of each action; what is not allowed has none."""
    scores = logits.astype(float)
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    chances: NDArray[np.float64] = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return chances
