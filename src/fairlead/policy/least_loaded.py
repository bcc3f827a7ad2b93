"""The emptiest node for the oldest of each queue.

A baseline, not a paper: what a load balancer does.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fairlead.model import Record
from fairlead.policy.base import Action, Policy, Site, Start, View
from fairlead.policy.kit.batching import Batching, check_batching, make_batcher, starts


@dataclass
class LeastLoaded(Policy):
    """Spread runs over the emptiest nodes, warm or not; a queue that cannot start does not hold up the others.

    Args:
        batching: Who runs together: `none`, nobody; `full`, as many as the largest batch size holds; `aimd`, as many
            as have met the latency objective so far; `deadline`, as many as break no deadline.
        batch_wait_s: With `full` and `aimd`, how long the first of a batch that is not full waits for others, in
            seconds.
    """

    batching: Batching = "none"
    batch_wait_s: float = 0.0

    def __post_init__(self) -> None:
        check_batching(self.batching, self.batch_wait_s)

    @property
    def observes(self) -> bool:
        return self.batching == "aimd"

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._configurations = {name: profile.cheapest() for name, profile in site.profiles.items()}
        self._batcher = make_batcher(self.batching, site, batch_wait_s=self.batch_wait_s)

    def decide(self, view: View) -> Iterator[Action]:
        for workflow, function in view.queues(can_start=self._batcher is None):
            if self._batcher is not None:
                yield from starts(self._batcher, view, view.by_ready(workflow, function), "emptiest", functions=1)
                continue
            configuration = self._configurations[function]
            for invocation in view.by_ready(workflow, function):
                node = view.place(function, configuration, order="emptiest")
                if node is None:
                    break
                yield Start((invocation,), configuration, node)

    def observe(self, record: Record) -> None:
        if self._batcher is not None:
            self._batcher.observe(record)
