"""The program that learns beside a serving scaler: `python -m fairlead.learn.simppo.online TASK LEARNT`.

Reads what agents saw, did and got from a file, improves those that need it, and writes their networks to another; the
scaler `simppo` starts it (`retrain=process`). It takes what the machine has to spare: one thread, and lower priority.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fairlead.learn.simppo.learner import Floats, Learner
from fairlead.learn.simppo.rollout import Rollout
from fairlead.learn.simppo.settings import MODERN, PAPER, Settings
from fairlead.policy.simppo.trainer import Task, read_task, write_weights

_NICE = 10
MINIBATCH, EPOCHS, LEARNING_RATE = 32, 10, 3e-3
"""A rollout of a service is short and dear: more and longer steps are made from it than in training."""


def main(arguments: Sequence[str]) -> None:
    """Learn once."""
    task_path, learnt_path = map(Path, arguments)
    os.nice(_NICE)
    torch.set_num_threads(1)
    task, weights, steps, only = read_task(task_path)
    write_weights(learnt_path, learn(task, weights, steps, only))


def learn(
    task: Task, weights: Mapping[str, Floats], steps: Mapping[str, NDArray[np.generic]], only: NDArray[np.bool_]
) -> dict[str, Floats]:
    """The networks after these steps. The optimizer begins anew each time: it is not kept while agents serve."""
    _, agents, inputs = steps["observations"].shape
    settings = _settings(task, weights, len(steps["actions"]))
    learner = Learner(agents, inputs, steps["masks"].shape[2], settings, is_shared=task.is_shared, seed=task.seed)
    learner.load(weights)
    ends = np.zeros(len(steps["actions"]), np.bool_)
    learner.update(Rollout(ends=ends, **steps), only=only)  # type: ignore[arg-type]  # by the names of its fields
    return learner.arrays()


def _settings(task: Task, weights: Mapping[str, Floats], steps: int) -> Settings:
    hidden = [weights[f"actor.{i}.weight"].shape[2] for i in range(len(weights)) if f"actor.{i + 1}.weight" in weights]
    return replace(
        PAPER if task.preset == "paper" else MODERN,
        hidden=tuple(hidden),
        activation=task.activation,
        is_value_normalised="returns.mean" in weights,
        minibatch=MINIBATCH,
        epochs=EPOCHS,
        learning_rate=LEARNING_RATE,
        steps=steps,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
