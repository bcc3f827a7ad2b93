"""The mechanisms of the policy that an experiment can leave out, one at a time."""

from collections.abc import Iterable, Mapping

from fairlead.errors import suggestion

INGREDIENTS: Mapping[str, str] = {
    "prices": "surcharges on vCPUs and vGPUs that are short stay at 0",
    "window": "no request is refused because of the work that was admitted before it",
    "adaptation": "the share of the cluster that may be promised stays at 1, whatever work is wasted",
    "busy": "no request is refused because all is busy until it could only be in time in a small batch",
    "shares": "workflows that overload the cluster together have no shares of it",
    "room": "long runs leave no room for requests that cannot wait until they end",
    "value": "no request is dropped because finishing it costs more than a new one",
    "passing-over": "urgent requests are never passed over for a larger batch",
    "laxity": "queues are served by deadline",
    "sharing": "each stage has batches of its own, though others run the same function",
    "warming": "instances are started only with a run, never ahead of it",
    "planned-instances": "instances are started ahead only for requests that wait for one, not by the plan",
    "worth": "idle instances make way for others in the engine's order, not by what they are worth",
    "sizes": "every function uses all of its sizes",
    "waits": "no time is set aside for the waits of later stages",
    "times": "declared times are not corrected by observed ones",
    "pace": "the pace of nodes is taken to be 1",
    "sensitivity": "the declared sensitivity to other work on a node is not corrected",
    "capacity": "all of the cluster is taken to be usable at a time",
    "filling": "a batch that could still fill is neither waited for nor lets others go first",
    "overtaking": "those behind a first in line that cannot be started wait with it",
}
"""By name: what the policy does without it."""


def check_ingredients(names: Iterable[str]) -> frozenset[str]:
    """The names as a set. Raises `ValueError` for one that is not an ingredient."""
    for name in names:
        if name not in INGREDIENTS:
            known = ", ".join(INGREDIENTS)
            raise ValueError(f"without has no ingredient {name!r}.{suggestion(name, INGREDIENTS)} It takes: {known}.")
    return frozenset(names)
