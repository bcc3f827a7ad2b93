"""First in, first out, each function in its cheapest single configuration.

A baseline, not a paper: what a queue in front of a pool of machines does.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fairlead.model import Record
from fairlead.policy.base import Action, Policy, Reject, Site, Start, View
from fairlead.policy.kit.batching import Batching, check_batching, make_batcher, starts


@dataclass
class Fifo(Policy):
    """Start the oldest first, warm nodes before cold, and let nobody overtake.

    Args:
        queue_limit: How many invocations may wait. A fresh request that would wait beyond it is rejected; None
            never rejects.
        batching: Who runs together: `none`, nobody; `full`, as many as the largest batch size holds; `aimd`, as many
            as have met the latency objective so far; `deadline`, as many as break no deadline.
        batch_wait_s: With `full` and `aimd`, how long the first of a batch that is not full waits for others, in
            seconds.
    """

    queue_limit: int | None = None
    batching: Batching = "none"
    batch_wait_s: float = 0.0

    def __post_init__(self) -> None:
        if self.queue_limit is not None and self.queue_limit < 0:
            raise ValueError(f"queue_limit must not be negative; got {self.queue_limit}.")
        check_batching(self.batching, self.batch_wait_s)

    @property
    def observes(self) -> bool:
        return self.batching == "aimd"

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._configurations = {name: profile.cheapest() for name, profile in site.profiles.items()}
        self._functions = len(site.functions)
        self._batcher = make_batcher(self.batching, site, batch_wait_s=self.batch_wait_s)

    def decide(self, view: View) -> Iterator[Action]:
        if self._batcher is None:
            while (invocation := view.oldest()) is not None:
                configuration = self._configurations[invocation.function]
                node = view.place(invocation.function, configuration)
                if node is None:
                    break
                yield Start((invocation,), configuration, node)
        else:
            yield from starts(self._batcher, view, view.by_ready(), functions=self._functions, is_strict=True)
        if self.queue_limit is not None:
            yield from self._shed(view, self.queue_limit)

    def observe(self, record: Record) -> None:
        if self._batcher is not None:
            self._batcher.observe(record)

    def _shed(self, view: View, limit: int) -> Iterator[Action]:
        for request in reversed(view.fresh):
            if view.waiting() <= limit:
                return
            if view.waiting_of(request.id):
                yield Reject(request.id, f"{limit} invocations wait already")
