"""What is free on one machine over time: several amounts at once, as one step function.

Amounts are whole numbers, so that what is taken and given back adds up exactly. A demand is sparse:
(column, amount) pairs for the columns that it needs.
"""

from bisect import bisect_left, bisect_right
from math import inf

Demand = tuple[tuple[int, int], ...]


_LONG = 64  # how many segments there are where searches are remembered
_REMEMBERED = 8  # for how many demands the last search is remembered
_ROUNDING = 1e-9


class Timeline:
    """Free amounts from now on. Segment i lasts from `times[i]` to `times[i + 1]`, the last one for ever.

    Where there are many segments, the last search for each demand is remembered as (after, duration, start): no
    instant from `after` on and before `start` has the demand free for this duration or longer. A search behind a long
    line of bookings begins there.
    """

    __slots__ = ("_searched", "capacity", "free", "times")

    def __init__(self, capacity: tuple[int, ...]) -> None:
        self.capacity = capacity
        self.times: list[float] = [-inf]
        self.free: list[list[int]] = [list(capacity)]
        self._searched: dict[Demand, tuple[float, float, float]] = {}

    def earliest(self, after: float, duration: float, demand: Demand) -> float:
        """The first instant, not before `after`, from which the demand is free for `duration`; infinity if never."""
        searched = self._searched
        if len(self.times) < _LONG:
            if searched:
                searched.clear()
            return self._search(after, duration, demand)
        known = searched.get(demand)
        if known is None or after < known[0] or duration < known[1]:
            start = self._search(after, duration, demand)
            if len(searched) >= _REMEMBERED and known is None:
                searched.clear()
            searched[demand] = (after, duration, start)
            return start
        if after > known[2]:
            return self._search(after, duration, demand)
        start = self._search(known[2], duration, demand)
        if duration == known[1]:
            searched[demand] = (known[0], duration, start)
        return start

    def _search(self, after: float, duration: float, demand: Demand) -> float:
        times, free = self.times, self.free
        index = bisect_right(times, after) - 1
        start, last = after, len(times) - 1
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

    def fits(self, start: float, end: float, demand: Demand) -> bool:
        """Whether the demand is free all the time from `start` to `end`."""
        times, free = self.times, self.free
        index = bisect_right(times, start) - 1
        while index < len(times) and (times[index] < end or index == 0):
            row = free[index]
            for column, amount in demand:
                if row[column] < amount:
                    return False
            index += 1
        return True

    def free_at(self, instant: float) -> list[int]:
        """What is free at an instant; not to be changed."""
        return self.free[bisect_right(self.times, instant) - 1]

    def take(self, start: float, end: float, demand: Demand) -> None:
        """Use the demand from `start` to `end`, whether it is free or not."""
        if start < end:
            first, last = self._split(start, end)
            for row in self.free[first:last]:
                for column, amount in demand:
                    row[column] -= amount

    def give(self, start: float, end: float, demand: Demand) -> None:
        """Undo a `take` of the same, or a part of its time."""
        if start < end:
            times, free = self.times, self.free
            first, last = self._split(start, end)
            for row in free[first:last]:
                for column, amount in demand:
                    row[column] += amount
            for other, (after, duration, found) in self._searched.items():
                if start - duration - _ROUNDING < found:
                    self._searched[other] = (after, duration, max(after, start - duration - _ROUNDING))
            for index in (last, first):  # leave no seam behind
                if index > 0 and free[index] == free[index - 1]:
                    del times[index], free[index]

    def is_overdrawn(self, start: float, end: float) -> bool:
        """Whether more was taken than there is, at any time from `start` to `end`."""
        first = max(0, bisect_right(self.times, start) - 1)
        last = bisect_left(self.times, end)
        return any(amount < 0 for row in self.free[first:last] for amount in row)

    def forget(self, before: float) -> None:
        """Let go of what lies before an instant, and join segments that have become equal."""
        times, free = self.times, self.free
        keep = bisect_right(times, before) - 1
        if keep > 0:
            del times[:keep], free[:keep]
            times[0] = -inf
        for index in range(len(times) - 1, 0, -1):
            if free[index] == free[index - 1]:
                del times[index], free[index]

    def _split(self, start: float, end: float) -> tuple[int, int]:
        """The range of rows from `start` to `end`, split so that they cover nothing else."""
        times, free = self.times, self.free
        first = bisect_right(times, start) - 1
        if times[first] < start:
            first += 1
            times.insert(first, start)
            free.insert(first, free[first - 1].copy())
        last = bisect_right(times, end, first) - 1
        if times[last] < end:
            last += 1
            times.insert(last, end)
            free.insert(last, free[last - 1].copy())
        return first, last
