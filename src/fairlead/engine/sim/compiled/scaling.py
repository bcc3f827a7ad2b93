"""Replicas: the instances that a scaled function runs on; as in `engine.core.scaling`.

A replica uses its capacity for as long as it lives. Scaling in drains: a busy replica ends with its batch.
"""

from fairlead.engine.sim.compiled.events import schedule
from fairlead.engine.sim.compiled.index import find
from fairlead.engine.sim.compiled.layout import (
    BATCH_FIRST,
    BATCH_SHAPE,
    BECOME_READY,
    CLOCK,
    COUNT,
    DEVICE_TOTAL,
    DRAINED,
    DRAINING,
    FLAVOUR_FUNCTION,
    FLAVOUR_VGPUS,
    FREE_FIRST,
    FREE_LAST,
    FUNCTION_COLD,
    FUNCTION_FIRST,
    FUNCTION_QUEUE,
    HAS_QUEUES,
    I_AFTER,
    I_BATCH,
    I_BEFORE,
    I_FLAVOUR,
    I_ID,
    I_NEWER,
    I_NODE,
    I_OLDER,
    I_READY,
    I_SHAPE,
    I_SIZE,
    I_STANDS_FOR,
    I_STANDS_FOR_ID,
    I_STATE,
    I_VCPUS,
    IDLE,
    IDLE_REPLICAS,
    IN_USE,
    INSTANCE_SLOTS,
    IS_SHORT,
    KINDS,
    NEXT_INSTANCE,
    NODE_DEVICE,
    NODE_FREE,
    NODE_KIND,
    NODE_TOTAL,
    NODES,
    NOW,
    QUEUE_FIRST,
    QUEUE_SIBLING,
    READY,
    REPLACED,
    REPLICA,
    RETIRED,
    SCALED,
    SET_COUNT,
    SET_FIRST,
    SET_IS_SHORT,
    SET_LAST,
    SET_ORDER,
    SET_SIZE,
    SETS,
    SETS_CHANGED,
    SHAPE_BLOCKED,
    SHAPE_FLAVOUR,
    SHAPE_VCPUS,
    SHAPES,
    SHORT_AT,
    TARGET,
    VERSION,
    WARM_NODES,
)
from fairlead.engine.sim.compiled.lines import let_try
from fairlead.engine.sim.compiled.pool import create, look_at, make_room, release, stop
from fairlead.engine.sim.compiled.views import compiled, ints, reals

_MANY = 64  # replicas: from here on it is worth to find out how many fit


@compiled
def scale(h: int, function: int, instances: int, size: int) -> None:
    """Give a function so many replicas of a size; from then on it runs only on them."""
    c = ints(h, COUNT)
    look_at(h, function)
    c[SETS_CHANGED] = 1
    if ints(h, SCALED)[function] == 0:
        c[IN_USE] = 1
        ints(h, SCALED)[function] = 1
        ints(h, SET_SIZE)[function] = size
        ints(h, SET_ORDER)[c[SETS]] = function
        c[SETS] += 1
        _retire_idle(h, function)
    ints(h, TARGET)[function] = instances
    if ints(h, SET_SIZE)[function] != size:
        ints(h, SET_SIZE)[function] = size
        _replace_all(h, function)
    reconcile(h, function)


@compiled
def resize(h: int, function: int, size: int) -> bool:
    """Give every replica another size: vCPUs in place where there is room, memory by replacement.

    False if it does not fit where the replicas are, or the function is not scaled; then nothing has changed.
    """
    if ints(h, SCALED)[function] == 0:
        return False
    look_at(h, function)
    former = ints(h, SET_SIZE)[function]
    vcpus = ints(h, SHAPE_VCPUS)[size]
    if not _has_room_to_grow(h, function, vcpus):
        return False
    ints(h, SET_SIZE)[function] = size
    ints(h, COUNT)[SETS_CHANGED] = 1
    if ints(h, SHAPE_FLAVOUR)[former] == ints(h, SHAPE_FLAVOUR)[size]:
        slot = ints(h, SET_FIRST)[function]
        while slot >= 0:
            if not ints(h, I_STATE)[slot] & DRAINING and ints(h, I_BATCH)[slot] < 0:
                _adapt(h, function, slot)  # those at work follow when their batch ends
            slot = ints(h, I_AFTER)[slot]
    else:
        _replace_all(h, function)
    return True


@compiled
def _has_room_to_grow(h: int, function: int, vcpus: int) -> bool:
    free, nodes = ints(h, NODE_FREE), ints(h, I_NODE)
    one = ints(h, SET_FIRST)[function]
    while one >= 0:
        more, node = 0, nodes[one]
        slot = ints(h, SET_FIRST)[function]
        while slot >= 0:
            if nodes[slot] == node and not ints(h, I_STATE)[slot] & DRAINING and ints(h, I_BATCH)[slot] < 0:
                more += vcpus - ints(h, I_VCPUS)[slot]
            slot = ints(h, I_AFTER)[slot]
        if free[node] < more:
            return False
        one = ints(h, I_AFTER)[one]
    return True


@compiled
def _retire_idle(h: int, function: int) -> None:
    """Stop what is idle of a function that is scaled for the first time, oldest first."""
    c = ints(h, COUNT)
    ids, flavours = ints(h, I_ID), ints(h, I_FLAVOUR)
    if not _has_idle(h, function):
        return
    done = -1
    while True:
        slot, least = -1, c[NEXT_INSTANCE]
        for other in range(c[INSTANCE_SLOTS]):
            if (
                done < ids[other] < least
                and ints(h, FLAVOUR_FUNCTION)[flavours[other]] == function
                and ints(h, I_STATE)[other] & IDLE
            ):
                slot, least = other, ids[other]
        if slot < 0:
            return
        done = least
        stop(h, slot, RETIRED)


@compiled
def _has_idle(h: int, function: int) -> bool:
    shapes = ints(h, SHAPES)
    for i in range(ints(h, FUNCTION_FIRST)[function], ints(h, FUNCTION_FIRST)[function + 1]):
        if ints(h, WARM_NODES)[ints(h, SHAPE_FLAVOUR)[shapes[i]]] > 0:
            return True
    return False


@compiled
def place_replica(h: int, function: int) -> int:
    """The node with the most free replicas of a function; -1 if none is free."""
    counts, first = ints(h, IDLE_REPLICAS), function * ints(h, COUNT)[NODES]
    best, most = -1, 0
    slot = ints(h, FREE_FIRST)[function]
    while slot >= 0:
        node = ints(h, I_NODE)[slot]
        count = counts[first + node]
        if count > most or (count == most and node < best):
            best, most = node, count
        slot = ints(h, I_NEWER)[slot]
    return best


@compiled
def take_replica(h: int, function: int, node: int, batch: int) -> int:
    """The free replica on a node that has rested longest, turned busy; -1 if the function is not scaled."""
    if ints(h, SCALED)[function] == 0:
        return -1
    slot = ints(h, FREE_FIRST)[function]
    while ints(h, I_NODE)[slot] != node:
        slot = ints(h, I_NEWER)[slot]
    _leave_free(h, function, slot)
    ints(h, I_SHAPE)[slot] = shape_for_batch(h, ints(h, I_SIZE)[slot], batch)
    return slot


@compiled
def shape_for_batch(h: int, size: int, batch: int) -> int:
    """The shape of a replica's size that runs batches of so many; -1 if there is none."""
    return ints(h, BATCH_SHAPE)[ints(h, BATCH_FIRST)[size] + batch - 1]


@compiled
def release_replica(h: int, slot: int) -> None:
    """An instance has finished its batch, in a run where some function is scaled."""
    function = ints(h, FLAVOUR_FUNCTION)[ints(h, I_FLAVOUR)[slot]]
    if ints(h, I_STATE)[slot] & REPLICA:
        if not ints(h, I_STATE)[slot] & DRAINING:
            _adapt(h, function, slot)  # without room it stays as it is: a small replica is better than none
        if ints(h, I_STATE)[slot] & DRAINING:
            _drain(h, slot)
        else:
            _rest(h, slot)
    else:
        release(h, slot)
        if ints(h, SCALED)[function] != 0:  # it was scaled while this ran
            stop(h, slot, RETIRED)


@compiled
def replica_ready(h: int, slot: int) -> None:
    """A replica has started; the one it replaces may go."""
    ints(h, I_STATE)[slot] |= READY
    reals(h, I_READY)[slot] = reals(h, CLOCK)[NOW]
    _rest(h, slot)
    old = ints(h, I_STANDS_FOR)[slot]
    ints(h, I_STANDS_FOR)[slot] = -1
    if old >= 0 and ints(h, I_ID)[old] == ints(h, I_STANDS_FOR_ID)[slot]:
        _drain(h, old)


@compiled
def missing(h: int, function: int) -> int:
    """How many replicas of a function may have to start at most, to be as many as wanted."""
    if _is_stuck(h, function):
        return 0
    return most_to_start(h, function, ints(h, TARGET)[function], ints(h, SET_SIZE)[function])


@compiled
def most_to_start(h: int, function: int, instances: int, size: int) -> int:
    """How many replicas a change to so many may start at most: one in place of each, and those to come.

    Where many are wanted, no more come than fit on empty nodes.
    """
    if instances > _MANY:
        instances = min(instances, _most_that_fit(h, size))
    return ints(h, SET_COUNT)[function] + instances


@compiled
def _most_that_fit(h: int, shape: int) -> int:
    nodes, vcpus, most = ints(h, COUNT)[NODES], ints(h, SHAPE_VCPUS)[shape], 0
    if vcpus > 0:
        for node in range(nodes):
            most += ints(h, NODE_TOTAL)[node] // vcpus
    else:
        vgpus = ints(h, FLAVOUR_VGPUS)[ints(h, SHAPE_FLAVOUR)[shape]]
        for device in range(ints(h, NODE_DEVICE)[nodes]):
            most += ints(h, DEVICE_TOTAL)[device] // vgpus
    return most


@compiled
def is_worth_trying(h: int) -> bool:
    """Whether some set may have fewer replicas than it wants, and anything has changed since that was looked at."""
    c = ints(h, COUNT)
    return c[IS_SHORT] != 0 and (c[SETS_CHANGED] != 0 or c[SHORT_AT] != c[VERSION])


@compiled
def reconcile_all(h: int) -> None:
    """Start what is missing, where room has come up."""
    c = ints(h, COUNT)
    c[IS_SHORT] = c[SETS_CHANGED] = 0
    c[SHORT_AT] = c[VERSION]
    for i in range(c[SETS]):
        function = ints(h, SET_ORDER)[i]
        if _is_stuck(h, function):
            c[IS_SHORT] = 1
        else:
            reconcile(h, function)


@compiled
def _is_stuck(h: int, function: int) -> bool:
    """Whether a set was short, and nothing was given back since; if it has changed, then it has lost some."""
    shape = ints(h, SET_SIZE)[function]
    return ints(h, SET_IS_SHORT)[function] != 0 and ints(h, SHAPE_BLOCKED)[shape] == ints(h, COUNT)[VERSION]


@compiled
def reconcile(h: int, function: int) -> None:
    """Bring the number of a function's replicas to what is wanted."""
    states = ints(h, I_STATE)
    _mark_replaced(h, function)
    living = 0
    slot = ints(h, SET_FIRST)[function]
    while slot >= 0:
        if not states[slot] & (DRAINING | REPLACED):
            living += 1
        slot = ints(h, I_AFTER)[slot]
    target = ints(h, TARGET)[function]
    ints(h, SET_IS_SHORT)[function] = 0
    for _ in range(target - living):
        if _create(h, function) < 0:
            ints(h, COUNT)[IS_SHORT] = ints(h, SET_IS_SHORT)[function] = 1
            return
    for _ in range(living - target):
        _drain(h, _most_dispensable(h, function))


@compiled
def _mark_replaced(h: int, function: int) -> None:
    states = ints(h, I_STATE)
    slot = ints(h, SET_FIRST)[function]
    while slot >= 0:
        states[slot] &= ~REPLACED
        slot = ints(h, I_AFTER)[slot]
    slot = ints(h, SET_FIRST)[function]
    while slot >= 0:
        old = ints(h, I_STANDS_FOR)[slot]
        if old >= 0 and ints(h, I_ID)[old] == ints(h, I_STANDS_FOR_ID)[slot]:
            states[old] |= REPLACED
        slot = ints(h, I_AFTER)[slot]


@compiled
def _most_dispensable(h: int, function: int) -> int:
    """The unready go first, then the idle, then those at work; the youngest of each."""
    states, ids = ints(h, I_STATE), ints(h, I_ID)
    best, best_rank = -1, 0
    slot = ints(h, SET_FIRST)[function]
    while slot >= 0:
        state = states[slot]
        if not state & (DRAINING | REPLACED):
            rank = (2 if state & READY else 0) + (0 if state & IDLE else 1)
            if best < 0 or rank < best_rank or (rank == best_rank and ids[slot] > ids[best]):
                best, best_rank = slot, rank
        slot = ints(h, I_AFTER)[slot]
    return best


@compiled
def _create(h: int, function: int) -> int:
    """One more replica, on the emptiest node; -1 if there is no room."""
    c = ints(h, COUNT)
    shape = ints(h, SET_SIZE)[function]
    node = find(h, shape, False)
    if node < 0:
        return -1
    c[SETS_CHANGED] = 1
    slot = create(h, shape, node, False)
    ints(h, I_STATE)[slot] |= REPLICA
    last = ints(h, SET_LAST)
    former = last[function]
    ints(h, I_BEFORE)[slot] = former
    ints(h, I_AFTER)[slot] = -1
    if former >= 0:
        ints(h, I_AFTER)[former] = slot
    else:
        ints(h, SET_FIRST)[function] = slot
    last[function] = slot
    ints(h, SET_COUNT)[function] += 1
    at = reals(h, CLOCK)[NOW] + reals(h, FUNCTION_COLD)[function * c[KINDS] + ints(h, NODE_KIND)[node]]
    schedule(h, at, BECOME_READY, slot, ints(h, I_ID)[slot])
    return slot


@compiled
def _replace_all(h: int, function: int) -> None:
    """Let replicas of another size take the place of those there are; where there is no room, the old go first."""
    shape, last = ints(h, SET_SIZE)[function], ints(h, SET_LAST)[function]
    old = ints(h, SET_FIRST)[function]
    while old >= 0:
        following = ints(h, I_AFTER)[old]
        is_last = old == last  # what is created meanwhile stands behind it
        if not ints(h, I_STATE)[old] & DRAINING and not (
            ints(h, I_FLAVOUR)[old] == ints(h, SHAPE_FLAVOUR)[shape]
            and ints(h, I_VCPUS)[old] == ints(h, SHAPE_VCPUS)[shape]
        ):
            new = _create(h, function)
            if new < 0:
                _drain(h, old)
                ints(h, COUNT)[IS_SHORT] = 1
            else:
                ints(h, I_STANDS_FOR)[new] = old
                ints(h, I_STANDS_FOR_ID)[new] = ints(h, I_ID)[old]
        if is_last:
            break
        old = following
    reconcile(h, function)


@compiled
def _adapt(h: int, function: int, slot: int) -> bool:
    """Give a replica the vCPUs of its set, in place; False if there is no room.

    One that has another GPU share or memory is left as it is: its replacement is on the way.
    """
    size = ints(h, SET_SIZE)[function]
    if ints(h, SHAPE_FLAVOUR)[size] != ints(h, I_FLAVOUR)[slot]:
        return True
    node = ints(h, I_NODE)[slot]
    more = ints(h, SHAPE_VCPUS)[size] - ints(h, I_VCPUS)[slot]
    if more > ints(h, NODE_FREE)[node]:
        return False
    if more != 0:
        ints(h, NODE_FREE)[node] -= more
        ints(h, I_VCPUS)[slot] = ints(h, SHAPE_VCPUS)[size]
        ints(h, I_SIZE)[slot] = size
        make_room(h, node)
        ints(h, COUNT)[VERSION] += 1
    return True


@compiled
def _rest(h: int, slot: int) -> None:
    """Let a replica be free, behind all that are."""
    function = ints(h, FLAVOUR_FUNCTION)[ints(h, I_FLAVOUR)[slot]]
    ints(h, I_STATE)[slot] |= IDLE
    ints(h, IDLE_REPLICAS)[function * ints(h, COUNT)[NODES] + ints(h, I_NODE)[slot]] += 1
    last = ints(h, FREE_LAST)
    former = last[function]
    ints(h, I_OLDER)[slot] = former
    ints(h, I_NEWER)[slot] = -1
    if former >= 0:
        ints(h, I_NEWER)[former] = slot
    else:
        ints(h, FREE_FIRST)[function] = slot
    last[function] = slot
    if ints(h, COUNT)[HAS_QUEUES] != 0:
        queue = ints(h, FUNCTION_QUEUE)[function]
        while queue >= 0:
            if ints(h, QUEUE_FIRST)[queue] >= 0:
                let_try(h, queue)
            queue = ints(h, QUEUE_SIBLING)[queue]


@compiled
def _leave_free(h: int, function: int, slot: int) -> None:
    ints(h, I_STATE)[slot] &= ~IDLE
    ints(h, IDLE_REPLICAS)[function * ints(h, COUNT)[NODES] + ints(h, I_NODE)[slot]] -= 1
    older, newer = ints(h, I_OLDER)[slot], ints(h, I_NEWER)[slot]
    if older >= 0:
        ints(h, I_NEWER)[older] = newer
    else:
        ints(h, FREE_FIRST)[function] = newer
    if newer >= 0:
        ints(h, I_OLDER)[newer] = older
    else:
        ints(h, FREE_LAST)[function] = older


@compiled
def _drain(h: int, slot: int) -> None:
    """Let a replica go: now, or with the end of its batch."""
    ints(h, COUNT)[SETS_CHANGED] = 1
    ints(h, I_STATE)[slot] |= DRAINING
    if ints(h, I_BATCH)[slot] >= 0:
        return
    function = ints(h, FLAVOUR_FUNCTION)[ints(h, I_FLAVOUR)[slot]]
    before, after = ints(h, I_BEFORE)[slot], ints(h, I_AFTER)[slot]
    if before >= 0:
        ints(h, I_AFTER)[before] = after
    else:
        ints(h, SET_FIRST)[function] = after
    if after >= 0:
        ints(h, I_BEFORE)[after] = before
    else:
        ints(h, SET_LAST)[function] = before
    ints(h, SET_COUNT)[function] -= 1
    if ints(h, I_STATE)[slot] & IDLE:
        _leave_free(h, function, slot)
    ints(h, COUNT)[IS_SHORT] = 1
    stop(h, slot, DRAINED)
