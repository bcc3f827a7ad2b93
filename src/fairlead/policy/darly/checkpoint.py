"""A trained agent as a file: safetensors, with what it was trained for in its header."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from fairlead.errors import ConfigError, Fault
from fairlead.policy.darly.actions import Scheduler, action_space
from fairlead.policy.darly.features import NAMES
from fairlead.policy.darly.network import Array, Layer, layers_of
from fairlead.policy.darly.observation import QOS_SCALE_S, observation_size
from fairlead.policy.kit.weights import Form, check_finite, fail, read_weights, write_weights

Trained = Literal["fullmap", "custom", "kubernetes", "oracle", "any"]
"""What an agent was trained as: one of the four schedulers, or `any`, for any workflow on any cluster."""

FORM = Form(name="fairlead-darly", version=1, otherwise="holds no agent of darly; train one with: fairlead train darly")


class Description(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to read the arrays, and how they came about. An agent for any workflow has features, not groups and nodes."""

    scheduler: Trained
    groups: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    observation: int  # numbers that the agent sees
    hidden: tuple[int, ...]
    is_as_published: bool = False
    qos_scale_s: float = QOS_SCALE_S
    max_replicas: int = 4
    seed: int = 0
    steps: int = 0
    scenario: str = ""

    @property
    def actions(self) -> int:
        """How many numbers the network gives: one for each action, or one for the action that is described."""
        if self.scheduler == "any":
            return 1
        return len(action_space(self.scheduler, self.groups, self.nodes))


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A trained agent: its description, and the arrays of its network."""

    description: Description
    arrays: Mapping[str, Array]

    @property
    def layers(self) -> list[Layer]:
        """Its network, first layer to last."""
        return layers_of(self.arrays)


def write_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write a file, whole or not at all. Raises `ConfigError` if the arrays do not fit their description."""
    _check(str(path), checkpoint.description, checkpoint.arrays)
    write_weights(path, FORM, checkpoint.arrays, checkpoint.description)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file. Raises `ConfigError`, which says what is wrong with it."""
    source = str(path)
    arrays, text = read_weights(path, FORM)
    try:
        description = msgspec.json.decode(text, type=Description)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        fail(source, f"has a description that cannot be read: {error}")
    _check(source, description, arrays)
    return Checkpoint(description=description, arrays=arrays)


def read_any(path: Path) -> Checkpoint:
    """Read the file of an agent for any workflow. Raises `ConfigError`, also for an agent of another kind."""
    found = read_checkpoint(path)
    if found.description.scheduler != "any":
        fail(
            str(path),
            f"{_kind(found.description)}, not any. Use it with that scaler.",
        )
    return found


def check_fits(
    source: str, description: Description, scheduler: Scheduler, groups: Sequence[str], nodes: Sequence[str]
) -> None:
    """Raise `ConfigError` with everything that keeps an agent from serving here."""
    faults = []
    if description.scheduler != scheduler:
        faults.append(
            Fault(
                "scheduler",
                f"{_kind(description)}, not {scheduler}. Use it with that scaler.",
            )
        )
    if description.scheduler == "any":  # knows neither groups nor nodes
        raise ConfigError(source, faults)
    for what, trained, found in (("groups", description.groups, groups), ("nodes", description.nodes, nodes)):
        if tuple(trained) != tuple(found):
            faults.append(Fault(what, f"the agent was trained for {', '.join(trained)}; here are {', '.join(found)}."))
    if faults:
        raise ConfigError(source, faults)


def _kind(description: Description) -> str:
    return f"the agent was trained as darly-{description.scheduler}"


def _check(source: str, description: Description, arrays: Mapping[str, Array]) -> None:
    if description.scheduler == "any":
        _check_features(source, description)
    else:
        _check_observation(source, description)
    widths = (description.observation, *description.hidden, description.actions)
    expected: dict[str, tuple[int, ...]] = {}
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        expected[f"q.{number}.weight"] = (inputs, outputs)
        expected[f"q.{number}.bias"] = (outputs,)
    for name in [*expected, *arrays]:
        if name not in arrays:
            fail(source, f"does not fit its description: {name} is missing.")
        if name not in expected:
            fail(source, f"does not fit its description: {name} is not part of the network.")
        found = arrays[name]
        if found.dtype != np.float32 or found.shape != expected[name]:
            fail(
                source,
                f"does not fit its description: {name} is {found.dtype} {found.shape} instead of float32 "
                f"{expected[name]}.",
            )
    check_finite(source, arrays)


def _check_observation(source: str, description: Description) -> None:
    if not description.groups or not description.nodes:
        fail(source, "describes no group, or no node.")
    if description.max_replicas < 1 or not 0 < description.qos_scale_s < np.inf:
        fail(source, "describes no replicas, or an objective that is not positive.")
    needed = observation_size(len(description.nodes), len(description.groups))
    if description.observation != needed:
        fail(
            source,
            f"does not fit its description: it sees {description.observation} numbers, and {len(description.nodes)} "
            f"nodes with {len(description.groups)} groups give {needed}.",
        )


def _check_features(source: str, description: Description) -> None:
    if description.features != NAMES or description.observation != len(NAMES):
        fail(
            source,
            f"was trained for actions described by other numbers ({', '.join(description.features) or 'none'}) than "
            f"those of this Fairlead ({', '.join(NAMES)}). Train it again.",
        )
