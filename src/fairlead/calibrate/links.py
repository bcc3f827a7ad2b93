"""The links of a cluster: what reaching instances over them costs more than reaching a child process does.

How long the way to a node is follows from a function that does nothing, measured on a node of each kind. What the
gateway computes more follows from the loads of `measure`, served once more by instances of the cluster.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from fairlead.calibrate.fit import Sample, fit_gateway
from fairlead.calibrate.measure import served_loads
from fairlead.model import Node
from fairlead.profile import Host, Link, LinkedNode
from fairlead.profile.links import linked
from fairlead.profile.measured import MeasuredFunction

NOTHING = "one"
"""The function of the small app that does nothing."""


def measure_links(
    app: Path,
    folder: Path,
    options: Sequence[str],
    host: Host,
    nodes: Sequence[Node],
    hosts: Mapping[str, str],
    here: str,
    nothing: MeasuredFunction,
) -> tuple[LinkedNode, ...]:
    """The nodes of a cluster with the links to them.

    Args:
        app: The small app of `measure`, which is served.
        folder: For what is needed meanwhile.
        options: Of `fairlead serve`: they say which cluster serves.
        host: This machine, as it was measured without a cluster.
        nodes: Of the cluster.
        hosts: By node: the address of the machine that it is on. Nodes with the same one share its cores.
        here: The address of this machine among those.
        nothing: What was measured on the cluster of a function that does nothing.

    Raises:
        ServingError: The gateway does not start.
    """
    samples = served_loads(app, folder, options)
    cpu_s, mb_s = extra_s(host, samples)
    vcpus: dict[str, float] = {}
    for node in nodes:
        vcpus[hosts[node.name]] = vcpus.get(hosts[node.name], 0.0) + node.vcpus
    found = []
    for node in nodes:
        where = hosts[node.name]
        machine, cores = ("", 0) if where == here else (where, max(1, round(vcpus[where])))
        way_s = max(0.0, _usual_s(nothing, node.kind) - host.hop_s) / 2
        found.append(linked(node, Link(way_s=way_s, cpu_s=cpu_s, mb_s=mb_s, machine=machine, cores=cores)))
    return tuple(found)


def extra_s(host: Host, samples: Mapping[str, Sample]) -> tuple[float, float]:
    """CPU time of a batch beyond the host's own, and elapsed time for each MB of its values."""
    times = fit_gateway(samples)
    pair_s = times["turn_s"] + times["send_s"] + times["end_s"]
    large, small = samples["large"], samples["hop"]
    mb_s = (median(large.runs_s) - median(small.runs_s)) / large.mb
    return max(0.0, pair_s - host.turn_s - host.send_s - host.end_s), max(0.0, mb_s)


def _usual_s(function: MeasuredFunction, kind: str) -> float:
    known = [point for point in function.points if point.kind == kind] or function.points
    return known[0].mean_s if known[0].p50_s is None else known[0].p50_s
