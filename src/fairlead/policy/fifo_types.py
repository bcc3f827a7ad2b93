"""First in, first out over several types of resource: each function on the type where it would be done soonest.

A. Ramkumar, "Making the Most of Serverless Accelerators" (UCB/EECS-2022-88, 2022), section 4.3: "FIFO scheduling
policy" of Table 4.1, which the text calls a heterogeneous version of AWS Lambda.

**Differs from the paper:**

* The text does not give the rule. This is the one that yields the printed figures: for each function the type with
  the smallest load + run + removal time, fixed beforehand; wait for it; older requests first; reject nothing.
* It counts the cold start into that time whether or not an instance is warm, as there, where nothing ever is.
* Removal (`post`, 0 in the table) takes no time in our simulator.
* Where a kind has several configurations, the quickest counts, of those that hold the fewest invocations.
* Where two stages of a workflow share a function, they share a queue, in the order in which they became ready.
* A type without a single node up is passed over until one is back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.policy.base import Action, Policy, Site, View
from fairlead.policy.kit.resource_types import OldestFirst, types_of


@dataclass
class FifoTypes(Policy):
    """Start the oldest request first, each function on the type of resource where it takes least."""

    paper: ClassVar[str] = "Serverless accelerators (UCB 2022), 4.3"

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        types = {name: types_of(site.functions[name], site.profiles[name], site.cluster) for name in site.functions}
        self._queue = OldestFirst(site, lambda invocation: types[invocation.function])

    def decide(self, view: View) -> Iterator[Action]:
        return self._queue.starts(view)
