"""Queues, one per stage of each workflow, by the latest instant at which a run must end."""

from collections.abc import Iterator
from math import inf

from sortedcontainers import SortedList

from fairlead.model import Invocation
from fairlead.policy.base import View
from fairlead.policy.fairlead.outlook import Step


class Line:
    """Waiting invocations of one stage, the most urgent first."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.menu = step.menu
        self.siblings: list[Line] = []  # of the same function, with which it shares batches
        self._count = [0]  # of those that wait in it and in its siblings
        self._items: SortedList = SortedList()
        self._keys: dict[int, float] = {}
        self._stuck: tuple[int, int] = (-1, -1)
        self._is_kept = False
        self.newest = -inf  # when the last one came
        self.held_until = -inf
        self._held = 0

    def __len__(self) -> int:
        return len(self._items)

    def join(self, lines: list["Line"]) -> None:
        """Share batches with all of these lines, which are of the same function. For use while they are empty."""
        self.siblings = [line for line in lines if line is not self]
        self._count = lines[0]._count

    @property
    def waiting(self) -> int:
        """How many invocations wait for the function, in all workflows."""
        return self._count[0]

    def add(self, invocation: Invocation, key: float) -> None:
        """Let an invocation wait that must have run by the instant `key`."""
        if invocation.id not in self._keys:
            self._keys[invocation.id] = key
            self.newest = max(self.newest, invocation.ready)
            self._items.add((key, invocation.id, invocation))
            self._count[0] += 1

    def discard(self, invocation: Invocation) -> None:
        """Take an invocation out."""
        key = self._keys.pop(invocation.id)
        self._items.remove((key, invocation.id, invocation))
        self._count[0] -= 1

    def first(self) -> Invocation:
        """The most urgent."""
        found: Invocation = self._items[0][2]
        return found

    def first_key(self) -> float:
        """By when the most urgent must have run; infinity for an empty line."""
        return float(self._items[0][0]) if self._items else inf

    def at(self, position: int) -> Invocation:
        """The invocation at this place of the line."""
        found: Invocation = self._items[position][2]
        return found

    def keys(self, most: int) -> list[float]:
        """By when the first of them must have run."""
        return [item[0] for item in self._items.islice(0, most)]

    def take(self, view: View, most: int, skipped: int, end: float) -> list[Invocation]:
        """Remove and return what runs together: the first of this line after those that are passed over, then others.

        Of the other lines of the function only invocations that are in time if the batch ends at the instant `end`.
        """
        found = list(self._pop(view, most, skipped))
        for line in self.siblings:
            if len(found) >= most:
                break
            late = line._items.bisect_left((end,))
            found += line._pop(view, most - len(found), late)
        return found

    def _pop(self, view: View, most: int, skipped: int) -> Iterator[Invocation]:
        while most and len(self._items) > skipped:
            _, number, invocation = self._items.pop(skipped)
            del self._keys[number]
            self._count[0] -= 1
            if view.is_waiting(invocation):
                most -= 1
                yield invocation

    def stick(self, epoch: int, *, is_kept: bool = False) -> None:
        """Note that nothing could be started for the first of the line, maybe for room that is kept for others."""
        self._stuck = (epoch, self.first().id if self._items else -1)
        self._is_kept = is_kept

    def was_kept_waiting(self, invocation: Invocation) -> bool:
        """Whether this invocation was the last to wait for room that was kept for others."""
        return self._is_kept and self._stuck[1] == invocation.id

    def is_stuck(self, epoch: int) -> bool:
        """Whether nothing has changed since then."""
        return self._stuck == (epoch, self.first().id if self._items else -1)

    def hold(self, until: float) -> None:
        """Wait until this instant for others to join the first."""
        self.held_until, self._held = until, self.waiting

    def is_held(self, now: float) -> bool:
        """Whether the first still waits for others, and none has come."""
        return now < self.held_until - 1e-9 and self.waiting == self._held
