"""What scalers look at and keep to: how many of a function's instances work, and how many there may be.

Not a policy, but what scalers share.
"""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from fairlead.policy.base import View

ROUNDING = 1e-9  # 21 / (3 * 0.7) is 10.000000000000002


class Headcount(NamedTuple):
    """One function at one instant: instances that run a batch, that have started, and invocations that wait."""

    busy: int
    ready: int
    waiting: int


def headcounts(view: View, functions: Sequence[str]) -> list[Headcount]:
    """One for each of these functions, in their order.

    A replica that is on its way out works until its batch ends, and is counted as long.
    """
    waiting = dict.fromkeys(functions, 0)
    for workflow, function in view.queues():
        if function in waiting:
            waiting[function] += view.waiting(workflow, function)
    found = []
    for function in functions:
        ready = [instance for instance in view.instances(function) if instance.is_ready]
        idle = sum(instance.is_idle for instance in ready)
        found.append(Headcount(len(ready) - idle, len(ready), waiting[function]))
    return found


def rounded_up(number: float) -> int:
    """The least whole number not below this one; a rounding error is no reason for one more."""
    return ceil(number - ROUNDING)


def check_replicas(initial: int, min_replicas: int, max_replicas: int | None, *, least: int) -> None:
    """Raise ValueError unless these parameters of a scaler are in range; `least` is that of the smallest number."""
    if min_replicas < least:
        raise ValueError(f"min_replicas must be at least {least}; got {min_replicas}.")
    if initial < 0:
        raise ValueError(f"initial must not be negative; got {initial}.")
    if max_replicas is not None and max_replicas < max(1, min_replicas):
        raise ValueError(f"max_replicas must be at least 1 and min_replicas; got {max_replicas}.")


def within(replicas: int, min_replicas: int, max_replicas: int | None) -> int:
    """The nearest number of replicas that is allowed."""
    replicas = max(replicas, min_replicas)
    return replicas if max_replicas is None else min(replicas, max_replicas)
