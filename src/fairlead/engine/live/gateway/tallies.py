"""What the gateway counts of requests that ended: plain numbers, cheap to add to; `metrics` shows them."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import get_args

from fairlead.engine.live.gateway.quantiles import cell
from fairlead.engine.live.gateway.reasons import CODES, code_of
from fairlead.engine.live.gateway.recent import Recent
from fairlead.engine.live.values import Ending, Outcome

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
CAUSES = ("queue", "cold", "service", "rejected", "dropped", "failed")


class Tally:
    """Totals of one workflow since the gateway started. Every count exists, and is 0, from the start."""

    __slots__ = (
        "bounds_s",
        "buckets",
        "cells",
        "cost_usd",
        "in_time",
        "late",
        "latency_s",
        "outcomes",
        "recent",
        "refusals",
        "slo_s",
    )

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(get_args(Outcome), 0)
        self.in_time = 0
        self.late = dict.fromkeys(CAUSES, 0)
        self.refusals = dict.fromkeys(CODES, 0)  # rejected and dropped requests, by the code of the reason
        self.cost_usd = 0.0
        self.latency_s = 0.0
        self.slo_s: float | None = None
        self.bounds_s = list(BOUNDS_S)
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.cells: dict[int, int] = {}  # a finer histogram of latencies, of those since it was last taken
        self.recent = Recent()

    def take_cells(self) -> dict[int, int]:
        """The fine histogram since the last call."""
        cells, self.cells = self.cells, {}
        return cells

    def set_slo(self, slo_s: float | None) -> None:
        """Give the histogram of latencies a bound at the workflow's SLO, instead of the bound at its former one.

        No count is lost. Requests that ended before, in the bucket that the new bound divides, count as above it.
        """
        if slo_s == self.slo_s:
            return
        if self.slo_s is not None and self.slo_s not in BOUNDS_S:
            place = self.bounds_s.index(self.slo_s)
            del self.bounds_s[place]
            self.buckets[place] += self.buckets.pop(place + 1)
        if slo_s is not None and slo_s not in BOUNDS_S:
            place = bisect_left(self.bounds_s, slo_s)
            self.bounds_s.insert(place, slo_s)
            self.buckets.insert(place, 0)
        self.slo_s = slo_s


class Tallies:
    """Totals by workflow. Only workflows that exist are ever named, so the number of rows is bounded."""

    def __init__(self) -> None:
        self.by_workflow: dict[str, Tally] = {}

    def of(self, workflow: str) -> Tally:
        """The totals of a workflow."""
        tally = self.by_workflow.get(workflow)
        if tally is None:
            tally = self.by_workflow[workflow] = Tally()
        return tally

    def serve(self, slos_s: Mapping[str, float | None]) -> None:
        """Count for these workflows from now on, each with the bound of its SLO; those that went keep their totals."""
        for workflow, slo_s in slos_s.items():
            self.of(workflow).set_slo(slo_s)

    def ended(self, workflow: str, ending: Ending, generation: int) -> None:
        """Count a request that this generation of the app took."""
        tally = self.of(workflow)
        tally.recent.add(ending, generation)
        outcome = ending.outcome
        tally.outcomes[outcome] += 1
        tally.cost_usd += ending.cost_usd
        if outcome == "completed":
            latency_s = ending.latency_s
            tally.latency_s += latency_s
            place = cell(latency_s)
            tally.cells[place] = tally.cells.get(place, 0) + 1
            tally.buckets[bisect_left(tally.bounds_s, latency_s)] += 1
        elif outcome in ("rejected", "dropped"):
            tally.refusals[code_of(ending)] += 1
        if ending.is_in_time:
            tally.in_time += 1
        elif (cause := ending.cause) is not None and cause != "cancelled":  # the client's own doing is no violation
            tally.late[cause] += 1

    def turned_away(self, workflow: str) -> None:
        """Count a request that found no place."""
        tally = self.of(workflow)
        tally.outcomes["rejected"] += 1
        tally.late["rejected"] += 1
        tally.refusals["inbox_full"] += 1
