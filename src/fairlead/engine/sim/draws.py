"""Randomness of a run: every stage of every request has its own number, whatever the policy does.

The n-th request of a workflow draws the same noise, branch and items under every policy, so that policies are compared
on the same luck (common random numbers). Numbers come in blocks that can be made again from their key.
"""

from collections.abc import Callable

import numpy as np

_BLOCK = 1024
_KEPT = 64


class Stream:
    """An endless sequence of draws that can be read at any position."""

    __slots__ = ("_blocks", "_draw", "_key")

    def __init__(self, key: tuple[int, ...], draw: Callable[[np.random.Generator, int], np.ndarray]) -> None:
        self._key = key
        self._draw = draw
        self._blocks: dict[int, list[float]] = {}

    def __getitem__(self, position: int) -> float:
        number, offset = divmod(position, _BLOCK)
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) >= _KEPT:
                del self._blocks[next(iter(self._blocks))]
            block = self._block(number).tolist()
            self._blocks[number] = block
        return block[offset]

    def take(self, start: int, count: int) -> np.ndarray:
        """A stretch of the sequence, drawn anew."""
        if count == 0:
            return np.empty(0)
        first = start // _BLOCK
        blocks = [self._block(number) for number in range(first, (start + count - 1) // _BLOCK + 1)]
        return np.concatenate(blocks)[start - first * _BLOCK :][:count]

    def _block(self, number: int) -> np.ndarray:
        return self._draw(np.random.default_rng((*self._key, number)), _BLOCK)


def normal(rng: np.random.Generator, count: int) -> np.ndarray:
    """Standard normal draws, truncated at three standard deviations."""
    return np.clip(rng.standard_normal(count), -3.0, 3.0)


def uniform(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draws in [0, 1)."""
    return rng.random(count)
