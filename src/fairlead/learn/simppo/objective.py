"""What PPO goes down: the slope of its loss for many agents at once, and Adam's step along it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.learn.simppo.networks import NEVER, Layer, backward, forward
from fairlead.learn.simppo.settings import Settings

_FIRST_BETA, _SECOND_BETA = 0.9, 0.999  # Adam's


Networks = tuple[list[Layer], list[Layer]]  # actors and critics


class Samples(NamedTuple):
    """All steps of a rollout, those of one network in a row: [rows x steps, ...]."""

    observations: Tensor
    actions: Tensor
    figures: Tensor  # log-probability, advantage, target of the critic
    masks: Tensor | None


def gradient(
    networks: Networks,
    samples: Samples,
    at: Tensor,
    weight: Tensor,
    settings: Settings,
    *,
    out: Tensor,
    is_measured: bool,
) -> Tensor | None:
    """Slope of each row's loss into `out`, [rows, width]; if measured, the figures of `Losses`, [5, rows].

    `at` says which samples, `weight` [rows, size] how much each counts in its row.
    """
    shape = (*weight.shape, -1)
    x = samples.observations.index_select(0, at).view(shape)
    actions = samples.actions.index_select(0, at).view(shape)
    log_prob_then, advantage, target = samples.figures.index_select(0, at).view(*weight.shape, 3).unbind(2)
    actor, critic = networks

    seen = forward(actor, x, settings.activation)
    logits = seen[-1]
    if samples.masks is not None:
        logits = logits.masked_fill(~samples.masks.index_select(0, at).view(shape), NEVER)
    log_probs = torch.log_softmax(logits, dim=2)
    chances = log_probs.exp()
    change = log_probs.gather(2, actions).squeeze(2) - log_prob_then
    ratio = change.exp()
    # The clipped objective is flat where the ratio has already gone further than it is rewarded for.
    is_clipped = ((ratio > 1 + settings.clip) & (advantage > 0)) | ((ratio < 1 - settings.clip) & (advantage < 0))
    pull = (ratio * advantage * weight).masked_fill_(is_clipped, 0.0)
    surprise = (chances * log_probs).sum(dim=2, keepdim=True)  # minus the entropy
    slope = chances * (pull.unsqueeze(2) + settings.entropy * weight.unsqueeze(2) * (log_probs - surprise))
    slope.scatter_add_(2, actions, -pull.unsqueeze(2))
    found = backward(actor, seen, slope, settings.activation)

    seen = forward(critic, x, settings.activation)
    error = seen[-1].squeeze(2) - target
    slope = (2 * settings.value_weight * weight * error).unsqueeze(2)
    found += backward(critic, seen, slope, settings.activation)
    torch.cat(found, dim=1, out=out)
    if not is_measured:
        return None
    limited = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    parts = (
        -torch.minimum(ratio * advantage, limited * advantage),
        error * error,
        -surprise.squeeze(2),
        ratio - 1 - change,
        ((ratio - 1).abs() > settings.clip).float(),
    )
    return torch.stack([(part * weight).sum(dim=1) for part in parts])


def adam(
    rows: Tensor, first: Tensor, second: Tensor, slope: Tensor, taken: NDArray[np.int64], settings: Settings
) -> None:
    """One gradient step of each row, in place; `taken` counts each row's steps, this one too. `slope` is used up."""
    if settings.gradient_norm is not None:
        norm = torch.linalg.vector_norm(slope, dim=1, keepdim=True)
        slope *= (settings.gradient_norm / (norm + 1e-6)).clamp_(max=1.0)
    first.lerp_(slope, 1 - _FIRST_BETA)
    second.mul_(_SECOND_BETA).addcmul_(slope, slope, value=1 - _SECOND_BETA)
    rate = settings.learning_rate / (1 - _FIRST_BETA**taken)
    root = np.sqrt(1 - _SECOND_BETA**taken)
    # lr m / (sqrt(v) / root + epsilon), with the factors of a row put together beforehand
    factor = torch.from_numpy((rate * root).astype(np.float32))[:, None]
    epsilon = torch.from_numpy((settings.adam_epsilon * root).astype(np.float32))[:, None]
    torch.sqrt(second, out=slope).add_(epsilon)
    rows.sub_(torch.div(first, slope, out=slope).mul_(factor))
