"""Batches by additive increase and multiplicative decrease, one limit per function.

D. Crankshaw et al., "Clipper: A Low-Latency Online Prediction Serving System" (NSDI 2017), section 4.3, adaptive and
delayed batching.

**Differs from the paper:**

* Clipper has one model per request and one objective. Here the objective of a stage is its share of the workflow's: its
  fastest time over that of the longest path through it.
* Clipper keeps a limit per replica of a container; here it is one per function, learned from all its instances.
* The limit grows only by batches that reached it: at low load, small batches would raise it without having tried. It
  never passes the largest batch size of the function. A batch larger than the limit as it is now changes nothing: it
  was formed before the last cut.
* Latency is that of run and transfer; a cold start says nothing about the size of a batch.
"""

from fairlead.model import Invocation, Record
from fairlead.policy.base import Order, Site, View
from fairlead.policy.kit.batching.full import Full
from fairlead.policy.kit.batching.gathering import Step, Urgency
from fairlead.policy.kit.remaining import fastest_s, shares

GROWTH = 1.0
BACK_OFF = 0.9  # far less than the half of congestion control: the best size hardly moves

_RAN_TO_ITS_END = ("done", "failed", "discarded")


class Aimd:
    """A limit on the size of a function's batches that follows the latency of those that ran; else as `Full`."""

    def __init__(self, site: Site, batch_wait_s: float = 0.0, urgency: Urgency = "oldest") -> None:
        self._full = Full(site, batch_wait_s, urgency)
        self.limits = dict.fromkeys(site.functions, 1.0)
        fastest = {name: fastest_s(profile) for name, profile in site.profiles.items()}
        self.objectives_s = {
            (workflow.name, stage): workflow.slo.latency_s * share
            for workflow in site.workflows.values()
            for stage, share in shares(workflow, fastest).items()
        }
        self._batch: tuple[object, ...] = ()  # whose records are coming in
        self._left = 0  # how many of them are still to come
        self._is_late = False

    def next(self, view: View, head: Invocation, order: Order = "warm-first") -> Step:
        return self._full.up_to(int(self.limits[head.function]), view, head, order)

    def observe(self, record: Record) -> None:
        """Learn from a batch once all its invocations were shown, which come one after the other."""
        batch = (record.function, record.node, record.device, record.start, record.end, record.batch_size)
        if self._left == 0 or batch != self._batch:
            self._batch, self._left, self._is_late = batch, record.batch_size, False
        self._left -= 1
        latency_s = record.end - record.start - record.cold_s
        self._is_late |= latency_s > self.objectives_s[record.workflow, record.stage]
        if self._left == 0 and record.outcome in _RAN_TO_ITS_END:
            self._learn(record.function, record.batch_size)

    def _learn(self, function: str, size: int) -> None:
        limit = self.limits[function]
        if size > int(limit):
            return
        if self._is_late:
            self.limits[function] = max(1.0, limit * BACK_OFF)
        elif size == int(limit):
            self.limits[function] = min(float(self._full.largest(function)), limit + GROWTH)
