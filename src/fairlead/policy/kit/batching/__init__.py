"""Batching that any dispatcher can use: which waiting invocations run together, and in what configuration.

A dispatcher decides who goes first; a batcher says who goes along, or that it pays to wait a little. Not a policy, but
mechanics that policies share. Three strategies:

* `full`, by size and time-out: as many as the largest batch size of the function holds, or all that wait once the first
  has waited long enough.
* `aimd`, the rule of Clipper: a limit per function that grows by one with every full batch within its latency
  objective, and shrinks by a tenth when a batch exceeds it.
* `deadline`: the batch that is cheapest per invocation among those that break no deadline which a smaller one would
  keep.

A dispatcher needs three lines:

```python
self._batcher = make_batcher(self.batching, site)  # in prepare
yield from starts(self._batcher, view, view.by_ready(), functions=len(site.functions))  # in decide
self._batcher.observe(record)  # in observe
```
"""

from math import inf
from typing import Literal, get_args

from fairlead.policy.base import Site
from fairlead.policy.kit.batching.aimd import Aimd
from fairlead.policy.kit.batching.deadline import Deadline
from fairlead.policy.kit.batching.full import Full
from fairlead.policy.kit.batching.gathering import Batcher, Step, Urgency, starts

__all__ = [
    "Aimd",
    "Batcher",
    "Batching",
    "Deadline",
    "Full",
    "Step",
    "Urgency",
    "check_batching",
    "make_batcher",
    "starts",
]

Batching = Literal["none", "full", "aimd", "deadline"]


def check_batching(batching: Batching, batch_wait_s: float) -> None:
    """Raise ValueError unless these parameters of a dispatcher are in range."""
    if batching not in get_args(Batching):
        raise ValueError(f"batching must be 'none', 'full', 'aimd' or 'deadline'; got {batching!r}.")
    if not 0 <= batch_wait_s < inf:
        raise ValueError(f"batch_wait_s must be finite and not negative; got {batch_wait_s}.")


def make_batcher(
    batching: Batching,
    site: Site,
    *,
    batch_wait_s: float = 0.0,
    headroom: float = 0.1,
    urgency: Urgency = "oldest",
) -> Batcher | None:
    """The batcher of a strategy; None for `none`.

    Args:
        batching: The strategy.
        site: The site.
        batch_wait_s: With `full` and `aimd`, how long the first of a batch that is not full waits for others.
        headroom: With `deadline`, the share of the remaining time that is left unplanned, in [0, 1).
        urgency: Who joins first: the oldest, or those with the earliest deadline.
    """
    if batching == "full":
        return Full(site, batch_wait_s, urgency)
    if batching == "aimd":
        return Aimd(site, batch_wait_s, urgency)
    return Deadline(site, headroom, urgency) if batching == "deadline" else None
