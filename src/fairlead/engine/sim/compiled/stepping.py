"""Placement environments: from decision to decision, all of them in one call.

Who is asked says on which node the oldest waiting invocation goes. An answer that does not fit is replaced: the
invocation goes to the emptiest node that fits, and the reward is less by a penalty. So a step never fails.
"""

from math import nan

import numpy as np
from numba import boolean, float64, int64, types

from fairlead.engine.sim.compiled.flow import start
from fairlead.engine.sim.compiled.index import find, fits
from fairlead.engine.sim.compiled.layout import (
    ASKED_TASK,
    CLOCK,
    COUNT,
    DEVICE_FREE,
    EVENT_AT,
    EVENT_ORDER,
    EVENT_WHAT,
    EVENTS,
    FREE_INSTANCE,
    FRESH_COUNT,
    FUNCTION_SHAPE,
    FUNCTIONS,
    I_NEXT,
    IDLE_COUNT,
    LINE,
    NEEDS_ARRIVALS,
    NEEDS_DECISION,
    NEEDS_ROOM,
    NODE_DEVICE,
    NODE_FREE,
    NODES,
    NOW,
    OPEN,
    R_ARRIVAL,
    R_NEXT,
    R_WORKFLOW,
    REQUEST_INT_COLUMNS,
    REQUEST_INTS,
    REQUEST_REAL_COLUMNS,
    REQUEST_REALS,
    REQUEST_ROWS,
    REWARD,
    SHAPE_FLAVOUR,
    STAGE_BITS,
    T_READY,
    T_WITH,
    WAITING,
    WAKE_DUE,
    WORKFLOW_SLO,
)
from fairlead.engine.sim.compiled.loop import _GO, _apply, _fire, _next_instant
from fairlead.engine.sim.compiled.luck import draw_arrivals, scatter
from fairlead.engine.sim.compiled.packing import (
    CHUNK,
    CROWD,
    CUT_OFF,
    DRAWN_UNTIL,
    ENDED,
    EPISODE,
    FIRST_AT,
    FIRST_ORDER,
    FIRST_WHAT,
    FREE_SCALE,
    FRONTIER,
    GPU_SCALE,
    HEAD,
    HEAD_REALS,
    INSTANCES,
    IS_OVER,
    LONGEST,
    MOST_STEPS,
    OBSERVATION,
    OPEN_TIME,
    OUT_OF_ROOM,
    OWN,
    OWN_REALS,
    PENALTY,
    PRISTINE,
    PRISTINE_REALS,
    RANDOM,
    REQUESTS,
    REWARDS,
    SEED,
    SLO_SCALE,
    STEPS,
    WARM_SCALE,
)
from fairlead.engine.sim.compiled.rules import function_of, has_room, place
from fairlead.engine.sim.compiled.singles import floats
from fairlead.engine.sim.compiled.views import compiled, ints, kept, reals


@compiled
def _clear(h: int) -> None:
    """Back to the beginning, with other random numbers."""
    own = ints(h, OWN)
    head, pristine = ints(h, HEAD), ints(h, PRISTINE)
    for i in range(len(head)):
        head[i] = pristine[i]
    head_reals, pristine_reals = reals(h, HEAD_REALS), reals(h, PRISTINE_REALS)
    for i in range(len(head_reals)):
        head_reals[i] = pristine_reals[i]
    for i in range(ints(h, COUNT)[EVENTS]):
        reals(h, EVENT_AT)[i] = reals(h, FIRST_AT)[i]
        ints(h, EVENT_ORDER)[i] = ints(h, FIRST_ORDER)[i]
        ints(h, EVENT_WHAT)[i] = ints(h, FIRST_WHAT)[i]
    following, last = ints(h, R_NEXT), own[REQUESTS] - 1
    for slot in range(last):
        following[slot] = slot + 1
    following[last] = -1
    own[FRONTIER] = own[STEPS] = own[IS_OVER] = 0
    own[EPISODE] += 1
    own[RANDOM] = scatter(own[SEED], own[EPISODE])
    reals(h, OWN_REALS)[DRAWN_UNTIL] = 0.0
    if own[CHUNK] > 0:
        draw_arrivals(h)


@compiled
def _go_on(h: int) -> int:
    """Until somebody must say where the oldest goes; says what else happened."""
    c, x, line, shapes = ints(h, COUNT), reals(h, CLOCK), ints(h, LINE), ints(h, FUNCTION_SHAPE)
    while True:
        task = line[0]
        if task >= 0:
            if not has_room(h, 1):
                return NEEDS_ROOM
            function = function_of(h, task)
            if place(h, function, shapes[function], False) >= 0:
                c[ASKED_TASK] = task
                return NEEDS_DECISION
        c[FRESH_COUNT] = c[WAKE_DUE] = 0
        before, open_ = x[NOW], c[OPEN]
        status = _next_instant(h)
        if status == NEEDS_ARRIVALS:
            draw_arrivals(h)
            status = _next_instant(h)
        if status != _GO:
            return status
        if ints(h, OWN)[REWARDS] == OPEN_TIME:
            x[REWARD] -= (x[NOW] - before) * open_
        status = _apply(h)
        while status == NEEDS_ARRIVALS:
            draw_arrivals(h)
            status = _apply(h)
        if status != _GO:
            return status
        if c[REQUEST_ROWS] > 0:
            _count_in_time(h)
        status = _fire(h)
        if status != _GO:
            return status


@compiled
def _count_in_time(h: int) -> None:
    """Reward requests that ended: 1 in time, -1 late."""
    c, x = ints(h, COUNT), reals(h, CLOCK)
    whole, real = ints(h, REQUEST_INTS), reals(h, REQUEST_REALS)
    for row in range(c[REQUEST_ROWS]):
        slo = reals(h, WORKFLOW_SLO)[whole[row * REQUEST_INT_COLUMNS + 1]]
        at = row * REQUEST_REAL_COLUMNS
        x[REWARD] += 1.0 if real[at + 1] - real[at] <= slo else -1.0
    c[REQUEST_ROWS] = 0


@compiled
def _observe(h: int) -> None:
    """Show what there is to see before a decision."""
    c, x, shown = ints(h, COUNT), reals(h, CLOCK), floats(h, OBSERVATION)
    nodes, functions = c[NODES], c[FUNCTIONS]
    task = ints(h, LINE)[0]
    free, scale = ints(h, NODE_FREE), reals(h, FREE_SCALE)
    for node in range(nodes):
        shown[node] = free[node] * scale[node]
    at = nodes
    if len(reals(h, GPU_SCALE)) > 0:
        for node in range(nodes):
            vgpus = 0
            for device in range(ints(h, NODE_DEVICE)[node], ints(h, NODE_DEVICE)[node + 1]):
                vgpus += ints(h, DEVICE_FREE)[device]
            shown[at + node] = vgpus * reals(h, GPU_SCALE)[node]
        at += nodes
    function = -1
    waited, slack = 0.0, 1.0
    if task >= 0:
        function = function_of(h, task)
        slot = task >> c[STAGE_BITS]
        scale_s = reals(h, SLO_SCALE)[ints(h, R_WORKFLOW)[slot]]
        waited = min(LONGEST, (x[NOW] - reals(h, T_READY)[task]) * scale_s)
        slack = max(-LONGEST, 1.0 - (x[NOW] - reals(h, R_ARRIVAL)[slot]) * scale_s)
        idle, scale = ints(h, IDLE_COUNT), reals(h, WARM_SCALE)
        first = ints(h, SHAPE_FLAVOUR)[ints(h, FUNCTION_SHAPE)[function]] * nodes
        for node in range(nodes):
            shown[at + node] = idle[first + node] * scale[function * nodes + node]
    else:
        for node in range(nodes):
            shown[at + node] = 0.0
    at += nodes
    for other in range(functions):
        shown[at + other] = 0.0
    if function >= 0:
        shown[at + function] = 1.0
    at += functions
    shown[at] = c[WAITING] / (c[WAITING] + CROWD)
    shown[at + 1] = waited
    shown[at + 2] = slack


@compiled
def _begin(h: int) -> int:
    """A new episode, up to its first decision."""
    _clear(h)
    status = _go_on(h)
    reals(h, CLOCK)[REWARD] = 0.0
    _observe(h)
    return _judged(h, status)


@compiled
def _judged(h: int, status: int) -> int:
    """Whether an episode is over, and why; 0 while it is not."""
    own = ints(h, OWN)
    how = 0
    if status != NEEDS_DECISION:
        how = OUT_OF_ROOM if status == NEEDS_ROOM else ENDED
    elif own[STEPS] >= own[MOST_STEPS]:
        how = CUT_OFF
    own[IS_OVER] = how
    return how


@compiled
def _step(h: int, action: int) -> int:
    """Carry out an answer and go on to the next question; says how the episode ended, 0 if it did not."""
    c, x, own = ints(h, COUNT), reals(h, CLOCK), ints(h, OWN)
    task = c[ASKED_TASK]
    shape = ints(h, FUNCTION_SHAPE)[function_of(h, task)]
    x[REWARD] = 0.0
    if action < 0 or action >= c[NODES] or not fits(h, shape, action):
        action = find(h, shape, False)
        x[REWARD] = -reals(h, OWN_REALS)[PENALTY]
    if c[FREE_INSTANCE] == own[FRONTIER]:  # the next one was never used: it is not linked yet
        own[FRONTIER] += 1
        ints(h, I_NEXT)[c[FREE_INSTANCE]] = own[FRONTIER] if own[FRONTIER] < own[INSTANCES] else -1
    ints(h, T_WITH)[task] = -1
    start(h, task, 1, shape, action)
    own[STEPS] += 1
    how = _judged(h, _go_on(h))
    _observe(h)
    return how


@kept(int64(int64, int64, boolean[::1]))
def reset_many(h: int, apart: int, chosen) -> int:  # type: ignore[no-untyped-def]
    """Begin an episode of those environments that are chosen."""
    for i in range(len(chosen)):
        if chosen[i]:
            _begin(h + i * apart)
    return 0


@kept(int64(int64, int64, int64[::1], float64[::1], boolean[::1], boolean[::1]))
def step_many(h: int, apart: int, actions, rewards, terminated, truncated) -> int:  # type: ignore[no-untyped-def]
    """One step of each environment, whose tables lie `apart` bytes from each other; one that is over begins anew.

    Says how many ran out of room.
    """
    short = 0
    for i in range(len(actions)):
        if ints(h, OWN)[IS_OVER] != 0:
            how = _begin(h)
            rewards[i] = 0.0
        else:
            how = _step(h, actions[i])
            rewards[i] = reals(h, CLOCK)[REWARD]
        terminated[i] = how == ENDED
        truncated[i] = how > ENDED
        if how == OUT_OF_ROOM:
            short += 1
        h += apart
    return short


@kept(types.void(int64, types.Array(types.int8, 1, "C")))
def mask(h: int, allowed) -> None:  # type: ignore[no-untyped-def]
    """On which nodes the oldest waiting invocation fits."""
    task = ints(h, LINE)[0]
    for node in range(ints(h, COUNT)[NODES]):
        allowed[node] = 0
        if task >= 0 and fits(h, ints(h, FUNCTION_SHAPE)[function_of(h, task)], node):
            allowed[node] = 1


def reset_one(h: int) -> int:
    """Begin an episode of one environment."""
    return reset_many(h, 0, _ONE)


def step_one(h: int, action: int) -> float:
    """One step of one environment: its reward; not a number if the episode is over. One that was begins anew."""
    rewards, terminated, truncated = np.zeros(1), np.zeros(1, np.bool_), np.zeros(1, np.bool_)
    step_many(h, 0, np.array([action], np.int64), rewards, terminated, truncated)
    return nan if terminated[0] or truncated[0] else float(rewards[0])


_ONE = np.ones(1, np.bool_)
