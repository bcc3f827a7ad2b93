"""How requests went: from arrival to answer, and within what."""

from collections.abc import Mapping
from typing import NamedTuple

from fairlead.model import Record, Workflow
from fairlead.policy.base import View

_SHORTEST_S = 1e-6  # a request may come with a deadline that has passed


class Outcome(NamedTuple):
    """What became of the requests that were answered since one was last asked: means over them."""

    latency_s: float
    qos_s: float

    @property
    def is_within(self) -> bool:
        """Whether the objective was met."""
        return self.latency_s <= self.qos_s


class Outcomes:
    """Puts requests together from the records of their invocations."""

    def __init__(self, workflows: Mapping[str, Workflow]) -> None:
        self._workflows = frozenset(workflows)
        self._first: set[tuple[str, str]] = set()
        self._last: set[tuple[str, str]] = set()
        for name, workflow in workflows.items():
            before = {stage for s in workflow.stages for stage in s.after}
            self._first |= {(name, s.name) for s in workflow.stages if not s.after}
            self._last |= {(name, s.name) for s in workflow.stages if s.name not in before}
        self._arrived: dict[int, float] = {}
        self._ended: dict[int, tuple[float, float]] = {}  # of the last stages: (last end, deadline)

    def observe(self, record: Record) -> None:
        """See one invocation."""
        if record.outcome != "done":
            return
        stage = (record.workflow, record.stage)
        if stage in self._first:
            self._arrived[record.request] = min(record.ready, self._arrived.get(record.request, record.ready))
        if stage in self._last:
            before, _ = self._ended.get(record.request, (record.end, 0.0))
            self._ended[record.request] = max(before, record.end), record.deadline

    def take(self, view: View, since: float) -> Outcome | None:
        """Of the requests answered since the last call, those that arrived at or after an instant; None without any.

        Without any, a request that waits and is already too late counts as one.
        """
        over = [request for request in self._ended if not view.is_open(request)]
        latencies, objectives = [], []
        for request in over:
            arrived = self._arrived.get(request)
            end, deadline = self._ended.pop(request)
            if arrived is not None and arrived >= since:
                latencies.append(end - arrived)
                objectives.append(max(deadline - arrived, _SHORTEST_S))
        for request in [request for request in self._arrived if not view.is_open(request)]:
            del self._arrived[request]
        if latencies:
            return Outcome(sum(latencies) / len(latencies), sum(objectives) / len(objectives))
        waits = view.oldest()
        if waits is None or waits.workflow not in self._workflows:
            return None
        if view.slack_s(waits) >= 0 or not view.is_open(waits.request):
            return None
        arrived = view.request(waits.request).arrival
        qos_s = max(waits.deadline - arrived, _SHORTEST_S)
        return Outcome(view.now - arrived, qos_s) if arrived >= since else None
