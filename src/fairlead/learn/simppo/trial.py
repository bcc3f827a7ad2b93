"""How trained agents do once they no longer learn: what the training environment shows of each function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairlead.learn.environments.tenancy import Apart, Tenancy

if TYPE_CHECKING:
    from fairlead.learn.simppo.learner import Learner
    from fairlead.learn.simppo.training import World

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Means over the control periods of a trial, one per function."""

    rewards: Floats
    slo_preservation: Floats
    utilisation: Floats  # vCPU time occupied by runs over that held by replicas


def try_out(world: World, learner: Learner, *, seed: int, is_masked: bool = True) -> Trial:
    """One episode in which every agent takes the likeliest action; its first periods, from the first sizes, count."""
    world.seed(seed)
    seen, count, is_cut = world.reset(), 0, False
    sums = np.zeros((3, world.size))
    while not is_cut:
        mask = world.allowed() if is_masked else None
        seen, rewards, is_cut = world.step(learner.act(seen, mask=mask, is_greedy=True).actions)
        states = [one.state for one in _tenancies(world)]
        sums[0] += rewards
        sums[1] += np.concatenate([state.slo_preservation for state in states])
        sums[2] += np.concatenate([state.cpu_utilisation for state in states])
        count += 1
    means = sums / count
    return Trial(rewards=means[0], slo_preservation=means[1], utilisation=means[2])


def _tenancies(world: World) -> tuple[Tenancy, ...]:
    if isinstance(world, Apart):
        return world.worlds
    if isinstance(world, Tenancy):
        return (world,)
    raise TypeError(f"a world of agents is a Tenancy or Apart; got {type(world).__name__}.")
