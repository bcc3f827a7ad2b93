"""Which of the candidates go in the next batch, and in what configuration. Pure functions."""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.model import Invocation
from fairlead.policy.punctual.pace import Ladder, Pace
from fairlead.policy.punctual.work import Queue


class Way(NamedTuple):
    """A way to run a function now: in one share of a node, on this node, after a cold start or without one."""

    ladder: Ladder
    node: str
    pace: Pace
    cold_s: float

    def mean_s(self, rung: int) -> float:
        """Expected time until a batch of this size ends."""
        return self.cold_s + self.pace.mean_s(rung)


class Member(NamedTuple):
    """A candidate for the next batch, and how long from now the batch may take for it to be in time."""

    budget_s: float
    id: int
    invocation: Invocation
    queue: Queue


class Choice(NamedTuple):
    """A way to run a batch, its batch size as a rung, and how many of the members go."""

    way: Way
    rung: int
    size: int

    @property
    def mean_s(self) -> float:
        """Expected time until its end."""
        return self.way.mean_s(self.rung)


def choose(ways: Sequence[Way], members: Sequence[Member]) -> Choice:
    """The cheapest way per invocation that is in time for all members at the safe percentile, else the quickest.

    Args:
        ways: At least one.
        members: Most urgent first; at least one.
    """
    total, budget_s = len(members), members[0].budget_s
    found: list[tuple[bool, float, Choice]] = []  # whether it may be late; then its time, or else its price
    for way in ways:
        ladder, pace = way.ladder, way.pace
        rung = ladder.rung(total)
        count = min(total, ladder.sizes[rung])
        if rung and ladder.sizes[rung] > total:  # a smaller batch that is full may have the higher throughput
            less = ladder.sizes[rung - 1]
            if pace.mean_s(rung - 1) / less < pace.mean_s(rung) / count:
                rung, count = rung - 1, less
        choice = Choice(way, rung, count)
        is_late = way.cold_s + pace.upper_s(rung) > budget_s
        found.append((is_late, choice.mean_s if is_late else ladder.rate * choice.mean_s / count, choice))
    return min(found, key=lambda each: each[:2])[2]


def spared(choice: Choice, modest_s: float) -> Choice:
    """The batch made small enough to end within about `modest_s`, but not smaller than the smallest size.

    This keeps a workflow that asks for less than its share from being late because others fill its batches. The time
    kept is halfway between the mean and the safe time, since the others pay for it with smaller batches.
    """
    way, rung, size = choice
    cautious = (1 + way.pace.spread) / 2
    while rung and way.cold_s + way.pace.mean_s(rung) * cautious > modest_s:
        rung -= 1
    return Choice(way, rung, min(size, way.ladder.sizes[rung]))


def split(way: Way, members: Sequence[Member]) -> Choice | None:
    """A smaller batch in which the most urgent member is in time, with the rest in time behind it; None without one."""
    ladder, total = way.ladder, len(members)
    for rung in range(ladder.rung(total) - 1, -1, -1):
        count, first_s = ladder.sizes[rung], way.mean_s(rung)
        if count < total and first_s <= members[0].budget_s:
            rest_s = way.pace.mean_s(ladder.rung(total - count))
            return Choice(way, rung, count) if first_s + rest_s <= members[count].budget_s else None
    return None
