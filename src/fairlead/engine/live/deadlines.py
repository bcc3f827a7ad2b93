"""Timers of requests whose callers wait: one heap and one timer of the event loop for all of them.

An entry is three numbers, so that nothing of a request is kept once it has ended; what is outdated is dropped in
passing.
"""

import asyncio
from collections.abc import Callable, Container, Sized
from heapq import heapify, heappop, heappush
from math import inf
from typing import Protocol

_SLACK = 1024  # outdated entries that are not worth looking for
_ROUNDING_S = 0.001  # the loop's timers are rounded to milliseconds, and may not fire before they are due


class Open(Container[int], Sized, Protocol):
    """The requests that are open, by number."""


class Deadlines:
    """Calls `look(request, last)` at the instant that each request was added for, while the request is open.

    Args:
        clock: Seconds since the run began.
        requests: Those that are open.
        look: Gives the instant at which to look at this request again; infinity for never. `last` is passed through.
    """

    __slots__ = ("_armed_at", "_clock", "_heap", "_limit", "_look", "_open", "_timer")

    def __init__(self, clock: Callable[[], float], requests: Open, look: Callable[[int, float], float]) -> None:
        self._clock = clock
        self._open = requests
        self._look = look
        self._heap: list[tuple[float, int, float]] = []
        self._limit = _SLACK
        self._timer: asyncio.TimerHandle | None = None
        self._armed_at = inf

    def __len__(self) -> int:
        """How many entries there are, outdated ones included."""
        return len(self._heap)

    def add(self, at: float, request: int, last: float) -> None:
        """Look at a request at an instant."""
        heappush(self._heap, (at, request, last))
        if len(self._heap) > self._limit:
            self._tidy()
        if at < self._armed_at:
            self._arm(at)

    def close(self) -> None:
        """Look at nothing any more."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0.0, at - self._clock()) + _ROUNDING_S
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._fire)
        self._armed_at = at

    def _fire(self) -> None:
        self._timer, self._armed_at = None, inf
        heap, is_open = self._heap, self._open.__contains__
        now = self._clock()
        while heap and (heap[0][0] <= now or not is_open(heap[0][1])):
            _, request, last = heappop(heap)
            if is_open(request):
                again = self._look(request, last)
                if again < inf:
                    heappush(heap, (max(again, now + _ROUNDING_S), request, last))
        if heap:
            self._arm(heap[0][0])

    def _tidy(self) -> None:
        """Drop the entries of requests that have ended."""
        is_open = self._open.__contains__
        self._heap = [entry for entry in self._heap if is_open(entry[1])]
        heapify(self._heap)
        self._limit = 2 * len(self._heap) + _SLACK
