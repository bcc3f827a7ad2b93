"""Walks through what waits that leave out closed functions. Mechanics that policies share, not a policy.

A walk over everything that waits passes by every invocation of a function that has no room, at every decision. These
walks merge one line per function or queue instead: a line that is closed is not looked at again, so that a decision
costs as much as it starts, and a little per function.
"""

from collections.abc import Collection, Iterable, Iterator
from heapq import heapify, heappop, heapreplace

from fairlead.model import Invocation
from fairlead.policy.base import View

_Entry = tuple[float, int, Invocation, Iterator[Invocation]]


def most_urgent_first(view: View, closed: Collection[str]) -> Iterator[Invocation]:
    """What waits, by deadline and then by id, without the functions in `closed`, which may grow during the walk."""
    functions = dict.fromkeys(function for _, function in view.queues())
    lines = [view.by_deadline(function=function) for function in functions if function not in closed]
    return _merged(view, lines, closed, by_deadline=True)


def oldest_first(view: View, closed: Collection[str]) -> Iterator[Invocation]:
    """What waits, in the order in which it became ready, without the functions in `closed`, which may grow."""
    lines = [view.by_ready(workflow, function) for workflow, function in view.queues() if function not in closed]
    return _merged(view, lines, closed, by_deadline=False)


def _merged(
    view: View, lines: Iterable[Iterator[Invocation]], closed: Collection[str], *, by_deadline: bool
) -> Iterator[Invocation]:
    heap: list[_Entry] = []
    for line in lines:
        first = next(line, None)
        if first is not None:
            heap.append((first.deadline if by_deadline else 0.0, first.id, first, line))  # ids grow with time
    heapify(heap)
    while heap:
        _, _, invocation, line = heap[0]
        if invocation.function not in closed and view.is_waiting(invocation):
            yield invocation
        following = None if invocation.function in closed else next(line, None)
        if following is None:
            heappop(heap)
        else:
            heapreplace(heap, (following.deadline if by_deadline else 0.0, following.id, following, line))
