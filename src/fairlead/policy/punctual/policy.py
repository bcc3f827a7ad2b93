"""Admit what can be answered in time, refuse the rest when it arrives, and serve in full batches, in turn.

Not a paper's: what live servers lack, put together from what papers have shown. A request is admitted by its predicted
finish, as in Clockwork (OSDI 2020); in overload batches stay full and who would be late is dropped, as in Nexus (SOSP
2019); workflows take turns by virtual time, as in fair queueing. How long things take is learned while they run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from fairlead.model import Invocation, Record, Request
from fairlead.policy.base import Action, Plan, Policy, Reject, Site, View, Wake
from fairlead.policy.punctual.flow import Flow, Open
from fairlead.policy.punctual.forecast import Forecast, forecast
from fairlead.policy.punctual.room import make_rooms
from fairlead.policy.punctual.starts import Starts
from fairlead.policy.punctual.work import Work

TOO_BUSY = "it would not be answered in time: too much is ahead of it"
TOO_SHORT = "it would not be answered in time even with nothing ahead of it"
TOO_LATE = "its deadline cannot be met any more"

_CROWD = 1.6  # nobody stands by if so many batches' worth is expected until the next starts
_FIRST_PROBE_S, _LAST_PROBE_S = 0.05, 5.0  # time between requests that are let in though they should be late
_COUNT_EVERY_S = 0.25  # instances, nodes and callers are counted so often
_LATELY_S = 1.0
_LEAST_RETRY_S, _MOST_RETRY_S = 0.001, 60.0


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
        rooms = make_rooms(site)
        self._works = {
            name: Work(function, site, self.percentile, rooms[name]) for name, function in site.functions.items()
        }
        self._flows = {name: Flow(workflow, self._works) for name, workflow in site.workflows.items()}
        self._nodes = site.cluster.nodes
        kinds = {node.name: node.kind for node in self._nodes}
        self._starts = Starts(self._flows, kinds, self.margin_s, self.best_effort_share, self._drop)
        self._counted = -inf
        self._learnt = 0
        self._touched: dict[int, None] = {}  # requests of which something ended
        self._retried: dict[int, int] = {}  # by request, how many failed invocations may wait again
        self._probes: dict[str, tuple[float, float]] = {}  # by workflow: when the next may go, and the time after it
        self._wake = -inf

    # --- hooks -------------------------------------------------------------------------------------------------

    def decide(self, view: View) -> Iterator[Action]:
        now, starts = view.now, self._starts
        starts.recover(view)
        if now >= self._counted + _COUNT_EVERY_S or view.lost:
            self._count(view)
        if self._touched or self._retried:
            self._settle(view)
        for request in view.fresh:
            if request.id not in starts.open:
                action = self._admit(view, request)
                if action is not None:
                    yield action
                work = self._flows[request.workflow].steps[0].work
                if work.standby and work.waiting >= work.seats:
                    yield from starts.call(view, work)
        if len(starts.queued) < view.waiting():
            self._find(view)
        if starts.active:
            yield from starts.decide(view)
            yield from starts.sweep(view)
        for work in self._works.values():
            if work.is_awaited:
                work.is_awaited = False
                warm = starts.awaken(work, view)
                if warm is not None:
                    yield warm
        if starts.active:
            at = self._next_wake(now)
            if at < inf and not now < self._wake <= at:
                self._wake = at
                yield Wake(at)

    def observe(self, record: Record) -> None:
        run = self._starts.runs.pop(record.invocation, None)
        is_done = record.outcome == "done"
        if run is not None:
            if not run.is_over:
                run.is_over = True
                run.work.room.end(run)
                run.work.running -= 1
            if is_done and not run.is_learnt:
                run.is_learnt = True
                run.pace.learn(run.rung, record.end - record.start - record.cold_s)
                self._learn(run.work, record)
        if is_done and self._flows[record.workflow].is_single:
            self._close(record.request, record.end)
            return
        self._touched[record.request] = None
        if not is_done:
            self._retried[record.request] = self._retried.get(record.request, 0) + 1

    # --- admission ---------------------------------------------------------------------------------------------

    def _admit(self, view: View, request: Request) -> Action | None:
        """Let a request in, with a promise; or refuse it."""
        flow, deadline, now = self._flows[request.workflow], request.deadline, view.now
        if deadline == inf:
            self._enter(view, request.id, Open(flow))
            return None
        work = flow.steps[0].work
        work.called(now)
        flow.called(now)
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
            self._starts.open[request.id] = Open(flow, deadline)
            for invocation in view.waiting_of(request.id):
                self._starts.stand_by(work, invocation)
            return None
        else:
            return self._reject(flow, request, promise, now)
        state.is_modest = is_modest
        state.book()
        self._enter(view, request.id, state)
        return Plan(request.id, (f"wait {1e3 * promise.wait_s:.1f} ms", *flow.names), min(promise.safe, deadline))

    def _is_probe(self, flow: Flow, deadline: float, now: float) -> bool:
        """Whether to let in a request that should be late, since nothing else could prove the forecast wrong.

        With nothing else about, one that would be in time if all went as expected; and any, now and then.
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
        seats = work.seats
        if not flow.is_single or promise.companions >= _CROWD * seats or len(work.standby) >= seats // 4:
            return False
        return forecast(flow, deadline, now, is_alone=True).finish + self.margin_s <= deadline

    def _reject(self, flow: Flow, request: Request, promise: Forecast, now: float) -> Reject:
        """Refuse a request, and say when one like it would be in time: when so much less is ahead."""
        for step in flow.steps:
            step.work.is_awaited = step.work.warms and (step.work.instances == 0 or promise.wait_s > 0)
        if now + flow.alone_s + self.margin_s > request.deadline:
            reason, later_s = TOO_SHORT, self._probes.get(flow.name, (now + _LAST_PROBE_S, 0.0))[0] - now
        else:
            reason, later_s = TOO_BUSY, promise.safe + self.margin_s - request.deadline
        offer_s = promise.safe - now if promise.safe < inf else None
        return Reject(request.id, reason, _retry_s(later_s), offer_latency_s=offer_s)

    def _drop(self, request: int, late_s: float) -> Reject | None:
        """Give up a request that was admitted; None if it is closed already."""
        if request not in self._starts.open:
            return None
        self._close(request, inf)
        return Reject(request, TOO_LATE, _retry_s(late_s))

    # --- accounts ----------------------------------------------------------------------------------------------

    def _enter(self, view: View, request: int, state: Open) -> None:
        self._starts.open[request] = state
        for invocation in view.waiting_of(request):
            self._starts.add(self._works[invocation.function], invocation, view)

    def _close(self, request: int, end: float) -> None:
        state = self._starts.open.get(request)
        if state is not None:
            if state.deadline < inf:
                state.flow.answered(end <= state.deadline)
            self._starts.forget(request)

    def _settle(self, view: View) -> None:
        """Let what became ready wait, and forget requests that ended."""
        for request in [*self._touched, *self._retried]:
            if view.is_open(request):
                for invocation in view.waiting_of(request):
                    if invocation.id not in self._starts.queued:
                        if invocation.attempt > 1 and request in self._retried:
                            self._retried[request] -= 1
                        self._take_in(view, invocation)
            else:
                self._close(request, view.now)
        self._touched.clear()
        if self._retried:
            self._retried = {r: left for r, left in self._retried.items() if left > 0 and view.is_open(r)}

    def _find(self, view: View) -> None:
        """Look through all that waits for what nobody told us of. A full listing, and rarely needed."""
        for invocation in view.by_ready():
            if invocation.id not in self._starts.queued:
                self._take_in(view, invocation)

    def _take_in(self, view: View, invocation: Invocation) -> None:
        if invocation.request not in self._starts.open:
            state = self._starts.open[invocation.request] = Open(self._flows[invocation.workflow])
            if invocation.deadline < inf:
                state.book()
        self._starts.add(self._works[invocation.function], invocation, view)

    def _learn(self, work: Work, record: Record) -> None:
        """Note a cold start, and work out again what depends on run times: often at first, then now and then."""
        if record.cold_s > 0:
            kind = next((node.kind for node in self._nodes if node.name == record.node), None)
            if kind is not None:
                work.cold_s[kind] += (record.cold_s - work.cold_s[kind]) / 4
        self._learnt += 1
        if self._learnt < 32 or self._learnt % 8 == 0:
            self._review()

    def _review(self) -> None:
        for work in self._works.values():
            work.review()
        for flow in self._flows.values():
            flow.review()

    def _count(self, view: View) -> None:
        """Note which nodes are up, how many instances there are, and who was called lately."""
        now = self._counted = view.now
        for work in self._works.values():
            ready = [instance.is_ready for instance in view.instances(work.name)]
            work.instances = sum(ready)
            if len(ready) > work.instances and work.starts_until <= now:  # it takes longer than expected
                work.starts_until = now + _COUNT_EVERY_S
            work.room.callers = 0
        for flow in self._flows.values():
            if flow.newest > now - _LATELY_S:
                for room in flow.rooms:
                    room.callers += 1
        if view.nodes != self._nodes:
            self._nodes = view.nodes
            for work in self._works.values():
                work.survey(self._nodes)
            self._review()

    def _next_wake(self, now: float) -> float:
        """When to be asked again, should nothing happen."""
        starts = self._starts
        if starts.runs:
            return starts.wake
        # Nothing will end, so nobody would come to give up who is late.
        heads: list[float] = [queue.items[0][0] for work in starts.active.values() for queue in work.queues.values()]
        heads += [work.standby[0][0] for work in starts.active.values() if work.standby]
        return min([starts.wake, *(head for head in heads if head > now)])


def _retry_s(seconds: float) -> float:
    return min(max(seconds, _LEAST_RETRY_S), _MOST_RETRY_S)
