"""So many workers take calls out of one queue, in order, and each waits for the answer to its call.

How OpenFaaS runs asynchronous calls, as described by D. Giagkos, diploma thesis (NTUA, 2022), 3.3.5 and 4.6.3: what
limits a workflow that calls a function for every item is the number of these workers, not of replicas.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fairlead.policy.base import Action, Policy, Site, Start, View
from fairlead.policy.kit.lines import oldest_first


@dataclass
class QueueWorkers(Policy):
    """Start what is inside a map oldest first, so many at a time; everything else at once.

    Args:
        workers: Calls of mapped stages that may be under way at a time, of all functions together; at least 1.
    """

    workers: int = 4

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"workers must be at least 1; got {self.workers}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._configurations = {name: profile.cheapest() for name, profile in site.profiles.items()}
        self._queued = {
            stage.function
            for workflow in site.workflows.values()
            for stage in workflow.stages
            if workflow.regions[stage.name] is not None
        }

    def decide(self, view: View) -> Iterator[Action]:
        busy = sum(instance.running for function in self._queued for instance in view.instances(function))
        closed: set[str] = set() if busy < self.workers else set(self._queued)
        for invocation in oldest_first(view, closed):
            configuration = self._configurations[invocation.function]
            node = view.place(invocation.function, configuration)
            if node is None:
                closed.add(invocation.function)
                continue
            yield Start((invocation,), configuration, node)
            busy += invocation.function in self._queued
            if busy >= self.workers:
                closed |= self._queued
