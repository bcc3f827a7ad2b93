"""How much one instance may write: a token bucket for lines and bytes, and a count of what was dropped."""

from time import monotonic

LINES_PER_S = 1000
BYTES_PER_S = 256 << 10
_BURST_S = 4.0  # of the rates above, for an instance that was quiet before
_PAUSE_S = 0.1  # once it is used up: so that a flood costs one comparison per write


class Allowance:
    """Says whether a line may be kept, and counts those that may not."""

    __slots__ = ("_at", "_bytes", "_lines", "_until", "dropped_bytes", "dropped_lines")

    def __init__(self) -> None:
        self._at = monotonic()
        self._lines = LINES_PER_S * _BURST_S
        self._bytes = BYTES_PER_S * _BURST_S
        self._until = 0.0
        self.dropped_lines = 0
        self.dropped_bytes = 0

    def is_used_up(self) -> bool:
        """Whether nothing is kept now."""
        return self._until > 0 and monotonic() < self._until

    def admit(self, size: int) -> bool:
        """Whether a line of this size may be kept. The caller counts one that may not by `drop`."""
        now = monotonic()
        if now < self._until:
            return False
        passed_s, self._at = now - self._at, now
        self._lines = min(LINES_PER_S * _BURST_S, self._lines + passed_s * LINES_PER_S)
        self._bytes = min(BYTES_PER_S * _BURST_S, self._bytes + passed_s * BYTES_PER_S)
        if self._lines < 1 or self._bytes < size:
            self._until = now + _PAUSE_S
            return False
        self._lines -= 1
        self._bytes -= size
        return True

    def drop(self, lines: int, size: int) -> None:
        """Count what is not kept."""
        self.dropped_lines += lines
        self.dropped_bytes += size

    def notice(self) -> str | None:
        """A sentence about what was dropped since the last one; None if nothing was."""
        if not self.dropped_lines and not self.dropped_bytes:
            return None
        lines, size = self.dropped_lines, self.dropped_bytes
        self.dropped_lines = self.dropped_bytes = 0
        rates = f"an instance may write {LINES_PER_S} lines and {BYTES_PER_S >> 10} KB a second"
        return f"{lines} lines dropped ({size / 1e6:.3g} MB): {rates}"
