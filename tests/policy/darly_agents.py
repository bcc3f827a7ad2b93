"""Agents of Darly that always want the same, for tests."""

from pathlib import Path

import numpy as np

from fairlead.policy.darly.actions import action_space
from fairlead.policy.darly.checkpoint import Checkpoint, Description, write_checkpoint
from fairlead.policy.darly.network import arrays_of
from fairlead.policy.darly.observation import observation_size

GROUPS = ("framer", "detector", "models")
NODES = ("w01", "w02", "w03", "w04")


def stubborn(scheduler: str = "fullmap", index: int = 0, groups=GROUPS, nodes=NODES, **settings) -> Checkpoint:
    """Takes the action with this index, whatever it sees: its value is 1, all others are worth nothing."""
    size, actions = observation_size(len(nodes), len(groups)), len(action_space(scheduler, groups, nodes))
    last = np.zeros(actions, np.float32)
    last[index] = 1.0
    layers = [
        (np.zeros((size, 2), np.float32), np.zeros(2, np.float32)),
        (np.zeros((2, actions), np.float32), last),
    ]
    description = Description(
        scheduler=scheduler, groups=tuple(groups), nodes=tuple(nodes), observation=size, hidden=(2,), **settings
    )
    return Checkpoint(description=description, arrays=arrays_of(layers))


def written(path: Path, *args, **settings) -> str:
    """The name of a file with such an agent."""
    write_checkpoint(stubborn(*args, **settings), path)
    return str(path)
