"""Resource types: on which kinds of node a function can run, in what configuration, and how soon it would be done.

Shared by the rivals that choose a type first and then wait for it. A type is a configuration on a kind of node; of
the configurations that hold the fewest invocations, each kind offers the quickest.
"""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import NamedTuple

from fairlead.model import Cluster, Configuration, Function, Invocation
from fairlead.model.slots import slots
from fairlead.policy.base import Site, Start, View
from fairlead.profile import Estimate


class ResourceType(NamedTuple):
    """A way to run a function; `cost_usd` is that of the run, without the cold start."""

    kind: str
    configuration: Configuration
    cold_s: float
    run_s: float
    cost_usd: float

    @property
    def seconds(self) -> float:
        """A cold start and the run, with no wait."""
        return self.cold_s + self.run_s

    @property
    def queue(self) -> tuple[str, bool]:
        """For whom it waits: the accelerators of a kind and its vCPUs are waited for apart."""
        return self.kind, self.configuration.vgpus > 0


def types_of(function: Function, profile: Estimate, cluster: Cluster) -> tuple[ResourceType, ...]:
    """One type per kind that could ever hold the function, the quickest first; of equals the cheaper."""
    least = min(configuration.batch for configuration in profile.configurations)
    best: dict[str, ResourceType] = {}
    for configuration in profile.configurations:
        if configuration.batch > least:
            continue
        for kind in {node.kind: None for node in cluster.nodes if slots(node, function, configuration)}:
            cold_s, run_s = profile.cold_start_s(kind), profile.latency_s(configuration, kind)
            found = ResourceType(kind, configuration, cold_s, run_s, profile.cost_usd(configuration, kind))
            if found.seconds < inf and (kind not in best or _rank(found) < _rank(best[kind])):
                best[kind] = found
    return tuple(sorted(best.values(), key=_rank))


def _rank(found: ResourceType) -> tuple[float, float]:
    return found.seconds, found.cost_usd


class OldestFirst:
    """Starts the oldest request's invocations first, each on its type; a type that is full holds up only itself.

    Args:
        site: The site.
        choices: The types that an invocation may use, in order: the first whose kind has a node up is waited for.
    """

    def __init__(self, site: Site, choices: Callable[[Invocation], Sequence[ResourceType]]) -> None:
        self._kinds = {node.name: node.kind for node in site.cluster.nodes}
        self._choices = choices

    def starts(self, view: View) -> Iterator[Start]:
        """Everything that can start now. Within one queue, what became ready first is first."""
        full: set[tuple[str, bool]] = set()
        while (start := self._next(view, full)) is not None:
            yield start
            if view.is_waiting(start.batch[0]):
                return  # it was not carried out

    def _next(self, view: View, full: set[tuple[str, bool]]) -> Start | None:
        waiting = [view.oldest(workflow, function) for workflow, function in view.queues()]
        heads = sorted((head for head in waiting if head is not None), key=lambda head: (head.request, head.id))
        for head in heads:
            for choice in self._choices(head):
                if choice.queue in full:
                    break  # an older request waits for it
                node = self._place(view, head.function, choice)
                if node is not None:
                    return Start((head,), choice.configuration, node)
                if any(other.kind == choice.kind for other in view.nodes):
                    full.add(choice.queue)
                    break
        return None

    def _place(self, view: View, function: str, choice: ResourceType) -> str | None:
        """A node of the kind where it fits, warm ones first, then the emptiest; None if there is none."""
        configuration = choice.configuration
        name = view.place(function, configuration)
        if name is None or self._kind(view, name) == choice.kind:
            return name
        fitting = (n.name for n in view.nodes if n.kind == choice.kind and view.fits(function, configuration, n.name))
        return min(fitting, key=lambda n: (not view.is_warm(function, configuration, n), view.load(n), n), default=None)

    def _kind(self, view: View, name: str) -> str:
        if name not in self._kinds:  # it joined during the run
            self._kinds |= {node.name: node.kind for node in view.nodes}
        return self._kinds[name]
