"""What agents are told of a cluster and its functions once: objectives, needs, places in workflows, capacity."""

from collections.abc import Mapping

import numpy as np

from fairlead.model import Cluster, Function, Workflow
from fairlead.policy.kit.measuring import function_slos, stage_goals
from fairlead.policy.simppo.observation import Site
from fairlead.profile import Estimate


def describe_site(
    cluster: Cluster,
    functions: Mapping[str, Function],
    workflows: Mapping[str, Workflow],
    profiles: Mapping[str, Estimate],
    *,
    most_replicas: int,
) -> Site:
    """The constants of observation and reward, in the order of `functions`.

    A function that several stages use has the place of the one with the least time.
    """
    slos = function_slos(workflows, profiles)
    upstream, downstream = dict.fromkeys(functions, 0.0), dict.fromkeys(functions, 0.0)
    least_s = dict.fromkeys(functions, np.inf)
    for (workflow, name), goal in stage_goals(workflows, profiles).items():
        function = next(stage.function for stage in workflows[workflow].stages if stage.name == name)
        if function in least_s and goal.seconds < least_s[function]:  # one on a GPU has no agent
            least_s[function] = goal.seconds
            downstream[function] = 1 - goal.seconds / goal.slo_s
            upstream[function] = max(0.0, (goal.seconds - slos[function]) / goal.slo_s)
    nodes = cluster.nodes
    return Site(
        slo_s=np.array([slos[name] for name in functions]),
        needs_gb=np.array([function.memory_gb for function in functions.values()]),
        upstream=np.array(list(upstream.values())),
        downstream=np.array(list(downstream.values())),
        vcpus=float(sum(node.vcpus for node in nodes)),
        memory_gb=float(sum(node.memory_gb for node in nodes)),
        most_replicas=most_replicas,
    )
