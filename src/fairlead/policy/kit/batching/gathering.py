"""What batching strategies share: the batch sizes of each function, who could join, and wakes asked for once."""

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from typing import Literal, NamedTuple, Protocol

from fairlead.model import Configuration, Invocation, Record
from fairlead.policy.base import Order, Site, Start, View, Wake

Urgency = Literal["oldest", "deadline"]


class Step(NamedTuple):
    """What to do about a head: `action` (None: nothing more), and whether its function is `full` or `held`.

    Full: there is no room for it. Held: it waits by choice, and the wake that ends the wait has been asked for.
    """

    action: Start | Wake | None
    is_full: bool = False
    is_held: bool = False


class Batcher(Protocol):
    """A batching strategy at work in one run."""

    def next(self, view: View, head: Invocation, order: Order = "warm-first") -> Step:
        """How to start this waiting invocation now, and with whom."""
        ...

    def observe(self, record: Record) -> None:
        """See one finished invocation."""
        ...


def starts(
    batcher: Batcher,
    view: View,
    heads: Iterable[Invocation],
    order: Order = "warm-first",
    *,
    functions: int,
    is_strict: bool = False,
) -> Iterator[Start | Wake]:
    """Start as many of these heads as there is room for, in their order, each with those who go along.

    A head that was passed over is tried again at once. It stops when so many `functions` are full or held back;
    if it `is_strict`, when the first is full.
    """
    closed: set[str] = set()
    for head in heads:
        while head.function not in closed and view.is_waiting(head):
            step = batcher.next(view, head, order)
            if step.action is not None:
                yield step.action
            if step.is_full or step.is_held:
                closed.add(head.function)
                if len(closed) == functions or (step.is_full and is_strict):
                    return


class Gathering:
    """Who waits for a function, over all workflows, and in which batch sizes it runs."""

    def __init__(self, site: Site, urgency: Urgency) -> None:
        self._by_deadline = urgency == "deadline"
        self._callers: dict[str, list[str]] = {}  # by function: the workflows that use it
        for name, workflow in site.workflows.items():
            for function in workflow.functions:
                self._callers.setdefault(function, []).append(name)
        self.sizes = {name: by_batch(profile.configurations) for name, profile in site.profiles.items()}
        self._wakes: set[float] = set()  # asked for and still to come
        self._held: dict[tuple[str, str], tuple[float, int]] = {}  # by queue: when a head was held back, and which

    def line(self, view: View, head: Invocation) -> Iterator[Invocation]:
        """The head, then those who may go along; never two competing copies of one item, which would end together.

        By deadline, the order is right between workflows; within one queue it is that in which they became ready.
        """
        lines = [view.by_ready(workflow, head.function) for workflow in self._callers[head.function]]
        return _distinct(head, merge(*lines, key=self._rank))

    def wait(self, view: View, head: Invocation, until: float) -> Step:
        """Hold the head back until an instant in the future."""
        self._held[head.workflow, head.function] = view.now, head.id
        if until in self._wakes:
            return Step(None, is_held=True)
        self._wakes = {at for at in self._wakes if at > view.now} | {until}
        return Step(Wake(until), is_held=True)

    def is_held(self, view: View, head: Invocation) -> bool:
        """Whether it was held back at this very instant: that others have taken room since is no news."""
        return self._held.get((head.workflow, head.function)) == (view.now, head.id)

    def _rank(self, invocation: Invocation) -> tuple[float, int]:
        return (invocation.deadline if self._by_deadline else invocation.ready), invocation.id


def by_batch(configurations: Iterable[Configuration]) -> Mapping[int, list[Configuration]]:
    """Configurations by batch size, ascending."""
    found: dict[int, list[Configuration]] = {}
    for configuration in sorted(configurations, key=lambda configuration: configuration.batch):
        found.setdefault(configuration.batch, []).append(configuration)
    return found


def _distinct(head: Invocation, line: Iterable[Invocation]) -> Iterator[Invocation]:
    yield head
    taken = {(head.request, head.stage, head.item)}
    for invocation in line:
        key = (invocation.request, invocation.stage, invocation.item)
        if key not in taken:
            taken.add(key)
            yield invocation
