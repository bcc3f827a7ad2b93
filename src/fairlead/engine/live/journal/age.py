"""How old what the journal keeps is, whatever is done to the wall clock."""

import sqlite3
from collections.abc import Callable


class Age:
    """The journal's own clock: seconds during which some gateway had the journal open.

    It only goes forward, and knows nothing of the wall clock, which may be set by days in either direction: results,
    keys and undelivered callbacks are forgotten when they have been kept for the retention time, and not because
    somebody corrected the date. Time while no gateway runs does not count. After a crash it goes on from the newest
    instant in the file.
    """

    def __init__(self, connection: sqlite3.Connection, elapsed: Callable[[], float]) -> None:
        query = "SELECT max(age_s, (SELECT coalesce(max(ended_on), 0) FROM requests)) FROM clock"
        self._elapsed = elapsed
        self._base: float = connection.execute(query).fetchone()[0] - elapsed()

    def now(self) -> float:
        """Seconds during which the journal has been open so far."""
        return self._base + self._elapsed()
