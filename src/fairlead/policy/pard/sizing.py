"""One worker size per function: batch, vCPUs and vGPUs, chosen once from the declared profiles."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from fairlead.model import Configuration, Function
from fairlead.planning.split import proportional
from fairlead.policy.base import Site
from fairlead.policy.kit.options import Options, all_options, graph_of, stage_weights

_PERIODS = 2.0  # a request that just misses a batch waits for that batch and then runs in the next


@dataclass(frozen=True)
class Worker:
    """The size in which a function is served. `batches` are its configurations by batch size, smallest first.

    `load` is the share of the cluster's scarcest resource that one second of a worker takes.
    """

    function: Function
    batches: tuple[Configuration, ...]
    load: float

    @property
    def full(self) -> Configuration:
        """The configuration with the largest batch."""
        return self.batches[-1]

    def holding(self, count: int) -> Configuration:
        """The smallest batch that holds `count` invocations, or the largest there is."""
        return next((each for each in self.batches if each.batch >= count), self.full)


def make_workers(site: Site) -> dict[str, Worker]:
    """A worker size for every function.

    A function gets the part of its workflow's SLO that its share of the path's time gives it, the smallest part where
    several workflows use it. Of the configurations whose batch takes at most half of that part, the one that serves
    the most requests per second and share of the cluster is taken; where none is that quick, of those whose batch
    takes at most the whole part; where none is that quick either, the quickest.
    """
    known = all_options(site)
    part_s = _parts(site, known)
    totals = (
        sum(node.vcpus for node in site.cluster.nodes),
        sum(device.vgpus for node in site.cluster.nodes for device in node.devices),
    )
    return {name: _worker(function, known[name], part_s[name], totals) for name, function in site.functions.items()}


def _parts(site: Site, known: Mapping[str, Options]) -> dict[str, float]:
    """The latency that each function may take, in seconds."""
    found = dict.fromkeys(site.functions, inf)
    for workflow in site.workflows.values():
        parts = proportional(graph_of(workflow), stage_weights(workflow, known))
        for stage, part in zip(workflow.stages, parts, strict=True):
            found[stage.function] = min(found[stage.function], workflow.slo.latency_s * part)
    return found


def _worker(function: Function, options: Options, part_s: float, totals: tuple[float, float]) -> Worker:
    rows = list(zip(options.configurations, options.latency_s, strict=True))
    quick = [(each, seconds) for each, seconds in rows if _PERIODS * seconds <= part_s] or [
        (each, seconds) for each, seconds in rows if seconds <= part_s
    ]
    if quick:
        chosen, _ = min(quick, key=lambda row: (_load(row[0], totals) * row[1] / row[0].batch, row[1]))
    else:
        chosen, _ = min(rows, key=lambda row: (row[1], row[0].batch))
    size = (chosen.vcpus, chosen.vgpus, chosen.memory_gb)
    alike = [
        each for each, _ in rows if (each.vcpus, each.vgpus, each.memory_gb) == size and each.batch <= chosen.batch
    ]
    batches = tuple(sorted(alike, key=lambda each: each.batch))
    return Worker(function, batches, _load(chosen, totals))


def _load(configuration: Configuration, totals: tuple[float, float]) -> float:
    """The greater of the shares of all vCPUs and of all vGPUs that a run takes."""
    shares = zip((configuration.vcpus, configuration.vgpus), totals, strict=True)
    return max(amount / total if total else 0.0 for amount, total in shares)
