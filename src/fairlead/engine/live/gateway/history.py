"""What the dashboard draws over time: per workflow, one point per second for 15 minutes and one per 15 s for 6 hours.

A request adds to counters that the metrics have anyway, and to one cell of a histogram; everything else happens once
per second. The memory is allocated once for each workflow, about 220 kB.
"""

from collections import deque
from collections.abc import Sequence
from math import isnan, nan

import numpy as np

from fairlead.engine.live.gateway.quantiles import merged, percentiles
from fairlead.engine.live.gateway.reasons import CODES
from fairlead.engine.live.gateway.tallies import Tally

RATES = ("in_time", "late", "rejected", "dropped", "failed", "cancelled", "cost_usd", *CODES)
"""Columns that are per second: requests by how they ended, cost, and refusals by the code of their reason."""

LATENCIES = ("p50_s", "p95_s", "p99_s")
COLUMNS = (*RATES, *LATENCIES)

FINE_POINTS = 900
COARSE_POINTS = 1440
COARSE_S = 15
RECENT_S = 10  # seconds of the figures that are shown as numbers


class Ring:
    """The last points of a series, each with its instant."""

    def __init__(self, points: int) -> None:
        self._at = np.zeros(points)
        self._values = np.zeros((points, len(COLUMNS)), dtype=np.float32)
        self._next = self._count = 0

    def add(self, at: float, values: Sequence[float]) -> None:
        """Add a point; the oldest goes where there is no more room."""
        self._at[self._next], self._values[self._next] = at, values
        self._next = (self._next + 1) % len(self._at)
        self._count = min(self._count + 1, len(self._at))

    def columns(self) -> dict[str, list[float | None]]:
        """All points in order: `t`, in seconds of the wall clock, and a list per column; None for NaN."""
        first = self._next - self._count
        places = np.arange(first, self._next) % len(self._at)
        values = self._values[places]
        columns: dict[str, list[float | None]] = {"t": [round(float(at), 2) for at in self._at[places]]}
        for place, name in enumerate(COLUMNS):
            columns[name] = [rounded(value) for value in values[:, place].tolist()]
        return columns


def rounded(value: float) -> float | None:
    """Four digits are all that a picture shows."""
    return None if isnan(value) else float(f"{value:.4g}")


class History:
    """The history of one workflow."""

    def __init__(self) -> None:
        self.fine, self.coarse = Ring(FINE_POINTS), Ring(COARSE_POINTS)
        self.last: tuple[float, ...] = (0.0,) * len(RATES) + (nan,) * len(LATENCIES)
        self._counts: tuple[float, ...] | None = None  # when the last point was made
        self._recent: deque[dict[int, int]] = deque(maxlen=RECENT_S)
        self._since: tuple[float, tuple[float, ...]] | None = None  # the last coarse point: when, and the counts
        self._coarse: dict[int, int] = {}

    def tick(self, tally: Tally, at: float, elapsed_s: float) -> None:
        """Make a point of what was counted since the last one."""
        counts, cells = _counts(tally), tally.take_cells()
        before, self._counts = self._counts, counts
        self._recent.append(cells)
        self._coarse = merged((self._coarse, cells))
        if before is None:
            self._since = at, counts
            return
        self.last = (*_rates(before, counts, elapsed_s), *percentiles(cells))
        self.fine.add(at, self.last)
        assert self._since is not None
        began, then = self._since
        if at - began >= COARSE_S or at < began:  # the wall clock may be set back
            self.coarse.add(at, (*_rates(then, counts, max(at - began, 1.0)), *percentiles(self._coarse)))
            self._since, self._coarse = (at, counts), {}

    def recent_percentiles(self) -> tuple[float, ...]:
        """Over the last ten seconds."""
        return percentiles(merged(self._recent))


def _counts(tally: Tally) -> tuple[float, ...]:
    outcomes = tally.outcomes
    return (
        tally.in_time,
        outcomes["completed"] - tally.in_time,
        outcomes["rejected"],
        outcomes["dropped"],
        outcomes["failed"],
        outcomes["cancelled"],
        tally.cost_usd,
        *tally.refusals.values(),
    )


def _rates(before: Sequence[float], now: Sequence[float], elapsed_s: float) -> list[float]:
    return [(new - old) / elapsed_s for old, new in zip(before, now, strict=True)]
