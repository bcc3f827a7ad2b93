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

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlead.model import Record, Workflow
from fairlead.policy.base import View
from fairlead.policy.kit.remaining import fastest_s, longest_after, shares
from fairlead.profile import Estimate

Reals = NDArray[np.float64]

_PERCENTILE = 0.99
_ALL_COUNT = 99  # up to so many values, the 99th percentile is the largest
_SHORT = 1 << 16
_COLUMNS = 7  # of what is counted instance by instance


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
        self._latencies_s, self._lateness = Samples(), Samples()
        self._busy_s = [0.0] * len(self.functions)  # a list: numbers are added one by one

    def observe(self, record: Record) -> None:
        """Take note of an invocation that ended; one of a function that is not measured is passed over."""
        place = self._places.get(record.function)
        if place is None:
            return
        self._latencies_s.add(place, record.end - record.ready)
        goal = self._goals.get((record.workflow, record.stage))
        if goal is not None:
            self._lateness.add(place, (record.end - record.deadline + goal.slo_s) / goal.seconds)
        began = max(self._since, record.start + record.cold_s)
        self._busy_s[place] += max(0.0, record.end - began) * record.vcpus / record.batch_size

    def close(self, view: View) -> Measures:
        """End the period, and begin the next."""
        now, since, size = view.now, self._since, len(self.functions)
        worked = zip(self.functions, self._busy_s, strict=True)
        rows = [self._row(view, function, busy_s) for function, busy_s in worked]
        replicas, busy_s, held, running, ready, vcpus, memory_gb = np.array(rows, float).reshape(size, _COLUMNS).T
        waiting, oldest_s, oldest_lateness = self._waiting(view)
        ran = self._latencies_s.counts(size)
        there = running + waiting
        measured = Measures(
            arrived=np.maximum(0.0, ran + there - self._there),
            ran=ran,
            busy_s=busy_s,
            held_s=self._held * (now - since),
            p99_s=self._latencies_s.percentiles(size),
            oldest_s=oldest_s,
            lateness=np.maximum(oldest_lateness, self._lateness.percentiles(size)),
            replicas=replicas,
            ready=ready,
            vcpus=vcpus,
            memory_gb=memory_gb,
        )
        self._since, self._there, self._held, self.period_s = now, there, held, now - since
        self._begin()
        return measured

    def _row(self, view: View, function: str, busy_s: float) -> tuple[float, ...]:
        """What there is of a function now, and what it has worked: plain numbers, for there may be many instances."""
        now, since = view.now, self._since
        held = vcpus = memory_gb = 0.0
        running = ready = 0
        for instance in view.instances(function):
            held += instance.vcpus
            running += instance.running
            if instance.run_start < now:
                busy_s += (now - max(since, instance.run_start)) * instance.vcpus
            if not instance.is_draining:
                ready += instance.is_ready
                vcpus += instance.vcpus
                memory_gb += instance.memory_gb
        scaled = view.scaled(function)
        replicas = 0 if scaled is None else scaled.instances or 0
        return replicas, busy_s, held, running, ready, vcpus, memory_gb

    def open(self, view: View, changed: Iterable[int] | None = None) -> None:
        """Look again at what instances hold, now that the scaler has acted. Without this, its actions are not seen.

        With `changed`, only at these functions, by their numbers: those that it acted on, and those that it does not
        scale, whose idle instances may have made room.
        """
        for i in range(len(self.functions)) if changed is None else changed:
            self._held[i] = sum(instance.vcpus for instance in view.instances(self.functions[i]))

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


class Samples:
    """Values of many functions, one by one as they come: in two flat arrays, which cost nothing to give up again."""

    def __init__(self) -> None:
        self._places, self._values = array("i"), array("d")

    def add(self, place: int, value: float) -> None:
        self._places.append(place)
        self._values.append(value)

    def counts(self, functions: int) -> Reals:
        """How many there are of each function."""
        return np.bincount(np.array(self._places, np.intp), minlength=functions).astype(float)

    def percentiles(self, functions: int) -> Reals:
        """The 99th percentile of each function: the least of its values that so many are not above; 0 without any."""
        places = np.array(self._places, np.intp)
        # Sixteen bits are sorted by counting, which is several times as quick.
        order = np.argsort(places.astype(np.uint16) if functions < _SHORT else places, kind="stable")
        values = np.array(self._values)[order]
        counts = np.bincount(places, minlength=functions)
        ends = np.cumsum(counts)
        found = np.zeros(functions)
        is_there = counts > 0
        if len(values):
            found[is_there] = np.maximum.reduceat(values, (ends - counts)[is_there])
        for i in np.flatnonzero(counts > _ALL_COUNT).tolist():
            own, place = values[ends[i] - counts[i] : ends[i]], ceil(_PERCENTILE * int(counts[i])) - 1
            found[i] = np.partition(own, place)[place]
        return found


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
