"""First in, first out, each function in its cheapest single configuration.

A baseline, not a paper: what a queue in front of a pool of machines does.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fairlead.policy.base import Action, Policy, Reject, Site, Start, View


@dataclass
class Fifo(Policy):
    """Start the oldest first, warm nodes before cold, and let nobody overtake.

    Args:
        queue_limit: How many invocations may wait. A fresh request that would wait beyond it is rejected; None
            never rejects.
    """

    queue_limit: int | None = None

    def __post_init__(self) -> None:
        if self.queue_limit is not None and self.queue_limit < 0:
            raise ValueError(f"queue_limit must not be negative; got {self.queue_limit}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._configurations = {name: profile.cheapest() for name, profile in site.profiles.items()}

    def decide(self, view: View) -> Iterator[Action]:
        while (invocation := view.oldest()) is not None:
            configuration = self._configurations[invocation.function]
            node = view.place(invocation.function, configuration)
            if node is None:
                break
            yield Start((invocation,), configuration, node)
        if self.queue_limit is not None:
            yield from self._shed(view, self.queue_limit)

    def _shed(self, view: View, limit: int) -> Iterator[Action]:
        for request in reversed(view.fresh):
            if view.waiting() <= limit:
                return
            if view.waiting_of(request.id):
                yield Reject(request.id, f"{limit} invocations wait already")
