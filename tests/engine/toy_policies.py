"""Policies for tests: they do as they are told."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from fairlead.policy import Action, Policy, Start, View

Deed = Callable[[View], Iterable[Action]]


def start_oldest(view: View) -> Iterator[Action]:
    """Everything that fits, oldest first, each in the first configuration of its function."""
    while (invocation := view.oldest()) is not None:
        configuration = view.profile(invocation.function).configurations[0]
        node = view.place(invocation.function, configuration)
        if node is None:
            return
        yield Start((invocation,), configuration, node)


@dataclass
class Doing(Policy):
    """A dispatcher that is one function of the view; it remembers when it was asked."""

    deed: Deed = start_oldest
    asked: list[float] = field(default_factory=list)

    def decide(self, view: View) -> Iterator[Action]:
        self.asked.append(view.now)
        yield from self.deed(view)


@dataclass
class Adjusting(Policy):
    """A scaler that does one list of actions per control period."""

    deeds: tuple[Deed, ...] = ()
    period: int = 0

    def adjust(self, view: View) -> Iterator[Action]:
        if self.period < len(self.deeds):
            yield from self.deeds[self.period](view)
        self.period += 1


def yielding(*actions: Action) -> Deed:
    """These actions, whatever the view."""
    return lambda view: iter(actions)
