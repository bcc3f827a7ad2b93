"""A bounded inbox: how many requests may be open at once, and how many of one workflow.

Half of the places are kept for workflows, in equal shares, the other half is for whoever comes first. So a flood on one
workflow never takes the places of another, and a workflow that is alone gets nearly all.
"""

from fairlead.engine.live.clock import REAL, Clock

_RATE_WINDOW_S = 1.0
_LONGEST_RETRY_S = 30.0


class Room:
    """Bytes that bodies may take up, from their first part until their exchange ends."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.used_bytes = 0

    def take(self, size: int) -> bool:
        """Take so many; False if there are not so many left."""
        if self.used_bytes + size > self.most_bytes:
            return False
        self.used_bytes += size
        return True

    def give_back(self, size: int) -> None:
        """They are free again."""
        self.used_bytes -= size


class Inbox:
    """Counts open requests by workflow."""

    def __init__(self, places: int, clock: Clock = REAL) -> None:
        self._now = clock.now
        self.places = places
        self._open: dict[str, int] = {}
        self._total = 0
        self._in_common = 0  # places taken beyond the shares
        self._workflows = 1
        self._share = self._common = places
        self._ended = 0
        self._window = self._now()
        self._ended_per_s = 0.0
        self.set_workflows(1)

    @property
    def total(self) -> int:
        """Requests that are open."""
        return self._total

    def set_workflows(self, number: int) -> None:
        """Divide anew, among so many workflows."""
        self._workflows = max(1, number)
        self._common = self.places // 2 if self._workflows > 1 else 0
        self._share = (self.places - self._common) // self._workflows
        self._in_common = sum(max(0, open_ - self._share) for open_ in self._open.values())

    def enter(self, workflow: str) -> bool:
        """Take a place; False if there is none for this workflow."""
        open_ = self._open.get(workflow, 0)
        if open_ >= self._share:
            if self._in_common >= self._common or self._total >= self.places:
                return False
            self._in_common += 1
        self._open[workflow] = open_ + 1
        self._total += 1
        return True

    def leave(self, workflow: str) -> None:
        """Give the place back."""
        open_ = self._open[workflow]
        if open_ > self._share:
            self._in_common -= 1
        if open_ == 1:
            del self._open[workflow]
        else:
            self._open[workflow] = open_ - 1
        self._total -= 1
        self._ended += 1

    def retry_after_s(self) -> float:
        """When half of what is open will have ended, at the rate at which requests end now."""
        now = self._now()
        if now - self._window >= _RATE_WINDOW_S:
            self._ended_per_s = self._ended / (now - self._window)
            self._ended, self._window = 0, now
        if self._ended_per_s <= 0:
            return 1.0
        return min(_LONGEST_RETRY_S, max(0.05, self._total / 2 / self._ended_per_s))
