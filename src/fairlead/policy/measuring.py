"""What one control period brought to each function. Not a policy, but what scalers share.

A scaler passes every record to a `Meter`, closes it at each control period, and opens it again once it has acted:

```python
def prepare(self, site, rng):
    self._meter = Meter(site.functions)

def observe(self, record):
    self._meter.observe(record)

def adjust(self, view):
    measured = self._meter.close(view)
    try:
        yield from self._act(view, measured)
    finally:  # also if an action is refused, which ends the call
        self._meter.open(view)
```

Agents are trained in the compiled engine (`fairlead.engine.sim.compiled.periods`), which measures the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlead.model import Record, Workflow
from fairlead.policy.base import View
from fairlead.policy.remaining import fastest_s, longest_after, shares
from fairlead.profile import Estimate

Reals = NDArray[np.float64]

_PERCENTILE = 0.99


@dataclass(frozen=True, kw_only=True, eq=False)
class Measures:
    """What one control period brought, one number per function, in the order of the meter.

    Every attempt counts, whatever came of it, so one that is tried again arrives again. `replicas` are wanted, and 0
    while the dispatcher starts instances; `ready`, `vcpus` and `memory_gb` are those of instances that are not on
    their way out.
    """

    arrived: Reals  # invocations that became ready
    ran: Reals  # that ended
    busy_s: Reals  # vCPU-seconds of work in the period, on what still runs too
    held_s: Reals  # vCPU-seconds that its instances had: what they held when the period began, all along
    p99_s: Reals  # 99th percentile of the time from ready to end, of those that ended; 0 without any
    oldest_s: Reals  # how long what has waited longest has waited; 0 if nothing waits
    lateness: Reals  # 99th percentile of the time since the request came over what is meant for it, likewise
    replicas: Reals
    ready: Reals
    vcpus: Reals
    memory_gb: Reals

    @property
    def utilisation(self) -> Reals:
        """Share of the vCPUs held that worked, in [0, 1]; 0 where none were held."""
        return np.minimum(1.0, self.busy_s / np.where(self.held_s > 0, self.held_s, inf))

    @property
    def slowest_s(self) -> Reals:
        """The 99th percentile, or the age of what waits where that is more: a queue that stands still is slow too."""
        return np.maximum(self.p99_s, self.oldest_s)


class Meter:
    """Sums up what happens between two control periods, function by function.

    Arrivals are counted by balance: what ended, plus what runs and waits more than before. Requests that were dropped
    while they waited are therefore missing from them, and the count does not fall below 0.

    Args:
        functions: Their names, in the order of the measures.
        goals: For `lateness`, by (workflow, stage); see `stage_goals`. What has none is never late.
        since: When the first period begins.
    """

    def __init__(
        self, functions: Iterable[str], goals: Mapping[tuple[str, str], "Goal"] | None = None, since: float = 0.0
    ) -> None:
        self.functions = tuple(functions)
        self.period_s = 0.0  # how long the last period was
        self._goals = dict(goals or {})
        self._places = {name: i for i, name in enumerate(self.functions)}
        self._since = since
        self._held = np.zeros(len(self.functions))  # vCPUs, at the start of this period
        self._there = np.zeros(len(self.functions))  # invocations that ran or waited then
        self._begin()

    def _begin(self) -> None:
        self._latencies_s: list[list[float]] = [[] for _ in self.functions]
        self._lateness: list[list[float]] = [[] for _ in self.functions]
        self._busy_s = np.zeros(len(self.functions))

    def observe(self, record: Record) -> None:
        """Take note of an invocation that ended; one of a function that is not measured is passed over."""
        place = self._places.get(record.function)
        if place is None:
            return
        self._latencies_s[place].append(record.end - record.ready)
        goal = self._goals.get((record.workflow, record.stage))
        if goal is not None:
            self._lateness[place].append((record.end - record.deadline + goal.slo_s) / goal.seconds)
        began = max(self._since, record.start + record.cold_s)
        self._busy_s[place] += max(0.0, record.end - began) * record.vcpus / record.batch_size

    def close(self, view: View) -> Measures:
        """End the period, and begin the next."""
        now, since, size = view.now, self._since, len(self.functions)
        busy_s, running = self._busy_s, np.zeros(size)
        replicas, ready, vcpus, memory_gb, held = (np.zeros(size) for _ in range(5))
        for i, function in enumerate(self.functions):
            scaled = view.scaled(function)
            replicas[i] = 0 if scaled is None else scaled.instances or 0
            for instance in view.instances(function):
                held[i] += instance.vcpus
                running[i] += instance.running
                if instance.run_start < now:
                    busy_s[i] += (now - max(since, instance.run_start)) * instance.vcpus
                if not instance.is_draining:
                    ready[i] += instance.is_ready
                    vcpus[i] += instance.vcpus
                    memory_gb[i] += instance.memory_gb
        waiting, oldest_s, oldest_lateness = self._waiting(view)
        ran = np.array([float(len(own)) for own in self._latencies_s])
        there = running + waiting
        measured = Measures(
            arrived=np.maximum(0.0, ran + there - self._there),
            ran=ran,
            busy_s=busy_s,
            held_s=self._held * (now - since),
            p99_s=np.array([percentile(own) for own in self._latencies_s]),
            oldest_s=oldest_s,
            lateness=np.maximum(oldest_lateness, [percentile(own) for own in self._lateness]),
            replicas=replicas,
            ready=ready,
            vcpus=vcpus,
            memory_gb=memory_gb,
        )
        self._since, self._there, self._held, self.period_s = now, there, held, now - since
        self._begin()
        return measured

    def open(self, view: View) -> None:
        """Look again at what instances hold, now that the scaler has acted. Without this, its actions are not seen."""
        held = (sum(instance.vcpus for instance in view.instances(function)) for function in self.functions)
        self._held = np.fromiter(held, float, len(self.functions))

    def _waiting(self, view: View) -> tuple[Reals, Reals, Reals]:
        """How many wait for each function, how long the oldest has, and how late it is by now."""
        waiting, oldest_s, lateness = (np.zeros(len(self.functions)) for _ in range(3))
        for workflow, function in view.queues():
            place = self._places.get(function)
            oldest = view.oldest(workflow, function)
            if place is None or oldest is None:
                continue
            waiting[place] += view.waiting(workflow, function)
            oldest_s[place] = max(oldest_s[place], view.now - oldest.ready)
            goal = self._goals.get((workflow, oldest.stage))
            if goal is not None:
                lateness[place] = max(lateness[place], (view.now - oldest.deadline + goal.slo_s) / goal.seconds)
        return waiting, oldest_s, lateness


class Goal(NamedTuple):
    """The SLO of a workflow, and how much of it is meant for all that leads to the end of a stage; both in seconds."""

    slo_s: float
    seconds: float


def stage_goals(workflows: Mapping[str, Workflow], profiles: Mapping[str, Estimate]) -> dict[tuple[str, str], Goal]:
    """By (workflow, stage): until when it is meant to have ended, after the request came.

    That is the SLO without the share of it that the longest path after the stage takes, of the longest through it.
    Workflows without an SLO are left out.
    """
    seconds = {name: fastest_s(profile) for name, profile in profiles.items()}
    goals: dict[tuple[str, str], Goal] = {}
    for name, workflow in workflows.items():
        slo_s, after_s = workflow.slo.latency_s, longest_after(workflow, seconds)
        until_s: dict[str, float] = {}
        for stage in workflow.stages:  # in topological order
            until_s[stage.name] = max((until_s[p] for p in stage.after), default=0.0) + seconds[stage.function]
            path_s = until_s[stage.name] + after_s[stage.name]
            part = until_s[stage.name] / path_s if path_s > 0 else 1.0
            if 0 < slo_s * part < inf:
                goals[name, stage.name] = Goal(slo_s, slo_s * part)
    return goals


def percentile(values: list[float]) -> float:
    """The 99th percentile: the least of these values that so many of them are not above; 0 if there are none."""
    if not values:
        return 0.0
    return sorted(values)[ceil(_PERCENTILE * len(values)) - 1]


def function_slos(workflows: Mapping[str, Workflow], profiles: Mapping[str, Estimate]) -> dict[str, float]:
    """The SLO of each function in seconds: its share of its workflow's, the least where it is in several.

    The share is that of the longest path through it, where each function is believed to take as long as in its
    quickest configuration. Infinite for a function that no workflow with an SLO uses.
    """
    seconds = {name: fastest_s(profile) for name, profile in profiles.items()}
    slo_s = dict.fromkeys(profiles, inf)
    for workflow in workflows.values():
        part = shares(workflow, seconds)
        for stage in workflow.stages:
            slo_s[stage.function] = min(slo_s[stage.function], workflow.slo.latency_s * part[stage.name])
    return slo_s
