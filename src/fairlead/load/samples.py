"""What happened to each request, as columns: millions of rows stay small."""

from array import array
from math import nan

# How a request ended: the status of its answer, or one of these.
OPEN = 0
UNSENT = -1
TIMED_OUT = -2
NOT_CONNECTED = -3
CLOSED = -4
MALFORMED = -5

ERRORS = {
    TIMED_OUT: "no answer in time",
    NOT_CONNECTED: "no connection",
    CLOSED: "connection closed",
    MALFORMED: "no HTTP answer",
}


class Samples:
    """One row per request, in the order of arrival. Instants are seconds of `time.monotonic`.

    `taken` is when the generator got to the arrival: later than `scheduled` by the generator's own fault only.
    """

    def __init__(self) -> None:
        self.scheduled = array("d")
        self.taken = array("d")
        self.ended = array("d")
        self.status = array("h")
        self.reasons: dict[int, str] = {}
        """Of refusals that gave one, by row."""

    def __len__(self) -> int:
        return len(self.scheduled)

    def begin(self, scheduled: float, taken: float) -> int:
        """A row for an arrival."""
        self.scheduled.append(scheduled)
        self.taken.append(taken)
        self.ended.append(nan)
        self.status.append(OPEN)
        return len(self.scheduled) - 1

    def end(self, row: int, now: float, status: int, reason: str = "") -> None:
        """What became of it."""
        self.ended[row] = now
        self.status[row] = status
        if reason:
            self.reasons[row] = reason
