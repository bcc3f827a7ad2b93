"""Instances: which are warm, what they hold, who is evicted; as in `engine.core.pool`, on linked lists in arrays.

An idle instance stands in up to three lists: of its flavour on its node (most recently used last), of its node (least
recently used first, for eviction), and of its keep-alive class (the next to expire first).
"""

from numpy import nan

from fairlead.engine.sim.compiled.index import device_for, note_free, wakes_on
from fairlead.engine.sim.compiled.keeping import born, gone, rise, take_up, turn_idle
from fairlead.engine.sim.compiled.layout import (
    BY_WORTH,
    CLASS_FIRST,
    CLASS_KEEP,
    CLASS_KNOWN,
    CLASS_LAST,
    CLASS_ORDER,
    CLASSES,
    CLASSES_KNOWN,
    CLOCK,
    COUNT,
    COUNTS_IDLE,
    DEVICE_FREE,
    DEVICE_HELD,
    DEVICE_MEMORY_FREE,
    DEVICE_MEMORY_HELD,
    EVICTED,
    EVICTIONS,
    FLAVOUR_DEVICE_MEMORY,
    FLAVOUR_FUNCTION,
    FLAVOUR_KEEPS_SLICE,
    FLAVOUR_MEMORY,
    FLAVOUR_VGPUS,
    FLAVOUR_WEIGHTLESS,
    FREE_INSTANCE,
    FREE_INSTANCES,
    FUNCTION_CLASS,
    I_AFTER,
    I_BATCH,
    I_BEFORE,
    I_COLD,
    I_DEVICE,
    I_EXPIRES,
    I_FLAVOUR,
    I_ID,
    I_LATER,
    I_MB,
    I_NEWER,
    I_NEXT,
    I_NODE,
    I_OLDER,
    I_READY,
    I_SHAPE,
    I_SINCE,
    I_SIZE,
    I_SOONER,
    I_STANDS_FOR,
    I_START,
    I_STARTED,
    I_STATE,
    I_TASKS,
    I_VALUE,
    I_VCPUS,
    IDLE,
    IDLE_COUNT,
    IDLE_LAST,
    IDLE_MB_S,
    INSTANCE_INT_COLUMNS,
    INSTANCE_INTS,
    INSTANCE_REAL_COLUMNS,
    INSTANCE_REALS,
    INSTANCE_ROWS,
    KEEP_INSTANCES,
    KEEP_RULE,
    LIFE_MB_S,
    NEXT_INSTANCE,
    NODE_DEVICE,
    NODE_FREE,
    NODE_HELD,
    NODE_MEMORY_FREE,
    NODE_MEMORY_HELD,
    NODE_NEWEST,
    NODE_OLDEST,
    NODES,
    NOW,
    ON_DEMAND,
    RECORDS,
    REPLICA,
    SHAPE_FLAVOUR,
    SHAPE_VCPUS,
    SOONEST,
    VERSION,
    WARM_MASKS,
    WARM_NODES,
    WORDS,
)
from fairlead.engine.sim.compiled.views import compiled, ints, reals


@compiled
def look_at(h: int, function: int) -> None:
    """A function is considered for the first time: its keep-alive class takes its place among the timers."""
    c = ints(h, COUNT)
    if c[CLASSES_KNOWN] == c[CLASSES]:
        return
    which = ints(h, FUNCTION_CLASS)[function]
    if which >= 0 and ints(h, CLASS_KNOWN)[which] == 0:
        ints(h, CLASS_KNOWN)[which] = 1
        ints(h, CLASS_ORDER)[c[CLASSES_KNOWN]] = which
        c[CLASSES_KNOWN] += 1


@compiled
def create(h: int, shape: int, node: int, is_on_demand: bool) -> int:
    """A new instance that starts now; what is idle in its way is evicted. The caller has checked that it fits."""
    c, x = ints(h, COUNT), reals(h, CLOCK)
    slot = c[FREE_INSTANCE]
    c[FREE_INSTANCE] = ints(h, I_NEXT)[slot]
    c[FREE_INSTANCES] -= 1
    flavour = ints(h, SHAPE_FLAVOUR)[shape]
    ints(h, I_ID)[slot] = c[NEXT_INSTANCE]
    c[NEXT_INSTANCE] += 1
    ints(h, I_FLAVOUR)[slot] = flavour
    ints(h, I_SIZE)[slot] = ints(h, I_SHAPE)[slot] = shape
    ints(h, I_NODE)[slot] = node
    ints(h, I_DEVICE)[slot] = device_for(h, shape, node) if ints(h, FLAVOUR_VGPUS)[flavour] > 0 else -1
    ints(h, I_VCPUS)[slot] = ints(h, SHAPE_VCPUS)[shape]
    ints(h, I_STATE)[slot] = ON_DEMAND if is_on_demand else 0
    ints(h, I_BATCH)[slot] = ints(h, I_STANDS_FOR)[slot] = -1
    ints(h, I_TASKS)[slot] = 0
    reals(h, I_STARTED)[slot] = reals(h, I_START)[slot] = x[NOW]
    reals(h, I_READY)[slot] = nan
    reals(h, I_COLD)[slot] = reals(h, I_MB)[slot] = 0.0
    _take(h, slot)
    if c[KEEP_RULE] != 0:
        born(h, slot)
        if is_on_demand:
            take_up(h, slot)
    return slot


@compiled
def warm(h: int, shape: int, node: int) -> int:
    """The most recently used idle instance that will do, turned busy; -1 if there is none."""
    flavour = ints(h, SHAPE_FLAVOUR)[shape]
    slot = ints(h, IDLE_LAST)[flavour * ints(h, COUNT)[NODES] + node] - 1
    if ints(h, FLAVOUR_VGPUS)[flavour] > 0:
        while slot >= 0 and not wakes_on(h, flavour, ints(h, I_DEVICE)[slot]):
            slot = ints(h, I_BEFORE)[slot]
    if slot >= 0:
        leave_idle(h, slot)
        ints(h, I_VCPUS)[slot] = ints(h, SHAPE_VCPUS)[shape]
        _take(h, slot)
        if ints(h, COUNT)[KEEP_RULE] != 0:
            take_up(h, slot)
    return slot


@compiled
def release(h: int, slot: int) -> None:
    """Turn a busy instance idle, and let its capacity be used by others."""
    c, x = ints(h, COUNT), reals(h, CLOCK)
    flavour, node = ints(h, I_FLAVOUR)[slot], ints(h, I_NODE)[slot]
    give_back(h, slot)
    if ints(h, FLAVOUR_WEIGHTLESS)[flavour] == 0:
        _hold(h, slot)
    last, cell = ints(h, IDLE_LAST), flavour * c[NODES] + node
    former = last[cell] - 1
    ints(h, I_BEFORE)[slot] = former
    ints(h, I_AFTER)[slot] = -1
    last[cell] = slot + 1
    if former >= 0:
        ints(h, I_AFTER)[former] = slot
    else:
        ints(h, WARM_MASKS)[flavour * c[WORDS] + (node >> 6)] |= 1 << (node & 63)
        ints(h, WARM_NODES)[flavour] += 1
    if c[COUNTS_IDLE] != 0:
        ints(h, IDLE_COUNT)[cell] += 1
    ints(h, I_STATE)[slot] |= IDLE
    reals(h, I_SINCE)[slot] = x[NOW]
    which = ints(h, FUNCTION_CLASS)[ints(h, FLAVOUR_FUNCTION)[flavour]]
    if which >= 0:
        at = x[NOW] + reals(h, CLASS_KEEP)[which]
        reals(h, I_EXPIRES)[slot] = at
        lasts = ints(h, CLASS_LAST)
        former = lasts[which]
        ints(h, I_SOONER)[slot] = former
        ints(h, I_LATER)[slot] = -1
        if former >= 0:
            ints(h, I_LATER)[former] = slot
        else:
            ints(h, CLASS_FIRST)[which] = slot
        lasts[which] = slot
        if at < x[SOONEST]:
            x[SOONEST] = at
    if c[KEEP_RULE] != 0:
        turn_idle(h, slot)


@compiled
def stop(h: int, slot: int, cause: int) -> None:
    """End an instance that is idle, or one that is busy with nothing any more."""
    state = ints(h, I_STATE)[slot]
    if state & IDLE and not state & REPLICA:
        leave_idle(h, slot)
    else:
        give_back(h, slot)
    ints(h, I_STATE)[slot] = state & ~IDLE
    c, x = ints(h, COUNT), reals(h, CLOCK)
    keep_instance_row(h, slot, x[NOW], cause)
    x[LIFE_MB_S] += (x[NOW] - reals(h, I_STARTED)[slot]) * ints(h, FLAVOUR_MEMORY)[ints(h, I_FLAVOUR)[slot]]
    if c[KEEP_RULE] != 0:
        gone(h, slot)
    ints(h, I_ID)[slot] = -1
    ints(h, I_NEXT)[slot] = c[FREE_INSTANCE]
    c[FREE_INSTANCE] = slot
    c[FREE_INSTANCES] += 1


@compiled
def make_room(h: int, node: int) -> None:
    """Evict idle instances of a node until they hold no more than is free, and note what is."""
    free, held = ints(h, NODE_FREE), ints(h, NODE_HELD)
    memory_free, memory_held = ints(h, NODE_MEMORY_FREE), ints(h, NODE_MEMORY_HELD)
    while held[node] > free[node] or memory_held[node] > memory_free[node]:
        _evict(h, node, -1)
    note_free(h, node)


@compiled
def _take(h: int, slot: int) -> None:
    """Use capacity for an instance, evicting idle ones that hold what it needs."""
    flavour, node, device = ints(h, I_FLAVOUR)[slot], ints(h, I_NODE)[slot], ints(h, I_DEVICE)[slot]
    ints(h, NODE_FREE)[node] -= ints(h, I_VCPUS)[slot]
    ints(h, NODE_MEMORY_FREE)[node] -= ints(h, FLAVOUR_MEMORY)[flavour]
    if device >= 0:
        ints(h, DEVICE_FREE)[device] -= ints(h, FLAVOUR_VGPUS)[flavour]
        ints(h, DEVICE_MEMORY_FREE)[device] -= ints(h, FLAVOUR_DEVICE_MEMORY)[flavour]
        while (
            ints(h, DEVICE_HELD)[device] > ints(h, DEVICE_FREE)[device]
            or ints(h, DEVICE_MEMORY_HELD)[device] > ints(h, DEVICE_MEMORY_FREE)[device]
        ):
            _evict(h, node, device)
    make_room(h, node)


@compiled
def give_back(h: int, slot: int) -> None:
    """Let what an instance uses be used by others."""
    flavour, node, device = ints(h, I_FLAVOUR)[slot], ints(h, I_NODE)[slot], ints(h, I_DEVICE)[slot]
    ints(h, NODE_FREE)[node] += ints(h, I_VCPUS)[slot]
    ints(h, NODE_MEMORY_FREE)[node] += ints(h, FLAVOUR_MEMORY)[flavour]
    if device >= 0:
        ints(h, DEVICE_FREE)[device] += ints(h, FLAVOUR_VGPUS)[flavour]
        ints(h, DEVICE_MEMORY_FREE)[device] += ints(h, FLAVOUR_DEVICE_MEMORY)[flavour]
    ints(h, COUNT)[VERSION] += 1
    note_free(h, node)


@compiled
def _hold(h: int, slot: int) -> None:
    """Let an idle instance keep what its function keeps, until somebody needs it more."""
    flavour, node, device = ints(h, I_FLAVOUR)[slot], ints(h, I_NODE)[slot], ints(h, I_DEVICE)[slot]
    newest = ints(h, NODE_NEWEST)
    former = newest[node]
    ints(h, I_OLDER)[slot] = former
    ints(h, I_NEWER)[slot] = -1
    if former >= 0:
        ints(h, I_NEWER)[former] = slot
    else:
        ints(h, NODE_OLDEST)[node] = slot
    newest[node] = slot
    keeps_slice = ints(h, FLAVOUR_KEEPS_SLICE)[flavour] != 0
    if keeps_slice:
        ints(h, NODE_HELD)[node] += ints(h, I_VCPUS)[slot]
    ints(h, NODE_MEMORY_HELD)[node] += ints(h, FLAVOUR_MEMORY)[flavour]
    if device >= 0:
        ints(h, DEVICE_MEMORY_HELD)[device] += ints(h, FLAVOUR_DEVICE_MEMORY)[flavour]
        if keeps_slice:
            ints(h, DEVICE_HELD)[device] += ints(h, FLAVOUR_VGPUS)[flavour]


@compiled
def leave_idle(h: int, slot: int) -> None:
    """Take an instance out of the idle ones, and back what it held."""
    c, x = ints(h, COUNT), reals(h, CLOCK)
    flavour, node, device = ints(h, I_FLAVOUR)[slot], ints(h, I_NODE)[slot], ints(h, I_DEVICE)[slot]
    cell = flavour * c[NODES] + node
    before, after = ints(h, I_BEFORE)[slot], ints(h, I_AFTER)[slot]
    if before >= 0:
        ints(h, I_AFTER)[before] = after
    if after >= 0:
        ints(h, I_BEFORE)[after] = before
    else:
        ints(h, IDLE_LAST)[cell] = before + 1
        if before < 0:
            ints(h, WARM_MASKS)[flavour * c[WORDS] + (node >> 6)] ^= 1 << (node & 63)
            ints(h, WARM_NODES)[flavour] -= 1
    if c[COUNTS_IDLE] != 0:
        ints(h, IDLE_COUNT)[cell] -= 1
    ints(h, I_STATE)[slot] &= ~IDLE
    which = ints(h, FUNCTION_CLASS)[ints(h, FLAVOUR_FUNCTION)[flavour]]
    if which >= 0:
        sooner, later = ints(h, I_SOONER)[slot], ints(h, I_LATER)[slot]
        if sooner >= 0:
            ints(h, I_LATER)[sooner] = later
        else:
            ints(h, CLASS_FIRST)[which] = later
        if later >= 0:
            ints(h, I_SOONER)[later] = sooner
        else:
            ints(h, CLASS_LAST)[which] = sooner
    if ints(h, FLAVOUR_WEIGHTLESS)[flavour] != 0:
        return
    x[IDLE_MB_S] += (x[NOW] - reals(h, I_SINCE)[slot]) * ints(h, FLAVOUR_MEMORY)[flavour]
    older, newer = ints(h, I_OLDER)[slot], ints(h, I_NEWER)[slot]
    if older >= 0:
        ints(h, I_NEWER)[older] = newer
    else:
        ints(h, NODE_OLDEST)[node] = newer
    if newer >= 0:
        ints(h, I_OLDER)[newer] = older
    else:
        ints(h, NODE_NEWEST)[node] = older
    keeps_slice = ints(h, FLAVOUR_KEEPS_SLICE)[flavour] != 0
    if keeps_slice:
        ints(h, NODE_HELD)[node] -= ints(h, I_VCPUS)[slot]
    ints(h, NODE_MEMORY_HELD)[node] -= ints(h, FLAVOUR_MEMORY)[flavour]
    if device >= 0:
        ints(h, DEVICE_MEMORY_HELD)[device] -= ints(h, FLAVOUR_DEVICE_MEMORY)[flavour]
        if keeps_slice:
            ints(h, DEVICE_HELD)[device] -= ints(h, FLAVOUR_VGPUS)[flavour]


@compiled
def _evict(h: int, node: int, device: int) -> None:
    """Stop the least recently used idle instance that holds what is short on a node, or on one of its devices.

    By worth, the one that is worth least.
    """
    c, worth = ints(h, COUNT), reals(h, I_VALUE)
    chosen = -1
    slot = ints(h, NODE_OLDEST)[node]
    while slot >= 0:
        flavour = ints(h, I_FLAVOUR)[slot]
        keeps_slice = ints(h, FLAVOUR_KEEPS_SLICE)[flavour] != 0
        if device < 0:
            is_found = (
                keeps_slice and ints(h, I_VCPUS)[slot] > 0 and ints(h, NODE_HELD)[node] > ints(h, NODE_FREE)[node]
            ) or (
                ints(h, FLAVOUR_MEMORY)[flavour] > 0
                and ints(h, NODE_MEMORY_HELD)[node] > ints(h, NODE_MEMORY_FREE)[node]
            )
        else:
            is_found = ints(h, I_DEVICE)[slot] == device and (
                (keeps_slice and ints(h, DEVICE_HELD)[device] > ints(h, DEVICE_FREE)[device])
                or (
                    ints(h, FLAVOUR_DEVICE_MEMORY)[flavour] > 0
                    and ints(h, DEVICE_MEMORY_HELD)[device] > ints(h, DEVICE_MEMORY_FREE)[device]
                )
            )
        if is_found:
            if c[KEEP_RULE] != BY_WORTH:
                chosen = slot
                break
            if chosen < 0 or worth[slot] < worth[chosen]:
                chosen = slot
        slot = ints(h, I_NEWER)[slot]
    if chosen < 0:
        raise AssertionError("idle instances hold more than is free, and none can be found")
    if c[KEEP_RULE] == BY_WORTH:
        rise(h, chosen)
    c[EVICTIONS] += 1
    stop(h, chosen, EVICTED)


@compiled
def keep_instance_row(h: int, slot: int, stopped: float, cause: int) -> None:
    """Record an instance that ended, or lived to the end of the run."""
    c = ints(h, COUNT)
    if not c[RECORDS] & KEEP_INSTANCES:
        return
    row = c[INSTANCE_ROWS]
    c[INSTANCE_ROWS] = row + 1
    whole, real = ints(h, INSTANCE_INTS), reals(h, INSTANCE_REALS)
    at = row * INSTANCE_INT_COLUMNS
    device = ints(h, I_DEVICE)[slot]
    whole[at] = ints(h, I_ID)[slot]
    whole[at + 1] = ints(h, I_SIZE)[slot]
    whole[at + 2] = ints(h, I_NODE)[slot]
    whole[at + 3] = -1 if device < 0 else device - ints(h, NODE_DEVICE)[ints(h, I_NODE)[slot]]
    whole[at + 4] = (cause << 1) | (1 if ints(h, I_STATE)[slot] & ON_DEMAND else 0)
    at = row * INSTANCE_REAL_COLUMNS
    real[at] = reals(h, I_STARTED)[slot]
    real[at + 1] = reals(h, I_READY)[slot]
    real[at + 2] = stopped
