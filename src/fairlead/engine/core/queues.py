"""What waits: one line over all, one per (workflow, function), and an index by deadline made when first asked for.

Invocations become ready in time order, so a line is a list that only grows at its end; what has left is skipped.
Walks stay valid while what they yield is started, which is how policies use them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sortedcontainers import SortedList

from fairlead.model import Invocation

if TYPE_CHECKING:
    from fairlead.engine.core.progress import RequestState, StagePlan

Task = tuple[Invocation, "RequestState", "StagePlan"]

_TRIM = 1024


class Line:
    """Invocations in the order in which they became ready."""

    __slots__ = ("_base", "_items", "_start", "size")

    def __init__(self) -> None:
        self._items: list[Invocation] = []
        self._start = 0  # everything before has left
        self._base = 0  # how many have been cut off the front
        self.size = 0  # how many wait

    def append(self, invocation: Invocation) -> None:
        self._items.append(invocation)
        self.size += 1

    def walk(self, waiting: dict[int, Task]) -> Iterator[Invocation]:
        """What still waits, oldest first."""
        items = self._items
        start = self._start
        while start < len(items) and items[start].id not in waiting:
            start += 1
        self._start = start
        if start > _TRIM and start * 2 > len(items):
            del items[:start]
            self._base += start
            self._start = start = 0
        position = self._base + start
        while True:
            i = position - self._base
            if i < 0:
                i, position = 0, self._base
            if i >= len(items):
                return
            invocation = items[i]
            position += 1
            if invocation.id in waiting:
                yield invocation


class Waiting:
    """Every waiting invocation, by id and in its lines."""

    def __init__(self) -> None:
        self.tasks: dict[int, Task] = {}
        self.all = Line()
        self.queues: dict[tuple[str, str], Line] = {}
        self._by_deadline: SortedList | None = None

    def queue(self, workflow: str, function: str) -> Line:
        """The line of one function of one workflow."""
        return self.queues.setdefault((workflow, function), Line())

    def add(self, task: Task) -> None:
        invocation = task[0]
        self.tasks[invocation.id] = task
        self.all.append(invocation)
        task[2].queue.append(invocation)
        if self._by_deadline is not None:
            self._by_deadline.add((invocation.deadline, invocation.id))

    def remove(self, task: Task) -> None:
        invocation = task[0]
        del self.tasks[invocation.id]
        self.all.size -= 1
        task[2].queue.size -= 1
        if self._by_deadline is not None:
            self._by_deadline.remove((invocation.deadline, invocation.id))

    def by_deadline(self) -> Iterator[Invocation]:
        """What waits, most urgent first, then by id."""
        if self._by_deadline is None:
            self._by_deadline = SortedList((task[0].deadline, id) for id, task in self.tasks.items())
        index = self._by_deadline
        position = 0
        while position < len(index):
            key = index[position]
            yield self.tasks[key[1]][0]
            # What was yielded may have left; what is more urgent may have come or gone with it.
            position = index.bisect_right(key)
