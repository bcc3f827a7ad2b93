"""Queues that a policy orders by a key of its own, fed from `view.changes` and emptied from either end."""

from collections.abc import Iterator

from sortedcontainers import SortedList

from fairlead.model import Invocation


class KeyedQueue:
    """Waiting invocations in the order of a key, then of their ids. Adding and removing take logarithmic time.

    An invocation that leaves by other ways than this queue (its client gave up, its request was rejected for a sibling)
    must be discarded by the policy, or is found to wait no longer when its turn comes.
    """

    __slots__ = ("_items", "_keys")

    def __init__(self) -> None:
        self._items: SortedList = SortedList()
        self._keys: dict[int, float] = {}  # by id

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Invocation]:
        return (item[2] for item in self._items)

    def add(self, invocation: Invocation, key: float) -> None:
        """Let an invocation wait under this key."""
        self._keys[invocation.id] = key
        self._items.add((key, invocation.id, invocation))

    def discard(self, invocation: Invocation) -> None:
        """Take an invocation out, if it is here."""
        key = self._keys.pop(invocation.id, None)
        if key is not None:
            self._items.remove((key, invocation.id, invocation))

    def first(self) -> Invocation | None:
        """The invocation with the least key; None if the queue is empty."""
        return self._items[0][2] if self._items else None

    def last(self) -> Invocation | None:
        """The invocation with the greatest key; None if the queue is empty."""
        return self._items[-1][2] if self._items else None
