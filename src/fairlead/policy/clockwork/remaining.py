"""The time that a request still needs after each stage."""

from collections.abc import Mapping

from fairlead.model import Workflow


def least_after(workflow: Workflow, fastest_s: Mapping[str, float]) -> dict[str, float]:
    """For each stage, the time that what must follow takes at the fastest, on the longest path.

    Of the arms of a branch only the shortest must be counted; none, where it may be that none is taken.
    """
    rest_s: dict[str, float] = {}
    for stage in reversed(workflow.stages):
        after = [s for s in workflow.stages if stage.name in s.after]
        arms = [s for s in after if s.when is not None]
        sure = [rest_s[s.name] + fastest_s[s.function] for s in after if s.when is None]
        if arms and sum(s.when or 0.0 for s in arms) > 1 - 1e-9:
            sure.append(min(rest_s[s.name] + fastest_s[s.function] for s in arms if s.when))
        rest_s[stage.name] = max(sure, default=0.0)
    return rest_s


def waits_after(workflow: Workflow, fastest_s: Mapping[str, float], wait_s: float, margin_s: float) -> dict[str, float]:
    """For each stage, the time to leave for the waits of what must follow: at most `wait_s` per stage.

    Where the objective spares less, it is shared out evenly over the stages of the longest path.
    """
    rest_s = least_after(workflow, fastest_s)
    after = least_after(workflow, dict.fromkeys(workflow.functions, 1.0))  # how many stages must follow
    longest_s = max(rest_s[stage.name] + fastest_s[stage.function] for stage in workflow.stages)
    spare_s = max(0.0, workflow.slo.latency_s - margin_s - longest_s)
    each_s = min(wait_s, spare_s / (1 + max(after.values())))
    return {name: count * each_s for name, count in after.items()}
