"""Orion: sizes for all stages at once, when the first starts, by the distribution of the whole request's latency.

A. Mahgoub, E. Yi, K. Shankar, S. Elnikety, S. Chaterji, S. Bagchi: ORION and the Three Rights: Sizing, Bundling, and
Prewarming for Serverless DAGs, OSDI 2022. The latency model, the best-first search of "right sizing", and "right
pre-warming" are implemented from descriptions of the paper and of its artifact, and used as ESG's slides use them (HPDC
2024): a plan is made when a request's first stage is scheduled and then kept, and the time of the search counts.

**Differs from the paper:**

* A size is a batch, vCPUs and vGPUs instead of memory. A move is to the next larger of one of them for one stage; 64 MB
  was the published one. The first feasible state ends the search, though a larger batch might be cheaper. Where a GPU
  stands against more vCPUs there are several smallest sizes; the search begins with the cheapest of them.
* Histograms have 250 bins up to the objective, as 100 ms bins had for one of 25 s. A function's runs spread alike in
  all its configurations, by what was observed. Stages are independent; the paper also knows correlated ones.
* All arms of a branch count as if they ran side by side. Of a map, every stage takes as long as the slowest of the most
  items; of competing copies, the quickest counts.
* The target is the time left when the first stage is scheduled, less what the search has taken so far. The paper sizes
  once per application, for the objective: `replans: false`.
* Of a request whose deadline has passed every stage gets its cheapest configuration, in as large batches as there are
  such requests, without a search. The descriptions are silent.
* Pre-warming is per request there, with a delay per stage that is found by hill-climbing over simulated requests. Here
  a cold start may take ten times as long as a request, so that what is started for a request serves later ones: as many
  containers of the expected sizes are kept as recent arrivals need.
* Where no warm container of the planned size has room, one of another size is taken. Bundling (several workers in one
  VM) has no counterpart here and is left out.
* Where the cluster has no devices and fewer vCPUs than one container of each function holds, containers are started
  ahead for the mean demand only, and none cold while one of the function is busy. The descriptions are silent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import ClassVar

import numpy as np

from fairlead.model import Configuration, Invocation, Record
from fairlead.policy.base import Action, Plan, Policy, Site, Start, View
from fairlead.policy.kit.crowding import is_crowded
from fairlead.policy.kit.dispatching import Dispatcher, Ranked
from fairlead.policy.kit.expected import expected_counts
from fairlead.policy.kit.locality import Locality, keeps_slices
from fairlead.policy.kit.preplanned import Shrinking, step
from fairlead.policy.orion.alternatives import alternatives, by_share
from fairlead.policy.orion.planner import Limits, Planner, Sized
from fairlead.policy.orion.prewarming import Prewarming, Run


@dataclass
class Orion(Policy):
    """Search sizes for all of a request when it starts, until a percentile of its latency meets the time left.

    Args:
        search_limit_s: How long a search may take, in seconds of modelled decision time; where decisions take no time,
            `state_limit` bounds it alone. When it ends, the quickest sizes found are taken.
        steps_per_state: How many search steps (paths of a brute-force search) the evaluation of one state takes, at
            least 1. Measured by benchmarks/bench_orion.py: 1,570 to 2,800; fewer, as a good implementation keeps parts.
        state_limit: How many states a search may evaluate at most, at least 1.
        replans: Whether each request is searched for, with the time it has left. Otherwise there is one plan per
            workflow for its whole objective, made ahead of time, which delays nobody.
        percentile: Which percentile of the latency is to meet the target, in (0, 1).
        prewarms: Whether containers of the sizes that are expected to be planned are started ahead of need.
        rounds: After so many instants at which nothing fitted, a queue may take the minimum configuration; at least 1.
        refresh_s: How often corrected profiles and observed spreads are taken over, in seconds.
    """

    paper: ClassVar[str] = "Orion, OSDI 2022"

    search_limit_s: float = 0.015
    steps_per_state: int = 1000
    state_limit: int = 10_000
    replans: bool = True
    percentile: float = 0.95
    prewarms: bool = True
    rounds: int = 3
    refresh_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("steps_per_state", "state_limit", "rounds"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}.")
        for name in ("search_limit_s", "refresh_s"):
            value = getattr(self, name)
            if not 0 < value <= inf:
                raise ValueError(f"{name} must be positive; got {value}.")
        if not 0 < self.percentile < 1:
            raise ValueError(f"percentile must be in (0, 1); got {self.percentile}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._workflows = site.workflows
        self._state_s = site.step_s * self.steps_per_state if self.replans else 0.0
        states = self.state_limit
        if self._state_s:
            states = max(1, int(min(states, self.search_limit_s / self._state_s)))
        self._planner = Planner(site, Limits(self.percentile, states, self._state_s), self.refresh_s)
        known = self._planner.options
        least = {name: each.configurations[each.least] for name, each in known.items()}
        sizes = {name: by_share(each) for name, each in known.items()}
        self._shrinking = Shrinking(known)
        # What is missing is started by rate alone: a container that starts beside a full cluster takes room from those
        # that run, for longer than a request lasts.
        parts = (Locality(keeps_slices=keeps_slices(site)), self.rounds, least.__getitem__, sizes.__getitem__)
        crowded = is_crowded(site, known)
        self._dispatcher = Dispatcher(*parts, prepares=not self.prewarms, is_crowded=crowded)
        self._prewarming = Prewarming(self._expected, 0.0 if crowded else 2.0) if self.prewarms else None
        self._plans: dict[int, Sized] = {}  # by request
        self._running: dict[int, Configuration] = {}  # by invocation
        self._instead: dict[tuple[str, Configuration], Ranked] = {}

    def decide(self, view: View) -> Iterator[Action]:
        if self._planner.refresh(view):
            self._instead.clear()
            self._plans = {request: sized for request, sized in self._plans.items() if view.is_open(request)}
        if self._prewarming is not None:
            self._prewarming.note(view)
        for action in self._dispatcher.serve(view, self._rank):
            yield action
            if isinstance(action, Start):
                yield from self._started(view, action)
        if self._prewarming is not None:
            yield from self._prewarming.ahead(view)

    def observe(self, record: Record) -> None:
        configuration = self._running.pop(record.invocation, None)
        if configuration is not None and record.outcome == "done":
            run_s = record.end - record.start - record.cold_s - record.transfer_s
            self._planner.see(record.function, configuration, run_s)

    def _rank(self, view: View, head: Invocation, count: int) -> Ranked:
        sized, steps = self._plans.get(head.request), 0
        plans: tuple[Plan, ...] = ()
        if sized is None:
            sized = self._plans[head.request] = self._sized(view, head)
            steps = sized.states * self.steps_per_state if self.replans else 0
            plans = (_promise(view, head.request, sized, sized.states * self._state_s),)
        planned = sized.configurations[head.stage]
        if count > 1 and planned.batch > 1:
            count = self._alike(view, head, planned)
        chosen = self._shrinking.fill(head.function, planned, count)
        return Ranked((chosen,), steps, plans, lambda _: self._others(head.function, chosen))

    def _sized(self, view: View, invocation: Invocation) -> Sized:
        workflow, left_s = invocation.workflow, invocation.deadline - view.now
        if not self.replans and left_s >= 0:
            left_s = self._workflows[workflow].slo.latency_s
        return self._planner.sized(workflow, left_s)

    def _alike(self, view: View, head: Invocation, planned: Configuration) -> int:
        """How many at the head of the queue have the same plan for their stage, up to a batch of it.

        Of those that have none yet, only what is as late as the head may share it: others would be slowed down.
        """
        is_late = head.deadline < view.now
        count = 0
        for each in islice(view.by_ready(head.workflow, head.function), planned.batch):
            sized = self._plans.get(each.request)
            if sized is None and (each.deadline < view.now) != is_late:
                break
            if sized is not None and sized.configurations[each.stage] != planned:
                break
            count += 1
        return count

    def _others(self, function: str, planned: Configuration) -> Ranked:
        key = (function, planned)
        if key not in self._instead:
            self._instead[key] = Ranked(alternatives(self._planner.options[function], planned))
        return self._instead[key]

    def _started(self, view: View, start: Start) -> Iterator[Plan]:
        """Note what runs with what. Who rides along in the first batch of another shares its plan."""
        sized = self._plans[start.batch[0].request]
        for invocation in start.batch:
            self._running[invocation.id] = start.configuration
            if invocation.request not in self._plans:
                self._plans[invocation.request] = sized
                yield _promise(view, invocation.request, sized, 0.0)

    def _expected(self, workflow: str) -> Iterator[Run]:
        """What a request that has all its time would be given."""
        flow = self._workflows[workflow]
        sized = self._planner.sized(workflow, flow.slo.latency_s)
        for stage, count in zip(flow.stages, expected_counts(flow), strict=True):
            configuration = sized.configurations[stage.name]
            run_s = self._planner.mean_s[stage.function][configuration]
            yield stage.function, configuration, count * run_s / configuration.batch


def _promise(view: View, request: int, sized: Sized, search_s: float) -> Plan:
    steps = tuple(step(stage, configuration) for stage, configuration in sized.configurations.items())
    return Plan(request, steps, view.now + search_s + sized.percentile_s)
