"""Proximal policy optimisation (PPO) of many agents at once, each with networks of its own, or all with the same.

Schulman et al., "Proximal Policy Optimization Algorithms" (2017), the clipped objective. What an agent learns depends
on the seed, its number and what it was given, never on who else is there: its random numbers are its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.learn.simppo.networks import ACTOR, CRITIC, NEVER, Shape, layers_of
from fairlead.learn.simppo.objective import Networks, Samples, adam, gradient
from fairlead.learn.simppo.rollout import Rollout, advantages_of, normalised
from fairlead.learn.simppo.settings import Settings
from fairlead.policy.simppo.network import Layer as PlainLayer
from fairlead.policy.simppo.network import forward as plain_forward

_BLOCK = 64  # random numbers that an agent draws at a time
_IN_CACHE = 4096  # steps that pass through the networks at a time: their activations stay near
_SLOWEST = 0.05  # least weight of the newest returns in their running mean
_FOR_WEIGHTS, _FOR_ACTIONS, _FOR_SHUFFLES = range(3)

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]


class Step(NamedTuple):
    """What the agents do: [N] each."""

    actions: NDArray[np.int64]
    log_probs: Floats
    values: Floats


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Means over the last epoch of an update, for each agent (one entry if weights are shared); NaN if not updated.

    `kl` is how far the policy went from that of the rollout, `clip_share` the share of steps that were clipped.
    """

    policy: NDArray[np.float64]
    value: NDArray[np.float64]
    entropy: NDArray[np.float64]
    kl: NDArray[np.float64]
    clip_share: NDArray[np.float64]


class _Streams:
    """Random numbers of an agent: for its first weights, its actions and its minibatches apart."""

    def __init__(self, seed: int, number: int) -> None:
        self.weights, self.actions, self.shuffles = (
            np.random.default_rng([seed, number, use]) for use in (_FOR_WEIGHTS, _FOR_ACTIONS, _FOR_SHUFFLES)
        )


class _Minibatch(NamedTuple):
    """Steps of one gradient step: where they lie, and how much each counts; [rows, size]. Rows sum to 1."""

    at: Tensor
    weight: Tensor


def one_thread() -> None:
    """Let PyTorch use one thread from now on: more do not pay for networks this small, and processes may be several."""
    torch.set_num_threads(1)


class Learner:
    """Actors and critics of N agents, and how they learn.

    Args:
        agents: How many at first.
        inputs: Length of an observation.
        actions: How many there are to choose from.
        settings: Hyper-parameters.
        is_shared: Whether all agents use the same networks, which then learn from all of them.
        seed: Where the random numbers begin. Agent i has the same ones however many others there are.
    """

    def __init__(
        self, agents: int, inputs: int, actions: int, settings: Settings, *, is_shared: bool = False, seed: int
    ) -> None:
        for name, value in (("agents", agents), ("inputs", inputs), ("actions", actions)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}.")
        self.settings, self.is_shared, self._seed = settings, is_shared, seed
        self._shape = Shape(inputs, settings.hidden, actions)
        self._streams = [_Streams(seed, number) for number in range(agents)]
        self._next_number = agents
        self._numbers = np.zeros((agents, _BLOCK))
        self._drawn = _BLOCK  # how many of the block are used
        owners = self._streams[:1] if is_shared else self._streams
        rows = np.stack([self._shape.first(streams.weights, settings.initial) for streams in owners])
        self._settle(torch.from_numpy(rows))

    @property
    def agents(self) -> int:
        """How many there are."""
        return len(self._streams)

    @property
    def inputs(self) -> int:
        """Length of an observation."""
        return self._shape.inputs

    @property
    def actions(self) -> int:
        """How many there are to choose from."""
        return self._shape.actions

    # --- acting ------------------------------------------------------------------------------------------------------

    def act(self, observations: Floats, *, mask: Flags | None = None, is_greedy: bool = False) -> Step:
        """What each agent does about what it sees, [N, inputs], among what is allowed, [N, actions].

        Greedy agents take the likeliest action, the first of equals, and use up no random numbers.
        """
        logits = self._pass(self._actor, observations).astype(np.float64)
        if mask is not None:
            if not mask.any(axis=1).all():
                raise ValueError("mask must allow at least one action to each agent.")
            logits = np.where(mask, logits, NEVER)
        logits -= logits.max(axis=1, keepdims=True)
        chances = np.exp(logits)
        total = np.cumsum(chances, axis=1)
        # A number drawn is below 1 and has 24 bits, so that the product is below the total in 53 bits as well.
        actions = logits.argmax(axis=1) if is_greedy else (total <= self._draw() * total[:, -1:]).sum(axis=1)
        log_probs = logits[np.arange(len(actions)), actions] - np.log(total[:, -1])
        return Step(actions, log_probs.astype(np.float32), self.values(observations))

    def values(self, observations: Floats) -> Floats:
        """What each agent expects from what it sees, [N, inputs]: its discounted return."""
        found = self._pass(self._critic, observations)[:, 0]
        if not self.settings.is_value_normalised:
            return found
        return found * self._deviation + self._mean

    def _pass(self, layers: list[PlainLayer], observations: Floats) -> Floats:
        """Through all agents' networks, in NumPy: a single step is too little work for a call of torch."""
        if observations.shape != (self.agents, self.inputs):
            raise ValueError(f"observations must be [{self.agents}, {self.inputs}]; got {list(observations.shape)}.")
        return plain_forward(layers, observations.astype(np.float32, copy=False), self.settings.activation)

    def _draw(self) -> NDArray[np.float64]:
        if self._drawn == _BLOCK:
            for row, streams in zip(self._numbers, self._streams, strict=True):
                row[:] = streams.actions.random(_BLOCK, np.float32)
            self._drawn = 0
        self._drawn += 1
        return self._numbers[:, self._drawn - 1 : self._drawn]

    # --- learning ----------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def update(self, rollout: Rollout, *, only: Flags | None = None) -> Losses:
        """Learn from a rollout. `only` chooses agents, [N]: the others' weights stay as they are, to the last bit.

        With shared weights `only` chooses whose steps are learnt from. An agent without a step that counts does not
        change.
        """
        self._check(rollout, only)
        present = rollout.present if only is None else rollout.present & only
        advantages, returns = advantages_of(rollout, self.settings)
        advantages = normalised(advantages, present)
        counted = [np.flatnonzero(steps) for steps in self._by_network(present)]
        counts = np.array([len(steps) for steps in counted])
        # Who has most steps comes first: those that still have some in the k-th minibatch are always the first few.
        order = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
        losses = np.full((5, len(self._rows)), np.nan)
        if len(order):
            targets = self._targets(self._by_network(returns), counted)
            samples = self._samples(rollout, advantages, targets)
            losses[:, order] = self._improve(samples, [counted[row] for row in order], order)
        return Losses(**dict(zip(("policy", "value", "entropy", "kl", "clip_share"), losses, strict=True)))

    def _check(self, rollout: Rollout, only: Flags | None) -> None:
        wanted = (self.agents, self.inputs)
        if rollout.observations.shape[1:] != wanted:
            raise ValueError(f"observations must be [T, {wanted[0]}, {wanted[1]}]; got {rollout.observations.shape}.")
        if rollout.masks is not None and rollout.masks.shape[2] != self.actions:
            raise ValueError(f"masks must have {self.actions} actions; got {rollout.masks.shape[2]}.")
        if only is not None and only.shape != (self.agents,):
            raise ValueError(f"only must be [{self.agents}]; got {list(only.shape)}.")

    def _by_network(self, steps: NDArray[np.generic]) -> NDArray[np.generic]:
        """[T, N, ...] as [networks, steps of that network, ...]."""
        turned = np.ascontiguousarray(steps.swapaxes(0, 1))
        return turned.reshape(len(self._rows), -1, *turned.shape[2:])

    def _targets(self, returns: NDArray[np.generic], counted: list[NDArray[np.intp]]) -> Floats:
        """What the critics shall say. Their running means and deviations move to these returns first."""
        values = returns.astype(np.float32)
        if not self.settings.is_value_normalised:
            return values
        for row, steps in enumerate(counted):
            if len(steps):
                own = values[row, steps].astype(np.float64)
                self._seen[row] += 1
                share = max(1 / self._seen[row], _SLOWEST)
                shift = own.mean() - self._mean[row]
                spread = (1 - share) * (self._deviation[row] ** 2 + share * shift**2) + share * own.var()
                if self._seen[row] == 1:
                    spread = own.var()
                self._mean[row] += share * shift
                self._deviation[row] = max(np.sqrt(spread), 1e-4)
        scaled: Floats = ((values - self._mean[:, None]) / self._deviation[:, None]).astype(np.float32)
        return scaled

    def _samples(self, rollout: Rollout, advantages: Floats, targets: Floats) -> Samples:
        def flat(steps: NDArray[np.generic]) -> Tensor:
            found = self._by_network(steps)
            return torch.from_numpy(found.reshape(-1, *found.shape[2:]))

        figures = np.stack([rollout.log_probs, advantages], axis=2).astype(np.float32)
        columns = np.concatenate([self._by_network(figures), targets[..., None]], axis=2)
        return Samples(
            observations=flat(rollout.observations.astype(np.float32, copy=False)),
            actions=flat(rollout.actions.astype(np.int64, copy=False)),
            figures=torch.from_numpy(columns.reshape(-1, 3)),
            masks=None if rollout.masks is None else flat(rollout.masks),
        )

    def _improve(self, samples: Samples, counted: list[NDArray[np.intp]], order: NDArray[np.intp]) -> object:
        """All epochs on the rows in `order`; the means of the last one, [5, rows]."""
        is_all = len(order) == len(self._rows) and bool((np.diff(order) == 1).all())
        chosen = torch.from_numpy(order)
        state = [self._rows, self._first, self._second]
        if not is_all:
            state = [matrix[chosen] for matrix in state]
        taken = self._taken[order]
        offsets = torch.from_numpy(order * (len(samples.actions) // len(self._rows)))[:, None]
        totals = torch.zeros(5, len(order))
        shares = torch.zeros(len(order))
        slope = torch.empty_like(state[0])
        networks: dict[tuple[int, int], Networks] = {}
        last = self.settings.epochs - 1
        for epoch in range(last + 1):
            for batch in self._minibatches(counted, order):
                count, size = batch.at.shape
                block = max(1, _IN_CACHE // size)
                for start in range(0, count, block):
                    end = min(start + block, count)
                    rows, first, second, out = (matrix[start:end] for matrix in (*state, slope))
                    if (start, end) not in networks:
                        networks[start, end] = layers_of(self._shape, rows, ACTOR), layers_of(self._shape, rows, CRITIC)
                    at = (batch.at[start:end] + offsets[start:end]).view(-1)
                    parts = gradient(
                        networks[start, end],
                        samples,
                        at,
                        batch.weight[start:end],
                        self.settings,
                        out=out,
                        is_measured=epoch == last,
                    )
                    taken[start:end] += 1
                    adam(rows, first, second, out, taken[start:end], self.settings)
                    if parts is not None:
                        totals[:, start:end] += parts
                        shares[start:end] += 1
        if not is_all:
            for matrix, part in zip((self._rows, self._first, self._second), state, strict=True):
                matrix[chosen] = part
        self._taken[order] = taken
        return (totals / shares).numpy()

    def _minibatches(self, counted: list[NDArray[np.intp]], order: NDArray[np.intp]) -> Iterator[_Minibatch]:
        """The minibatches of one epoch. Rows with fewer steps are out of the later ones."""
        size = self.settings.minibatch * (self.agents if self.is_shared else 1)
        dealt = []
        for row, steps in zip(order, counted, strict=True):
            shuffles = self._streams[row].shuffles
            if self.settings.with_replacement:
                dealt.append(steps[shuffles.integers(len(steps), size=max(1, len(steps) // size) * size)])
            else:
                dealt.append(shuffles.permutation(steps))
        lengths = np.array([len(steps) for steps in dealt])
        for start in range(0, int(lengths[0]), size):
            rows = int((lengths > start).sum())
            sizes = np.minimum(lengths[:rows] - start, size)
            at = np.zeros((rows, sizes[0]), np.int64)
            weight = np.zeros((rows, sizes[0]), np.float32)
            for row in range(rows):
                at[row, : sizes[row]] = dealt[row][start : start + sizes[row]]
                weight[row, : sizes[row]] = 1 / sizes[row]
            yield _Minibatch(torch.from_numpy(at), torch.from_numpy(weight))

    # --- agents that come and go -------------------------------------------------------------------------------------

    def add(self, like: int | None = None) -> int:
        """A further agent: with the networks of agent `like`, or with new ones. Returns its index, the last.

        Its optimizer begins anew. With shared weights it has the networks of all, and `like` says nothing.
        """
        if like is not None and not 0 <= like < self.agents:
            raise ValueError(f"like must be None or in [0, {self.agents}); got {like}.")
        streams = _Streams(self._seed, self._next_number)
        self._next_number += 1
        self._streams.append(streams)
        block = streams.actions.random((1, _BLOCK), np.float32)
        self._numbers = np.concatenate([self._numbers, block])
        if not self.is_shared:
            if like is None:
                row = torch.from_numpy(self._shape.first(streams.weights, self.settings.initial))
                scale = (0.0, 1.0, 0)
            else:
                row = self._rows[like]
                scale = (self._mean[like], self._deviation[like], int(self._seen[like]))
            zero = torch.zeros(1, self._shape.width)
            self._settle(
                torch.cat([self._rows, row[None]]),
                moments=(torch.cat([self._first, zero]), torch.cat([self._second, zero])),
                taken=np.append(self._taken, 0),
                scale=(
                    np.append(self._mean, scale[0]),
                    np.append(self._deviation, scale[1]),
                    np.append(self._seen, scale[2]),
                ),
            )
        return self.agents - 1

    def remove(self, index: int) -> None:
        """One agent fewer; those after it move up. The last one stays."""
        if not 0 <= index < self.agents:
            raise ValueError(f"index must be in [0, {self.agents}); got {index}.")
        if self.agents == 1:
            raise ValueError("The only agent cannot be removed.")
        del self._streams[index]
        self._numbers = np.delete(self._numbers, index, axis=0)
        if not self.is_shared:
            kept = torch.from_numpy(np.delete(np.arange(len(self._rows)), index))
            self._settle(
                self._rows[kept],
                moments=(self._first[kept], self._second[kept]),
                taken=np.delete(self._taken, index),
                scale=(np.delete(self._mean, index), np.delete(self._deviation, index), np.delete(self._seen, index)),
            )

    def _settle(
        self,
        rows: Tensor,
        *,
        moments: tuple[Tensor, Tensor] | None = None,
        taken: NDArray[np.int64] | None = None,
        scale: tuple[Floats, Floats, NDArray[np.int64]] | None = None,
    ) -> None:
        """Take these rows, with a new optimizer and no returns seen unless they are given."""
        count = len(rows)
        self._rows = rows.contiguous()
        self._first, self._second = moments or (torch.zeros_like(self._rows), torch.zeros_like(self._rows))
        self._taken = np.zeros(count, np.int64) if taken is None else taken
        self._mean, self._deviation, self._seen = scale or (
            np.zeros(count, np.float32),
            np.ones(count, np.float32),
            np.zeros(count, np.int64),
        )
        self._actor, self._critic = (
            [
                PlainLayer(layer.weight.numpy(), layer.bias.numpy()[:, 0])
                for layer in layers_of(self._shape, self._rows, network)
            ]
            for network in (ACTOR, CRITIC)
        )

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, Floats]:
        """All that was learnt, by the names of a checkpoint. Not the optimizer, and not the random numbers.

        With normalised values also `returns.mean`, `returns.deviation` and `returns.updates`, one entry per network.
        """
        plain = self._rows.numpy()
        found = {
            part.name: plain[:, part.start : part.end].reshape(-1, *part.shape).copy() for part in self._shape.parts
        }
        if self.settings.is_value_normalised:
            for name, values in self._scales().items():
                found[name] = values.astype(np.float32)
        return found

    def load(self, arrays: Mapping[str, Floats]) -> None:
        """Take what `arrays` gave, of a learner of the same sizes; the optimizer begins anew.

        Raises:
            ValueError: An array is missing, has another shape, or is not finite. Nothing is changed then.
        """
        count = len(self._rows)
        wanted = {part.name: (count, *part.shape) for part in self._shape.parts}
        for name, shape in wanted.items():
            if name not in arrays:
                raise ValueError(f"{name} is missing; there are {', '.join(sorted(arrays)) or 'no arrays'}.")
            if arrays[name].shape != shape:
                raise ValueError(f"{name} must be {list(shape)}; got {list(arrays[name].shape)}.")
            if not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} must be finite.")
        rows = np.concatenate([arrays[name].reshape(count, -1) for name in wanted], axis=1).astype(np.float32)
        self._settle(torch.from_numpy(rows))
        for name, values in self._scales().items():
            if name in arrays:
                values[:] = arrays[name]

    def _scales(self) -> dict[str, NDArray[np.generic]]:
        return {
            "returns.mean": self._mean,
            "returns.deviation": self._deviation,
            "returns.updates": self._seen,
        }
