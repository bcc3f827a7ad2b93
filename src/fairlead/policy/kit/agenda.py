"""Names in order of urgency, for choosing among many of which few change between two decisions."""

from heapq import heappop, heappush
from math import inf

_STEP = 1e-9  # urgencies this close are the same


class Agenda:
    """Names, each with a number; the least number comes first. An offer can only move a name forward.

    Offering and taking cost the logarithm of the number of offers.
    """

    __slots__ = ("_heap", "_numbers")

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []  # with numbers that no longer hold; those are skipped
        self._numbers: dict[str, float] = {}

    def offer(self, name: str, number: float) -> None:
        """List a name under this number, unless it is listed under one at most as large."""
        if number < self._numbers.get(name, inf):
            self._numbers[name] = number
            heappush(self._heap, (number, name))

    def take(self) -> str | None:
        """Remove the first name and return it; None if nothing is listed."""
        self._skip()
        if not self._heap:
            return None
        name = heappop(self._heap)[1]
        del self._numbers[name]
        return name

    def is_first(self, number: float) -> bool:
        """Whether no listed name comes before this number."""
        self._skip()
        return not self._heap or number <= self._heap[0][0] + _STEP

    def _skip(self) -> None:
        while self._heap and self._numbers.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
