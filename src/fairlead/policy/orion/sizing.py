"""Orion's search: from the smallest sizes upwards, always on from the state that is nearest to the target."""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from fairlead.policy.kit.options import Options
from fairlead.policy.orion.latency import State


@dataclass(frozen=True)
class Sizing:
    """What a search gives: a state, its percentile, whether that meets the target, and how many states it took."""

    state: State
    percentile: float
    is_met: bool
    states: int


def search(
    start: State,
    moves: list[list[list[int]]],
    percentile: Callable[[State], float],
    cost_usd: Callable[[State], float],
    target: float,
    states_most: int,
    state_time: float = 0.0,
) -> Sizing:
    """Best first, until a state meets the target.

    In each round the state nearest to the target (then the cheapest) is enlarged in every possible way. A round that
    finds a state within the target is the last; of several such states, the nearest. If states run out before, the
    quickest that was seen.

    Args:
        start: Where to begin, which counts as a state.
        moves: For each stage, for each option, the next larger ones.
        percentile: What is compared with the target, in the same unit.
        cost_usd: What a request costs in a state.
        target: The time that may be taken.
        states_most: How many states may be evaluated, at least 1.
        state_time: What the evaluation of a state takes off the target.
    """
    seen = {start}
    first = percentile(start)
    if first + state_time <= target:
        return Sizing(start, first, True, 1)
    quickest = (first, cost_usd(start), start)
    waiting = [(first - target, quickest[1], start)]
    while waiting and len(seen) < states_most:
        _, _, state = heappop(waiting)
        met: list[tuple[float, float, State]] = []
        for stage, option in enumerate(state):
            for larger in moves[stage][option]:
                child = (*state[:stage], larger, *state[stage + 1 :])
                if child in seen or len(seen) >= states_most:
                    continue
                seen.add(child)
                time, usd = percentile(child), cost_usd(child)
                quickest = min(quickest, (time, usd, child))
                if time + len(seen) * state_time <= target:
                    met.append((target - time, usd, child))
                else:
                    heappush(waiting, (time - target, usd, child))
        if met:
            _, _, state = min(met)
            return Sizing(state, percentile(state), True, len(seen))
    return Sizing(quickest[2], quickest[0], False, len(seen))


def next_larger(options: Options) -> list[list[int]]:
    """For each option those that are larger with nothing between: in a full grid, one step in one dimension.

    What no chain of such steps reaches from the smallest is a step from there: a GPU instead of vCPUs, for example.
    """
    sizes = np.array([[c.batch, c.vcpus, c.vgpus, c.memory_gb] for c in options.configurations])
    is_larger = (sizes[None, :] >= sizes[:, None]).all(axis=2) & ~np.eye(len(sizes), dtype=bool)
    paths = is_larger.astype(np.float32)
    found: list[list[int]] = [np.flatnonzero(row).tolist() for row in is_larger & ~(paths @ paths > 0)]
    reached, due = {options.least}, [options.least]
    while due:
        fresh = set(found[due.pop()]) - reached
        reached |= fresh
        due += fresh
    found[options.least] += [j for j in range(len(sizes)) if j not in reached]
    return found
