"""Step 64 environments at once, and let a tiny linear policy learn where to place."""

import numpy as np

from fairlead.learn.environments import PlacementVectorEnv
from fairlead.learn.environments.worlds import chain_scenario

NODES, ENVIRONMENTS, STEPS = 4, 64, 150
envs = PlacementVectorEnv(ENVIRONMENTS, chain_scenario(nodes=NODES), steps=STEPS)


def episode_reward(weights: np.ndarray, seed: int) -> float:
    """Mean over all environments, where each node's score is a weighted sum of what is free and whether it is warm."""
    shown, _ = envs.reset(seed=seed)
    total = np.zeros(ENVIRONMENTS)
    for _ in range(STEPS):
        free, warm = shown[:, :NODES], shown[:, NODES : 2 * NODES] > 0
        shown, rewards, *_ = envs.step(np.argmax(weights[0] * free + weights[1] * warm, axis=1))
        total += rewards
    return float(total.mean())


# The cross-entropy method: draw weights, keep the best quarter, draw around them.
rng = np.random.default_rng(0)
mean, spread = np.zeros(2), np.ones(2)
for generation in range(5):
    drawn = mean + spread * rng.standard_normal((16, 2))
    rewards = np.array([episode_reward(weights, seed=generation * ENVIRONMENTS) for weights in drawn])
    best = drawn[np.argsort(rewards)[-4:]]
    mean, spread = best.mean(axis=0), best.std(axis=0) + 0.05
    print(f"generation {generation}: mean reward {rewards.mean():8.2f}, best {rewards.max():8.2f}")
print(f"learned: {mean[0]:+.2f} x free share {mean[1]:+.2f} x warm")
