"""What is still ahead of a stage: how long the rest of its workflow takes. Pure functions that policies share."""

from collections.abc import Mapping

from fairlead.model import Workflow
from fairlead.profile import Estimate


def fastest_s(profile: Estimate) -> float:
    """The expected time of the quickest configuration, wherever it is quickest."""
    return min(profile.latency_s(configuration) for configuration in profile.configurations)


def longest_after(workflow: Workflow, seconds: Mapping[str, float]) -> dict[str, float]:
    """For each stage, the time that the longest path after it takes, given the time of each function."""
    rest_s = {stage.name: 0.0 for stage in workflow.stages}
    for stage in reversed(workflow.stages):
        for predecessor in stage.after:
            rest_s[predecessor] = max(rest_s[predecessor], rest_s[stage.name] + seconds[stage.function])
    return rest_s


def critical_path_s(workflow: Workflow, seconds: Mapping[str, float]) -> float:
    """The time of the longest path through a workflow, given the time of each function."""
    rest_s = longest_after(workflow, seconds)
    return max(rest_s[stage.name] + seconds[stage.function] for stage in workflow.stages if not stage.after)


def shares(workflow: Workflow, seconds: Mapping[str, float]) -> dict[str, float]:
    """For each stage, its share of the longest path that leads through it, in [0, 1].

    The shares along the longest path of a workflow add up to 1. On a path that takes no time every stage has all of it.
    """
    after_s = longest_after(workflow, seconds)
    until_s: dict[str, float] = {}  # the end of each stage
    found: dict[str, float] = {}
    for stage in workflow.stages:  # in topological order
        own_s = seconds[stage.function]
        until_s[stage.name] = max((until_s[p] for p in stage.after), default=0.0) + own_s
        path_s = until_s[stage.name] + after_s[stage.name]
        found[stage.name] = own_s / path_s if path_s > 0 else 1.0
    return found
