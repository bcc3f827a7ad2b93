"""Drop early what would be late in the end; the load decides which requests are worth keeping.

Z. Zhao et al., "PARD: Enhancing Goodput for Inference Pipeline via Proactive Request Dropping" (arXiv 2602.08747,
2026). Written from the abstract and from published summaries of the method; the full text was not at hand.

A request is judged whenever a batch is formed at one of its stages: the time it has taken so far, the run at hand, and
the recent waits and run times of all stages that follow make its end-to-end latency. A request that would exceed the
objective is dropped there, before it costs more. Each stage keeps its requests by remaining latency budget and takes
them from either end: while the stages keep up, the smallest budget first; in overload the largest first, since those
with little left would mostly be late anyway and waste the work of earlier stages.

**Differs from the paper:**

* Parameters are ours where the summaries name none: the window of recent waits, the period in which stages learn of
  each other, and the band around a load of 1 within which the order stays as it is.
* A batch is formed when it starts, so a request's wait for its batch and its wait in the queue are one figure, the
  recent mean. The paper adds a quantile of the batch wait to a recent queueing delay.
* Stages share one cluster, where the paper gives each its own GPUs. The load is the demand of all functions over the
  cluster's scarcest resource. Among stages, the one whose next request has the least time to spare goes first.
* Worker sizes come from the declared profiles by Nexus' rule (twice the run time within the stage's part of the SLO),
  or once the run time where no size is that quick.
  Workers are started for the mean demand of the window plus one, beside what is warm.
* Forks, joins, branches and maps: the slowest path after a stage counts; a request is dropped as a whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf
from typing import ClassVar

import numpy as np

from fairlead.model import Invocation
from fairlead.policy.base import Action, Policy, Reject, Site, Start, View, Wake, Warm
from fairlead.policy.kit.queues import KeyedQueue
from fairlead.policy.pard.pipeline import Downstream, RecentMean
from fairlead.policy.pard.sizing import Worker, make_workers

TOO_LATE = "it would be answered after its deadline, by the recent waits of the stages ahead"


@dataclass
class Pard(Policy):
    """Drop requests whose estimated end-to-end latency exceeds the objective; serve by remaining budget and load.

    Args:
        window_s: Waits and arrivals of this many last seconds count as recent; positive.
        refresh_s: Stages learn the state of later stages this often, in seconds; positive.
        band: Half the width of the range around a load of 1 within which the order is kept, in [0, 1).
        adapts: Whether overload turns the order round; otherwise the smallest budget always goes first.
    """

    paper: ClassVar[str] = "PARD (arXiv 2602.08747, 2026)"

    window_s: float = 1.0
    refresh_s: float = 0.1
    band: float = 0.1
    adapts: bool = True

    def __post_init__(self) -> None:
        for name in ("window_s", "refresh_s"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name} must be positive and finite; got {getattr(self, name)}.")
        if not 0 <= self.band < 1:
            raise ValueError(f"band must be in [0, 1); got {self.band}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._workers = make_workers(site)
        self._queues = {name: KeyedQueue() for name in site.functions}
        self._waits = {name: RecentMean(self.window_s) for name in site.functions}
        self._arrivals = {name: RecentMean(self.window_s) for name in site.functions}
        self._downstream = Downstream(site.workflows, self.refresh_s)
        self._is_crowded = False
        self._looked = -inf  # when load and workers were last looked at
        self._woken = -inf

    def decide(self, view: View) -> Iterator[Action]:
        self._take_in(view)
        self._downstream.refresh(view.now, lambda function: self._time_s(view, function))
        is_due = view.now >= self._looked + self.refresh_s
        if is_due:
            self._looked = view.now
            self._is_crowded = self.adapts and self._weigh(view)
        for function in self._queues:
            yield from self._drop_hopeless(view, function)
        waiting = [function for function, queue in self._queues.items() if queue]
        for function in sorted(waiting, key=lambda each: (self._spare_s(view, each), each)):
            yield from self._serve(view, function)
        if is_due:
            yield from self._provide(view)
        yield from self._look_again(view)

    # --- what waits ------------------------------------------------------------------------------------------------

    def _take_in(self, view: View) -> None:
        for invocation in view.changes.ready:
            self._arrivals[invocation.function].add(view.now, 1.0)
            if view.is_waiting(invocation):
                self._queues[invocation.function].add(invocation, invocation.deadline)

    def _next(self, view: View, function: str) -> Invocation | None:
        """The request to be served next: the one with the smallest budget left or, in overload, with the largest."""
        queue = self._queues[function]
        while (found := queue.last() if self._is_crowded else queue.first()) is not None:
            if view.is_waiting(found):
                return found
            queue.discard(found)
        return None

    def _spare_s(self, view: View, function: str) -> float:
        found = self._next(view, function)
        return inf if found is None else self._budget_s(view, found)

    # --- dropping --------------------------------------------------------------------------------------------------

    def _budget_s(self, view: View, invocation: Invocation) -> float:
        """How long from now a run may take for its request to be in time, by the state of the stages that follow."""
        return view.slack_s(invocation) - self._downstream.after_s(invocation.workflow, invocation.stage)

    def _drop_hopeless(self, view: View, function: str) -> Iterator[Action]:
        """Drop the requests that would be late even if they ran now, alone, in a worker that is ready."""
        queue, worker = self._queues[function], self._workers[function]
        if not queue:
            return
        least_s = view.profile(function).latency_s(worker.batches[0])
        while (found := queue.first()) is not None:
            if view.is_waiting(found):
                if self._budget_s(view, found) >= least_s:
                    return
                yield Reject(found.request, TOO_LATE)
            queue.discard(found)

    # --- serving ---------------------------------------------------------------------------------------------------

    def _serve(self, view: View, function: str) -> Iterator[Action]:
        """Start batches while workers are free; which of those waiting go is decided as each batch is formed."""
        worker = self._workers[function]
        while (head := self._next(view, function)) is not None:
            node, cold_s = self._place(view, worker, head)
            if node is None:
                return
            batch: list[Invocation] = []
            yield from self._form(view, worker, cold_s, batch)
            if not batch:
                continue
            configuration = worker.holding(len(batch))
            for invocation in batch:
                self._queues[function].discard(invocation)
                self._waits[function].add(view.now, view.now - invocation.ready)
            yield Start(tuple(batch), configuration, node)

    def _place(self, view: View, worker: Worker, head: Invocation) -> tuple[str | None, float]:
        """Where a batch can run now, and the cold start that it waits for; a cold one only if the head can wait."""
        function, configuration = worker.function.name, worker.full
        node = view.place(function, configuration, "warm")
        if node is not None:
            return node, 0.0
        cold_s = view.profile(function).cold_start_s()
        run_s = view.profile(function).latency_s(worker.batches[0])
        if cold_s and self._budget_s(view, head) < cold_s + run_s:
            return None, 0.0
        return view.place(function, configuration), cold_s

    def _form(self, view: View, worker: Worker, cold_s: float, batch: list[Invocation]) -> Iterator[Action]:
        """Fill a batch in the order of the queue, dropping what it would make late."""
        function = worker.function.name
        queue, profile = self._queues[function], view.profile(function)
        taken: list[Invocation] = []
        while len(taken) < worker.full.batch and (found := self._next(view, function)) is not None:
            queue.discard(found)
            run_s = cold_s + profile.latency_s(worker.holding(min(worker.full.batch, len(taken) + 1 + len(queue))))
            if self._budget_s(view, found) >= run_s:
                taken.append(found)
            elif self._budget_s(view, found) >= cold_s + profile.latency_s(worker.holding(len(taken) + 1)):
                taken.append(found)
                break  # it is in time if the batch stays as small as it is
            else:
                yield Reject(found.request, TOO_LATE)
        batch += [invocation for invocation in taken if view.is_waiting(invocation)]

    # --- workers ---------------------------------------------------------------------------------------------------

    def _time_s(self, view: View, function: str) -> float:
        """The recent wait for a function and its expected run."""
        return self._waits[function].mean(view.now) + view.profile(function).latency_s(self._workers[function].full)

    def _weigh(self, view: View) -> bool:
        """Whether demand exceeds what the cluster can serve; within the band it stays as it was."""
        load = 0.0
        for function, worker in self._workers.items():
            run_s = view.profile(function).latency_s(worker.full) / worker.full.batch
            load += self._arrivals[function].per_s(view.now) * run_s * worker.load
        return load > 1 + self.band or (self._is_crowded and load > 1 - self.band)

    def _provide(self, view: View) -> Iterator[Action]:
        """Start the workers that the recent demand needs and that are missing, where nothing has to go for them."""
        for function, worker in self._workers.items():
            profile = view.profile(function)
            is_kept = profile.cold_start_s() and worker.function.keep_alive_s
            if not is_kept or view.scaled(function) is not None:
                continue
            rate = self._arrivals[function].per_s(view.now)
            if not rate:
                continue
            wanted = ceil(rate * profile.latency_s(worker.full) / worker.full.batch) + 1
            there = sum(each.ready + each.starting for each in view.counts(function) if each.vgpus == worker.full.vgpus)
            for _ in range(wanted - there):
                node = view.place(function, worker.full, "fresh", evicts=False)
                if node is None:
                    break
                yield Warm(function, worker.full, node)

    def _look_again(self, view: View) -> Iterator[Action]:
        """Ask to be called when the next waiting request can no longer be in time."""
        if any(self._queues.values()) and self._woken <= view.now:
            self._woken = view.now + self.refresh_s
            yield Wake(self._woken)
