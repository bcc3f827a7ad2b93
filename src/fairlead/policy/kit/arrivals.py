"""How often something comes: a count, and its rate over a sliding window."""

from collections import deque


class Arrivals:
    """Counts what came. `rate_rps` is the rate over the last window, as of the last `measure`; 0 before the second."""

    def __init__(self) -> None:
        self.count = 0
        self.rate_rps = 0.0
        self._past: deque[tuple[float, int]] = deque()  # (instant, count), one of each measurement

    def measure(self, now: float, window_s: float) -> float:
        """Take the rate since the last measurement that is at least `window_s` old, or since the first."""
        past = self._past
        while len(past) > 1 and past[1][0] <= now - window_s:
            past.popleft()
        if past and now > past[0][0]:
            self.rate_rps = (self.count - past[0][1]) / (now - past[0][0])
        past.append((now, self.count))
        return self.rate_rps
