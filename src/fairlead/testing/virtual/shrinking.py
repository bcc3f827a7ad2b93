"""From a plan that breaks something to a small one that breaks it too."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from fairlead.testing.virtual.plans import Plan

T = TypeVar("T")


def shrink(plan: Plan, fails: Callable[[Plan], bool], most_tries: int = 200) -> Plan:
    """The smallest failing plan found within `tries` tries; `fails` says whether a plan still fails."""
    tries = iter(range(most_tries))

    def still(candidate: Plan) -> bool:
        return next(tries, None) is not None and fails(candidate)

    faults = _fewest(plan.faults, lambda kept: still(replace(plan, faults=tuple(kept))))
    plan = replace(plan, faults=tuple(faults))
    calls = _fewest(plan.calls, lambda kept: still(replace(plan, calls=tuple(kept))))
    return replace(plan, calls=tuple(calls))


def _fewest(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Leave out parts, large ones first, as long as it still fails."""
    kept = list(items)
    size = len(kept)
    while size:
        start = 0
        while start < len(kept):
            without = kept[:start] + kept[start + size :]
            if fails(without):
                kept = without
            else:
                start += size
        size //= 2
    return kept
