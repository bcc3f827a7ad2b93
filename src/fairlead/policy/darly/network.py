"""The Q network as plain arrays. Layer i has `q.i.weight` (inputs, outputs) and `q.i.bias`; ReLU is between layers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


class Layer(NamedTuple):
    """One layer."""

    weight: Array
    bias: Array


def layers_of(arrays: Mapping[str, Array]) -> list[Layer]:
    """The layers in the arrays of a checkpoint, first to last."""
    layers: list[Layer] = []
    while f"q.{len(layers)}.weight" in arrays:
        name = f"q.{len(layers)}"
        layers.append(Layer(arrays[f"{name}.weight"], arrays[f"{name}.bias"]))
    return layers


def arrays_of(layers: Sequence[tuple[Array, Array]]) -> dict[str, Array]:
    """The arrays of a checkpoint from (weight, bias) pairs."""
    arrays: dict[str, Array] = {}
    for number, (weight, bias) in enumerate(layers):
        arrays[f"q.{number}.weight"] = np.ascontiguousarray(weight, np.float32)
        arrays[f"q.{number}.bias"] = np.ascontiguousarray(bias, np.float32)
    return arrays


def forward(layers: Sequence[Layer], seen: Array) -> Array:
    """The value of each action, for one observation or for rows of them."""
    values = seen
    for number, (weight, bias) in enumerate(layers):
        values = values @ weight + bias
        if number < len(layers) - 1:
            values = np.maximum(values, 0)
    return values
