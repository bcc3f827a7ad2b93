"""What waits: one line over all, one per (workflow, function), and rankings by deadline made when first asked for.

Invocations become ready in time order, so a line is a list that only grows at its end; what has left is skipped.
Walks stay valid while what they yield is started, which is how policies use them.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sortedcontainers import SortedList

from fairlead.model import Invocation

if TYPE_CHECKING:
    from fairlead.engine.core.progress import RequestState, StagePlan

Task = tuple[Invocation, "RequestState", "StagePlan"]

_SLACK = 1024


class Line:
    """Invocations in the order in which they became ready; some of them may have left."""

    __slots__ = ("_start", "items", "limit", "number", "size")

    def __init__(self, number: int = -1) -> None:
        self.number = number  # of single queues, their place in the fixed order
        self.items: list[Invocation] = []
        self.limit = _SLACK  # how long the list may grow before it is cleared of what has left
        self.size = 0  # how many wait; kept for the lines of single queues
        self._start = 0  # everything before has left

    def oldest(self, tasks: dict[Invocation, Task]) -> Invocation | None:
        """The one that has waited longest; None if none waits."""
        items, start = self.items, self._start
        try:
            while (invocation := items[start]) not in tasks:
                start += 1
        except IndexError:
            return None
        self._start = start
        return invocation

    def walk(self, tasks: dict[Invocation, Task]) -> Iterator[Invocation]:
        """What still waits, oldest first; each is looked at when it is reached."""
        self.oldest(tasks)
        iterator = iter(self.items)
        iterator.__setstate__(self._start)  # type: ignore[attr-defined]  # a list iterator can jump
        return filter(tasks.__contains__, iterator)

    def tidy(self, tasks: dict[Invocation, Task]) -> None:
        """Forget what has left. Walks under way would lose their place, so never while a policy decides."""
        self.items[:] = [invocation for invocation in self.items if invocation in tasks]
        self.limit = 2 * len(self.items) + _SLACK
        self._start = 0


class Ranking:
    """Waiting invocations, the most urgent first, then by id."""

    __slots__ = ("_keys",)

    def __init__(self, invocations: Iterable[Invocation]) -> None:
        self._keys = SortedList((i.deadline, i.id, i) for i in invocations)

    def add(self, invocation: Invocation) -> None:
        """Take in an invocation that waits from now on."""
        self._keys.add((invocation.deadline, invocation.id, invocation))

    def remove(self, invocation: Invocation) -> None:
        """Let one go."""
        self._keys.remove((invocation.deadline, invocation.id, invocation))

    def first(self) -> Invocation | None:
        """The most urgent; None if none waits."""
        keys = self._keys
        return keys[0][2] if keys else None

    def walk(self) -> Iterator[Invocation]:
        """All of them; what was yielded may leave, and others with it."""
        keys, position = self._keys, 0
        while position < len(keys):
            key = keys[position]
            yield key[2]
            position = keys.bisect_right(key)


class Waiting:
    """Every waiting invocation, with its task, and the lines it stands in.

    The lines of single queues and each ranking by deadline are kept from the first time a policy asks for them.
    """

    __slots__ = (
        "_blocked",
        "_filled",
        "_items",
        "_lines",
        "_next_id",
        "_numbers",
        "_rankings",
        "_ready",
        "all",
        "names",
        "tasks",
    )

    def __init__(self, ready: list[Invocation]) -> None:
        self.tasks: dict[Invocation, Task] = {}
        self._ready = ready  # where new ones are noted for the dispatcher
        self.all = Line()
        self.names: list[tuple[str, str]] = []  # every queue there can be, in a fixed order
        self._items = self.all.items
        self._next_id = -1
        self._lines: dict[tuple[str, str], Line] | None = None
        self._filled: set[int] = set()  # numbers of lines in which something waits, once they are kept
        self._blocked: set[int] = set()  # numbers of lines of which nothing can start
        self._numbers: dict[str, list[int]] = {}  # of lines, by function; made when they are first asked for
        self._rankings: dict[tuple[str | None, str | None], Ranking] = {}  # by workflow and function; None for all

    def add(
        self, state: "RequestState", stage: "StagePlan", item: int, attempt: int, now: float, copy: int = 0
    ) -> Invocation:
        """A new invocation that waits from now on. It carries the request's one deadline."""
        request = state.request
        self._next_id = id = self._next_id + 1
        invocation = Invocation(
            id,
            request.id,
            request.workflow,
            stage.name,
            stage.function_name,
            now,
            request.deadline,
            item,
            attempt,
            copy,
        )
        self.tasks[invocation] = (invocation, state, stage)
        self._items.append(invocation)
        state.invocations.append(invocation)
        if stage.copies > 1:
            state.races[stage.index, item].latest[copy] = invocation
        if self._lines is not None:
            _join(self._lines[stage.queue], invocation, self._filled)
        if self._rankings:
            for ranking in self._rankings_of(stage.queue):
                ranking.add(invocation)
        self._ready.append(invocation)
        return invocation

    def remove(self, task: Task) -> None:
        """Let an invocation go."""
        invocation = task[0]
        del self.tasks[invocation]
        if self._lines is not None:
            line = self._lines[task[2].queue]
            line.size -= 1
            if not line.size:
                self._filled.remove(line.number)
        if self._rankings:
            for ranking in self._rankings_of(task[2].queue):
                ranking.remove(invocation)

    def lines(self) -> dict[tuple[str, str], Line]:
        """What waits by (workflow, function)."""
        if self._lines is None:
            self._lines = {name: Line(number) for number, name in enumerate(self.names)}
            for invocation, _, stage in self.tasks.values():  # in the order in which they became ready
                _join(self._lines[stage.queue], invocation, self._filled)
        return self._lines

    def filled(self, *, can_start: bool = False) -> list[tuple[str, str]]:
        """The queues in which something waits, in their fixed order; those left out cost next to nothing."""
        self.lines()
        numbers = self._filled - self._blocked if can_start else self._filled
        return [self.names[number] for number in sorted(numbers)]

    def block(self, function: str, is_blocked: bool) -> None:
        """Say whether nothing of a function can start, because it is scaled and no replica is free."""
        if not self._numbers:
            for number, (_, name) in enumerate(self.names):
                self._numbers.setdefault(name, []).append(number)
        numbers = self._numbers.get(function, ())
        if is_blocked:
            self._blocked.update(numbers)
        else:
            self._blocked.difference_update(numbers)

    def tidy(self) -> None:
        """Keep the lines from growing with what has left."""
        self.all.tidy(self.tasks)
        for line in (self._lines or {}).values():
            line.tidy(self.tasks)

    def ranking(self, workflow: str | None = None, function: str | None = None) -> Ranking:
        """What waits of a workflow, of a function, of one queue or of all, by deadline."""
        found = self._rankings.get((workflow, function))
        if found is None:
            chosen = (
                invocation
                for invocation, _, stage in self.tasks.values()
                if workflow in (None, stage.queue[0]) and function in (None, stage.queue[1])
            )
            found = self._rankings[workflow, function] = Ranking(chosen)
        return found

    def _rankings_of(self, queue: tuple[str, str]) -> Iterator[Ranking]:
        """The rankings kept so far in which an invocation of this queue has its place."""
        workflow, function = queue
        for key in (queue, (None, function), (workflow, None), (None, None)):
            ranking = self._rankings.get(key)
            if ranking is not None:
                yield ranking


def _join(line: Line, invocation: Invocation, filled: set[int]) -> None:
    line.items.append(invocation)
    if not line.size:
        filled.add(line.number)
    line.size += 1
