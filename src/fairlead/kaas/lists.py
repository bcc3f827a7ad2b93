"""The order in which buffers leave a device: those that were used seldom first, the least recently used of each.

After N. Pemberton et al., "Kernel-as-a-Service: A Serverless Interface to GPUs" (arXiv 2212.08146, 2022). The
executor's memory and the simulator's share it.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

SELDOM = 2  # a buffer that was used more often than this is evicted only when no other is left

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TwoLists(Generic[K, V]):
    """What may be evicted, as two lists by number of uses."""

    __slots__ = ("_often", "_seldom")

    def __init__(self) -> None:
        self._seldom: dict[K, V] = {}  # used at most twice; least recently used first
        self._often: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._seldom) + len(self._often)

    def put(self, key: K, value: V, uses: int) -> None:
        """Make it the most recently used of its list."""
        (self._seldom if uses <= SELDOM else self._often)[key] = value

    def take(self, key: K, uses: int) -> V:
        """Take out what was `put` with as many uses."""
        return (self._seldom if uses <= SELDOM else self._often).pop(key)

    def first(self) -> K | None:
        """What is to be evicted next; None if there is nothing."""
        return next(iter(self._seldom or self._often), None)
