"""From an offered load to a rate: how many requests per second keep a cluster so busy.

One run of a stage takes `latency_s` and occupies one of the `slots` that the whole cluster has for its first
configuration; a request therefore takes the sum of latency_s / slots of the cluster, and a rate of
load / sum offers that load. Stages count as often as they run: by items of a map and chances of a branch.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from math import inf, prod

from fairlead.model import Cluster, Function, Workflow
from fairlead.model.slots import slots
from fairlead.profile import Profile

MAX_OUTCOMES = 65_536


def rate_for_load(
    load: float,
    workflow: Workflow,
    functions: Mapping[str, Function],
    profiles: Mapping[str, Profile],
    cluster: Cluster,
) -> float:
    """Requests per second at which this workflow alone takes the share `load` of the cluster. Raises `ValueError`."""
    runs = expected_runs(workflow)
    busy_s = 0.0
    for stage in workflow.stages:
        capacity_rps = _capacity_rps(functions[stage.function], profiles[stage.function], cluster)
        busy_s += runs[stage.name] / capacity_rps
    if busy_s == 0:
        raise ValueError("needs a workflow that takes time; give rate_rps instead.")
    return load / busy_s


def _capacity_rps(function: Function, profile: Profile, cluster: Cluster) -> float:
    """Invocations per second of one function with the whole cluster to itself, in full batches."""
    configuration = profile.configurations[0]
    total = 0.0
    for node in cluster.nodes:
        fitting = slots(node, function, configuration)
        latency_s = profile.latency_s(configuration, node.kind, node.speed)
        if fitting and latency_s == 0:
            return inf
        total += fitting * configuration.batch / latency_s
    return total


def expected_runs(workflow: Workflow) -> dict[str, float]:
    """How often each stage runs per request, on average. Raises `ValueError` for too many branches.

    A stage is skipped when everything before it was. What follows a branch inside a map and joins is
    taken to run as often as the branch's items would let it.
    """
    arms: dict[str, list[str]] = {}
    for stage in workflow.stages:
        if stage.when is not None:
            arms.setdefault(stage.after[0], []).append(stage.name)
    if prod(len(names) + 1 for names in arms.values()) > MAX_OUTCOMES:
        raise ValueError("cannot be worked out for so many branches; give rate_rps instead.")
    items = {stage.name: sum(stage.map) / 2 for stage in workflow.stages if stage.map}
    runs = dict.fromkeys((stage.name for stage in workflow.stages), 0.0)
    for chance, taken in _outcomes(workflow, arms):
        done: set[str] = set()
        for stage in workflow.stages:
            is_open = not stage.after or not done.isdisjoint(stage.after)
            if is_open and (stage.when is None or stage.name in taken):
                done.add(stage.name)
                runs[stage.name] += chance * items.get(workflow.regions[stage.name] or "", 1.0)
    return runs


def _outcomes(workflow: Workflow, arms: Mapping[str, list[str]]) -> Iterator[tuple[float, set[str]]]:
    """Every way the branches can go: its chance, and the arms taken."""
    when = {stage.name: stage.when or 0.0 for stage in workflow.stages}
    choices = [[(when[n], n) for n in names] + [(1 - sum(when[n] for n in names), "")] for names in arms.values()]
    for outcome in product(*choices):
        yield prod(chance for chance, _ in outcome), {name for _, name in outcome}
