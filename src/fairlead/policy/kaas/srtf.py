"""The shortest request first.

A. Ramkumar, "Making the Most of Serverless Accelerators" (UCB/EECS-2022-88, 2022), section 6.1, "Shortest Time
Remaining First".

**Differs from the paper:** jobs are not preempted, there as here, so the remaining time is the expected time of a
warm run. In the paper's trace a GPU stays idle beside a waiting BERT request until a shorter ResNet request arrives:
its queue must hold the future. Mode `compat` does that (the arrivals are known, and only the head of the queue may
start). Mode `online`, the default, sees only what has arrived, and a request that fits on no free device does
not hold up a longer one that does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from fairlead.model import Invocation
from fairlead.policy.base import Action, Policy, Site, View
from fairlead.policy.kaas.devices import Devices, Free, Mode, Spot, heads, last_arrivals


@dataclass
class ShortestFirst(Policy):
    """Start what takes least time, the oldest of equals, on any free device.

    Args:
        mode: `compat` orders by time all requests, those still to arrive included, and lets only the first start.
    """

    paper: ClassVar[str] = "Serverless accelerators (UCB 2022), 6.1"

    mode: Mode = "online"

    @property
    def clairvoyant(self) -> bool:
        """Whether it must be told the arrivals: in compat mode."""
        return self.mode == "compat"

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._devices = Devices(site)
        self._last = last_arrivals(site.arrivals)
        self._entries = {
            name: [stage.function for stage in workflow.stages if not stage.after]
            for name, workflow in site.workflows.items()
        }

    def decide(self, view: View) -> Iterator[Action]:
        up = self._devices.up(view)
        expected_s = {function: self._devices.expected_s(view, function) for _, function in view.queues()}
        limit_s = self._shortest_to_come_s(view, up) if self.mode == "compat" else inf
        while (found := self._next(view, up, expected_s, limit_s)) is not None:
            free, head = found
            yield free.start(head)
            if view.is_waiting(head):
                return  # it was not carried out

    def _next(
        self, view: View, up: list[Spot], expected_s: dict[str, float], limit_s: float
    ) -> tuple[Free, Invocation] | None:
        """The shortest that may start and can, and where."""
        for head in sorted(heads(view), key=lambda head: expected_s[head.function]):  # stable: the oldest first
            if expected_s[head.function] > limit_s:
                return None
            free = self._devices.first_free(view, head.function, up)
            if free is not None:
                return free, head
            if self.mode == "compat" and self._devices.can_hold(head.function, up):
                return None
        return None

    def _shortest_to_come_s(self, view: View, up: list[Spot]) -> float:
        """Expected time of the shortest request that has yet to arrive; infinity if none has."""
        return min(
            (
                self._devices.expected_s(view, function)
                for workflow, last in self._last.items()
                if last > view.now
                for function in self._entries[workflow]
                if self._devices.can_hold(function, up)
            ),
            default=inf,
        )
