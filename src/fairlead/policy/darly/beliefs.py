"""What runs take where nobody disturbs: declared times, corrected by runs of one's own.

What the view believes of a function is corrected by every run, and so contains what load from outside has cost. Whoever
estimates what that load costs by itself would count it twice, and would shun a node long after it has come to rest.
Here only runs count whose node had no such load from before their start on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from fairlead.model import Configuration, Record
from fairlead.policy.base import Site, View
from fairlead.policy.darly.arranging import Need
from fairlead.profile import Estimate

_UNDISTURBED = 0.05  # the most load from outside that leaves a run as it is
_WEIGHT = 0.2  # of one run
_LEAST, _MOST = 0.25, 4.0


@dataclass(frozen=True)
class Believed:
    """A function's times as the planner of deployments takes them: in one size, with a factor for each kind of node."""

    estimate: Estimate
    configuration: Configuration
    factors: Mapping[str, float]

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """The size in which instances are."""
        return (self.configuration,)

    @property
    def overhead_s(self) -> float:
        """As declared."""
        return self.estimate.overhead_s

    @property
    def sensitivity(self) -> float:
        """As declared."""
        return self.estimate.sensitivity

    @property
    def pressure_curves(self) -> Mapping[str, tuple[tuple[float, float], ...]]:
        """As declared."""
        return self.estimate.pressure_curves

    def latency_s(self, configuration: Configuration, kind: str, speed: float = 1.0) -> float:
        """One run. The speed of a kind of node is known to the estimate already."""
        return self.estimate.latency_s(configuration, kind) * self.factors.get(kind, 1.0)


class Beliefs:
    """Learns the factors of every function from what it did on nodes at rest."""

    def __init__(self, site: Site, needs: Mapping[str, Need]) -> None:
        self._factors: dict[str, dict[str, float]] = {name: {} for name in needs}
        self.times = {
            name: Believed(site.profiles[name], need.configuration, self._factors[name]) for name, need in needs.items()
        }
        # Calls of a map run beside each other, so that their times are those of a crowd.
        self._crowded = {
            stage.function
            for workflow in site.workflows.values()
            for stage in workflow.stages
            if workflow.regions[stage.name] is not None
        }
        self._kinds = {node.name: node.kind for node in site.cluster.nodes}
        self._vcpus = {node.name: node.vcpus for node in site.cluster.nodes}
        self._ended: list[Record] = []
        self._calm_since: dict[str, float] = {}  # by node: the first of the looks that all found it at rest

    def observe(self, record: Record) -> None:
        """See one invocation."""
        if record.outcome == "done" and record.function not in self._crowded and record.node in self._kinds:
            self._ended.append(record)

    def look(self, view: View, pressures: Mapping[str, float]) -> None:
        """Learn from what ended since the last look, if every look from before its start on found the node at rest."""
        for node in self._kinds:
            if pressures.get(node, 1.0) > _UNDISTURBED:
                self._calm_since.pop(node, None)
            else:
                self._calm_since.setdefault(node, view.now)
        for record in self._ended:
            if self._calm_since.get(record.node, inf) <= record.start:
                self._learn(record)
        self._ended.clear()

    def _learn(self, record: Record) -> None:
        believed, kind = self.times[record.function], self._kinds[record.node]
        vcpus = self._vcpus[record.node]
        declared_s = believed.estimate.latency_s(believed.configuration, kind)
        declared_s *= max(1.0, believed.configuration.vcpus / vcpus) if vcpus else 1.0
        took_s = record.end - record.start - record.cold_s - record.transfer_s
        if record.batch_size > 1 or not 0 < declared_s < inf or took_s <= 0:
            return
        factors = self._factors[record.function]
        ratio = min(max(took_s / declared_s, _LEAST), _MOST)
        factors[kind] = (1 - _WEIGHT) * factors.get(kind, 1.0) + _WEIGHT * ratio
