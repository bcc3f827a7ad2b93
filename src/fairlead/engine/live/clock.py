"""The two clocks that the live layer reads: one that only goes forward, and the wall clock, which can be set.

They are passed to whatever measures time, so that the same code runs on virtual time (`fairlead.testing.virtual`). The
event loop's own clock is no substitute: uvloop's has a resolution of a millisecond.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, time


@dataclass(frozen=True, slots=True)
class Clock:
    """Where instants come from. `now` is in seconds and never goes back; `wall` is Unix time, and may jump."""

    now: Callable[[], float] = monotonic
    wall: Callable[[], float] = time


REAL = Clock()
"""The clocks of this machine."""
