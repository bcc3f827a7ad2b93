"""How requests go through their workflows: arrival, start, end of a batch, what becomes ready, the answer."""

from fairlead.engine.sim.compiled.events import schedule
from fairlead.engine.sim.compiled.layout import (
    ARRIVAL,
    ARRIVAL_DRAW,
    ARRIVAL_DRAWS,
    ARRIVAL_WORKFLOW,
    BECOME_READY,
    BILLS_COLD,
    CLOCK,
    COLD_STARTS,
    COMPLETED,
    COMPLETED_,
    COST_SUM,
    COUNT,
    DRAWS,
    DROPPED,
    ENTRIES,
    FINISH,
    FLAVOUR_FUNCTION,
    FREE_REQUEST,
    FRESH,
    FRESH_COUNT,
    FUNCTION_COLD,
    FUNCTION_OUTPUT,
    I_BATCH,
    I_COLD,
    I_DEVICE,
    I_FIRST,
    I_FLAVOUR,
    I_ID,
    I_MB,
    I_NODE,
    I_READY,
    I_SHAPE,
    I_START,
    I_STATE,
    I_TASKS,
    IN_USE,
    INVOCATION_INT_COLUMNS,
    INVOCATION_INTS,
    INVOCATION_REAL_COLUMNS,
    INVOCATION_REALS,
    INVOCATION_ROWS,
    INVOCATIONS,
    IS_COLD,
    IS_SHARED,
    KEEP_INVOCATIONS,
    KEEP_REQUESTS,
    KINDS,
    LATENCY_SUM,
    LEARNS,
    MB_PER_S,
    MOVES_DATA,
    NEXT_BATCH,
    NEXT_REQUEST,
    NODE_DEVICE,
    NODE_KIND,
    NOW,
    ON_DEMAND,
    OPEN,
    PREDECESSORS,
    R_ARRIVAL,
    R_COST,
    R_DRAWS,
    R_ID,
    R_LEFT,
    R_NEXT,
    R_OPEN,
    R_RUNNING,
    R_WORKFLOW,
    READY,
    RECORDS,
    REJECTED,
    REJECTED_,
    REQUEST_INT_COLUMNS,
    REQUEST_INTS,
    REQUEST_REAL_COLUMNS,
    REQUEST_REALS,
    REQUEST_ROWS,
    RUNNING,
    SAMPLING,
    SHAPE_BASE,
    SHAPE_BATCH,
    SHAPE_CORRECTION,
    SHAPE_DECLARED,
    SHAPE_SEEN,
    SHAPE_USD,
    STAGE_BEFORE,
    STAGE_BITS,
    STAGE_FAN_IN,
    STAGE_FUNCTION,
    STAGE_NOISE,
    STAGE_SPREAD,
    STAGE_THEN,
    SUCCESSORS,
    T_LEFT,
    T_NODE,
    T_READY,
    T_STAGE,
    T_STATE,
    T_WITH,
    TALLIES,
    TALLY,
    WORKFLOW_DRAWS,
    WORKFLOW_ENTRY,
    WORKFLOW_FIRST,
)
from fairlead.engine.sim.compiled.lines import IS_RUNNING, IS_WAITING, add, remove, stage_of
from fairlead.engine.sim.compiled.pool import create, release, warm
from fairlead.engine.sim.compiled.sampling import is_sampled
from fairlead.engine.sim.compiled.scaling import release_replica, take_replica
from fairlead.engine.sim.compiled.sharing import begin_or_wait
from fairlead.engine.sim.compiled.views import compiled, ints, reals

TALLY_COLUMNS, TALLY_REAL_COLUMNS = 4, 2  # arrivals, runs, cold starts, refusals; seconds of latency, of cold start

_MEMORY, _PRIOR = 90, 10  # as in `engine.core.capacity`


@compiled
def arrive(h: int) -> None:
    """Take in the next arrival; the caller has made sure that there is a free slot."""
    c, x = ints(h, COUNT), reals(h, CLOCK)
    position = c[ARRIVAL]
    c[ARRIVAL] = position + 1
    workflow = ints(h, ARRIVAL_WORKFLOW)[position]
    slot = c[FREE_REQUEST]
    c[FREE_REQUEST] = ints(h, R_NEXT)[slot]
    ints(h, R_ID)[slot] = c[NEXT_REQUEST]
    c[NEXT_REQUEST] += 1
    ints(h, R_WORKFLOW)[slot] = workflow
    ints(h, R_OPEN)[slot] = 1
    ints(h, R_RUNNING)[slot] = 0
    reals(h, R_ARRIVAL)[slot] = x[NOW]
    reals(h, R_COST)[slot] = 0.0
    c[OPEN] += 1
    draws, source = reals(h, R_DRAWS), reals(h, ARRIVAL_DRAWS)
    for i in range(ints(h, WORKFLOW_DRAWS)[workflow]):
        draws[slot * c[DRAWS] + i] = source[c[ARRIVAL_DRAW]]
        c[ARRIVAL_DRAW] += 1
    first, last = ints(h, WORKFLOW_FIRST)[workflow], ints(h, WORKFLOW_FIRST)[workflow + 1]
    ints(h, R_LEFT)[slot] = last - first
    task = slot << c[STAGE_BITS]
    for stage in range(first, last):
        ints(h, T_STAGE)[task] = stage
        ints(h, T_LEFT)[task] = ints(h, STAGE_FAN_IN)[stage]
        ints(h, T_STATE)[task] = 0
        task += 1
    ints(h, FRESH)[c[FRESH_COUNT]] = slot
    c[FRESH_COUNT] += 1
    entries = ints(h, ENTRIES)
    for i in range(ints(h, WORKFLOW_ENTRY)[workflow], ints(h, WORKFLOW_ENTRY)[workflow + 1]):
        add(h, (slot << c[STAGE_BITS]) + entries[i])
        if c[TALLIES] != 0:
            ints(h, TALLY)[ints(h, STAGE_FUNCTION)[first + entries[i]] * TALLY_COLUMNS] += 1


@compiled
def start(h: int, first: int, tasks: int, shape: int, node: int) -> None:
    """Run a chain of waiting tasks together on a node, on a warm instance if one will do."""
    c, x = ints(h, COUNT), reals(h, CLOCK)
    function = ints(h, STAGE_FUNCTION)[stage_of(h, first)]
    is_new = False
    instance = -1
    if c[IN_USE] != 0:
        instance = take_replica(h, function, node, ints(h, SHAPE_BATCH)[shape])
    if instance < 0:
        instance = warm(h, shape, node)
        if instance < 0:
            is_new = True
            instance = create(h, shape, node, True)
        ints(h, I_SHAPE)[instance] = shape
    ints(h, I_BATCH)[instance] = c[NEXT_BATCH]
    c[NEXT_BATCH] += 1
    c[RUNNING] += 1
    c[INVOCATIONS] += tasks
    ints(h, I_FIRST)[instance] = first
    ints(h, I_TASKS)[instance] = tasks
    reals(h, I_START)[instance] = x[NOW]
    reals(h, I_COLD)[instance] = 0.0
    state = ints(h, I_STATE)[instance] & ~IS_COLD
    if is_new and state & ON_DEMAND:
        state |= IS_COLD
        c[COLD_STARTS] += 1
        if c[TALLIES] != 0:
            ints(h, TALLY)[function * TALLY_COLUMNS + 2] += 1
    if c[TALLIES] != 0:
        ints(h, TALLY)[function * TALLY_COLUMNS + 1] += tasks
    ints(h, I_STATE)[instance] = state
    megabytes = 0.0
    task = first
    while task >= 0:
        remove(h, task, IS_RUNNING)
        ints(h, R_RUNNING)[task >> c[STAGE_BITS]] += 1
        if c[MOVES_DATA] != 0:
            megabytes += _elsewhere(h, task, node)
        task = ints(h, T_WITH)[task]
    reals(h, I_MB)[instance] = megabytes
    if state & READY:
        run(h, instance)
    elif is_new:
        start_instance(h, instance)


@compiled
def start_instance(h: int, instance: int) -> None:
    """Let an instance that has been given its capacity begin to start."""
    c = ints(h, COUNT)
    function = ints(h, FLAVOUR_FUNCTION)[ints(h, I_FLAVOUR)[instance]]
    kind = ints(h, NODE_KIND)[ints(h, I_NODE)[instance]]
    at = reals(h, CLOCK)[NOW] + reals(h, FUNCTION_COLD)[function * c[KINDS] + kind]
    schedule(h, at, BECOME_READY, instance, ints(h, I_ID)[instance])


@compiled
def _elsewhere(h: int, task: int, node: int) -> float:
    """How much of a task's input lies on other nodes, in MB."""
    bits = ints(h, COUNT)[STAGE_BITS]
    own = (task >> bits) << bits  # the request's first task
    stage = stage_of(h, task)
    first = stage - (task - own)
    before = ints(h, PREDECESSORS)
    megabytes = 0.0
    for i in range(ints(h, STAGE_BEFORE)[stage], ints(h, STAGE_BEFORE)[stage + 1]):
        output = reals(h, FUNCTION_OUTPUT)[ints(h, STAGE_FUNCTION)[first + before[i]]]
        if output > 0 and ints(h, T_NODE)[own + before[i]] != node:
            megabytes += output
    return megabytes


@compiled
def transfer_s(h: int, instance: int) -> float:
    """How long a batch's input takes from other nodes."""
    megabytes = reals(h, I_MB)[instance]
    return megabytes / reals(h, CLOCK)[MB_PER_S] if megabytes > 0 else 0.0


@compiled
def work_s(h: int, instance: int) -> float:
    """How long a batch would take undisturbed; its first task draws for all."""
    c = ints(h, COUNT)
    task = ints(h, I_FIRST)[instance]
    stage = stage_of(h, task)
    seconds = reals(h, SHAPE_BASE)[
        ints(h, I_SHAPE)[instance] * c[KINDS] + ints(h, NODE_KIND)[ints(h, I_NODE)[instance]]
    ]
    draws, row = reals(h, R_DRAWS), (task >> c[STAGE_BITS]) * c[DRAWS]
    which = ints(h, STAGE_SPREAD)[stage]
    if which >= 0:
        seconds *= draws[row + which]
    which = ints(h, STAGE_NOISE)[stage]
    if which >= 0:
        seconds *= draws[row + which]
    return seconds


@compiled
def run(h: int, instance: int) -> None:
    """Let a ready instance run its batch."""
    if ints(h, COUNT)[IS_SHARED] != 0:
        begin_or_wait(h, instance, transfer_s(h, instance), work_s(h, instance))
    else:
        at = reals(h, CLOCK)[NOW] + transfer_s(h, instance) + work_s(h, instance)
        schedule(h, at, FINISH, instance, 0)


@compiled
def become_ready(h: int, instance: int) -> None:
    """An instance with a batch has finished its cold start."""
    now = reals(h, CLOCK)[NOW]
    ints(h, I_STATE)[instance] |= READY
    reals(h, I_READY)[instance] = now
    reals(h, I_COLD)[instance] = max(0.0, now - reals(h, I_START)[instance])
    run(h, instance)


@compiled
def learn(h: int, shape: int, kind: int, seconds: float) -> None:
    """Take in one finished batch, as `engine.core.capacity.Belief` does."""
    at = shape * ints(h, COUNT)[KINDS] + kind
    seen, correction = ints(h, SHAPE_SEEN), reals(h, SHAPE_CORRECTION)
    if seen[at] < _MEMORY:
        seen[at] += 1
    declared = reals(h, SHAPE_DECLARED)[at]
    ratio = seconds * (1 / declared if declared > 0 else 0.0)
    correction[at] += (ratio - correction[at]) / (seen[at] + _PRIOR)


@compiled
def finish(h: int, instance: int, spent_s: float) -> None:
    """A batch has ended: its instance is free, and each of its tasks is done. `spent_s` is what it worked."""
    c, now = ints(h, COUNT), reals(h, CLOCK)[NOW]
    node, shape = ints(h, I_NODE)[instance], ints(h, I_SHAPE)[instance]
    batch, tasks = ints(h, I_BATCH)[instance], ints(h, I_TASKS)[instance]
    who, device = ints(h, I_ID)[instance], ints(h, I_DEVICE)[instance]
    began, cold_s = reals(h, I_START)[instance], reals(h, I_COLD)[instance]
    moved_s = transfer_s(h, instance)
    is_cold = 1 if ints(h, I_STATE)[instance] & IS_COLD else 0
    c[RUNNING] -= 1
    ints(h, I_BATCH)[instance] = -1
    if c[IN_USE] != 0:
        release_replica(h, instance)
    else:
        release(h, instance)
    if c[LEARNS] != 0:
        learn(h, shape, ints(h, NODE_KIND)[node], spent_s)
    seconds = now - began
    if c[BILLS_COLD] == 0:
        seconds -= cold_s
    cost = seconds * reals(h, SHAPE_USD)[shape] / tasks
    place = -1 if device < 0 else device - ints(h, NODE_DEVICE)[node]
    task = ints(h, I_FIRST)[instance]
    while task >= 0:
        following = ints(h, T_WITH)[task]
        slot = task >> c[STAGE_BITS]
        is_open = ints(h, R_OPEN)[slot]
        if c[RECORDS] & KEEP_INVOCATIONS and (c[SAMPLING] == 0 or is_sampled(h, slot)):
            row = c[INVOCATION_ROWS]
            c[INVOCATION_ROWS] = row + 1
            whole, real = ints(h, INVOCATION_INTS), reals(h, INVOCATION_REALS)
            at = row * INVOCATION_INT_COLUMNS
            whole[at] = ints(h, R_ID)[slot]
            whole[at + 1] = (batch << 32) | who
            whole[at + 2] = (node << 32) | stage_of(h, task)
            whole[at + 3] = (shape << 32) | (tasks << 16) | ((place + 1) << 2) | (is_cold << 1) | (1 - is_open)
            at = row * INVOCATION_REAL_COLUMNS
            real[at] = reals(h, T_READY)[task]
            real[at + 1] = began
            real[at + 2] = cold_s
            real[at + 3] = moved_s
            real[at + 4] = now
        reals(h, R_COST)[slot] += cost
        ints(h, R_RUNNING)[slot] -= 1
        if is_open != 0:
            _done(h, task, slot, node)
        elif ints(h, R_RUNNING)[slot] == 0:
            _forget(h, slot)
        task = following


@compiled
def _done(h: int, task: int, slot: int, node: int) -> None:
    """A task has succeeded: let the next stages wait, or answer."""
    c = ints(h, COUNT)
    ints(h, T_STATE)[task] = 0
    if c[MOVES_DATA] != 0:
        ints(h, T_NODE)[task] = node
    stage = stage_of(h, task)
    successors, left = ints(h, SUCCESSORS), ints(h, T_LEFT)
    for i in range(ints(h, STAGE_THEN)[stage], ints(h, STAGE_THEN)[stage + 1]):
        successor = (slot << c[STAGE_BITS]) + successors[i]
        left[successor] -= 1
        if left[successor] == 0:
            add(h, successor)
    ints(h, R_LEFT)[slot] -= 1
    if ints(h, R_LEFT)[slot] == 0:
        c[COMPLETED] += 1
        close(h, slot, COMPLETED_, 0)


@compiled
def close(h: int, slot: int, outcome: int, reason: int) -> None:
    """End a request: what waits of it goes; what runs will be discarded."""
    c, x = ints(h, COUNT), reals(h, CLOCK)
    ints(h, R_OPEN)[slot] = 0
    c[OPEN] -= 1
    if outcome != COMPLETED_:
        if outcome == REJECTED_:
            c[REJECTED] += 1
        else:
            c[DROPPED] += 1
        workflow = ints(h, R_WORKFLOW)[slot]
        count = ints(h, WORKFLOW_FIRST)[workflow + 1] - ints(h, WORKFLOW_FIRST)[workflow]
        for task in range(slot << c[STAGE_BITS], (slot << c[STAGE_BITS]) + count):
            if ints(h, T_STATE)[task] == IS_WAITING:
                remove(h, task, 0)
    else:
        x[LATENCY_SUM] += x[NOW] - reals(h, R_ARRIVAL)[slot]
    x[COST_SUM] += reals(h, R_COST)[slot]
    keep_request_row(h, slot, x[NOW], outcome, reason)
    if ints(h, R_RUNNING)[slot] == 0:
        _forget(h, slot)


@compiled
def refuse(h: int, slot: int, reason: int) -> None:
    """Reject a fresh request, or drop one that was admitted."""
    c, fresh = ints(h, COUNT), ints(h, FRESH)
    outcome = REJECTED_ + 1
    for i in range(c[FRESH_COUNT]):
        if fresh[i] == slot:
            outcome = REJECTED_
    close(h, slot, outcome, reason)


@compiled
def keep_request_row(h: int, slot: int, end: float, outcome: int, reason: int) -> None:
    """Record a request that ended, or was open when the run did."""
    c = ints(h, COUNT)
    if not c[RECORDS] & KEEP_REQUESTS or (c[SAMPLING] != 0 and not is_sampled(h, slot)):
        return
    row = c[REQUEST_ROWS]
    c[REQUEST_ROWS] = row + 1
    whole, real = ints(h, REQUEST_INTS), reals(h, REQUEST_REALS)
    at = row * REQUEST_INT_COLUMNS
    whole[at] = ints(h, R_ID)[slot]
    whole[at + 1] = ints(h, R_WORKFLOW)[slot]
    whole[at + 2] = (reason << 4) | outcome
    at = row * REQUEST_REAL_COLUMNS
    real[at] = reals(h, R_ARRIVAL)[slot]
    real[at + 1] = end
    real[at + 2] = reals(h, R_COST)[slot]


@compiled
def _forget(h: int, slot: int) -> None:
    c = ints(h, COUNT)
    ints(h, R_ID)[slot] = -1
    ints(h, R_NEXT)[slot] = c[FREE_REQUEST]
    c[FREE_REQUEST] = slot
