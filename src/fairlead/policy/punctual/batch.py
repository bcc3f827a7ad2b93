"""Which of those whose turn it is go in the next batch, and in what configuration. Pure functions."""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.model import Invocation
from fairlead.policy.punctual.pace import Pace
from fairlead.policy.punctual.work import Ladder, Queue


class Way(NamedTuple):
    """A way to run a function now: in one share of a node, there, after a cold start or none."""

    ladder: Ladder
    node: str
    pace: Pace
    cold_s: float

    def mean_s(self, rung: int) -> float:
        """Expected time to the end of a batch of the size at this place."""
        return self.cold_s + self.pace.mean_s(rung)


class Member(NamedTuple):
    """One that may go in the next batch, and how long from now the batch may take for it to be in time."""

    budget_s: float
    id: int
    invocation: Invocation
    queue: Queue


class Choice(NamedTuple):
    """A way to run a batch, the place of its size, and how many of the members go."""

    way: Way
    rung: int
    size: int

    @property
    def mean_s(self) -> float:
        """Expected time to its end."""
        return self.way.mean_s(self.rung)


def choose(ways: Sequence[Way], members: Sequence[Member]) -> Choice:
    """The cheapest way per invocation that is surely in time for all of them; if there is none, the quickest.

    Args:
        ways: At least one.
        members: Most urgent first; at least one.
    """
    total, budget_s = len(members), members[0].budget_s
    best: tuple[float, Choice] | None = None
    quickest: tuple[float, Choice] | None = None
    for way in ways:
        ladder, pace = way.ladder, way.pace
        rung = min(ladder.rung(total), ladder.top)
        count = min(total, ladder.sizes[rung])
        if rung and ladder.sizes[rung] > total:  # a smaller batch that is full may do more per second
            less = ladder.sizes[rung - 1]
            if pace.mean_s(rung - 1) / less < pace.mean_s(rung) / count:
                rung, count = rung - 1, less
        seconds = way.mean_s(rung)
        choice = Choice(way, rung, count)
        if quickest is None or seconds < quickest[0]:
            quickest = seconds, choice
        price = ladder.rate * seconds / count
        if way.cold_s + pace.upper_s(rung) <= budget_s and (best is None or price < best[0]):
            best = price, choice
    found = best or quickest
    assert found is not None, "there is at least one way"
    return found[1]


def spared(choice: Choice, modest_s: float) -> Choice:
    """The batch made so small that it ends within `modest_s`, about; it stays at least the smallest.

    For those who ask for less than their share: who asks for more must not make them late by filling their batches.
    Half way to what is surely in time is enough, as the others pay for this in smaller batches.
    """
    way, rung, size = choice
    cautious = (1 + way.pace.spread) / 2
    while rung and way.cold_s + way.pace.mean_s(rung) * cautious > modest_s:
        rung -= 1
    return Choice(way, rung, min(size, way.ladder.sizes[rung]))


def split(way: Way, members: Sequence[Member]) -> Choice | None:
    """A smaller batch that saves the most urgent, where the rest is in time behind it; None if there is none."""
    ladder, total = way.ladder, len(members)
    for rung in range(min(ladder.rung(total), ladder.top) - 1, -1, -1):
        count, first_s = ladder.sizes[rung], way.mean_s(rung)
        if count < total and first_s <= members[0].budget_s:
            rest_s = way.pace.mean_s(min(ladder.rung(total - count), ladder.top))
            return Choice(way, rung, count) if first_s + rest_s <= members[count].budget_s else None
    return None
