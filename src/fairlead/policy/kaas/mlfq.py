"""A bucket per duration class, served at random.

A. Ramkumar, "Making the Most of Serverless Accelerators" (UCB/EECS-2022-88, 2022), section 6.1, "Multi-Level Feedback
Queue Scheduling".

**Differs from the paper:** it does not say how durations become buckets; here each doubling of the expected time is
one. Nothing is fed back: a request stays in the bucket of its expected time, there as here. The paper's trace is
impossible if only requests that have arrived are drawn. Mode `compat` draws once per step among all buckets that
are not exhausted, and idles until the next step when the head of the drawn one has not arrived; one seed in
sixteen then gives the trace. `online`, the default, draws for every start among the buckets whose head can start.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log2
from typing import ClassVar

import numpy as np

from fairlead.model import Invocation
from fairlead.policy.base import Action, Policy, Site, View, Wake
from fairlead.policy.kaas.devices import Devices, Mode, Spot, heads, last_arrivals

_CLOSE = 1e-9  # instants and powers of two are met up to rounding


@dataclass
class MultiLevelFeedback(Policy):
    """Draw a bucket at random, start its oldest on any free device, and draw again.

    Args:
        mode: `compat` also draws buckets that hold only requests still to arrive, and decides in steps.
        base_s: Bucket n holds what takes base_s x 2^n up to twice that; bucket 0 also all that is shorter.
        step_s: How often `compat` draws.
    """

    paper: ClassVar[str] = "Serverless accelerators (UCB 2022), 6.1"

    mode: Mode = "online"
    base_s: float = 1.0
    step_s: float = 1.0

    def __post_init__(self) -> None:
        for name in ("base_s", "step_s"):
            value = getattr(self, name)
            if not 0 < value < inf:
                raise ValueError(f"{name} must be positive and finite; got {value}.")

    @property
    def clairvoyant(self) -> bool:
        """Whether it must be told the arrivals: in compat mode."""
        return self.mode == "compat"

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._rng = rng
        self._devices = Devices(site)
        self._last = last_arrivals(site.arrivals)
        self._entries = {
            name: [stage.function for stage in workflow.stages if not stage.after]
            for name, workflow in site.workflows.items()
        }
        self._idle = -1  # the last step that compat idles through
        self._wake = -inf  # the last one asked for

    def decide(self, view: View) -> Iterator[Action]:
        up = self._devices.up(view)
        yield from self._in_step(view, up) if self.mode == "compat" else self._at_once(view, up)

    def bucket(self, view: View, function: str) -> int:
        """The duration class of a function: how often base_s doubles to reach its expected time."""
        ratio = self._devices.expected_s(view, function) / self.base_s
        return floor(log2(ratio) + _CLOSE) if ratio > 1 else 0

    def _at_once(self, view: View, up: list[Spot]) -> Iterator[Action]:
        while True:
            ready = {
                bucket: (head, free)
                for bucket, head in self._heads(view, up).items()
                if (free := self._devices.first_free(view, head.function, up)) is not None
            }
            if not ready:
                return
            head, free = ready[self._draw(sorted(ready))]
            yield free.start(head)
            if view.is_waiting(head):
                return  # it was not carried out

    def _in_step(self, view: View, up: list[Spot]) -> Iterator[Action]:
        step = ceil(view.now / self.step_s - _CLOSE)
        if step * self.step_s > view.now + _CLOSE:  # between two steps
            if view.waiting():
                yield from self._wake_at(step)
            return
        while step != self._idle:
            arrived = self._heads(view, up)
            free = {bucket: self._devices.first_free(view, head.function, up) for bucket, head in arrived.items()}
            if not any(free.values()):
                return  # the next completion or arrival calls again
            drawn = self._draw(sorted({*arrived, *self._to_come(view, up)}))
            found = free.get(drawn)
            if found is None:
                self._idle = step
                yield from self._wake_at(step + 1)
            else:
                yield found.start(arrived[drawn])
                if view.is_waiting(arrived[drawn]):
                    return  # it was not carried out

    def _wake_at(self, step: int) -> Iterator[Action]:
        at = step * self.step_s
        if self._wake < at:
            self._wake = at
            yield Wake(at)

    def _heads(self, view: View, up: list[Spot]) -> dict[int, Invocation]:
        """The oldest that waits in each bucket; what no device can hold is left out."""
        found: dict[int, Invocation] = {}
        for head in heads(view):
            if self._devices.can_hold(head.function, up):
                found.setdefault(self.bucket(view, head.function), head)
        return found

    def _to_come(self, view: View, up: list[Spot]) -> set[int]:
        """The buckets of the requests that have yet to arrive."""
        return {
            self.bucket(view, function)
            for workflow, last in self._last.items()
            if last > view.now
            for function in self._entries[workflow]
            if self._devices.can_hold(function, up)
        }

    def _draw(self, buckets: Sequence[int]) -> int:
        return buckets[int(self._rng.integers(len(buckets)))] if len(buckets) > 1 else buckets[0]
