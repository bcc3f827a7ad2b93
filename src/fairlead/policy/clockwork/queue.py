"""What waits for one model, by the instant at which it must be done, and the strategies that this allows.

A strategy is a batch size with the invocations that would fill it. The paper has a queue per model and batch size, from
whose head it drops what is too late for that size. In one order by target, what is too late for a batch size is
always a beginning, so the queue of a batch size is the rest after one binary search, and nothing is scanned.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from sortedcontainers import SortedList

from fairlead.model import Invocation
from fairlead.policy.clockwork.ladder import Rung

_MOST_MISSED = 64  # refused invocations to remember: as many workers as one model may ask for at once


class Entry(NamedTuple):
    """One invocation that waits, and the instant at which it should be done."""

    target: float
    id: int
    invocation: Invocation
    demand: float  # the share of a worker that it needs to be done in time


class Strategy(NamedTuple):
    """A batch that could start at the instant asked about; the least priority is the most urgent."""

    priority: float  # when it must start at the latest
    rung: Rung
    first: int  # place of its head in the queue
    size: int


class ModelQueue:
    """The invocations that wait for one function."""

    __slots__ = ("_entries", "_ids", "_missed", "demand", "function")

    def __init__(self, function: str) -> None:
        self.function = function
        self.demand = 0.0
        self._entries = SortedList()
        self._ids: dict[int, Entry] = {}
        self._missed: deque[Entry] = deque(maxlen=_MOST_MISSED)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def head(self) -> Entry:
        """The most urgent."""
        entry: Entry = self._entries[0]
        return entry

    def put(self, entry: Entry) -> None:
        """Let an entry wait, perhaps again."""
        self._entries.add(entry)
        self._ids[entry.id] = entry
        self.demand += entry.demand

    def miss(self, entry: Entry) -> None:
        """Remember the demand of an invocation that had to be refused, for as long as it would have waited."""
        self._missed.append(entry)

    def missed(self, now: float) -> float:
        """The demand of what was refused and would still wait."""
        while self._missed and self._missed[0].target <= now:
            self._missed.popleft()
        return sum([entry.demand for entry in self._missed])

    def discard(self, id: int) -> None:
        """Remove an invocation, if it waits here."""
        entry = self._ids.get(id)
        if entry is not None:
            self._entries.remove(entry)
            self._forget(entry)

    def take(self, strategy: Strategy) -> list[Entry]:
        """Take out the invocations of a strategy."""
        chosen = slice(strategy.first, strategy.first + strategy.size)
        taken: list[Entry] = self._entries[chosen]
        del self._entries[chosen]
        for entry in taken:
            self._forget(entry)
        return taken

    def urgency(self, rungs: Sequence[Rung]) -> float:
        """A bound below the priority of every strategy; `rungs` are largest first."""
        waiting = len(self._entries)
        longest = next((rung for rung in rungs if rung.batch <= waiting), rungs[-1])
        return self.head.target - longest.run.seconds

    def best(self, rungs: Sequence[Rung], start: float, extra_s: float = 0.0) -> Strategy | None:
        """The strategy to follow at an instant; None if nothing that waits can be done in time.

        The most urgent, unless it would make a larger batch too late: then that one, since the
        worker's time is what is short. `extra_s` comes on top of every run.
        """
        strategies = self._strategies(rungs, start, extra_s)
        if not strategies:
            return None
        urgent = min(strategies, key=lambda s: (s.priority, -s.size))
        for strategy in strategies:  # largest first
            if strategy.size <= urgent.size:
                break
            if start + extra_s + urgent.rung.run.seconds > strategy.priority:
                return strategy
        return urgent

    def _strategies(self, rungs: Sequence[Rung], start: float, extra_s: float) -> list[Strategy]:
        found: list[Strategy] = []
        entries = self._entries
        waiting = len(entries)
        for rung in rungs:
            if rung.batch > waiting and rung is not rungs[-1]:
                continue
            run_s = rung.run.seconds + extra_s
            first = entries.bisect_left((start + run_s,))
            size = min(rung.batch, waiting - first)
            if size == rung.batch or (size and rung is rungs[-1]):
                found.append(Strategy(entries[first].target - run_s, rung, first, size))
        return found

    def _forget(self, entry: Entry) -> None:
        del self._ids[entry.id]
        self.demand = self.demand - entry.demand if self._entries else 0.0  # an empty queue forgets rounding
