"""Runs that slow each other down: virtual clocks per node and (function, share), as in `engine.sim.sharing`."""

from numpy import inf

from fairlead.engine.sim.compiled.events import schedule
from fairlead.engine.sim.compiled.layout import (
    BEGIN,
    CLOCK,
    CLOCK_FIRST,
    CLOCK_KEYS,
    CLOCK_LOAD,
    CLOCK_NEXT,
    CLOCK_NUMBER,
    CLOCK_RATE,
    CLOCK_VIRTUAL,
    COUNT,
    FINISHED_COUNT,
    FINISHED_NOW,
    FUNCTION_SENSITIVITY,
    I_BATCH,
    I_BEGAN,
    I_CLOCK_NEXT,
    I_DUE,
    I_NODE,
    I_SHAPE,
    KEY_FUNCTION,
    NODE_BUSY,
    NODE_CLOCK,
    NODE_CLOCKS,
    NODE_CORES,
    NODE_ENDS,
    NODE_LOAD,
    NODE_PRESSURE,
    NODE_RUNS,
    NODE_SHARED_AT,
    NODE_VERSION,
    NOW,
    SHAPE_CLOCK,
    SHAPE_VCPUS,
)
from fairlead.engine.sim.compiled.views import compiled, ints, reals


@compiled
def begin_or_wait(h: int, instance: int, moved_s: float, work: float) -> None:
    """Start to consume a batch's work, once its input is there."""
    now = reals(h, CLOCK)[NOW]
    at = now + moved_s
    if at > now:
        schedule(h, at, BEGIN, instance, 0)
    else:
        begin(h, instance, at, work)


@compiled
def begin(h: int, instance: int, now: float, work: float) -> None:
    """Let a batch start to consume its work."""
    node = ints(h, I_NODE)[instance]
    keys = ints(h, COUNT)[CLOCK_KEYS]
    shape = ints(h, I_SHAPE)[instance]
    clock = node * keys + ints(h, SHAPE_CLOCK)[shape]
    passed_s = now - reals(h, NODE_SHARED_AT)[node]
    _advance(h, node, now)
    firsts, virtual = ints(h, CLOCK_FIRST), reals(h, CLOCK_VIRTUAL)
    reals(h, I_BEGAN)[instance] = now
    if firsts[clock] < 0:
        virtual[clock] = reals(h, CLOCK_RATE)[clock] * passed_s
        _enlist(h, node, clock)
    due = virtual[clock] + work
    reals(h, I_DUE)[instance] = due
    _insert(h, clock, instance, due)
    ints(h, NODE_RUNS)[node] += 1
    ints(h, NODE_BUSY)[node] += ints(h, SHAPE_VCPUS)[shape]
    reals(h, NODE_LOAD)[node] += reals(h, CLOCK_LOAD)[clock]
    _set_rates(h, node)
    _predict(h, node)


@compiled
def end_due(h: int, node: int, now: float) -> None:
    """Note the batches of a node that end at this instant, in the order of their numbers."""
    c = ints(h, COUNT)
    _advance(h, node, now)
    firsts, following = ints(h, CLOCK_FIRST), ints(h, I_CLOCK_NEXT)
    due, virtual, load = reals(h, I_DUE), reals(h, CLOCK_VIRTUAL), reals(h, NODE_LOAD)
    finished, batches = ints(h, FINISHED_NOW), ints(h, I_BATCH)
    first = c[FINISHED_COUNT]
    clock = ints(h, NODE_CLOCK)[node]
    while clock >= 0:
        while firsts[clock] >= 0 and due[firsts[clock]] - virtual[clock] <= 1e-12 * max(1.0, now):
            instance = firsts[clock]
            firsts[clock] = following[instance]
            ints(h, NODE_RUNS)[node] -= 1
            ints(h, NODE_BUSY)[node] -= ints(h, SHAPE_VCPUS)[ints(h, I_SHAPE)[instance]]
            load[node] -= reals(h, CLOCK_LOAD)[clock]
            at = c[FINISHED_COUNT]
            c[FINISHED_COUNT] = at + 1
            while at > first and batches[finished[at - 1]] > batches[instance]:
                finished[at] = finished[at - 1]
                at -= 1
            finished[at] = instance
        clock = ints(h, CLOCK_NEXT)[clock]
    _set_rates(h, node)
    _predict(h, node)


@compiled
def press(h: int, node: int, now: float, pressure: float) -> None:
    """Change the load from outside."""
    _advance(h, node, now)
    reals(h, NODE_PRESSURE)[node] = pressure
    _set_rates(h, node)
    _predict(h, node)


@compiled
def _advance(h: int, node: int, now: float) -> None:
    at = reals(h, NODE_SHARED_AT)
    passed_s = now - at[node]
    virtual, rate = reals(h, CLOCK_VIRTUAL), reals(h, CLOCK_RATE)
    clock = ints(h, NODE_CLOCK)[node]
    while clock >= 0:
        virtual[clock] += rate[clock] * passed_s
        clock = ints(h, CLOCK_NEXT)[clock]
    at[node] = now


@compiled
def _enlist(h: int, node: int, clock: int) -> None:
    """Put a clock among those on which something runs, in the order in which they were made."""
    numbers, following = ints(h, CLOCK_NUMBER), ints(h, CLOCK_NEXT)
    if numbers[clock] == 0:
        ints(h, NODE_CLOCKS)[node] += 1
        numbers[clock] = ints(h, NODE_CLOCKS)[node]
    before, after = -1, ints(h, NODE_CLOCK)[node]
    while after >= 0 and numbers[after] < numbers[clock]:
        before, after = after, following[after]
    following[clock] = after
    if before < 0:
        ints(h, NODE_CLOCK)[node] = clock
    else:
        following[before] = clock


@compiled
def _insert(h: int, clock: int, instance: int, due: float) -> None:
    """Put a batch in its place on a clock: soonest first, then by number."""
    firsts, following, dues, batches = ints(h, CLOCK_FIRST), ints(h, I_CLOCK_NEXT), reals(h, I_DUE), ints(h, I_BATCH)
    before, after = -1, firsts[clock]
    while after >= 0 and (dues[after] < due or (dues[after] == due and batches[after] < batches[instance])):
        before, after = after, following[after]
    following[instance] = after
    if before < 0:
        firsts[clock] = instance
    else:
        following[before] = instance


@compiled
def _set_rates(h: int, node: int) -> None:
    ints(h, NODE_VERSION)[node] += 1
    load, rates, own = reals(h, NODE_LOAD), reals(h, CLOCK_RATE), reals(h, CLOCK_LOAD)
    if ints(h, NODE_RUNS)[node] == 0:
        load[node] = 0.0  # forget rounding
    firsts, following, keys = ints(h, CLOCK_FIRST), ints(h, CLOCK_NEXT), ints(h, COUNT)[CLOCK_KEYS]
    pressure = reals(h, NODE_PRESSURE)[node]
    cores, shared = ints(h, NODE_CORES)[node], 1.0
    if cores != 0:
        shared = max(1.0, ints(h, NODE_BUSY)[node] / cores + pressure)
    before, clock = -1, ints(h, NODE_CLOCK)[node]
    while clock >= 0:
        if firsts[clock] < 0:  # nothing runs on it any more
            if before < 0:
                ints(h, NODE_CLOCK)[node] = following[clock]
            else:
                following[before] = following[clock]
        else:
            sensitivity = reals(h, FUNCTION_SENSITIVITY)[ints(h, KEY_FUNCTION)[clock - node * keys]]
            rates[clock] = 1 / ((1.0 + sensitivity * (max(0.0, load[node] - own[clock]) + pressure)) * shared)
            before = clock
        clock = following[clock]


@compiled
def _predict(h: int, node: int) -> None:
    """Let the node's next end happen, unless something changes before."""
    due, virtual, rates = reals(h, I_DUE), reals(h, CLOCK_VIRTUAL), reals(h, CLOCK_RATE)
    least = inf
    clock = ints(h, NODE_CLOCK)[node]
    while clock >= 0:
        left = (due[ints(h, CLOCK_FIRST)[clock]] - virtual[clock]) / rates[clock]
        if left < least:
            least = left
        clock = ints(h, CLOCK_NEXT)[clock]
    if least < inf:
        at = reals(h, NODE_SHARED_AT)[node] + max(0.0, least)
        schedule(h, at, NODE_ENDS, node, ints(h, NODE_VERSION)[node])
