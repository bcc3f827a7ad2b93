"""Admit what can be answered in time, refuse the rest when it arrives, and serve in full batches, in turn.

Not a paper's policy: it puts together what papers have shown. A request is admitted by its predicted finish, as in
Clockwork (OSDI 2020); in overload batches stay full and requests that would be late are dropped, as in Nexus (SOSP
2019); workflows take turns by virtual time, as in fair queueing. Run times are learned during the run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from fairlead.model import Record, Request
from fairlead.policy.base import Action, Plan, Policy, Reject, Site, View, Wake
from fairlead.policy.punctual.flow import Flow, Open
from fairlead.policy.punctual.forecast import Forecast, forecast
from fairlead.policy.punctual.starts import Starts, retry_after_s
from fairlead.policy.punctual.work import Work, make_works

TOO_BUSY = "it would not be answered in time: too much is ahead of it"
TOO_SHORT = "it would not be answered in time even with nothing ahead of it"

_CROWD = 1.6  # no request stands by if this many batches' worth are expected before the next batch starts
_FIRST_PROBE_S, _LAST_PROBE_S = 0.05, 5.0  # time between requests that are let in though they should be late
_COUNT_EVERY_S = 0.25  # how often instances and callers are counted
_RECENT_S = 1.0  # a workflow that was called within this time counts as a caller


@dataclass
class Punctual(Policy):
    """Refuse at arrival what would be late, serve the rest in full batches, fairly, and learn how long things take.

    Args:
        percentile: Share of runs that take no longer than is planned for, in [0.5, 1). A higher one makes promises
            surer, and fewer.
        margin_s: Time that an answer needs besides waiting and running, in seconds; not negative.
        best_effort_share: Share of the time that requests without a deadline get while others wait, in [0, 1).
    """

    percentile: float = 0.9
    margin_s: float = 0.001
    best_effort_share: float = 0.05

    def __post_init__(self) -> None:
        if not 0.5 <= self.percentile < 1:
            raise ValueError(f"percentile must be in [0.5, 1); got {self.percentile}.")
        if not 0 <= self.margin_s < inf:
            raise ValueError(f"margin_s must be finite and not negative; got {self.margin_s}.")
        if not 0 <= self.best_effort_share < 1:
            raise ValueError(f"best_effort_share must be in [0, 1); got {self.best_effort_share}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._works = make_works(site, self.percentile)
        self._flows = {name: Flow(workflow, self._works) for name, workflow in site.workflows.items()}
        kinds = {node.name: node.kind for node in site.cluster.nodes}
        self._starts = Starts(self._works, kinds, self.margin_s, self.best_effort_share)
        self._is_new = True  # it has not been asked yet
        self._counted = -inf
        self._learnt = 0
        self._probes: dict[str, tuple[float, float]] = {}  # by workflow: when the next may go, and the time after it
        self._wake = -inf

    def decide(self, view: View) -> Iterator[Action]:
        now, starts = view.now, self._starts
        self._update(view)
        for request in view.fresh:
            action = self._admit(view, request)
            if action is not None:
                yield action
            work = self._flows[request.workflow].steps[0].work
            if work.standby and work.waiting >= work.main.seats:
                yield from starts.call(view, work)
        yield from starts.decide(view)
        yield from starts.sweep(view)
        for work in self._works.values():
            if work.is_awaited:
                work.is_awaited = False
                warm = starts.awaken(work, view)
                if warm is not None:
                    yield warm
        at = self._next_wake(now)
        if at < inf and not now < self._wake <= at:
            self._wake = at
            yield Wake(at)

    # --- what changed ------------------------------------------------------------------------------------------

    def _update(self, view: View) -> None:
        """Take in what changed since the last decision."""
        changes, now = view.changes, view.now
        for record in changes.ended:
            self._learn(record)
        if any(change.what != "changed" for change in changes.nodes):
            self._starts.kinds.update((node.name, node.kind) for node in view.nodes)
            for work in self._works.values():
                work.survey(view.nodes)
            self._review()
        if now >= self._counted + _COUNT_EVERY_S or view.lost:
            self._count(view)
        for closed in changes.closed:
            is_single = self._flows[closed.request.workflow].is_single
            self._starts.close(closed.request.id, closed.end if is_single else now)
        fresh = {request.id for request in view.fresh}
        for invocation in view.by_ready() if self._is_new else changes.ready:
            if invocation.request not in fresh and view.is_waiting(invocation):
                if invocation.request in self._starts.open:
                    self._starts.add(invocation)
                else:  # another policy let it in
                    state = Open(self._flows[invocation.workflow])
                    if invocation.deadline < inf:
                        state.book()
                    self._starts.enter(invocation.request, state, view)
        self._is_new = False

    def _learn(self, record: Record) -> None:
        """Take in an attempt that ended; what depends on run times is reviewed often at first, then now and then."""
        run = self._starts.runs.pop(record.invocation, None)
        if run is None:
            return
        if not run.is_over:
            run.work.room.end(run)
        if record.outcome != "done" or run.is_learnt:
            return
        run.is_learnt = True
        run.pace.learn(run.rung, record.end - record.start - record.cold_s)
        if record.cold_s > 0:
            cold_s, kind = run.work.cold_s, self._starts.kinds[record.node]
            cold_s[kind] += (record.cold_s - cold_s[kind]) / 4
        self._learnt += 1
        if self._learnt < 32 or self._learnt % 8 == 0:
            self._review()

    def _review(self) -> None:
        for work in self._works.values():
            work.review()
        for flow in self._flows.values():
            flow.review()

    def _count(self, view: View) -> None:
        """Count instances that are ready, and workflows that were called within the last second."""
        now = self._counted = view.now
        for work in self._works.values():
            counts = view.counts(work.name)
            work.instances = sum([each.ready for each in counts])
            if work.starts_until <= now and any(each.starting for each in counts):  # it takes longer than expected
                work.starts_until = now + _COUNT_EVERY_S
            work.room.callers = 0
        for flow in self._flows.values():
            if flow.gap.newest > now - _RECENT_S:
                for room in flow.rooms:
                    room.callers += 1

    def _next_wake(self, now: float) -> float:
        """When to be asked again, should nothing happen."""
        starts, works = self._starts, self._starts.works()
        if not works or starts.runs:
            return starts.wake if works else inf
        # Nothing will end, and so nothing else would call for dropping what is late.
        heads = [queue.at(0) for work in works for queue in (*work.queues.values(), work.standby) if queue]
        return min([starts.wake, *(head.deadline for head in heads if head.deadline > now)])

    # --- admission ---------------------------------------------------------------------------------------------

    def _admit(self, view: View, request: Request) -> Action | None:
        """Let a request in, with a promise; or refuse it."""
        flow, deadline, now = self._flows[request.workflow], request.deadline, view.now
        if deadline == inf:
            self._starts.enter(request.id, Open(flow), view)
            return None
        work = flow.steps[0].work
        work.gap.called(now)
        flow.gap.called(now)
        is_modest = flow.is_modest(work.room)
        promise = forecast(flow, deadline, now, is_modest)
        if promise.safe + self.margin_s > deadline and flow.has_choice:
            promise = forecast(flow, deadline, now, is_modest, is_quick=True)
        if promise.safe + self.margin_s <= deadline:
            self._probes.pop(flow.name, None)
            state = Open(flow, deadline)
        elif self._is_probe(flow, deadline, now):
            state = Open(flow)
            state.is_probe = True
        elif self._may_stand_by(flow, work, deadline, promise, now):
            self._starts.enter(request.id, Open(flow, deadline), view, work.standby)
            return None
        else:
            return self._reject(flow, request, promise, now)
        state.is_modest = is_modest
        state.book()
        self._starts.enter(request.id, state, view)
        return Plan(request.id, (f"wait {1e3 * promise.wait_s:.1f} ms", *flow.by_name), min(promise.safe, deadline))

    def _is_probe(self, flow: Flow, deadline: float, now: float) -> bool:
        """Whether to let in a request that should be late, since nothing else could prove the forecast wrong.

        With nothing else in the room, a request that would be in time if all went as expected; and any, now and then.
        """
        if flow.open:
            return False
        is_empty = not any(room.runs or room.pending for room in flow.rooms)
        is_warm = all(step.work.instances or not step.work.warms for step in flow.steps)
        if is_empty and is_warm and now + flow.alone_s + self.margin_s <= deadline:
            return True
        at, gap_s = self._probes.get(flow.name, (-inf, _FIRST_PROBE_S))
        if now < at:
            return False
        self._probes[flow.name] = now + gap_s, min(2 * gap_s, _LAST_PROBE_S)
        return True

    def _may_stand_by(self, flow: Flow, work: Work, deadline: float, promise: Forecast, now: float) -> bool:
        """Whether a request that is likely to be late has a chance: its batch may stay small, and so be quick."""
        seats = work.main.seats
        if not flow.is_single or promise.companions >= _CROWD * seats or len(work.standby) >= seats // 4:
            return False
        return forecast(flow, deadline, now, is_alone=True).finish + self.margin_s <= deadline

    def _reject(self, flow: Flow, request: Request, promise: Forecast, now: float) -> Reject:
        """Refuse a request, and say when one like it would be in time."""
        for step in flow.steps:
            step.work.is_awaited = step.work.warms and (step.work.instances == 0 or promise.wait_s > 0)
        if now + flow.alone_s + self.margin_s > request.deadline:
            reason, later_s = TOO_SHORT, self._probes.get(flow.name, (now + _LAST_PROBE_S, 0.0))[0] - now
        else:
            reason, later_s = TOO_BUSY, promise.safe + self.margin_s - request.deadline
        offer_s = promise.safe - now if promise.safe < inf else None
        return Reject(request.id, reason, retry_after_s(later_s), offer_latency_s=offer_s)
