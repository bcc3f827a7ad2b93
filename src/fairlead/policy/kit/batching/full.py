"""Batches by size and time-out: as many as fit, or all that wait once the first has waited long enough.

What most model servers do, and what a compiled engine can do too: nothing is predicted and nothing learned.
"""

from itertools import islice

from fairlead.model import Configuration, Invocation, Record
from fairlead.policy.base import Order, Site, Start, View
from fairlead.policy.kit.batching.gathering import Gathering, Step, Urgency


class Full:
    """Waits until a function's largest batch is full, but no longer than the first of it may wait.

    A batch runs in the smallest batch size that holds it, in the cheapest configuration of that size; where this
    finds no room, a smaller one may.
    """

    def __init__(self, site: Site, batch_wait_s: float = 0.0, urgency: Urgency = "oldest") -> None:
        self._gathering = Gathering(site, urgency)
        self._wait_s = batch_wait_s
        # By function, ascending: each batch size and its cheapest configuration.
        self._cheapest: dict[str, list[tuple[int, Configuration]]] = {
            function: [(size, min(some, key=site.profiles[function].cost_usd)) for size, some in sizes.items()]
            for function, sizes in self._gathering.sizes.items()
        }

    def largest(self, function: str) -> int:
        """The largest batch size of a function."""
        return self._cheapest[function][-1][0]

    def next(self, view: View, head: Invocation, order: Order = "warm-first") -> Step:
        return self.up_to(self.largest(head.function), view, head, order)

    def up_to(self, limit: int, view: View, head: Invocation, order: Order) -> Step:
        """As `next`, with another size at which a batch counts as full."""
        function = head.function
        members = list(islice(self._gathering.line(view, head), limit))
        if len(members) < limit and head.ready + self._wait_s > view.now:
            return self._gathering.wait(view, head, head.ready + self._wait_s)
        choices = self._cheapest[function]
        enough = next((i for i, (size, _) in enumerate(choices) if size >= len(members)), len(choices) - 1)
        for size, configuration in reversed(choices[: enough + 1]):
            node = view.place(function, configuration, order)
            if node is not None:
                return Step(Start(tuple(members[:size]), configuration, node))
        return Step(None, is_full=True)

    def observe(self, record: Record) -> None:
        """Nothing is learned."""
