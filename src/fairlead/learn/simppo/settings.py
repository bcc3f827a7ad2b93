"""What the learner can be told: the authors' numbers, and today's."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

Activation = Literal["relu", "tanh"]
Initial = Literal["uniform", "orthogonal"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Hyper-parameters of proximal policy optimisation (PPO). Actor and critic have the same hidden layers, apart.

    Args:
        hidden: Units of each hidden layer.
        activation: What follows each hidden layer.
        initial: First weights: `uniform` is U(-1/sqrt(inputs), 1/sqrt(inputs)) everywhere, biases too; `orthogonal` has
            gain sqrt(2) in hidden layers, 0.01 for the actor's last layer, 1 for the critic's, and no biases.
        learning_rate: Of Adam, above 0.
        adam_epsilon: What Adam adds to its denominator, above 0.
        gamma: Discount per step, in [0, 1].
        gae_lambda: Of generalised advantage estimation, in [0, 1]. None is the discounted return of the whole episode
            (Monte Carlo) minus the critic's value, which is lambda = 1.
        bootstraps: Whether the value of what follows stands for the future where a rollout or an episode is cut.
            Without, the future after a cut is worth nothing.
        clip: How far a probability may go from that of the rollout before it is no longer rewarded, in (0, 1).
        entropy: Weight of the entropy, at least 0.
        value_weight: Weight of the squared error of the critic, at least 0.
        epochs: Passes over the rollout, at least 1.
        minibatch: Steps of each agent in one gradient step. With shared weights a gradient step takes that many times
            the number of agents, of all agents mixed, so that the number of gradient steps does not grow with them.
        with_replacement: Whether minibatches are drawn from all steps each time (steps // minibatch of them in an
            epoch), not dealt from a shuffle (all of them, the last one perhaps smaller).
        gradient_norm: Longest gradient of one agent, actor and critic together, above 0. None does not limit it.
        steps: Steps of one rollout, at least 1.
        is_value_normalised: Whether the critic learns returns minus their running mean, by their running deviation,
            each agent with its own. Without, it first has to grow to the size of the returns.
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: Activation = "relu"
    initial: Initial = "uniform"
    learning_rate: float = 3e-4
    adam_epsilon: float = 1e-8
    gamma: float = 0.99
    gae_lambda: float | None = 0.95
    bootstraps: bool = True
    clip: float = 0.2
    entropy: float = 0.01
    value_weight: float = 0.5
    epochs: int = 5
    minibatch: int = 256
    with_replacement: bool = False
    gradient_norm: float | None = 0.5
    steps: int = 1000
    is_value_normalised: bool = True

    def __post_init__(self) -> None:
        if not self.hidden or any(units < 1 for units in self.hidden):
            raise ValueError(f"hidden must be one or more positive numbers; got {self.hidden}.")
        if self.activation not in get_args(Activation):
            raise ValueError(f"activation must be 'relu' or 'tanh'; got {self.activation!r}.")
        if self.initial not in get_args(Initial):
            raise ValueError(f"initial must be 'uniform' or 'orthogonal'; got {self.initial!r}.")
        for name in ("learning_rate", "adam_epsilon"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name} must be positive and finite; got {getattr(self, name)}.")
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must be in [0, 1]; got {self.gamma}.")
        if self.gae_lambda is not None and not 0 <= self.gae_lambda <= 1:
            raise ValueError(f"gae_lambda must be None or in [0, 1]; got {self.gae_lambda}.")
        if not 0 < self.clip < 1:
            raise ValueError(f"clip must be in (0, 1); got {self.clip}.")
        for name in ("entropy", "value_weight"):
            if not 0 <= getattr(self, name) < inf:
                raise ValueError(f"{name} must be finite and not negative; got {getattr(self, name)}.")
        for name in ("epochs", "minibatch", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if self.gradient_norm is not None and not 0 < self.gradient_norm < inf:
            raise ValueError(f"gradient_norm must be None or positive and finite; got {self.gradient_norm}.")


PAPER = Settings(
    gae_lambda=None,
    bootstraps=False,
    value_weight=0.05,
    minibatch=5,
    with_replacement=True,
    gradient_norm=None,
    is_value_normalised=False,
)
"""The numbers in the authors' published code of a successor (AWARE), whose serverless part still has SIMPPO's sizes.

They are not from the paper, whose text was not at hand. Five episodes of 200 steps; minibatches of 5 with replacement;
returns of whole episodes, nothing for what would follow their end although they are only cut there.
"""

MODERN = Settings(initial="orthogonal", adam_epsilon=1e-5, learning_rate=1e-3, gamma=0.97)
"""What is usual today: generalised advantages, larger minibatches, bounded gradients, values that are normalised and
count on after a cut. The learning rate and the discount were chosen on the twelve functions, seed 0, among 3e-4 and
1e-3, and 0.9, 0.95, 0.97 and 0.99."""
