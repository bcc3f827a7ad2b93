"""The controller's own timers: keep-alive of idle instances, limits, retries, control periods, policies' wishes.

Keep-alive is by far the most frequent and almost never fires: the instance is used again first. Since each function's
is constant, expiries queue up in time order, without a heap, and outdated ones are dropped in passing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.engine.core.capacity import InstanceState

MOST_OUTDATED = 4096
"""Expiries beyond which outdated ones are looked for: one instance that idles long would keep all that follow it."""

Expiries = deque[tuple[float, "InstanceState", int]]  # when, who, and its stamp at the time


class Timers:
    """What will happen by itself, and when. `soonest` is a bound that is quick to read: nothing is due before."""

    __slots__ = ("_calls", "_expiries", "_limit", "_limits", "_running", "_sequence", "soonest")

    def __init__(self, running: Container[int] = ()) -> None:
        self.soonest = inf
        self._running = running  # batches, by id
        self._limits: list[tuple[float, int]] = []  # when a batch has run too long, and which
        self._sequence = 0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._expiries: dict[float, Expiries] = {}
        self._limit = MOST_OUTDATED

    def expiries(self, keep_alive_s: float) -> Expiries:
        """Where instances with this keep-alive queue up to expire; whoever appends must also lower `soonest`."""
        return self._expiries.setdefault(keep_alive_s, deque())

    def limit(self, instant: float, batch: int) -> None:
        """Note when a batch has run too long. One that ended before wakes nobody, and is forgotten in passing."""
        heappush(self._limits, (instant, batch))
        if instant < self.soonest:
            self.soonest = instant

    def at(self, instant: float, call: Callable[[], None]) -> None:
        """Have something called at an instant."""
        self._sequence += 1
        heappush(self._calls, (instant, self._sequence, call))
        if instant < self.soonest:
            self.soonest = instant

    def fire(self, now: float, expire: Callable[[InstanceState], None], overrun: Callable[[int], None]) -> None:
        """Do all that is due; `expire` and `overrun` are told of idle instances and of batches."""
        for expiries in self._expiries.values():
            while expiries and expiries[0][0] <= now:
                _, instance, stamp = expiries.popleft()
                if instance.is_idle and instance.stamp == stamp:
                    expire(instance)
        calls = self._calls
        while calls and calls[0][0] <= now:
            heappop(calls)[2]()
        limits = self._limits
        while limits and limits[0][0] <= now:
            overrun(heappop(limits)[1])
        self.next()

    def next(self) -> float:
        """When the next timer is due, exactly; infinity if none is set."""
        soonest = self._calls[0][0] if self._calls else inf
        limits, running = self._limits, self._running
        while limits:
            at, batch = limits[0]
            if batch in running:
                if at < soonest:
                    soonest = at
                break
            heappop(limits)
        for expiries in self._expiries.values():
            if len(expiries) > self._limit:
                self._tidy(expiries)
            while expiries:
                at, instance, stamp = expiries[0]
                if instance.is_idle and instance.stamp == stamp:
                    if at < soonest:
                        soonest = at
                    break
                expiries.popleft()  # it was used again, or stopped
        self.soonest = soonest
        return soonest

    def _tidy(self, expiries: Expiries) -> None:
        current = [entry for entry in expiries if entry[1].is_idle and entry[1].stamp == entry[2]]
        expiries.clear()
        expiries.extend(current)
        self._limit = max(self._limit, 2 * len(current))
