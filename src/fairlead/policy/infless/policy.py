"""INFless: a function has instances of many sizes, each good for a range of rates; they are scaled by the rate alone.

Y. Yang, L. Zhao, Y. Li, H. Zhang, J. Li, M. Zhao, X. Chen, K. Li: INFless: A Native Serverless System for Low-Latency,
High-Throughput Inference, ASPLOS 2022. Implemented from a description of its published controller: feasible
configurations with their rates, greedy scale-out, and dispatch by rate with scale-in.

**Differs from the paper** (docs/policies/infless.md says more of each):

* It knows single functions. Here each function of each workflow is one, with a part of the workflow's objective.
* The grid of threads and GPU percent is what a profile lists of it; a node is one slot with all its devices.
* Times are those that 95 % of runs keep, corrected by what was observed; there, measured once.
* Rates are real numbers, to which what waits is added; the smallest batch is used for any rate that is not served.
* Scale-out is looked at every second, there every ten, with one instance per function in turn. Where there is no room,
  what has been given nothing longest is deleted at once, and then batches grow on the vCPUs and vGPUs that there are.
* The first instance of a function serves; there, it is only kept warm. Where others have reserved all room it is
  oversold: it can use the vCPUs that the rates of the others leave free. Its batch shrinks when it can no longer be
  filled.
* A queue is shared by the instances of a function; there, each request is sent to one by lottery. The excess of the
  rate is refused in even intervals, there by the same lottery (a virtual instance without a server), and only when
  too many wait already and there is an objective. What finds the queue full is refused, as there, but the queue may be
  longer than a batch per instance if it can be worked off in time.
* A batch that is not full at its time-out takes the smallest listed batch that holds it.
* The container of a deleted instance stays warm if it keeps memory only; there is no keep-alive by histogram.
* An objective that nothing keeps gives the quickest configuration of the smallest batch; there, none.
* The subset search is over numbers of equal instances, and ends after 50,000 combinations, there after a million.
* Defects of the published code are left out: a wrong normaliser, best scores that outlive a placement, deletion that
  is only simulated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import ClassVar

import numpy as np

from fairlead.policy.base import Action, Policy, Reject, Searched, Site, Start, View, Wake
from fairlead.policy.infless.fleet import Fleet


@dataclass
class Infless(Policy):
    """Keep instances for the rate of each function; start a batch when it is full or has waited long enough.

    Args:
        period_s: How often rates are measured and instances are added or dropped, in seconds.
        window_s: Over how long a rate is taken, in seconds; at least the period.
        excess: Share of a function's rate, in [0, 1), that may be unserved before an instance is added.
        idle_s: For how long an instance is given nothing before it is deleted, in seconds. Published: three looks, one
            every ten seconds.
        gpu_share: Largest part of a device that one instance may have, in (0, 1].
        refresh_s: How often corrected profiles are taken over, in seconds.
    """

    paper: ClassVar[str] = "INFless, ASPLOS 2022"

    period_s: float = 1.0
    window_s: float = 10.0
    excess: float = 0.03
    idle_s: float = 30.0
    gpu_share: float = 0.5
    refresh_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("period_s", "idle_s", "refresh_s"):
            value = getattr(self, name)
            if not 0 < value < inf:
                raise ValueError(f"{name} must be positive and finite; got {value}.")
        if not self.period_s <= self.window_s < inf:
            raise ValueError(f"window_s must be finite and at least period_s; got {self.window_s}.")
        if not 0 <= self.excess < 1:
            raise ValueError(f"excess must be in [0, 1); got {self.excess}.")
        if not 0 < self.gpu_share <= 1:
            raise ValueError(f"gpu_share must be in (0, 1]; got {self.gpu_share}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._fleet = Fleet(site, self.gpu_share)
        self._is_new = True
        self._look_due = self._refresh_due = 0.0
        self._woken = inf  # the next instant at which it asked to be called for a batch

    def decide(self, view: View) -> Iterator[Action]:
        self._fleet.follow(view.changes)
        if view.now >= self._look_due:
            yield from self._look(view)
        yield from self._serve(view)
        yield from self._refuse(view)

    def _look(self, view: View) -> Iterator[Action]:
        """Measure rates, divide them, delete what has been idle for long and add what is missing."""
        fleet, services = self._fleet, self._fleet.services.values()
        self._look_due = view.now + self.period_s
        fleet.placement.steps = 0
        if view.now >= self._refresh_due:
            self._refresh_due = view.now + self.refresh_s
            fleet.refresh(view)
        if self._is_new:
            self._is_new = False
            for service in services:
                yield from fleet.add_first(view, service)
        yield from fleet.provide_all(view)
        for service in services:
            service.measure(view, self.window_s)
        fleet.set_parts()
        for service in services:
            service.share(view.now)
        yield from fleet.delete_idle(view, self.idle_s)
        yield from fleet.scale_out(view, self.excess)
        fleet.adapt_batches(self.excess)
        for service in services:
            service.set_refused(view.now, self.excess)
        if fleet.placement.steps:
            yield Searched(fleet.placement.steps)
        if any(service.rate_rps > 0 for service in services) or view.waiting():
            yield Wake(self._look_due)

    def _refuse(self, view: View) -> Iterator[Action]:
        """Refuse what exceeds the rates of all instances, request by request."""
        met: set[tuple[int, str]] = set()
        for each in view.changes.ready:
            service = self._fleet.services[each.workflow, each.function]
            if (each.request, each.function) not in met and view.is_waiting(each):
                met.add((each.request, each.function))
                if service.refuses(view.now, view.waiting(*service.queue) - 1, self.excess):
                    yield Reject(each.request, f"more requests than the instances of {each.function} can serve")

    def _serve(self, view: View) -> Iterator[Action]:
        """Start every batch that is full or has waited long enough, where an instance is free.

        Queues go by their oldest. One whose only instance is oversold and finds no room now keeps younger ones from
        starting on that node, or it might wait for ever.
        """
        heads = [(head.ready, head.id, queue) for queue in view.queues() if (head := view.oldest(*queue))]
        full: set[str] = set()
        for *_, queue in sorted(heads):
            service = self._fleet.services[queue]
            if not service.bookings:
                yield from self._fleet.add_first(view, service)
            while (head := view.oldest(*queue)) is not None:
                booking = service.pick(view, full)
                if booking is None:
                    full |= service.wanted_nodes(view.now)
                    break
                configuration = booking.configuration
                count = min(view.waiting(*queue), configuration.batch)
                if count < configuration.batch and view.now < head.ready + booking.offer.timeout_s:
                    yield from self._wake(view, head.ready + booking.offer.timeout_s)
                    break
                batch = tuple(islice(view.by_ready(*queue), count))
                yield Start(batch, service.filled(configuration, count), booking.node, booking.device)
                self._fleet.begin(view, service, booking, count, head.id)

    def _wake(self, view: View, at: float) -> Iterator[Action]:
        """Ask to be called at an instant, unless it has asked for one before that."""
        if not view.now < self._woken <= at:
            self._woken = at
            yield Wake(at)
