"""The timeline of a node with a long line of bookings: searches skip what is known to be busy."""

from bisect import bisect_right
from math import inf

from fairlead.planning.timeline import Demand, Timeline

_LONG = 64  # how many segments there are where searches are remembered
_REMEMBERED = 24  # how many searches are remembered
_ROUNDING = 1e-9
_NOTHING = (inf, -inf)


class BacklogTimeline(Timeline):
    """Gives the answers of a `Timeline`, in less time where there are many segments and room is often given back.

    A `Timeline` remembers where its searches ended, and forgets all that lies behind room that is given back. This one
    remembers, for each demand and duration, a stretch of time [since, until) in which no instant has the demand free
    for the duration. Searches for this duration or a longer one skip it. Room that is given back shortens the stretch.
    """

    __slots__ = ("_busy",)

    def __init__(self, capacity: tuple[int, ...]) -> None:
        super().__init__(capacity)
        self._busy: dict[tuple[Demand, float], tuple[float, float]] = {}

    def copy(self) -> "BacklogTimeline":
        """Another one with the same free amounts."""
        other = BacklogTimeline(self.capacity)
        other.times, other.free = self.times.copy(), [row.copy() for row in self.free]
        return other

    def earliest(self, after: float, duration: float, demand: Demand) -> float:
        """The first instant, not before `after`, from which the demand is free for `duration`; infinity if never."""
        busy = self._busy
        if len(self.times) < _LONG:
            if busy:
                busy.clear()
            return self._search(after, duration, demand)
        key = (demand, duration)
        since, until = busy.get(key, _NOTHING)
        if since == inf:
            for (other, shorter), known in busy.items():
                if shorter <= duration and known[1] - known[0] > until - since and other == demand:
                    since, until = known
        start = self._search_around(after, duration, demand, since, until)
        if since <= start and after <= until:
            busy[key] = (min(after, since), start)
        elif start - after > until - since:
            busy[key] = (after, start)
        if len(busy) > _REMEMBERED:
            del busy[next(iter(busy))]
        return start

    def _search_around(self, after: float, duration: float, demand: Demand, since: float, until: float) -> float:
        """As `earliest`, where no instant from `since` on and before `until` will do."""
        times, free = self.times, self.free
        start, last = (until if since <= after < until else after), len(times) - 1
        if start == inf:
            return inf
        index = bisect_right(times, start) - 1
        while True:
            row = free[index]
            for column, amount in demand:
                if row[column] < amount:
                    break
            else:
                if index == last or times[index + 1] >= start + duration:
                    return start
                index += 1
                continue
            if index == last:
                return inf
            index += 1
            start = times[index]
            if since <= start < until:
                start = until
                if start == inf:
                    return inf
                index = bisect_right(times, start) - 1

    def take(self, start: float, end: float, demand: Demand) -> None:
        """Use the demand from `start` to `end`, whether it is free or not."""
        if start < end:
            times, free = self.times, self.free
            first, last = self._split(start, end)
            for row in free[first:last]:
                for column, amount in demand:
                    row[column] -= amount
            for index in (last, first):  # a run right before or after another leaves no seam
                if index > 0 and free[index] == free[index - 1]:
                    del times[index], free[index]

    def forget(self, before: float) -> None:
        """Let go of what lies before an instant."""
        keep = bisect_right(self.times, before) - 1
        if keep > 0:
            del self.times[:keep], self.free[:keep]
            self.times[0] = -inf

    def give(self, start: float, end: float, demand: Demand) -> None:
        """Undo a `take` of the same, or a part of its time."""
        self.take(start, end, tuple([(column, -amount) for column, amount in demand]))
        for key, (since, until) in self._busy.items() if start < end else ():
            edge = start - key[1] - _ROUNDING  # a run that begins before this does not reach what is given back
            if edge < until and end > since:  # the longer part of what is left is remembered
                is_far = until - max(since, end) > edge - since
                self._busy[key] = (max(since, end), until) if is_far else (since, max(since, edge))
