"""All connections of the gateway: their number, which of them makes room for a new one, and their time limits.

One sweep a few times per second looks at every connection's time limit, so that a request arms and cancels no timer.
"""

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from math import inf
from typing import Protocol

from fairlead.engine.live.gateway.access import AccessLog
from fairlead.engine.live.gateway.settings import Settings


class Census:
    """Counts of connections and of answers since the gateway started, for the metrics."""

    def __init__(self) -> None:
        self.accepted = 0
        self.refused = 0
        self.evicted = 0
        self.timed_out = 0
        self.statuses: dict[int, int] = {}  # answers by HTTP status

    def answered(self, status: int) -> None:
        """Count an answer."""
        self.statuses[status] = self.statuses.get(status, 0) + 1


class Guest(Protocol):
    """A connection, as this module sees it."""

    expires_at: float  # on the event loop's clock
    is_known: bool  # whether a request of it was authorised

    def expire(self) -> None:
        """Its time is up."""
        ...

    def leave(self) -> None:
        """Make room for another connection, at once."""
        ...

    def close(self) -> None:
        """End once all that was answered has been sent."""
        ...


class Connections:
    """The open connections.

    One that waits for a request, or for the rest of one, may be closed to make room for a new connection: first those
    that never sent an authorised request, the one that has waited longest first. One whose request is in work stays.
    """

    def __init__(self, settings: Settings) -> None:
        self.census = Census()
        self.date = b""
        self.is_closing = False
        self.access = None if settings.access_log is None else AccessLog(settings.access_log)
        self._settings = settings
        self._all: set[Guest] = set()
        self._strangers: dict[Guest, None] = {}  # waiting, in the order in which they began to; never authorised
        self._waiting: dict[Guest, None] = {}  # the same, authorised before
        limits = (settings.receive_limit_s, settings.idle_limit_s)
        self._period_s = max(0.02, min(0.5, min(limits) / 4))
        self._refresh_date()

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, guest: Guest) -> bool:
        """Take a connection in; False if there are too many and every one of them is in work."""
        self.census.accepted += 1
        if len(self._all) >= self._settings.max_connections:
            leaving = next(iter(self._strangers), None) or next(iter(self._waiting), None)
            if leaving is None:
                self.census.refused += 1
                return False
            self.census.evicted += 1
            self.gone(leaving)
            leaving.leave()
        self._all.add(guest)
        self.waits(guest)
        return True

    def waits(self, guest: Guest) -> None:
        """A connection has nothing in work."""
        (self._waiting if guest.is_known else self._strangers)[guest] = None

    def works(self, guest: Guest) -> None:
        """A request of a connection is in work."""
        self._waiting.pop(guest, None)
        self._strangers.pop(guest, None)

    def gone(self, guest: Guest) -> None:
        """A connection has ended."""
        self._all.discard(guest)
        self.works(guest)

    async def sweep(self, now: Callable[[], float]) -> None:
        """End what is out of time, until cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            self._refresh_date()
            instant = now()
            for guest in [guest for guest in self._all if guest.expires_at <= instant]:
                guest.expires_at = inf
                guest.expire()

    def close_idle(self) -> None:
        """End every connection that has nothing in work; the others end with their answer."""
        self.is_closing = True
        for guest in [*self._strangers, *self._waiting]:
            guest.close()

    async def emptied(self, limit_s: float) -> None:
        """Wait until no connection is left, for a limited time; then end those that are."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        while self._all and loop.time() < end:
            await asyncio.sleep(0.01)
        for guest in list(self._all):
            self.gone(guest)
            guest.leave()

    def _refresh_date(self) -> None:
        self.date = formatdate(usegmt=True).encode()
