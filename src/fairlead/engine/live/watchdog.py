"""The watchdog: a thread that ends a gateway whose event loop stands still, or whose journal's thread has died.

Such a process holds its connections and answers none of them. Its supervisor starts another, which has the journal.
"""

import asyncio
import faulthandler
import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType

FAULTY = 70
"""The exit code of a gateway that ends because of a fault of its own."""

_TICKS = 20  # per limit


class Watchdog:
    """Watches the running loop while it is entered.

    Time is counted in ticks of the watching thread itself. When the whole process or machine is stopped for a while,
    that thread stands still too, and a stop of an hour counts as one tick.

    Args:
        limit_s: A loop that runs nothing for this long has stalled.
        death: Says why something that the process cannot live without is dead; None while all is well.
        say: Gets the line that says why the process ends.
        end: Ends the process.
    """

    def __init__(
        self,
        limit_s: float,
        death: Callable[[], str | None],
        say: Callable[[str], None],
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._limit_s = limit_s
        self._tick_s = limit_s / _TICKS
        self._death = death
        self._say = say
        self._end = end
        self._has_beaten = True
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fairlead-watchdog", daemon=True)
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> "Watchdog":
        self._loop = asyncio.get_running_loop()
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._done.set()
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self._has_beaten = True
        self._timer = self._loop.call_later(self._tick_s, self._beat)

    def _watch(self) -> None:
        missed = 0
        while not self._done.wait(self._tick_s):
            missed = 0 if self._has_beaten else missed + 1
            self._has_beaten = False
            if missed >= _TICKS - 2:  # the beat before the first that was missed is up to two ticks old
                self._give_way(f"the event loop has stood still for {self._limit_s:g} s")
                return
            if (why := self._death()) is not None:
                self._give_way(f"the journal's thread has died: {why}")
                return

    def _give_way(self, why: str) -> None:
        threading.Timer(1.0, self._end, (FAULTY,)).start()  # should the log itself be what stands still
        self._say(f"{why}; the gateway starts again. What its threads were doing:")
        faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
        self._end(FAULTY)
