"""Whether functions have to share vCPUs: then one more container takes room from the others while it starts."""

from collections.abc import Mapping

from fairlead.policy.base import Site
from fairlead.policy.kit.options import Options


def is_crowded(site: Site, known: Mapping[str, Options]) -> bool:
    """Whether the cluster has fewer vCPUs than one container of each function holds, each in its smallest size.

    There the functions wait for vCPUs, not for containers. A container that is started for a short peak holds a vCPU
    for all of its cold start, so it makes the peak longer. Policies start no container for chance alone in that case,
    only for what is needed on average. On a cluster with devices it is False: there vCPUs are not what is short.
    """
    if any(node.devices for node in site.cluster.nodes):
        return False
    held = sum(min((each.vcpus for each in own.configurations), default=0.0) for own in known.values())
    return held > sum(node.vcpus * node.overcommit for node in site.cluster.nodes)
