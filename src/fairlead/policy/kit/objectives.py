"""The latency objective of each (workflow, function) pair, for policies that know single functions and no workflows."""

from fairlead.planning.split import proportional
from fairlead.policy.base import Site
from fairlead.policy.kit.options import all_options, graph_of, stage_weights

Queue = tuple[str, str]  # a workflow and one of its functions


def queue_objectives(site: Site) -> dict[Queue, float]:
    """Seconds of its workflow's SLO that each function may take: in proportion to average times on the heaviest path.

    A function that a workflow uses in several stages has the smallest of their shares.
    """
    known = all_options(site)
    found: dict[Queue, float] = {}
    for name, workflow in site.workflows.items():
        shares = proportional(graph_of(workflow), stage_weights(workflow, known))
        for stage, share in zip(workflow.stages, shares, strict=True):
            queue, limit_s = (name, stage.function), workflow.slo.latency_s * share
            found[queue] = min(limit_s, found.get(queue, limit_s))
    return found
