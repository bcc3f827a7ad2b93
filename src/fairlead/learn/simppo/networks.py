"""Many small actor-critic networks at once: each is a row of one matrix.

All that an agent has learnt is one row, so that adding, removing, choosing and clipping agents are operations on rows,
and Adam is a handful of operations on the whole. The layers are views of it, [agents, inputs, outputs], and one batched
product (`torch.baddbmm`) passes through all agents. Gradients are written out instead of recorded: for networks of this
size, recording takes longer than the arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.learn.simppo.settings import Activation, Initial

ACTOR, CRITIC = "actor", "critic"
NEVER = -1e8  # logit of an action that is not allowed: finite, and its probability is exactly 0


class Part(NamedTuple):
    """Where a weight matrix or a bias lies in a row. `shape` is (inputs, outputs) or (outputs,)."""

    name: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Shape:
    """The sizes of an agent's two networks, and where their parts lie in its row."""

    inputs: int
    hidden: tuple[int, ...]
    actions: int

    @property
    def layers(self) -> int:
        """Of each network."""
        return len(self.hidden) + 1

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """In the order of the row."""
        found: list[Part] = []
        start = 0
        for network, outputs in ((ACTOR, self.actions), (CRITIC, 1)):
            sizes = (self.inputs, *self.hidden, outputs)
            for i in range(self.layers):
                for name, shape in (("weight", sizes[i : i + 2]), ("bias", sizes[i + 1 : i + 2])):
                    end = start + int(np.prod(shape))
                    found.append(Part(f"{network}.{i}.{name}", shape, start, end))
                    start = end
        return tuple(found)

    @property
    def width(self) -> int:
        """Length of a row."""
        return self.parts[-1].end

    def first(self, rng: np.random.Generator, initial: Initial) -> NDArray[np.float32]:
        """A row of weights that has learnt nothing."""
        row = np.zeros(self.width, np.float32)
        for part in self.parts:
            network, layer, kind = part.name.split(".")
            inputs = (self.inputs, *self.hidden)[int(layer)]
            if initial == "uniform":
                row[part.start : part.end] = rng.uniform(-1, 1, part.end - part.start) / np.sqrt(inputs)
            elif kind == "weight":
                is_last = int(layer) == self.layers - 1
                gain = np.sqrt(2) if not is_last else 0.01 if network == ACTOR else 1.0
                row[part.start : part.end] = (gain * _orthogonal(rng, *part.shape)).ravel()
        return row


def _orthogonal(rng: np.random.Generator, rows: int, columns: int) -> NDArray[np.float64]:
    """A random matrix whose rows, or columns if there are fewer, are orthogonal and of length 1."""
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))  # otherwise not uniform over all such matrices
    return q if rows >= columns else q.T


class Layer(NamedTuple):
    """A layer of all agents: weight [A, inputs, outputs], bias [A, 1, outputs]."""

    weight: Tensor
    bias: Tensor


def layers_of(shape: Shape, rows: Tensor, network: str) -> list[Layer]:
    """The layers of the actors or the critics, as views of the rows."""
    views = [
        rows[:, part.start : part.end].view(len(rows), -1, part.shape[-1])
        for part in shape.parts
        if part.name.startswith(network)
    ]
    return [Layer(*pair) for pair in zip(views[::2], views[1::2], strict=True)]


def forward(layers: list[Layer], x: Tensor, activation: Activation) -> list[Tensor]:
    """What enters each layer, [A, batch, width], and at the end what leaves the last one."""
    seen = [x]
    for i, layer in enumerate(layers):
        x = torch.baddbmm(layer.bias, x, layer.weight)
        if i < len(layers) - 1:
            x = x.relu_() if activation == "relu" else x.tanh_()
        seen.append(x)
    return seen


def backward(layers: list[Layer], seen: list[Tensor], slope: Tensor, activation: Activation) -> list[Tensor]:
    """Gradient of each part, [A, size], in the order of the row. `slope` is that of the loss by the outputs."""
    found: list[Tensor] = []
    for i in range(len(layers) - 1, -1, -1):
        weight = torch.bmm(seen[i].transpose(1, 2), slope)
        found += [slope.sum(dim=1), weight.flatten(1)]
        if i:
            slope = torch.bmm(slope, layers[i].weight.transpose(1, 2))
            slope *= (seen[i] > 0) if activation == "relu" else 1 - seen[i] * seen[i]
    return found[::-1]
