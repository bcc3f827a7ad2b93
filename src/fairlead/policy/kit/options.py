"""What a function can be run with: every configuration with its time and its cost per invocation. Shared by policies.

Times are those that nineteen of twenty runs keep (`Estimate.upper_s`): with mean times, every second run planned to
the deadline would pass it. Costs are of the mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from fairlead.model import Cluster, Configuration, Function, Workflow
from fairlead.planning.feasibility import could_run
from fairlead.planning.split import average_weights
from fairlead.policy.base import Site
from fairlead.profile import Estimate


@dataclass(frozen=True)
class Options:
    """The configurations that some node could hold, in the order of the profile, and what each promises.

    `latency_s` is that of a whole batch, `cost_usd` that of one invocation in a full batch.
    """

    configurations: tuple[Configuration, ...]
    latency_s: tuple[float, ...]
    cost_usd: tuple[float, ...]

    @property
    def least(self) -> int:
        """The smallest configuration: of those that contain no other, the one that costs least per invocation.

        A configuration contains another that has no more of anything: batch, vCPUs and vGPUs. In a full grid only one
        contains no other. Where a GPU stands against more vCPUs there are several.
        """
        sizes = [(each.batch, each.vgpus, each.vcpus) for each in self.configurations]
        smallest = [i for i, own in enumerate(sizes) if not any(_contains(own, other) for other in sizes)]
        return min(smallest, key=lambda i: (sizes[i][0], self.cost_usd[i], sizes[i]))

    @property
    def sizes(self) -> tuple[Configuration, ...]:
        """The smallest configuration of each GPU share: containers of one share can stand in for each other."""
        found: dict[float, Configuration] = {}
        for each in sorted(self.configurations, key=lambda c: (c.vgpus, c.vcpus, c.batch)):
            found.setdefault(each.vgpus, each)
        return tuple(found.values())

    def pairs(self) -> list[tuple[float, float]]:
        """(latency, cost) of each: what `fairlead.planning.top_paths` takes for a stage."""
        return list(zip(self.latency_s, self.cost_usd, strict=True))


def _contains(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether a size has no less of anything than another size."""
    return one != other and all(own >= less for own, less in zip(one, other, strict=True))


def options(function: Function, estimate: Estimate, cluster: Cluster) -> Options:
    """What is believed now of every configuration of a function."""
    kinds = cluster.kinds.values()
    fitting = [c for c in estimate.configurations if any(could_run(node, function, c) for node in kinds)]
    # Where no node can hold any, one may still join that can.
    found = [(c, estimate.upper_s(c), estimate.cost_usd(c) / c.batch) for c in fitting or estimate.configurations]
    found = [each for each in found if each[1] < inf] or found
    return Options(tuple(c for c, _, _ in found), tuple(s for _, s, _ in found), tuple(usd for _, _, usd in found))


def all_options(site: Site, profiles: Mapping[str, Estimate] | None = None) -> dict[str, Options]:
    """The options of every function, from these profiles or from the declared ones."""
    estimates = site.profiles if profiles is None else profiles
    return {name: options(function, estimates[name], site.cluster) for name, function in site.functions.items()}


def graph_of(workflow: Workflow) -> list[list[int]]:
    """For each stage the indices of its predecessors: what `fairlead.planning` takes for a graph."""
    position = {stage.name: i for i, stage in enumerate(workflow.stages)}
    return [[position[name] for name in stage.after] for stage in workflow.stages]


def stage_weights(workflow: Workflow, known: Mapping[str, Options]) -> list[float]:
    """For each stage its average part of a request's time, over configurations; equal parts where times are unknown."""
    times = [known[stage.function].latency_s for stage in workflow.stages]
    if any(min(own) == inf for own in times):
        return [1.0] * len(times)
    return average_weights(times)
