"""The event loop: from instant to instant, as `engine.sim.driver` and the controller do it together.

An instant goes through phases; the loop can leave and come back between any two steps of one: for more arrivals, for
more room in some array, or for a decision from outside.
"""

from numba import types
from numpy import inf

from fairlead.engine.sim.compiled.events import drop_first, is_still, schedule
from fairlead.engine.sim.compiled.flow import arrive, become_ready, finish, work_s
from fairlead.engine.sim.compiled.keeping import note_expiry, note_prewarming
from fairlead.engine.sim.compiled.layout import (
    APPLY,
    ARRIVAL,
    ARRIVAL_AT,
    ARRIVALS,
    BAD_DECISION,
    BAD_TASK,
    BAD_VALUE,
    BECOME_READY,
    BEGIN,
    BY_HISTOGRAM,
    CLASS_FIRST,
    CLASS_ORDER,
    CLASSES_KNOWN,
    CLOCK,
    CONTROL,
    CONTROL_DUE,
    CONTROL_PERIOD,
    COUNT,
    DISPATCH,
    DONE,
    EVENT_AT,
    EVENT_WHAT,
    EVENTS,
    EXPIRE,
    EXPIRED,
    FAULTS,
    FINISH,
    FINISHED_COUNT,
    FINISHED_DONE,
    FINISHED_NOW,
    FIRE,
    FREE_REQUEST,
    FRESH_COUNT,
    FUNCTION_SHAPE,
    GATHER,
    I_BATCH,
    I_BEGAN,
    I_EXPIRES,
    I_ID,
    I_STATE,
    IDLE_INSTANTS,
    IN_USE,
    INDEX_BITS,
    INSTANTS,
    IS_SHARED,
    KEEP_RULE,
    KIND_BITS,
    LEARNS,
    LINE,
    MORE_ARRIVALS,
    NEEDS_ARRIVALS,
    NEEDS_ROOM,
    NODE_ENDS,
    NODE_VERSION,
    NOW,
    OPEN,
    PHASE,
    PRESS,
    PRESSURE,
    PRESSURE_NODE,
    PREWARM,
    READY_COUNT,
    READY_DONE,
    READY_NOW,
    REPLICA,
    RULE,
    RUNNING,
    SCALE,
    SET_ORDER,
    SETS,
    SOONEST,
    STALE,
    STOP_AT,
    STOPPED,
    USER,
    WAIT,
    WAITING,
    WAKE,
    WAKE_DUE,
)
from fairlead.engine.sim.compiled.placements import CALL, PICK
from fairlead.engine.sim.compiled.pool import stop
from fairlead.engine.sim.compiled.prewarming import keep_up, prewarmed
from fairlead.engine.sim.compiled.rules import dispatch, function_of, has_room, place
from fairlead.engine.sim.compiled.scalers import adjust
from fairlead.engine.sim.compiled.scaling import is_worth_trying, missing, reconcile_all, replica_ready
from fairlead.engine.sim.compiled.sharing import begin, end_due, press
from fairlead.engine.sim.compiled.views import compiled, ints, kept, reals

_MOST_IDLE_INSTANTS = 10_000  # with nothing running and nobody coming: what waits will not be started

_GO = -1


@compiled
def next_expiry(h: int) -> float:
    """When the next idle instance expires, exactly."""
    c, first, order, expires = ints(h, COUNT), ints(h, CLASS_FIRST), ints(h, CLASS_ORDER), reals(h, I_EXPIRES)
    soonest = inf
    for i in range(c[CLASSES_KNOWN]):
        slot = first[order[i]]
        if slot >= 0 and expires[slot] < soonest:
            soonest = expires[slot]
    reals(h, CLOCK)[SOONEST] = soonest
    return soonest


@compiled
def _next_instant(h: int) -> int:
    """Go on to the next instant and collect what happens then."""
    c, x = ints(h, COUNT), reals(h, CLOCK)
    if c[ARRIVAL] == c[ARRIVALS] and c[MORE_ARRIVALS] != 0:
        return NEEDS_ARRIVALS
    times = reals(h, EVENT_AT)
    arrival = reals(h, ARRIVAL_AT)[c[ARRIVAL]] if c[ARRIVAL] < c[ARRIVALS] else inf
    event = times[0] if c[EVENTS] > 0 else inf
    now = min(arrival, event)
    if x[SOONEST] <= now and next_expiry(h) < now:
        now = x[SOONEST]
    if now == inf:
        return _end(h)
    if now > x[STOP_AT]:
        return STOPPED
    c[READY_COUNT] = c[READY_DONE] = c[FINISHED_COUNT] = c[FINISHED_DONE] = 0
    stale = c[STALE]
    while c[EVENTS] > 0 and times[0] == now:
        what = ints(h, EVENT_WHAT)[0]
        drop_first(h)
        index = (what >> KIND_BITS) & ((1 << INDEX_BITS) - 1)
        _happen(h, now, what & ((1 << KIND_BITS) - 1), index, what >> (KIND_BITS + INDEX_BITS))
    is_arriving = c[ARRIVAL] < c[ARRIVALS] and arrival == now
    if c[RUNNING] == 0 and c[FINISHED_COUNT] == 0 and not is_arriving and c[ARRIVAL] == c[ARRIVALS]:
        c[IDLE_INSTANTS] += 1
        is_over = c[OPEN] == 0  # nobody comes, nothing runs and nobody waits
        if is_over or (c[IDLE_INSTANTS] > _MOST_IDLE_INSTANTS and c[FAULTS] == 0):
            c[STALE] = stale  # what would have happened at this instant did not
            return DONE if is_over else _end(h)
    x[NOW] = now
    c[INSTANTS] += 1
    c[PHASE] = APPLY
    return _GO


@compiled
def _end(h: int) -> int:
    """Nothing will happen any more. If somebody outside lets wait what fits, that is a mistake."""
    c, line = ints(h, COUNT), ints(h, LINE)
    if c[RULE] >= USER and line[0] >= 0:
        function = function_of(h, line[0])
        if place(h, function, ints(h, FUNCTION_SHAPE)[function], False) >= 0:
            c[BAD_TASK], c[BAD_VALUE] = line[0], WAIT
            return BAD_DECISION
    return DONE


@compiled
def _happen(h: int, now: float, kind: int, index: int, who: int) -> None:
    """One scheduled thing: what the controller is to be told is noted, what is physics is done."""
    c = ints(h, COUNT)
    if kind == FINISH:
        ints(h, FINISHED_NOW)[c[FINISHED_COUNT]] = index
        c[FINISHED_COUNT] += 1
    elif kind == BECOME_READY:
        if is_still(who, ints(h, I_ID)[index]):
            ints(h, READY_NOW)[c[READY_COUNT]] = index
            c[READY_COUNT] += 1
        else:
            c[STALE] += 1
    elif kind == NODE_ENDS:
        if is_still(who, ints(h, NODE_VERSION)[index]):
            end_due(h, index, now)
    elif kind == BEGIN:
        begin(h, index, now, work_s(h, index))
    elif kind == WAKE:
        c[WAKE_DUE] = 1
    elif kind == CONTROL:
        c[CONTROL_DUE] = 1
    elif kind == PRESS:
        c[FAULTS] -= 1
        if c[IS_SHARED] != 0:
            press(h, ints(h, PRESSURE_NODE)[index], now, reals(h, PRESSURE)[index])
    elif kind == EXPIRE:
        if is_still(who, ints(h, I_ID)[index]):
            note_expiry(h, index, now)
    elif kind == PREWARM:
        note_prewarming(h, index, now)


@compiled
def _apply(h: int) -> int:
    """All events of the instant: what became ready, what finished, what arrived."""
    c, now = ints(h, COUNT), reals(h, CLOCK)[NOW]
    while c[READY_DONE] < c[READY_COUNT]:
        if c[IN_USE] != 0 and not has_room(h, 1):  # a replica that was replaced may end
            return NEEDS_ROOM
        instance = ints(h, READY_NOW)[c[READY_DONE]]
        c[READY_DONE] += 1
        if ints(h, I_BATCH)[instance] >= 0:
            become_ready(h, instance)
        elif ints(h, I_STATE)[instance] & REPLICA:
            replica_ready(h, instance)
        else:
            prewarmed(h, instance)
    while c[FINISHED_DONE] < c[FINISHED_COUNT]:
        if not has_room(h, 1):
            return NEEDS_ROOM
        instance = ints(h, FINISHED_NOW)[c[FINISHED_DONE]]
        c[FINISHED_DONE] += 1
        spent_s = 0.0
        if c[LEARNS] != 0:
            spent_s = now - reals(h, I_BEGAN)[instance] if c[IS_SHARED] != 0 else work_s(h, instance)
        finish(h, instance, spent_s)
    while True:
        if c[ARRIVAL] == c[ARRIVALS]:
            if c[MORE_ARRIVALS] != 0:
                return NEEDS_ARRIVALS
            break
        if reals(h, ARRIVAL_AT)[c[ARRIVAL]] != now:
            break
        if c[FREE_REQUEST] < 0:
            return NEEDS_ROOM
        arrive(h)
    c[PHASE] = FIRE
    return _GO


@compiled
def _fire(h: int) -> int:
    """The controller's own timers: idle instances that expire, then whatever was scheduled."""
    c, x = ints(h, COUNT), reals(h, CLOCK)
    if x[NOW] >= x[SOONEST]:
        first, order, expires = ints(h, CLASS_FIRST), ints(h, CLASS_ORDER), reals(h, I_EXPIRES)
        for i in range(c[CLASSES_KNOWN]):
            which = order[i]
            while first[which] >= 0 and expires[first[which]] <= x[NOW]:
                if not has_room(h, 1):
                    return NEEDS_ROOM
                stop(h, first[which], EXPIRED)
        next_expiry(h)
    if c[KEEP_RULE] == BY_HISTOGRAM and not keep_up(h):
        return NEEDS_ROOM
    if c[CONTROL_DUE] != 0:
        c[CONTROL_DUE] = 0
        schedule(h, x[NOW] + x[CONTROL_PERIOD], CONTROL, 0, 0)
        c[PHASE] = SCALE
    else:
        c[PHASE] = DISPATCH
    return _GO


@compiled
def _make_up(h: int) -> bool:
    """Start the replicas that are missing; False for want of room in the arrays."""
    c = ints(h, COUNT)
    if is_worth_trying(h):
        most = 0
        for i in range(c[SETS]):
            most += missing(h, ints(h, SET_ORDER)[i])
        if not has_room(h, most + 1):
            return False
        reconcile_all(h)
    return True


@kept(types.int64(types.int64, types.FunctionType(PICK), types.FunctionType(CALL)))
def advance(h: int, pick, call) -> int:  # type: ignore[no-untyped-def] # pointers to compiled code
    """Go on until something is needed from outside, or nothing is left to do; says which."""
    c = ints(h, COUNT)
    while True:
        phase = c[PHASE]
        if phase == GATHER:
            status = _next_instant(h)
        elif phase == APPLY:
            status = _apply(h)
        elif phase == FIRE:
            status = _fire(h)
        elif phase == SCALE:
            status = adjust(h)
            if status == DONE:
                c[PHASE] = DISPATCH
                status = _GO
        else:
            if not _make_up(h):
                return NEEDS_ROOM
            if c[WAITING] > 0 or c[FRESH_COUNT] > 0 or c[WAKE_DUE] != 0:
                status = dispatch(h, pick, call)
                if status != DONE:
                    return status
                c[FRESH_COUNT] = c[WAKE_DUE] = 0
            c[PHASE] = GATHER
            status = _GO
        if status != _GO:
            return status
