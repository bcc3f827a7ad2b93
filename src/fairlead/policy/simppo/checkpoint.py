"""Trained agents as a file: safetensors, with what they were trained for in its header.

Nothing in a file is run, and nothing is taken on trust: names, shapes, numbers and a digest are checked before use.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fairlead.policy.kit.weights import Form, check_finite, fail, read_weights, write_weights
from fairlead.policy.simppo.network import Activation, Array, Layer, layers_of
from fairlead.policy.simppo.observation import Encoding, Others, Own

FORM = Form(
    name="fairlead-simppo",
    version=1,
    otherwise="holds no agents of simppo; train some with: fairlead train simppo",
)


class Trained(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of one agent: whose it is, and the reward per step at which its training ended."""

    function: str
    time_s: float  # mean of a run on one vCPU; a newcomer takes after who is nearest
    slo_s: float
    reward: float
    reward_deviation: float


class Description(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to read the arrays, and how they came about."""

    own: Own
    others: Others
    slots: int
    is_workflow_aware: bool
    actions: int
    activation: Activation
    is_shared: bool
    slo_weight: float
    period_s: float
    most_replicas: int
    preset: str
    scenario: str
    seed: int
    episodes: int
    agents: tuple[Trained, ...]

    @property
    def encoding(self) -> Encoding:
        """What the agents see."""
        return Encoding(own=self.own, others=self.others, slots=self.slots, is_workflow_aware=self.is_workflow_aware)


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Trained agents: their description, and the arrays of their networks."""

    description: Description
    arrays: Mapping[str, Array]

    @property
    def actor(self) -> list[Layer]:
        """The layers that choose."""
        return layers_of(self.arrays, "actor")

    @property
    def critic(self) -> list[Layer]:
        """The layers that judge."""
        return layers_of(self.arrays, "critic")


def write_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write a file, whole or not at all."""
    write_weights(path, FORM, checkpoint.arrays, checkpoint.description)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file. Raises `ConfigError`, which says what is wrong with it."""
    source = str(path)
    arrays, text = read_weights(path, FORM)
    try:
        description = msgspec.json.decode(text, type=Description)
        _ = description.encoding
    except (msgspec.MsgspecError, ValueError) as error:
        fail(source, f"has a description that cannot be read: {error}")
    _check(source, description, arrays)
    return Checkpoint(description=description, arrays=arrays)


def _check(source: str, description: Description, arrays: Mapping[str, Any]) -> None:
    agents = 1 if description.is_shared else len(description.agents)
    if not description.agents:
        fail(source, "describes no agent.")
    for name, array in arrays.items():
        if name.endswith(".weight") and name.removesuffix("weight") + "bias" not in arrays:
            fail(source, f"has {name}, but not the bias.")
        if name.startswith("returns.") and array.shape != (agents,):
            fail(source, f"does not fit its description: {name} is {array.shape}.")
    for network, outputs in (("actor", description.actions), ("critic", 1)):
        layers = layers_of(arrays, network)
        width = description.encoding.size
        if not layers:
            fail(source, f"has no {network}.")
        for number, (weight, bias) in enumerate(layers):
            if weight.dtype != np.float32 or weight.ndim != 3 or weight.shape[:2] != (agents, width):
                fail(
                    source,
                    f"does not fit its description: {network}.{number}.weight is {weight.dtype} {weight.shape}, "
                    f"and {agents} agents that see {width} numbers need ({agents}, {width}, ...).",
                )
            width = weight.shape[2]
            if bias.shape != (agents, width):
                fail(source, f"does not fit its description: {network}.{number}.bias is {bias.shape}.")
        if width != outputs:
            fail(source, f"does not fit its description: the {network} gives {width} numbers instead of {outputs}.")
    check_finite(source, arrays)
