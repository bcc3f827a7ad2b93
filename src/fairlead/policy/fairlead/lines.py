"""Queues, one per stage of each workflow, by the latest instant at which a run must end."""

from math import inf

from sortedcontainers import SortedList

from fairlead.model import Invocation
from fairlead.policy.base import View
from fairlead.policy.fairlead.outlook import Step

_NONE = (inf, -1, Invocation(-1, -1, "", "", "", inf, inf))


class Waiting:
    """How many invocations wait, and in which lines."""

    def __init__(self) -> None:
        self.number = 0
        self._lines: list[Line] = []
        self._filled: set[int] = set()  # places of lines in the order in which they were made

    def enter(self, line: "Line") -> int:
        """Know a new line, in which nothing waits; gives its place among all."""
        self._lines.append(line)
        return len(self._lines) - 1

    def fill(self, place: int) -> None:
        """Note that something waits in a line from now on."""
        self._filled.add(place)

    def empty(self, place: int) -> None:
        """Note that nothing waits in a line any more."""
        self._filled.discard(place)

    def lines(self) -> list["Line"]:
        """The lines in which something waits now, always in the same order."""
        return [self._lines[place] for place in sorted(self._filled)] if self._filled else []


class Line:
    """Waiting invocations of one stage, the most urgent first."""

    def __init__(self, name: tuple[str, str], step: Step, everywhere: Waiting) -> None:
        self.name = name
        self.step = step
        self.menu = step.menu
        self.size = 0  # how many wait in it
        self.siblings: list[Line] = []  # of the same function, with which it shares batches
        self._count = [0]  # of those that wait in it and in its siblings
        self._everywhere = everywhere
        self._place = everywhere.enter(self)
        self._items: SortedList = SortedList()
        self._first: tuple[float, int, Invocation] = _NONE
        self._keys: dict[int, float] = {}
        self._stuck: tuple[int, int] = (-1, -1)
        self._is_kept = False
        self.newest = -inf  # when the last one came
        self.held_until = -inf
        self._held = 0

    def __len__(self) -> int:
        return self.size

    def join(self, lines: list["Line"]) -> None:
        """Share batches with all of these lines, which are of the same function. For use while they are empty."""
        self.siblings = [line for line in lines if line is not self]
        self._count = lines[0]._count

    @property
    def waiting(self) -> int:
        """How many invocations wait for the function, in all workflows."""
        return self._count[0]

    def late_for(self, end: float) -> int:
        """How many that wait for the function, in all workflows, would be late if their run ended at this instant."""
        return sum(line._items.bisect_left((end,)) for line in (self, *self.siblings))

    def add(self, invocation: Invocation, key: float) -> None:
        """Let an invocation wait that must have run by the instant `key`."""
        if invocation.id not in self._keys:
            self._keys[invocation.id] = key
            self.newest = max(self.newest, invocation.ready)
            item = (key, invocation.id, invocation)
            self._items.add(item)
            if not self.size or item < self._first:
                self._first = item
            self._counted(1)

    def discard(self, invocation: Invocation) -> None:
        """Take an invocation out."""
        key = self._keys.pop(invocation.id)
        self._items.remove((key, invocation.id, invocation))
        self._counted(-1)
        self._first = self._items[0] if self.size else _NONE

    def _counted(self, more: int) -> None:
        before = self.size
        self.size = after = before + more
        self._count[0] += more
        self._everywhere.number += more
        if not before:
            self._everywhere.fill(self._place)
        elif not after:
            self._everywhere.empty(self._place)

    def first(self) -> Invocation:
        """The most urgent; for use where any waits."""
        return self._first[2]

    def first_key(self) -> float:
        """By when the most urgent must have run; infinity for an empty line."""
        return self._first[0]

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
        found = self._pop(view, most, skipped)
        for line in self.siblings:
            if len(found) >= most:
                break
            if not line.size:
                continue
            late = line._items.bisect_left((end,))
            found += line._pop(view, most - len(found), late)
        return found

    def _pop(self, view: View, most: int, skipped: int) -> list[Invocation]:
        found: list[Invocation] = []
        while len(found) < most and self.size > skipped:
            _, number, invocation = self._items.pop(skipped)
            del self._keys[number]
            self._counted(-1)
            if view.is_waiting(invocation):
                found.append(invocation)
        self._first = self._items[0] if self.size else _NONE
        return found

    def stick(self, epoch: int, *, is_kept: bool = False) -> None:
        """Note that nothing could be started for the first of the line, maybe for room that is kept for others."""
        self._stuck = (epoch, self._first[1])
        self._is_kept = is_kept

    def was_kept_waiting(self, invocation: Invocation) -> bool:
        """Whether this invocation was the last to wait for room that was kept for others."""
        return self._is_kept and self._stuck[1] == invocation.id

    def is_stuck(self, epoch: int) -> bool:
        """Whether nothing has changed since then."""
        return self._stuck == (epoch, self._first[1])

    def hold(self, until: float) -> None:
        """Wait until this instant for others to join the first."""
        self.held_until, self._held = until, self.waiting

    def is_held(self, now: float) -> bool:
        """Whether the first still waits for others, and none has come."""
        return now < self.held_until - 1e-9 and self.waiting == self._held
