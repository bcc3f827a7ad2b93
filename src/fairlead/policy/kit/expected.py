"""How often a request runs each stage of its workflow: by the items of maps, the arms of branches, and copies. Pure."""

from fairlead.model import Workflow


def mean_items(workflow: Workflow) -> list[float]:
    """For each stage how many items run it on average: 1 outside of maps, else the middle of the map's bounds."""
    by_name = {stage.name: stage for stage in workflow.stages}
    found = []
    for stage in workflow.stages:
        region = workflow.regions[stage.name]
        bounds = by_name[region].map if region is not None else None
        found.append(sum(bounds) / 2 if bounds is not None else 1.0)
    return found


def expected_counts(workflow: Workflow) -> list[float]:
    """For each stage how often a request runs it on average, copies that compete included."""
    taken: dict[str, float] = {}
    counts = []
    for stage, items in zip(workflow.stages, mean_items(workflow), strict=True):
        before = max((taken[name] for name in stage.after), default=1.0)
        taken[stage.name] = before * (1.0 if stage.when is None else stage.when)
        counts.append(taken[stage.name] * items * stage.compete)
    return counts
