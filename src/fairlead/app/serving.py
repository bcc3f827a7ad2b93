"""An app as `fairlead serve` would serve it: the scenario of every prediction.

Where the machine was measured, its `Host` has what the gateway costs. Where it was not, a host that costs nothing
stands in for it, so that a prediction starts as `serve` does all the same: every function with its warm instances, the
same limit on open requests, deadlines less the reply time, and batches that take the time of their size.
"""

from collections.abc import Collection
from dataclasses import replace
from math import ceil

import msgspec

from fairlead.app.composed import with_fused
from fairlead.app.fusion import SIGN
from fairlead.app.manifest import Manifest
from fairlead.app.prediction import as_served, extrapolations
from fairlead.app.scenario import cluster_of, scenario_of
from fairlead.model import Cluster
from fairlead.profile import Host
from fairlead.profile.measured import MeasuredProfiles
from fairlead.workload.scenario import Scenario

MAX_CONNECTIONS = 2_000
"""Connections that `fairlead serve` takes, if nothing is said. A client has one for each request that is open."""


def served_scenario(manifest: Manifest, measured: MeasuredProfiles | None, host: Host | None) -> Scenario:
    """The scenario of an app on this machine; without one, on a machine whose gateway takes no time.

    Profiles of fused functions that were not measured are composed from their parts. An app that was served on a
    cluster has the nodes of that one. Beside the devices of an app with kernels, the gateway takes no time.
    """
    if measured is not None:
        measured = with_fused(measured, manifest, 0.0 if host is None else host.hop_s)
    nodes = () if measured is None else tuple(node.node() for node in measured.nodes)
    cluster = Cluster(nodes=nodes) if nodes else cluster_of(manifest, measured)
    scenario = scenario_of(manifest, profiles={} if measured is None else measured.profiles(), cluster=cluster)
    if manifest.has_kernels:  # no host is modelled beside devices yet
        return scenario
    if host is None:
        return replace(scenario, host=free_host(scenario.cluster))
    most = min(host.max_open, MAX_CONNECTIONS)
    return as_served(scenario, manifest, measured, msgspec.structs.replace(host, max_open=most))


def unmeasured(
    scenario: Scenario, measured: MeasuredProfiles | None, cached: Collection[str] = (), *, is_host_known: bool
) -> list[str]:
    """Returns the assumptions of a prediction that were not measured, as sentences.

    `measured` is what was measured, without what was composed from it. `cached` names the functions that have a
    prediction cache when they are served.
    """
    known = {} if measured is None else measured.functions
    fused = [
        name
        for name in scenario.functions
        if SIGN in name and name not in known and known.keys() >= set(name.split(SIGN))
    ]
    others = {name: function for name, function in scenario.functions.items() if name not in fused}
    bare = replace(scenario, functions=others, host=scenario.host if is_host_known else None)
    composed = f"{', '.join(fused)}: not measured but composed from the parts. Run: fairlead profile"
    return [*([composed] if fused else []), *extrapolations(bare, measured, cached)]


def free_host(cluster: Cluster) -> Host:
    """A host that costs nothing, with enough cores for all that its nodes promise."""
    cores = max(1, ceil(sum(node.vcpus * node.speed for node in cluster.nodes)))
    return Host(cores=cores, max_open=MAX_CONNECTIONS)
