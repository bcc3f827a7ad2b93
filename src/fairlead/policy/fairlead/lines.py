"""The queue of one function over all workflows, by the latest instant at which a run must end."""

from math import inf

from sortedcontainers import SortedList

from fairlead.model import Invocation
from fairlead.policy.base import View
from fairlead.policy.fairlead.menu import Menu


class Line:
    """Waiting invocations of one function, the most urgent first."""

    def __init__(self, menu: Menu) -> None:
        self.menu = menu
        self._items: SortedList = SortedList()
        self._keys: dict[int, float] = {}
        self._stuck: tuple[int, int] = (-1, -1)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, invocation: Invocation, key: float) -> None:
        """Let an invocation wait that must have run by the instant `key`."""
        if invocation.id not in self._keys:
            self._keys[invocation.id] = key
            self._items.add((key, invocation.id, invocation))

    def discard(self, invocation: Invocation) -> None:
        """Take an invocation out."""
        key = self._keys.pop(invocation.id)
        self._items.remove((key, invocation.id, invocation))

    def first(self) -> Invocation:
        """The most urgent."""
        found: Invocation = self._items[0][2]
        return found

    def first_key(self) -> float:
        """By when the most urgent must have run."""
        return float(self._items[0][0]) if self._items else inf

    def at(self, position: int) -> Invocation:
        """The invocation at this place of the line."""
        found: Invocation = self._items[position][2]
        return found

    def keys(self, most: int) -> list[float]:
        """By when the first of them must have run."""
        return [item[0] for item in self._items.islice(0, most)]

    def take(self, view: View, most: int, skipped: int) -> list[Invocation]:
        """Remove and return the first that wait, after those that are passed over."""
        found: list[Invocation] = []
        while len(found) < most and len(self._items) > skipped:
            invocation = self._items[skipped][2]
            self.discard(invocation)
            if view.is_waiting(invocation):
                found.append(invocation)
        return found

    def stick(self, epoch: int) -> None:
        """Note that nothing could be started for the first of the line."""
        self._stuck = (epoch, self.first().id if self._items else -1)

    def is_stuck(self, epoch: int) -> bool:
        """Whether nothing has changed since then."""
        return self._stuck == (epoch, self.first().id if self._items else -1)
