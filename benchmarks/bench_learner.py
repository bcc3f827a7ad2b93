"""The PPO learner: seconds of CPU for one update, and for one decision of all agents, on one thread.

An update is one rollout of 1,000 steps of each agent, of 14 inputs and 7 actions. `--ways` compares ways to take one
gradient step of stacked networks. Alone: `python benchmarks/bench_learner.py [--quick] [--ways]`.
"""

import argparse
from collections.abc import Callable
from itertools import pairwise
from time import process_time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from fairlead.learn.simppo import MODERN, PAPER, Learner, Rollout

INPUTS, ACTIONS, STEPS = 14, 7, 1000
SIZES = ((1, "modern", False), (12, "modern", False), (12, "paper", False), (110, "modern", False))
SHARED = ((110, "modern", True),)
LARGE = ((1000, "modern", False), (1000, "modern", True))
PRESETS = {"modern": MODERN, "paper": PAPER}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="at most 110 agents, and one repetition")
    parser.add_argument("--ways", action="store_true", help="batched products against einsum, a loop and vmap")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=120)
    if options.ways:
        show_ways(console)
        return
    table = Table(
        "agents", "preset", "weights", "update, s", "agent steps/s", "decision, ms", title="One thread, CPU time"
    )
    for agents, preset, is_shared in (*SIZES, *SHARED, *(() if options.quick else LARGE)):
        learner = Learner(agents, INPUTS, ACTIONS, PRESETS[preset], is_shared=is_shared, seed=0)
        learner.update(rollout(agents, 10))
        steps = rollout(agents, STEPS)
        update_s = best(lambda: learner.update(steps), 1 if options.quick or agents > 110 else 3)  # noqa: B023
        seen = steps.observations[0]
        decision_s = best(lambda: [learner.act(seen) for _ in range(100)], 3) / 100  # noqa: B023
        table.add_row(
            f"{agents}",
            preset,
            "shared" if is_shared else "separate",
            f"{update_s:.3f}",
            f"{agents * STEPS / update_s:,.0f}",
            f"{1000 * decision_s:.3f}",
        )
    console.print(table)


def best(work: Callable[[], object], repeats: int) -> float:
    found = []
    for _ in range(repeats):
        begun = process_time()
        work()
        found.append(process_time() - begun)
    return min(found)


def rollout(agents: int, steps: int) -> Rollout:
    rng = np.random.default_rng(0)
    shape = (steps, agents)
    return Rollout(
        observations=rng.random((*shape, INPUTS), np.float32),
        actions=rng.integers(ACTIONS, size=shape),
        log_probs=np.full(shape, -np.log(ACTIONS), np.float32),
        values=rng.random(shape, np.float32),
        rewards=rng.random(shape, np.float32),
        ends=np.arange(steps) % 200 == 199,
        next_values=rng.random(shape, np.float32),
    )


# --- ways ------------------------------------------------------------------------------------------------------------


def show_ways(console: Console) -> None:
    """Forward and backward through agents' networks 14-64-64-7, the sum of squares as loss."""
    ways = {
        "batched products, written-out gradients": by_hand,
        "batched products, recorded gradients": lambda x, w: recorded(x, w, torch.baddbmm),
        "einsum, recorded gradients": lambda x, w: recorded(x, w, by_einsum),
        "a loop over agents, recorded": by_loop,
        "vmap of a gradient": by_vmap,
    }
    table = Table("agents", "minibatch", *ways, title="ms of CPU for one gradient")
    for agents, batch in ((1, 256), (12, 5), (12, 256), (110, 256)):
        torch.manual_seed(0)
        sizes = (INPUTS, 64, 64, ACTIONS)
        weights = [(torch.randn(agents, a, b) / a**0.5, torch.zeros(agents, 1, b)) for a, b in pairwise(sizes)]
        x = torch.randn(agents, batch, INPUTS)
        found = [way(x, weights) for way in ways.values()]
        for other in found[1:]:
            for mine, theirs in zip(found[0], other, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)
        repeats = 30 if agents * batch < 5000 else 5
        row = [best(lambda w=way: [w(x, weights) for _ in range(repeats)], 3) for way in ways.values()]  # noqa: B023
        table.add_row(f"{agents}", f"{batch}", *(f"{1000 * seconds / repeats:.2f}" for seconds in row))
    console.print(table)


def by_hand(x, weights):
    seen = [x]
    for i, (weight, bias) in enumerate(weights):
        x = torch.baddbmm(bias, x, weight)
        seen.append(x.relu_() if i < len(weights) - 1 else x)
    slope = 2 * x
    found = []
    for i in range(len(weights) - 1, -1, -1):
        found += [slope.sum(dim=1, keepdim=True), torch.bmm(seen[i].transpose(1, 2), slope)]
        if i:
            slope = torch.bmm(slope, weights[i][0].transpose(1, 2)) * (seen[i] > 0)
    return found[::-1]


def by_einsum(bias, x, weight):
    return torch.einsum("abi,aio->abo", x, weight) + bias


def recorded(x, weights, layer):
    leaves = [part.detach().requires_grad_() for pair in weights for part in pair]
    for i in range(0, len(leaves), 2):
        x = layer(leaves[i + 1], x, leaves[i])
        x = x.relu() if i < len(leaves) - 2 else x
    return torch.autograd.grad((x * x).sum(), leaves)


def by_loop(x, weights):
    own = [
        recorded(x[a : a + 1], [(w[a : a + 1], b[a : a + 1]) for w, b in weights], torch.baddbmm) for a in range(len(x))
    ]
    return [torch.cat(parts) for parts in zip(*own, strict=True)]


def by_vmap(x, weights):
    def loss(parts, own):
        for i, (weight, bias) in enumerate(parts):
            own = own @ weight + bias
            own = own.relu() if i < len(parts) - 1 else own
        return (own * own).sum()

    found = torch.func.vmap(torch.func.grad(loss))(weights, x)
    return [part for pair in found for part in pair]


if __name__ == "__main__":
    main()
