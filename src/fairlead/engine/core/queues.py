"""What waits: one line over all, one per (workflow, function), and an index by deadline made when first asked for.

Invocations become ready in time order, so a line is a list that only grows at its end; what has left is skipped.
Walks stay valid while what they yield is started, which is how policies use them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sortedcontainers import SortedList

from fairlead.model import Invocation

if TYPE_CHECKING:
    from fairlead.engine.core.progress import RequestState, StagePlan, WorkflowPlan

Task = tuple[Invocation, "RequestState", "StagePlan"]

_SLACK = 1024


class Line:
    """Invocations in the order in which they became ready; some of them may have left."""

    __slots__ = ("_start", "items", "limit", "size")

    def __init__(self) -> None:
        self.items: list[Invocation] = []
        self.limit = _SLACK  # how long the list may grow before it is cleared of what has left
        self.size = 0  # how many wait
        self._start = 0  # everything before has left

    def walk(self, tasks: dict[Invocation, Task]) -> Iterator[Invocation]:
        """What still waits, oldest first; each is looked at when it is reached."""
        items, start = self.items, self._start
        try:
            while items[start] not in tasks:
                start += 1
        except IndexError:
            pass
        self._start = start
        iterator = iter(items)
        iterator.__setstate__(start)  # type: ignore[attr-defined]  # a list iterator can jump
        return filter(tasks.__contains__, iterator)

    def tidy(self, tasks: dict[Invocation, Task]) -> None:
        """Forget what has left. Walks under way would lose their place, so never while a policy decides."""
        self.items[:] = [invocation for invocation in self.items if invocation in tasks]
        self.limit = 2 * len(self.items) + _SLACK
        self._start = 0


class Waiting:
    """Every waiting invocation, with its task, and the lines it stands in."""

    __slots__ = ("_by_deadline", "_items", "_next_id", "all", "queues", "tasks")

    def __init__(self) -> None:
        self.tasks: dict[Invocation, Task] = {}
        self.all = Line()
        self._items = self.all.items
        self._next_id = -1
        self.queues: dict[tuple[str, str], Line] = {}
        self._by_deadline: SortedList | None = None

    def queue(self, workflow: str, function: str) -> Line:
        """The line of one function of one workflow."""
        return self.queues.setdefault((workflow, function), Line())

    def add(self, state: "RequestState", stage: "StagePlan", item: int, attempt: int, now: float) -> Invocation:
        """A new invocation that waits from now on. It carries the request's one deadline."""
        request = state.request
        self._next_id = id = self._next_id + 1
        invocation = Invocation(
            id, request.id, request.workflow, stage.name, stage.function_name, now, request.deadline, item, attempt
        )
        self.tasks[invocation] = (invocation, state, stage)
        self._items.append(invocation)
        queue = stage.queue
        queue.items.append(invocation)
        queue.size += 1
        state.invocations.append(invocation)
        if self._by_deadline is not None:
            self._by_deadline.add((invocation.deadline, id, invocation))
        return invocation

    def remove(self, task: Task) -> None:
        """Let an invocation go."""
        invocation = task[0]
        del self.tasks[invocation]
        task[2].queue.size -= 1
        if self._by_deadline is not None:
            self._by_deadline.remove((invocation.deadline, invocation.id, invocation))

    def tidy(self, plan: "WorkflowPlan") -> None:
        """Keep the common line and those of a workflow from growing with what has left."""
        if len(self.all.items) > self.all.limit:
            self.all.tidy(self.tasks)
            for stage in plan.stages:
                stage.queue.tidy(self.tasks)

    def by_deadline(self) -> Iterator[Invocation]:
        """What waits, most urgent first, then by id."""
        if self._by_deadline is None:
            self._by_deadline = SortedList((i.deadline, i.id, i) for i in self.tasks)
        index = self._by_deadline
        position = 0
        while position < len(index):
            key = index[position]
            yield key[2]
            position = index.bisect_right(key)  # what was yielded may have left, and others with it
