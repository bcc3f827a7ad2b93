"""Shares one resource of one node between members: weighted max-min in whole quanta, and turns where it is too small.

Pure functions over whole numbers. The time they take grows with the number of members, never with the size of the
resource: quanta that are small beside it are given several at a time.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

SLICE_S = 0.1
"""How long a member keeps a quantum before another that has had less may take it."""

_MOST_STEPS = 64  # into which a resource is divided, where quanta are smaller


class Terms(NamedTuple):
    """What members' parts depend on.

    `order` has every member, the one that is due first at its beginning. `served` is what each has had so far for its
    weight, in shares of a whole resource times seconds. `quanta` are the amounts in which each can use the resource.
    """

    capacity: int
    weights: Mapping[int, float]
    quanta: Mapping[int, int]
    order: Sequence[int]
    served: Mapping[int, float]


def fill(targets: dict[int, int], limits: Mapping[int, int], left: int, terms: Terms) -> int:
    """Raise targets towards their limits with what is left; returns how much was given.

    A member's target plus all it is given counts, so one that has more already gets less of this. Each gets a quantum
    first, whatever its weight; where that is not possible, they take turns. What remains after whole quanta goes round
    in the given order.
    """
    short = [id for id in terms.order if targets[id] < limits[id]]
    if not short:
        return 0
    missing = sum([limits[id] - targets[id] for id in short])
    if missing <= left:
        for id in short:
            targets[id] = limits[id]
        return missing
    before, quanta = left, terms.quanta
    first = {id: max(0, min(quanta.get(id) or 1, limits[id]) - targets[id]) for id in short}
    if sum(first.values()) > left:
        return _take_turns(targets, limits, left, short, terms)
    for id in short:
        targets[id] += first[id]
        left -= first[id]
    short = [id for id in short if targets[id] < limits[id]]
    if not short:
        return before - left
    level = _level({id: (targets[id], limits[id], terms.weights[id]) for id in short}, left)
    for id in short:
        due = min(limits[id], int(level * terms.weights[id] + 1e-6))
        quantum = quanta.get(id) or 1
        if due < limits[id]:
            due -= due % quantum
        given = min(left, max(0, due - targets[id]))
        targets[id] += given
        left -= given
    granule = left // _MOST_STEPS
    is_stuck = False
    while left > 0 and not is_stuck:
        is_stuck = True
        for id in short:
            step = _step(quanta.get(id) or 1, limits[id] - targets[id], granule, left)
            if step:
                targets[id] += step
                left -= step
                is_stuck = False
    return before - left


def _take_turns(
    targets: dict[int, int], limits: Mapping[int, int], left: int, candidates: Sequence[int], terms: Terms
) -> int:
    """Give quantum after quantum to the member that has had least for its weight, this slice included."""
    before, granule = left, left // _MOST_STEPS
    price = {id: SLICE_S / (terms.capacity * terms.weights[id]) for id in candidates}
    due = [(terms.served.get(id, 0.0) + targets[id] * price[id], place, id) for place, id in enumerate(candidates)]
    heapify(due)
    while due and left > 0:
        _, place, id = due[0]
        step = _step(terms.quanta.get(id) or 1, limits[id] - targets[id], granule, left)
        if step:
            targets[id] += step
            left -= step
            heapreplace(due, (terms.served.get(id, 0.0) + targets[id] * price[id], place, id))
        else:
            heappop(due)
    return before - left


def _step(quantum: int, most: int, granule: int, left: int) -> int:
    """How much to give at once: whole quanta of at least a granule in all; 0 if not even one quantum is left."""
    step = min(quantum * max(1, -(-granule // quantum)), most)
    if step > left:
        step = min(quantum, most)
    return step if 0 < step <= left else 0


def _level(members: Mapping[int, tuple[int, int, float]], amount: int) -> float:
    """The amount per weight up to which members can be raised, given each one's amount, limit and weight."""
    edges: list[tuple[float, float]] = []  # where members begin to rise and stop, and by how much the slope changes
    for now, limit, weight in members.values():
        edges += [(now / weight, weight), (limit / weight, -weight)]
    edges.sort()
    level, left, rising = edges[0][0], float(amount), 0.0
    for upper, change in edges:
        if rising > 1e-12 and (upper - level) * rising >= left:
            return level + left / rising
        left -= (upper - level) * rising
        level = upper
        rising += change
    return level
