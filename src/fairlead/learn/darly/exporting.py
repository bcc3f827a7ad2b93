"""Trained networks as the plain arrays that they are served as."""

import numpy as np
from torch import nn

from fairlead.policy.darly.network import Array


def layers_of(net: nn.Sequential) -> tuple[tuple[Array, Array], ...]:
    """The linear layers of a network as (weight, bias) pairs, first to last."""
    return tuple(
        (
            np.ascontiguousarray(module.weight.detach().numpy().T.astype(np.float32)),
            module.bias.detach().numpy().astype(np.float32),
        )
        for module in net
        if isinstance(module, nn.Linear)
    )
