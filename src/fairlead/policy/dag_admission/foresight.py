"""Room for requests that are expected: workflows with tighter objectives than others have some booked ahead.

Requests are expected one mean gap apart, as far ahead as a looser workflow may book. While one does not come, its room
moves on with time; after a few gaps without any, nothing is kept any more.
"""

from collections.abc import Mapping
from math import ceil, inf
from operator import itemgetter

from fairlead.model import Request
from fairlead.policy.base import View
from fairlead.policy.dag_admission.calendar import Calendar
from fairlead.policy.dag_admission.drafts import Draft, Drafting
from fairlead.policy.dag_admission.placements import DagPlan

_WEIGHT = 0.2  # of the newest gap in the mean
_PATIENCE = 3  # gaps
_STEPS = 4  # how often per gap the room of an overdue request moves on
_MOST = 16  # how many requests of one workflow


class Foresight:
    """Expects the next requests of each workflow, and keeps room for them against workflows with looser objectives."""

    def __init__(self, calendar: Calendar, drafting: Drafting, dags: Mapping[str, DagPlan]) -> None:
        self._calendar = calendar
        self._drafting = drafting
        self._dags = dags
        # How many times the fastest answer an objective allows: less is tighter.
        self._leeway = {name: _leeway(dag) for name, dag in dags.items()}
        self._horizon_s = {name: self._horizon(name) for name in dags}
        self._tight = sorted((name for name in dags if self._horizon_s[name]), key=self._leeway.__getitem__)
        self._last: dict[str, float] = {}
        self._gap_s: dict[str, float] = {}
        self._kept: dict[str, list[tuple[float, Draft]]] = {name: [] for name in self._tight}  # by expected arrival

    def _horizon(self, name: str) -> float:
        """How far ahead looser workflows may book; 0 if there is none."""
        looser = (dag.workflow.slo.latency_s for other, dag in self._dags.items() if self._is_looser(other, name))
        return max(looser, default=0.0)

    def _is_looser(self, other: str, name: str) -> bool:
        return self._leeway[other] > self._leeway[name]

    def _is_overdue(self, name: str, now: float) -> bool:
        """Whether no request came for `_PATIENCE` mean gaps, so that none is expected any more."""
        return name in self._gap_s and now > self._last[name] + _PATIENCE * self._gap_s[name]

    def note(self, request: Request) -> None:
        """A request came."""
        name, last = request.workflow, self._last.get(request.workflow)
        if last is not None:
            gap_s = request.arrival - last
            mean_s = self._gap_s.get(name, gap_s)
            self._gap_s[name] = mean_s + _WEIGHT * (gap_s - mean_s)
        self._last[name] = request.arrival

    def make_way(self, workflow: str, now: float) -> None:
        """Give back what was kept for this request, and for all workflows that are looser than its own."""
        for name, kept in self._kept.items():
            while kept and (self._is_looser(name, workflow) or self._is_overdue(name, now)):
                self._give_back(kept.pop(), now)
        own = self._kept.get(workflow)
        if own:
            self._give_back(own.pop(0), now)

    def keep_room(self, view: View) -> None:
        """Keep room for what is expected and has none, the tightest first, and move on what is overdue."""
        now = view.now
        for name in self._tight:
            kept, gap_s = self._kept[name], self._gap_s.get(name)
            while kept and kept[0][0] <= now:
                self._give_back(kept.pop(0), now)
            if not gap_s or self._is_overdue(name, now):
                continue
            at = max(self._last[name] + gap_s, now + gap_s / _STEPS)
            for i in range(min(_MOST, ceil(min(self._horizon_s[name], _MOST * gap_s) / gap_s) + 1)):
                expected = at + i * gap_s
                if all(abs(other - expected) > gap_s / 2 for other, _ in kept):
                    self._keep(view, name, expected)
            kept.sort(key=itemgetter(0))

    def _keep(self, view: View, name: str, at: float) -> None:
        """Book for a request that would arrive at an instant, if there is room for it."""
        dag = self._dags[name]
        slo = dag.workflow.slo
        expected = Request(-1, name, at, at + slo.latency_s, slo.cost_usd)
        draft = self._drafting.draft(view, expected, dag, dag.placement(0), at)
        if draft.is_in_time(expected):
            self._drafting.keep(draft, "expected")
            self._kept[name].append((at, draft))
        else:
            self._drafting.undo(draft, view.now)

    def _give_back(self, kept: tuple[float, Draft], now: float) -> None:
        for booking in reversed(kept[1].bookings):
            if not booking.is_done:
                self._calendar.discard(booking, now)


def _leeway(dag: DagPlan) -> float:
    fastest_s = float(dag.front.latency_s[0]) if len(dag.front) else 0.0
    return dag.workflow.slo.latency_s / fastest_s if fastest_s > 0 else inf
