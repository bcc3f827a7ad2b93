"""The order of the tasks in a list: `then` makes it a graph, and only some graphs are sequences with branches.

Position n, behind the last task, stands for leaving the list. Every jump goes forward, so that positions are in
topological order.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from fairlead.app.compose import Body, Chain, Label, Switch, label_of, steps, switch
from fairlead.app.dsl.document import DIRECTIVES, Reader
from fairlead.app.expression import Cases, Expression
from fairlead.errors import suggestion


def meetings(successors: Sequence[Sequence[int]]) -> list[int]:
    """For each position the first one behind it through which all ways from it lead: its immediate post-dominator."""
    end = len(successors)
    found = [end] * end + [end]
    for position in reversed(range(end)):
        first, *others = successors[position]
        for other in others:
            first = _common(first, other, found)
        found[position] = first
    return found


def _common(one: int, other: int, found: Sequence[int]) -> int:
    while one != other:
        if one < other:
            one = found[one]
        else:
            other = found[other]
    return one


class PendingSwitch(msgspec.Struct, frozen=True):
    """A switch whose arms are still positions in its list."""

    task: Reader
    conditions: tuple[tuple[str, Expression], ...]
    default: str
    targets: Mapping[str, int]
    weights: Mapping[Label, float] | None

    def body(self, meeting: int, arm: Callable[[int], Body]) -> Switch:
        """The switch, all of whose arms end at the meeting point. Cases that lead to one task are one arm."""
        first: dict[int, str] = {}
        same = {label: label if to == meeting else first.setdefault(to, label) for label, to in self.targets.items()}
        arms: dict[Label, Body | None] = {}
        for label, to in sorted(self.targets.items(), key=lambda each: each[1]):  # in the order of their tasks
            if same[label] == label:
                arms[label] = None if to == meeting else arm(to)
        weights: dict[Label, float] | None = None
        if self.weights is not None:
            weights = {}
            for key, weight in self.weights.items():
                label = same.get(label_of(key), label_of(key))
                weights[label] = weights[label] + weight if label in weights else weight
        conditions = tuple((same[label], condition) for label, condition in self.conditions)
        return switch(Cases(conditions, same[self.default]), arms, weights=weights)


class TaskList:
    """The tasks of a list and where each goes next; `len` is behind the last."""

    def __init__(self, tasks: Sequence[tuple[str, Reader]], is_top: bool) -> None:
        self._positions = {name: i for i, (name, _) in enumerate(tasks)}
        self._is_top = is_top
        self.tasks = [task for _, task in tasks]
        self.successors = [[i + 1] for i in range(len(tasks))]

    def target(self, i: int, reader: Reader, *, is_needed: bool) -> int:
        """Where the `then` of a task or a case leads from this position; to the next if there is none."""
        then = reader.text("then", is_needed=is_needed)
        if then is None or then == "continue":
            return i + 1
        if then in DIRECTIVES:
            if then == "end" and not self._is_top:
                reader.fault("then", "end is supported in the outermost list only; exit leaves this one.")
            return len(self.tasks)
        if then not in self._positions:
            hint = suggestion(then, self._positions)
            reader.fault("then", f"there is no task {then!r} in this list.{hint}")
            return i + 1
        if self._positions[then] <= i:
            reader.fault("then", f"a jump back, to {then!r}, is not supported; for repeats.")
            return i + 1
        return self._positions[then]

    def follow(self, found: Sequence[Body | PendingSwitch | None]) -> Body:
        """The tasks as one body. What is reached in two ways, or never, is a fault; so is what `switch` refuses."""
        meeting = meetings(self.successors)
        seen: set[int] = set()

        def follow(position: int, stop: int) -> Body:
            parts: list[Body] = []
            while position != stop:
                task, part = self.tasks[position], found[position]
                if position in seen:
                    task.fault(
                        None, "is reached in two ways, which no sequence with branches can do; let arms meet once."
                    )
                    break
                seen.add(position)
                if isinstance(part, PendingSwitch):
                    parts.append(part.body(meeting[position], lambda to: follow(to, meeting[position])))  # noqa: B023
                    position = meeting[position]
                else:
                    assert part is not None
                    parts += steps(part)
                    position = self.successors[position][0]
            return parts[0] if len(parts) == 1 else Chain(tuple(parts))

        body = follow(0, len(self.tasks))
        for position, task in enumerate(self.tasks):
            if position not in seen:
                task.fault(None, "is never reached.")
        return body
