"""The heap of events to come: by instant, then by the order in which they were scheduled."""

from fairlead.engine.sim.compiled.layout import (
    COUNT,
    EVENT_AT,
    EVENT_ORDER,
    EVENT_WHAT,
    EVENTS,
    INDEX_BITS,
    KIND_BITS,
    SEQUENCE,
)
from fairlead.engine.sim.compiled.views import compiled, ints, reals


@compiled
def schedule(h: int, at: float, kind: int, index: int, who: int) -> None:
    """Let something happen at an instant; `who` tells later whether it still matters."""
    c = ints(h, COUNT)
    times, orders, whats = reals(h, EVENT_AT), ints(h, EVENT_ORDER), ints(h, EVENT_WHAT)
    order = c[SEQUENCE] + 1
    c[SEQUENCE] = order
    i = c[EVENTS]
    c[EVENTS] = i + 1
    while i > 0:
        parent = (i - 1) >> 1
        if times[parent] <= at:  # what comes later has the higher order
            break
        times[i], orders[i], whats[i] = times[parent], orders[parent], whats[parent]
        i = parent
    times[i], orders[i], whats[i] = at, order, kind | (index << KIND_BITS) | (who << (KIND_BITS + INDEX_BITS))


@compiled
def drop_first(h: int) -> None:
    """Take the first event out of the heap."""
    c = ints(h, COUNT)
    times, orders, whats = reals(h, EVENT_AT), ints(h, EVENT_ORDER), ints(h, EVENT_WHAT)
    last = c[EVENTS] - 1
    c[EVENTS] = last
    at, order = times[last], orders[last]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        right = child + 1
        if right < last and (
            times[right] < times[child] or (times[right] == times[child] and orders[right] < orders[child])
        ):
            child = right
        if at < times[child] or (at == times[child] and order < orders[child]):
            break
        times[i], orders[i], whats[i] = times[child], orders[child], whats[child]
        i = child
    times[i], orders[i], whats[i] = at, order, whats[last]


@compiled
def is_still(who: int, now: int) -> bool:
    """Whether the low bits of who something was scheduled for are those of who is there now."""
    return (who ^ now) & 0x7FFFFFFF == 0
