"""The emptiest node for the oldest of each queue.

A baseline, not a paper: what a load balancer does.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fairlead.policy.base import Action, Policy, Site, Start, View


@dataclass
class LeastLoaded(Policy):
    """Spread runs over the emptiest nodes, warm or not; a queue that cannot start does not hold up the others."""

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._configurations = {name: profile.cheapest() for name, profile in site.profiles.items()}

    def decide(self, view: View) -> Iterator[Action]:
        for workflow, function in view.queues():
            configuration = self._configurations[function]
            for invocation in view.by_ready(workflow, function):
                node = view.place(function, configuration, order="emptiest")
                if node is None:
                    break
                yield Start((invocation,), configuration, node)
