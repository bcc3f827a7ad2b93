"""Where the inputs of invocations lie, and how long it takes to bring them to another node.

The time is believed to be a latency plus the size over a bandwidth, the same between any two nodes; on the node that
holds an input it is nil. Both begin as declared (`cluster.bandwidth_gbps`) and follow what finished batches took. A
transfer that takes as long as was declared teaches nothing, so that a simulation whose network is as declared keeps
exactly the declared time.
"""

from math import inf

from fairlead.engine.core.capacity import InstanceState
from fairlead.engine.core.progress import RequestState, StagePlan
from fairlead.engine.core.queues import Task
from fairlead.workload import Scenario

INLINE_MB = 1 / 16
"""Inputs up to this size travel with the batch: they tell nothing of the network, and nothing is placed beside them."""

_FORGET = 0.97  # of the weight of what was observed, per observation: about the last 30 count
_MOST_ODD = 4.0  # one observation counts as at most this many times the believed time, and at least its inverse
_FIRST = 3  # observations before that is known well enough to call another one odd
_SPREAD = 0.1  # of the sizes, relative to their mean: with less, latency and bandwidth cannot be told apart

Source = tuple[int, int]  # index of a stage, and item


def sources(task: Task) -> list[tuple[Source, StagePlan]]:
    """The outputs that an invocation takes in."""
    invocation, state, stage = task
    found: list[tuple[Source, StagePlan]] = []
    if state.outputs is None:
        return found
    for predecessor in stage.predecessors:
        if predecessor.region >= 0 and predecessor.region != stage.region:  # a join takes every item
            found += [(key, predecessor) for key in state.outputs if key[0] == predecessor.index]
        else:
            key = (predecessor.index, invocation.item if predecessor.region >= 0 else 0)
            if key in state.outputs:
                found.append((key, predecessor))
    return found


def inputs(task: Task) -> list[tuple[str, float]]:
    """Where the input of an invocation lies: (node, megabytes) per output of a predecessor that has a size."""
    outputs = task[1].outputs
    if outputs is None:
        return []
    return [lying for key, _ in sources(task) if (lying := outputs[key])[1]]


def missing_mb(task: Task, node: str) -> float:
    """How much of the input of an invocation lies on other nodes than this."""
    return sum([mb for where, mb in inputs(task) if where != node])


def holder(task: Task) -> tuple[str, float] | None:
    """The node with the largest part of an input, and its megabytes; the first one found among equals."""
    held: dict[str, float] = {}
    for node, mb in inputs(task):
        held[node] = held.get(node, 0.0) + mb
    return max(held.items(), key=lambda each: each[1]) if held else None


def keep(state: RequestState, stage: StagePlan, item: int, node: str, output_mb: float | None) -> None:
    """Note where an output was made. `output_mb` is its size where that was measured, and not only declared."""
    if state.outputs is None:
        if output_mb is None:
            return
        state.outputs = {}
    state.outputs[stage.index, item] = node, stage.output_mb if output_mb is None else output_mb


class Transfers:
    """The belief of how long transfers between nodes take. O(1) per question and per observation."""

    __slots__ = ("_observed", "_overhead_s", "_w", "_x", "_xx", "_xy", "_y", "latency_s", "s_per_mb")

    def __init__(self, scenario: Scenario) -> None:
        declared = scenario.cluster.bandwidth_gbps
        self.latency_s = 0.0
        self.s_per_mb = 0.0 if declared == inf else 1 / (declared * 125)
        self._overhead_s = {name: p.overhead_s for name, p in scenario.profiles.items() if p.overhead_s}
        self._observed = 0
        self._w = self._x = self._y = self._xx = self._xy = 0.0

    def seconds(self, mb: float) -> float:
        """How long it takes to bring this much to another node."""
        return self.latency_s + mb * self.s_per_mb if mb > 0 else 0.0

    def saved_s(self, mb: float) -> float:
        """What it saves to run where this much of an input lies; nil for what travels with the batch."""
        return self.seconds(mb) if mb > INLINE_MB else 0.0

    def learn(self, instance: InstanceState, transfer_s: float) -> None:
        """Take in how long the inputs of a batch were on their way."""
        mb = instance.transfer_mb
        if mb <= INLINE_MB or instance.shape.copy_mb:  # what a kernel copies is no network's business
            return
        seconds = transfer_s - self._overhead_s.get(instance.shape.name, 0.0)
        if seconds <= 0:
            return  # a copy of it was there already
        believed_s = self.seconds(mb)
        if not self._observed and abs(seconds - believed_s) <= 1e-6 * believed_s:
            return
        self._observed += 1
        if self._observed > _FIRST:
            seconds = min(max(seconds, believed_s / _MOST_ODD), believed_s * _MOST_ODD)
        self._fit(mb, seconds)

    def _fit(self, mb: float, seconds: float) -> None:
        """Least squares that forget. Weights are the inverse of the size, as errors grow with it."""
        weight = 1 / mb
        self._w = self._w * _FORGET + weight
        self._x = self._x * _FORGET + weight * mb
        self._y = self._y * _FORGET + weight * seconds
        self._xx = self._xx * _FORGET + weight * mb * mb
        self._xy = self._xy * _FORGET + weight * mb * seconds
        mean_mb, mean_s = self._x / self._w, self._y / self._w
        spread = self._xx / self._w - mean_mb * mean_mb
        slope = (self._xy / self._w - mean_mb * mean_s) / spread if spread > (_SPREAD * mean_mb) ** 2 else inf
        if 0 <= slope * mean_mb <= mean_s:
            self.s_per_mb, self.latency_s = slope, mean_s - slope * mean_mb
        elif slope < 0:  # noise: larger ones were faster
            self.s_per_mb, self.latency_s = 0.0, mean_s
        else:
            self.s_per_mb, self.latency_s = mean_s / mean_mb, 0.0
