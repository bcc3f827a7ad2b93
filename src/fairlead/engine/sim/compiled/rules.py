"""Built-in dispatch rules, and how a placement from outside is asked: each decides what is started at one instant.

They can be broken off for want of room (`NEEDS_ROOM`) and called again: what was decided is carried out, and what was
found to be full or held back is found so again.
"""

from numpy import inf

from fairlead.engine.sim.compiled.events import schedule
from fairlead.engine.sim.compiled.flow import refuse, start
from fairlead.engine.sim.compiled.index import find, fits
from fairlead.engine.sim.compiled.layout import (
    ANSWER,
    ASKED_TASK,
    BAD_DECISION,
    BAD_TASK,
    BAD_VALUE,
    BATCH_WAIT,
    BATCHING,
    CALLED,
    CLOCK,
    COUNT,
    DONE,
    DROP_LATE,
    EARLIEST_DEADLINE,
    EVENT_ROOM,
    EVENTS,
    FIFO,
    FREE_INSTANCES,
    FRESH,
    FRESH_COUNT,
    FULL,
    FUNCTION_CLOSED,
    FUNCTION_FIRST,
    FUNCTION_FIRST_WAITING,
    FUNCTION_SHAPE,
    FUNCTION_URGENT,
    FUNCTION_WAITING,
    FUNCTION_WAKE,
    FUNCTIONS,
    HAS_ANSWER,
    HEADROOM,
    IDLE_COUNT,
    IDLE_REPLICAS,
    IN_USE,
    INSTANCE_ROOM,
    INSTANCE_ROWS,
    INSTANCE_SLOTS,
    INSTANTS,
    INVOCATION_ROOM,
    INVOCATION_ROWS,
    KINDS,
    LATE_REASON,
    LEAST_LOADED,
    LIMIT_REASON,
    LINE,
    MOST_TASKS,
    NEEDED,
    NEEDS_DECISION,
    NEEDS_ROOM,
    NODE_FREE,
    NODES,
    NOW,
    OUTSIDE,
    POLICY_REASON,
    QUEUE_FIRST,
    QUEUE_LIMIT,
    QUEUE_MASK,
    R_OPEN,
    R_WORKFLOW,
    RECORDS,
    REFUSE,
    REQUEST_ROOM,
    REQUEST_ROWS,
    RULE,
    SCALED,
    SEEN_FREE,
    SEEN_WARM,
    SHAPE_CORRECTION,
    SHAPE_DECLARED,
    SHAPE_FLAVOUR,
    SHAPE_USD,
    SHAPES,
    SIZE_BATCH,
    SIZE_FIRST,
    SIZE_SHAPE,
    STAGE_BITS,
    STAGE_FUNCTION,
    STAGE_REST,
    T_FUNCTION_AFTER,
    T_ID,
    T_READY,
    T_STATE,
    T_WITH,
    WAIT,
    WAITING,
    WAKE,
    WORKFLOW_FIRST,
)
from fairlead.engine.sim.compiled.lines import IS_WAITING, deadline_of, let_rest, stage_of
from fairlead.engine.sim.compiled.pool import look_at
from fairlead.engine.sim.compiled.scaling import place_replica
from fairlead.engine.sim.compiled.views import compiled, ints, reals, row, trailing_zeros


@compiled
def has_room(h: int, instances: int) -> bool:
    """Whether so many instances can be made, and all that one step may record; else what is needed is noted."""
    c = ints(h, COUNT)
    if (
        c[FREE_INSTANCES] >= instances
        and c[EVENTS] + 2 * instances + 8 <= c[EVENT_ROOM]
        and (
            c[RECORDS] == 0
            or (
                c[INVOCATION_ROWS] + c[MOST_TASKS] <= c[INVOCATION_ROOM]
                and c[REQUEST_ROWS] + c[MOST_TASKS] <= c[REQUEST_ROOM]
                and c[INSTANCE_ROWS] + c[INSTANCE_SLOTS] - c[FREE_INSTANCES] + instances <= c[INSTANCE_ROOM]
            )
        )
    ):
        return True
    c[NEEDED] = instances
    return False


@compiled
def place(h: int, function: int, shape: int, prefers_warm: bool) -> int:
    """The node for a run of a function: of its replicas, if it is scaled; -1 if there is none."""
    look_at(h, function)
    if ints(h, COUNT)[IN_USE] != 0 and ints(h, SCALED)[function] != 0:
        return place_replica(h, function)
    return find(h, shape, prefers_warm)


@compiled
def function_of(h: int, task: int) -> int:
    """The function of a task."""
    return ints(h, STAGE_FUNCTION)[stage_of(h, task)]


@compiled
def _start_one(h: int, task: int, shape: int, node: int) -> None:
    ints(h, T_WITH)[task] = -1
    start(h, task, 1, shape, node)


@compiled
def fifo(h: int) -> int:
    """The oldest first, on warm nodes first; nobody overtakes."""
    line, shapes = ints(h, LINE), ints(h, FUNCTION_SHAPE)
    while line[0] >= 0:
        if not has_room(h, 1):
            return NEEDS_ROOM
        function = function_of(h, line[0])
        node = place(h, function, shapes[function], True)
        if node < 0:
            break
        _start_one(h, line[0], shapes[function], node)
    return shed(h)


@compiled
def shed(h: int) -> int:
    """Refuse fresh requests that wait beyond the limit, the youngest first."""
    c, fresh = ints(h, COUNT), ints(h, FRESH)
    limit = c[QUEUE_LIMIT]
    if limit >= 0:
        for i in range(c[FRESH_COUNT] - 1, -1, -1):
            if c[WAITING] <= limit:
                break
            if not has_room(h, 1):
                return NEEDS_ROOM
            if ints(h, R_OPEN)[fresh[i]] != 0 and _waits(h, fresh[i]):
                refuse(h, fresh[i], LIMIT_REASON)
    return DONE


@compiled
def _waits(h: int, slot: int) -> bool:
    """Whether any task of a request waits."""
    c, states = ints(h, COUNT), ints(h, T_STATE)
    workflow = ints(h, R_WORKFLOW)[slot]
    count = ints(h, WORKFLOW_FIRST)[workflow + 1] - ints(h, WORKFLOW_FIRST)[workflow]
    for task in range(slot << c[STAGE_BITS], (slot << c[STAGE_BITS]) + count):
        if states[task] == IS_WAITING:
            return True
    return False


@compiled
def least_loaded(h: int) -> int:
    """The oldest of each queue, on the emptiest nodes; a queue that cannot start holds up no other.

    A queue whose function has no free replica is not looked at again before one is free.
    """
    masks = ints(h, QUEUE_MASK)
    for word in range(len(masks)):
        left = masks[word]
        while left != 0:
            queue = (word << 6) + trailing_zeros(left)
            left &= left - 1
            if not _serve(h, queue):
                return NEEDS_ROOM
    return DONE


@compiled
def _serve(h: int, queue: int) -> bool:
    """Start what can be started of a queue; False for want of room in the arrays."""
    c, first, shapes = ints(h, COUNT), ints(h, QUEUE_FIRST), ints(h, FUNCTION_SHAPE)
    while first[queue] >= 0:
        if not has_room(h, 1):
            return False
        task = first[queue]
        function = function_of(h, task)
        if c[BATCHING] == FULL:
            if not _start_full(h, task, function, False):
                break
        else:
            node = place(h, function, shapes[function], False)
            if node < 0:
                if ints(h, SCALED)[function] != 0:
                    let_rest(h, queue)
                break
            _start_one(h, task, shapes[function], node)
    return True


# --- batches by size and time-out


@compiled
def _start_full(h: int, head: int, function: int, prefers_warm: bool) -> bool:
    """Start a task with those who go along; False if they gather, or there is no room for them.

    What is full is told from what is held back by `FUNCTION_CLOSED`: minus the instant's number, or the number.
    """
    c, x = ints(h, COUNT), reals(h, CLOCK)
    first, last = ints(h, SIZE_FIRST)[function], ints(h, SIZE_FIRST)[function + 1] - 1
    sizes = ints(h, SIZE_BATCH)
    limit = sizes[last]
    count = min(limit, ints(h, FUNCTION_WAITING)[function])
    until = reals(h, T_READY)[head] + x[BATCH_WAIT]
    if count < limit and until > x[NOW]:
        wakes = reals(h, FUNCTION_WAKE)
        if wakes[function] != until:
            wakes[function] = until
            schedule(h, until, WAKE, 0, 0)
        ints(h, FUNCTION_CLOSED)[function] = c[INSTANTS]
        return False
    enough = first
    while enough < last and sizes[enough] < count:
        enough += 1
    for i in range(enough, first - 1, -1):
        shape = ints(h, SIZE_SHAPE)[i]
        node = place(h, function, shape, prefers_warm)
        if node >= 0:
            members = min(count, sizes[i])
            _chain(h, head, function, members)
            start(h, head, members, shape, node)
            return True
    ints(h, FUNCTION_CLOSED)[function] = -c[INSTANTS]
    return False


@compiled
def _chain(h: int, head: int, function: int, members: int) -> None:
    """Tie a batch together: the head, then the others of its function in the order in which they became ready."""
    along, following = ints(h, T_WITH), ints(h, T_FUNCTION_AFTER)
    last, left = head, members - 1
    other = ints(h, FUNCTION_FIRST_WAITING)[function]
    while left > 0:
        if other != head:
            along[last] = other
            last = other
            left -= 1
        other = following[other]
    along[last] = -1


@compiled
def fifo_full(h: int) -> int:
    """As `fifo`, in batches: who gathers is passed by other functions; where there is no room, nobody passes."""
    c, closed, first = ints(h, COUNT), ints(h, FUNCTION_CLOSED), ints(h, FUNCTION_FIRST_WAITING)
    ids = ints(h, T_ID)
    now = c[INSTANTS]
    while True:
        if not has_room(h, 1):
            return NEEDS_ROOM
        best = -1
        for function in range(c[FUNCTIONS]):
            task = first[function]
            if task >= 0 and closed[function] != now and (best < 0 or ids[task] < ids[best]):
                best = task
        if best < 0:
            break
        function = function_of(h, best)
        if not _start_full(h, best, function, True) and closed[function] == -now:
            break
    return shed(h)


# --- by deadline


@compiled
def _latency_s(h: int, shape: int) -> float:
    """Believed time of a run, on the kind of node where it is shortest."""
    kinds = ints(h, COUNT)[KINDS]
    declared, correction = reals(h, SHAPE_DECLARED), reals(h, SHAPE_CORRECTION)
    least = inf
    for at in range(shape * kinds, (shape + 1) * kinds):
        seconds = declared[at] * correction[at]
        if seconds < least:
            least = seconds
    return least


@compiled
def _cheapest_in_time(h: int, function: int, budget_s: float) -> int:
    """The cheapest shape that keeps to a time; if there is none, the fastest."""
    shapes, usd = ints(h, SHAPES), reals(h, SHAPE_USD)
    cheapest, least_usd, fastest, least_s = -1, inf, -1, inf
    for i in range(ints(h, FUNCTION_FIRST)[function], ints(h, FUNCTION_FIRST)[function + 1]):
        shape = shapes[i]
        seconds = _latency_s(h, shape)
        if fastest < 0 or seconds < least_s:
            fastest, least_s = shape, seconds
        if seconds <= budget_s and (cheapest < 0 or usd[shape] * seconds < least_usd):
            cheapest, least_usd = shape, usd[shape] * seconds
    return fastest if cheapest < 0 else cheapest


@compiled
def _fastest_s(h: int, function: int) -> float:
    shapes = ints(h, SHAPES)
    least = inf
    for i in range(ints(h, FUNCTION_FIRST)[function], ints(h, FUNCTION_FIRST)[function + 1]):
        least = min(least, _latency_s(h, shapes[i]))
    return least


@compiled
def earliest_deadline(h: int) -> int:
    """The most urgent first, as cheaply as its deadline allows; what is late for certain is dropped."""
    c, x = ints(h, COUNT), reals(h, CLOCK)
    closed, urgent, ids = ints(h, FUNCTION_CLOSED), ints(h, FUNCTION_URGENT), ints(h, T_ID)
    now = c[INSTANTS]
    while True:
        if not has_room(h, 1):
            return NEEDS_ROOM
        best, soonest, whose = -1, inf, -1
        for function in range(c[FUNCTIONS]):
            task = urgent[function]
            if task >= 0 and closed[function] != now:
                deadline = deadline_of(h, task)
                if best < 0 or deadline < soonest or (deadline == soonest and ids[task] < ids[best]):
                    best, soonest, whose = task, deadline, function
        if best < 0:
            return DONE
        look_at(h, whose)
        slack_s = (soonest - x[NOW]) - reals(h, STAGE_REST)[stage_of(h, best)]
        if c[DROP_LATE] != 0 and slack_s < _fastest_s(h, whose):
            refuse(h, best >> c[STAGE_BITS], LATE_REASON)
            continue
        shape = _cheapest_in_time(h, whose, slack_s * (1 - x[HEADROOM]))
        node = place(h, whose, shape, True)
        if node < 0:
            closed[whose] = now
        else:
            _start_one(h, best, shape, node)


# --- placements from outside


@compiled
def carry_out(h: int, task: int, answer: int) -> int:
    """Do what a placement answered; `WAIT` if that is to wait, `BAD_DECISION` if it cannot be done."""
    c = ints(h, COUNT)
    if answer == WAIT:
        return WAIT
    if answer == REFUSE:
        refuse(h, task >> c[STAGE_BITS], POLICY_REASON)
        return DONE
    function = function_of(h, task)
    shape = ints(h, FUNCTION_SHAPE)[function]
    is_possible = False
    if 0 <= answer < c[NODES]:
        if ints(h, SCALED)[function] != 0:
            is_possible = ints(h, IDLE_REPLICAS)[function * c[NODES] + answer] > 0
        else:
            is_possible = fits(h, shape, answer)
    if not is_possible:
        c[BAD_TASK] = task
        c[BAD_VALUE] = answer
        return BAD_DECISION
    _start_one(h, task, shape, answer)
    return DONE


@compiled
def _show(h: int, flavour: int) -> None:
    """Copy what a placement in Python looks at: then it cannot write to the run, and nobody has to forbid it."""
    nodes, idle = ints(h, COUNT)[NODES], ints(h, IDLE_COUNT)
    free, seen_free, seen_warm = ints(h, NODE_FREE), ints(h, SEEN_FREE), ints(h, SEEN_WARM)
    for node in range(nodes):
        seen_free[node] = free[node]
        seen_warm[node] = idle[flavour * nodes + node]


@compiled
def from_outside(h: int, pick, call) -> int:  # type: ignore[no-untyped-def] # pointers to compiled code
    """Ask somebody else where the oldest goes, for as long as there is room for it anywhere."""
    c, x, line = ints(h, COUNT), reals(h, CLOCK), ints(h, LINE)
    shapes, rule = ints(h, FUNCTION_SHAPE), c[RULE]
    while line[0] >= 0:
        if not has_room(h, 1):
            return NEEDS_ROOM
        task = line[0]
        function = function_of(h, task)
        shape = shapes[function]
        if c[HAS_ANSWER] != 0:
            c[HAS_ANSWER] = 0
            answer = c[ANSWER]
        else:
            if place(h, function, shape, False) < 0:
                break
            c[ASKED_TASK] = task
            if rule == OUTSIDE:
                return NEEDS_DECISION
            if rule == CALLED:
                _show(h, ints(h, SHAPE_FLAVOUR)[shape])
                answer = call(x[NOW], function, deadline_of(h, task))
            else:
                warm = row(ints(h, IDLE_COUNT), ints(h, SHAPE_FLAVOUR)[shape], c[NODES])
                answer = pick(x[NOW], function, deadline_of(h, task), row(ints(h, NODE_FREE), 0, c[NODES]), warm)
        done = carry_out(h, task, answer)
        if done == WAIT:
            break
        if done == BAD_DECISION:
            return BAD_DECISION
    return DONE


@compiled
def dispatch(h: int, pick, call) -> int:  # type: ignore[no-untyped-def] # pointers to compiled code
    """Decide by the rule of this run."""
    c = ints(h, COUNT)
    rule = c[RULE]
    if rule == FIFO:
        return fifo_full(h) if c[BATCHING] == FULL else fifo(h)
    if rule == LEAST_LOADED:
        return least_loaded(h)
    if rule == EARLIEST_DEADLINE:
        return earliest_deadline(h)
    return from_outside(h, pick, call)
