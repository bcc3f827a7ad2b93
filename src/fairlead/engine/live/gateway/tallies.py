"""What the gateway counts of requests that ended: plain numbers, cheap to add to; `metrics` shows them."""

from bisect import bisect_left

from fairlead.engine.live.values import Ending

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
REASONS_KEPT = 32


class Tally:
    """Totals of one workflow since the gateway started."""

    __slots__ = ("buckets", "cost_usd", "in_time", "late", "latency_s", "outcomes", "refusals")

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.in_time = 0
        self.late: dict[str, int] = {}  # by cause
        self.refusals: dict[str, int] = {}  # by reason
        self.cost_usd = 0.0
        self.latency_s = 0.0
        self.buckets = [0] * (len(BOUNDS_S) + 1)


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

    def ended(self, workflow: str, ending: Ending) -> None:
        """Count a request that the runtime took."""
        tally = self.of(workflow)
        outcome = ending.outcome
        tally.outcomes[outcome] = tally.outcomes.get(outcome, 0) + 1
        tally.cost_usd += ending.cost_usd
        if outcome == "completed":
            latency_s = ending.latency_s
            tally.latency_s += latency_s
            tally.buckets[bisect_left(BOUNDS_S, latency_s)] += 1
        elif outcome in ("rejected", "dropped"):
            _count(tally.refusals, ending.reason or outcome)
        cause = ending.cause
        if cause is None:
            tally.in_time += 1
        elif cause != "cancelled":  # the client's own doing is no violation
            tally.late[cause] = tally.late.get(cause, 0) + 1

    def turned_away(self, workflow: str) -> None:
        """Count a request that found no place."""
        tally = self.of(workflow)
        tally.outcomes["rejected"] = tally.outcomes.get("rejected", 0) + 1
        tally.late["rejected"] = tally.late.get("rejected", 0) + 1
        _count(tally.refusals, "inbox-full")


def _count(counts: dict[str, int], reason: str) -> None:
    # A reason is a policy's own text: a number in it must not give a label of its own to every request.
    key = " ".join(word for word in reason.split()[:6] if not any(character.isdigit() for character in word))[:60]
    if not key or (key not in counts and len(counts) >= REASONS_KEPT):
        key = "other"
    counts[key] = counts.get(key, 0) + 1
