"""What waits: in one line over all, by (workflow, function), by function, by deadline; each only where a rule looks.

Lines are linked lists in arrays. What leaves a line keeps its link to what came after, so that a walk over a line
stays valid while what it passes is started.
"""

from fairlead.engine.sim.compiled.layout import (
    CLOCK,
    COUNT,
    FUNCTION_FIRST_WAITING,
    FUNCTION_LAST_WAITING,
    FUNCTION_URGENT,
    FUNCTION_WAITING,
    HAS_DEADLINES,
    HAS_FUNCTION_LINES,
    HAS_LINE,
    HAS_QUEUES,
    LINE,
    NEXT_INVOCATION,
    NOW,
    QUEUE_FIRST,
    QUEUE_LAST,
    QUEUE_MASK,
    QUEUE_SIZE,
    R_ARRIVAL,
    R_WORKFLOW,
    STAGE_BITS,
    STAGE_FUNCTION,
    STAGE_QUEUE,
    T_AFTER,
    T_BEFORE,
    T_CHILD,
    T_FUNCTION_AFTER,
    T_FUNCTION_BEFORE,
    T_ID,
    T_PARENT,
    T_QUEUE_AFTER,
    T_QUEUE_BEFORE,
    T_READY,
    T_SIBLING,
    T_STAGE,
    T_STATE,
    WAITING,
    WORKFLOW_SLO,
)
from fairlead.engine.sim.compiled.views import compiled, ints, reals

IS_WAITING, IS_RUNNING = 1, 2


@compiled
def stage_of(h: int, task: int) -> int:
    """The stage of a task, over all workflows."""
    return ints(h, T_STAGE)[task]


@compiled
def deadline_of(h: int, task: int) -> float:
    """The deadline of a task: its request's."""
    slot = task >> ints(h, COUNT)[STAGE_BITS]
    return reals(h, R_ARRIVAL)[slot] + reals(h, WORKFLOW_SLO)[ints(h, R_WORKFLOW)[slot]]


@compiled
def add(h: int, task: int) -> None:
    """Let a task wait from now on."""
    c = ints(h, COUNT)
    ints(h, T_ID)[task] = c[NEXT_INVOCATION]
    c[NEXT_INVOCATION] += 1
    ints(h, T_STATE)[task] = IS_WAITING
    reals(h, T_READY)[task] = reals(h, CLOCK)[NOW]
    c[WAITING] += 1
    stage = stage_of(h, task)
    function = ints(h, STAGE_FUNCTION)[stage]
    ints(h, FUNCTION_WAITING)[function] += 1
    if c[HAS_LINE] != 0:
        line = ints(h, LINE)  # the first and the last
        former = line[1]
        ints(h, T_BEFORE)[task] = former
        ints(h, T_AFTER)[task] = -1
        if former >= 0:
            ints(h, T_AFTER)[former] = task
        else:
            line[0] = task
        line[1] = task
    if c[HAS_QUEUES] != 0:
        queue = ints(h, STAGE_QUEUE)[stage]
        ints(h, QUEUE_SIZE)[queue] += 1
        _join_queue(h, queue, task)
        let_try(h, queue)
    if c[HAS_FUNCTION_LINES] != 0:
        _join_function(h, function, task)
    if c[HAS_DEADLINES] != 0:
        ints(h, T_CHILD)[task] = ints(h, T_SIBLING)[task] = ints(h, T_PARENT)[task] = -1
        urgent = ints(h, FUNCTION_URGENT)
        urgent[function] = task if urgent[function] < 0 else _meld(h, urgent[function], task)


@compiled
def remove(h: int, task: int, state: int) -> None:
    """Let a task wait no more."""
    c = ints(h, COUNT)
    ints(h, T_STATE)[task] = state
    c[WAITING] -= 1
    stage = stage_of(h, task)
    function = ints(h, STAGE_FUNCTION)[stage]
    ints(h, FUNCTION_WAITING)[function] -= 1
    if c[HAS_LINE] != 0:
        line = ints(h, LINE)
        earlier, later = ints(h, T_BEFORE)[task], ints(h, T_AFTER)[task]
        if earlier >= 0:
            ints(h, T_AFTER)[earlier] = later
        else:
            line[0] = later
        if later >= 0:
            ints(h, T_BEFORE)[later] = earlier
        else:
            line[1] = earlier
    if c[HAS_QUEUES] != 0:
        queue = ints(h, STAGE_QUEUE)[stage]
        ints(h, QUEUE_SIZE)[queue] -= 1
        _leave_queue(h, queue, task)
        if ints(h, QUEUE_FIRST)[queue] < 0:
            let_rest(h, queue)
    if c[HAS_FUNCTION_LINES] != 0:
        _leave_function(h, function, task)
    if c[HAS_DEADLINES] != 0:
        _leave_heap(h, function, task)


@compiled
def let_try(h: int, queue: int) -> None:
    """Look at a queue when next something is started."""
    ints(h, QUEUE_MASK)[queue >> 6] |= 1 << (queue & 63)


@compiled
def let_rest(h: int, queue: int) -> None:
    """Pass a queue over until it is to be tried again."""
    ints(h, QUEUE_MASK)[queue >> 6] &= ~(1 << (queue & 63))


@compiled
def _join_queue(h: int, line: int, task: int) -> None:
    before, after, last = ints(h, T_QUEUE_BEFORE), ints(h, T_QUEUE_AFTER), ints(h, QUEUE_LAST)
    former = last[line]
    before[task] = former
    after[task] = -1
    if former >= 0:
        after[former] = task
    else:
        ints(h, QUEUE_FIRST)[line] = task
    last[line] = task


@compiled
def _leave_queue(h: int, line: int, task: int) -> None:
    before, after = ints(h, T_QUEUE_BEFORE), ints(h, T_QUEUE_AFTER)
    earlier, later = before[task], after[task]
    if earlier >= 0:
        after[earlier] = later
    else:
        ints(h, QUEUE_FIRST)[line] = later
    if later >= 0:
        before[later] = earlier
    else:
        ints(h, QUEUE_LAST)[line] = earlier


@compiled
def _join_function(h: int, line: int, task: int) -> None:
    before, after, last = ints(h, T_FUNCTION_BEFORE), ints(h, T_FUNCTION_AFTER), ints(h, FUNCTION_LAST_WAITING)
    former = last[line]
    before[task] = former
    after[task] = -1
    if former >= 0:
        after[former] = task
    else:
        ints(h, FUNCTION_FIRST_WAITING)[line] = task
    last[line] = task


@compiled
def _leave_function(h: int, line: int, task: int) -> None:
    before, after = ints(h, T_FUNCTION_BEFORE), ints(h, T_FUNCTION_AFTER)
    earlier, later = before[task], after[task]
    if earlier >= 0:
        after[earlier] = later
    else:
        ints(h, FUNCTION_FIRST_WAITING)[line] = later
    if later >= 0:
        before[later] = earlier
    else:
        ints(h, FUNCTION_LAST_WAITING)[line] = earlier


# --- a pairing heap by (deadline, id), one per function


@compiled
def _meld(h: int, one: int, other: int) -> int:
    """Two heaps as one; gives the more urgent of their first tasks."""
    first, second = deadline_of(h, one), deadline_of(h, other)
    if second < first or (second == first and ints(h, T_ID)[other] < ints(h, T_ID)[one]):
        one, other = other, one
    child, sibling, parent = ints(h, T_CHILD), ints(h, T_SIBLING), ints(h, T_PARENT)
    oldest = child[one]
    sibling[other] = oldest
    if oldest >= 0:
        parent[oldest] = other  # of all but the first child, the one before it
    parent[other] = one
    child[one] = other
    sibling[one] = parent[one] = -1
    return one


@compiled
def _meld_children(h: int, first: int) -> int:
    """The heaps that hang under a task that leaves, as one: in pairs from the left, then from the right."""
    sibling, parent = ints(h, T_SIBLING), ints(h, T_PARENT)
    pairs = -1
    while first >= 0:
        second = sibling[first]
        if second < 0:
            sibling[first] = pairs
            parent[first] = -1
            pairs = first
            break
        following = sibling[second]
        sibling[first] = sibling[second] = parent[first] = parent[second] = -1
        melded = _meld(h, first, second)
        sibling[melded] = pairs
        pairs = melded
        first = following
    result = -1
    while pairs >= 0:
        following = sibling[pairs]
        sibling[pairs] = -1
        result = pairs if result < 0 else _meld(h, result, pairs)
        pairs = following
    return result


@compiled
def _leave_heap(h: int, function: int, task: int) -> None:
    child, sibling, parent = ints(h, T_CHILD), ints(h, T_SIBLING), ints(h, T_PARENT)
    urgent = ints(h, FUNCTION_URGENT)
    rest = _meld_children(h, child[task])
    if urgent[function] == task:
        urgent[function] = rest
    else:
        before, following = parent[task], sibling[task]
        if child[before] == task:
            child[before] = following
        else:
            sibling[before] = following
        if following >= 0:
            parent[following] = before
        if rest >= 0:
            urgent[function] = _meld(h, urgent[function], rest)
    child[task] = sibling[task] = parent[task] = -1
