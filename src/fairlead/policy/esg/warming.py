"""Pre-warming: how many containers of each kind the next arrivals will need, by the smoothed time between them."""

from collections.abc import Iterator, Mapping
from math import ceil, sqrt

from fairlead.model import Configuration
from fairlead.policy.base import Site, View, Warm
from fairlead.policy.esg.planner import Planner
from fairlead.policy.kit.expected import mean_items

_WEIGHT = 0.1  # of the newest gap in the smoothed one
_PERIOD_S = 1.0
_MARGINS = (2.0, 1.0, 0.5, 0.0)  # in standard deviations of a Poisson number


class Warming:
    """Keeps as many containers of the expected size as arrivals of a run's length need, with a margin for chance.

    There is no margin where functions share vCPUs (`kit.crowding`).
    """

    def __init__(self, site: Site, planner: Planner) -> None:
        self._planner = planner
        self._margins = (0.0,) if planner.is_crowded else _MARGINS
        self._counts = {  # of runs per request; which arm of a branch it takes is not known, so that each counts
            (name, stage.name): items * stage.compete
            for name, workflow in site.workflows.items()
            for stage, items in zip(workflow.stages, mean_items(workflow), strict=True)
        }
        self._holds_slice = {name: function.idle_holds == "slice" for name, function in site.functions.items()}
        self._vgpus = sum(device.vgpus for node in site.cluster.nodes for device in node.devices)
        self._last: dict[str, float] = {}
        self._gap_s: dict[str, float] = {}
        self._due = _PERIOD_S

    def note(self, view: View) -> None:
        """See who has arrived."""
        for request in view.fresh:
            last = self._last.get(request.workflow)
            if last is not None:
                gap_s = self._gap_s.get(request.workflow, request.arrival - last)
                self._gap_s[request.workflow] = gap_s + _WEIGHT * (request.arrival - last - gap_s)
            self._last[request.workflow] = request.arrival

    def ahead(self, view: View) -> Iterator[Warm]:
        """Start what the next arrivals will want and nobody has, once a second at most."""
        if view.now < self._due:
            return
        self._due = view.now + _PERIOD_S
        needs = self._needs()
        margin = self._margin(needs)
        for (function, configuration), busy in needs.items():
            there = sum(instance.vgpus == configuration.vgpus for instance in view.instances(function))
            for _ in range(_count(busy, margin) - there):
                node = view.place(function, configuration, "fresh", evicts=False)
                if node is None:
                    break
                yield Warm(function, configuration, node)

    def _margin(self, needs: Mapping[tuple[str, Configuration], float]) -> float:
        """How far above the mean there is room for: containers that keep their slice must not drive each other out."""
        for margin in self._margins:
            held = [
                configuration.vgpus * _count(busy, margin)
                for (function, configuration), busy in needs.items()
                if self._holds_slice[function]
            ]
            if sum(held) <= self._vgpus:
                return margin
        return 0.0

    def _needs(self) -> dict[tuple[str, Configuration], float]:
        """How many of each kind are busy on average."""
        needs: dict[tuple[str, float], tuple[float, Configuration]] = {}
        for workflow, gap_s in self._gap_s.items():
            for each in self._planner.expected(workflow):
                key = (each.stage.function, each.configuration.vgpus)
                busy, configuration = needs.get(key, (0.0, each.configuration))
                runs = self._counts[workflow, each.stage.name] / each.configuration.batch
                needs[key] = (busy + runs * each.latency_s / max(gap_s, 1e-9), configuration)
        return {(function, configuration): busy for (function, _), (busy, configuration) in needs.items()}


def _count(busy: float, margin: float) -> int:
    """The mean number of busy containers and `margin` standard deviations of a Poisson number, rounded up."""
    return ceil(busy + margin * sqrt(busy))
