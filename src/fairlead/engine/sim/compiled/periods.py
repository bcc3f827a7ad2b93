"""Scaling environments: from control period to control period, all functions in one call.

Between two periods each function may change the number of its replicas or their size by one step. What it brought is
measured in the period that follows: runs, how busy the replicas were, the slowest runs, what waits.
"""

from itertools import count as _numbers
from typing import TYPE_CHECKING

import numpy as np
from numba import float64, int64, types
from numpy import inf

from fairlead.engine.sim.compiled.flow import TALLY_COLUMNS, refuse
from fairlead.engine.sim.compiled.layout import (
    ARRIVAL,
    ARRIVAL_AT,
    ARRIVAL_DRAW,
    ARRIVAL_DRAWS,
    ARRIVAL_WORKFLOW,
    ARRIVALS,
    CLOCK,
    COUNT,
    DONE,
    DRAINING,
    DRAWS,
    FLAVOUR_MEMORY,
    FRESH_COUNT,
    FUNCTION_WAITING,
    FUNCTIONS,
    I_AFTER,
    I_BATCH,
    I_COLD,
    I_FLAVOUR,
    I_START,
    I_STATE,
    I_VCPUS,
    INSTANTS,
    INVOCATION_INT_COLUMNS,
    INVOCATION_INTS,
    INVOCATION_REAL_COLUMNS,
    INVOCATION_REALS,
    INVOCATION_ROWS,
    NEEDS_ARRIVALS,
    NEEDS_ROOM,
    NEXT_REQUEST,
    NOW,
    POLICY_REASON,
    QUEUE_FIRST,
    R_ARRIVAL,
    R_ID,
    R_OPEN,
    R_WORKFLOW,
    READY,
    REQUEST_SLOTS,
    SCALED,
    SET_FIRST,
    SET_SIZE,
    SHAPE_VCPUS,
    STAGE_BITS,
    STAGE_FUNCTION,
    STAGE_QUEUE,
    STOP_AT,
    T_READY,
    TALLY,
    TARGET,
    WAITING,
    WAKE_DUE,
    WORKFLOW_DRAWS,
    WORKFLOW_FIRST,
)
from fairlead.engine.sim.compiled.loop import _GO, _apply, _fire, _make_up, _next_instant
from fairlead.engine.sim.compiled.luck import choose, exponential, factor
from fairlead.engine.sim.compiled.packing import CHANCES, CHUNK, DRAW_KIND, DRAW_SIGMA, DRAWN_UNTIL, GAP, OWN, OWN_REALS
from fairlead.engine.sim.compiled.rules import has_room, least_loaded
from fairlead.engine.sim.compiled.scaling import resize, scale
from fairlead.engine.sim.compiled.views import compiled, ints, kept, reals

if TYPE_CHECKING:
    from fairlead.engine.sim.compiled.views import Ints, Reals

# --- actions
NOTHING, OUT, IN, MORE_VCPUS, LESS_VCPUS, MORE_MEMORY, LESS_MEMORY = range(7)

# --- what is known of a function that is not in the core, by (function, column)
_p = _numbers()
IS_PRESENT = next(_p)
VCPU_STEP = next(_p)  # its size, as places on the two ladders
MEMORY_STEP = next(_p)
STARTED = next(_p)  # runs until the last period
WAITED = next(_p)  # how many waited at its end
SAMPLES = next(_p)  # latencies that are kept
PLACE_COLUMNS = next(_p)

# --- what a period brought, by (function, column)
_m = _numbers()
ARRIVED = next(_m)
RAN = next(_m)
BUSY = next(_m)  # vCPU-seconds
SLOWEST = next(_m)  # 99th percentile of the time from ready to end, in seconds
OLDEST = next(_m)  # how long the first one has waited
REPLICAS = next(_m)  # that are wanted
READY_REPLICAS = next(_m)
VCPUS = next(_m)  # that its replicas hold, in thousandths
MEMORY = next(_m)  # likewise, in MiB
WAS_REFUSED = next(_m)  # whether the action could not be done
HELD = next(_m)  # vCPU-seconds that its replicas held
LATENESS = next(_m)  # 99th percentile of the time since the request came over what is meant for it, or of what waits
MEASURES = next(_m)

OK, OUT_OF_ROOM = 0, 1
_PERCENTILE = 0.99


@compiled
def _draw_until(h: int, until: float, came: "Reals") -> None:
    """The next arrivals up to an instant; behind the last of them stands one that never comes.

    `came` keeps when each request came, by its number, of as many as there is room for; they are a power of 2.
    """
    c, x, own = ints(h, COUNT), reals(h, OWN_REALS), ints(h, OWN)
    chances, kinds, sigmas = reals(h, CHANCES), ints(h, DRAW_KIND), reals(h, DRAW_SIGMA)
    times, workflows, draws = reals(h, ARRIVAL_AT), ints(h, ARRIVAL_WORKFLOW), reals(h, ARRIVAL_DRAWS)
    instant, at, place = x[DRAWN_UNTIL], 0, 0
    while place < own[CHUNK] - 1:
        instant += x[GAP] * exponential(own)
        if instant > until:  # gaps have no memory: after this instant one begins anew, at a rate that may be another
            instant = until
            times[place] = inf
            workflows[place] = 0
            place += 1
            break
        times[place] = instant
        came[(c[NEXT_REQUEST] + place) & (len(came) - 1)] = instant
        workflow = choose(own, chances)
        workflows[place] = workflow
        place += 1
        first = workflow * c[DRAWS]
        for i in range(first, first + ints(h, WORKFLOW_DRAWS)[workflow]):
            draws[at] = factor(own, kinds[i], sigmas[i])
            at += 1
    x[DRAWN_UNTIL] = instant
    c[ARRIVAL] = c[ARRIVAL_DRAW] = 0
    c[ARRIVALS] = place


@compiled
def _take_rows(
    h: int,
    since: float,
    places: "Ints",
    measures: "Reals",
    latencies: "Reals",
    late: "Reals",
    came: "Reals",
    goals: "Reals",
) -> None:
    """Note the runs that ended at this instant."""
    most = latencies.shape[1]
    c, now = ints(h, COUNT), reals(h, CLOCK)[NOW]
    whole, real = ints(h, INVOCATION_INTS), reals(h, INVOCATION_REALS)
    for row in range(c[INVOCATION_ROWS]):
        stage = whole[row * INVOCATION_INT_COLUMNS + 2] & 0xFFFFFFFF
        shape = whole[row * INVOCATION_INT_COLUMNS + 3] >> 32
        function = ints(h, STAGE_FUNCTION)[stage]
        at = row * INVOCATION_REAL_COLUMNS
        ready, began = real[at], real[at + 1] + real[at + 2]
        mine = measures[function]
        mine[RAN] += 1
        mine[BUSY] += (now - max(since, began)) * ints(h, SHAPE_VCPUS)[shape] * 1e-3
        own, own_late = latencies[function], late[function]
        count = places[function, SAMPLES]
        if count == most:  # only the slowest hundredth matters: the quicker half of what is kept can go
            own.sort()
            own[: most // 2] = own[most - most // 2 :]
            own_late.sort()
            own_late[: most // 2] = own_late[most - most // 2 :]
            count = most // 2
        own[count] = now - ready
        request = whole[row * INVOCATION_INT_COLUMNS]
        own_late[count] = (now - came[request & (len(came) - 1)]) / goals[stage]
        places[function, SAMPLES] = count + 1
    c[INVOCATION_ROWS] = 0


@compiled
def _percentile(own: "Reals", kept_: int, count: int) -> float:
    """The 99th percentile of so many values, of which the largest are kept."""
    if count == 0:
        return 0.0
    values = np.sort(own[:kept_])
    above = count - int(np.ceil(_PERCENTILE * count))
    return values[max(0, kept_ - 1 - above)]


@compiled
def _change(h: int, function: int, action: int, places: "Ints", ladders: "Ints", bounds: "Ints") -> int:
    """Carry out an action; 0 if it could not be done, -1 for want of room."""
    if action == NOTHING:
        return 1
    if not has_room(h, 2 * bounds[1] + 8):
        return -1
    target = ints(h, TARGET)[function]
    vcpus, memory = places[function, VCPU_STEP], places[function, MEMORY_STEP]
    columns = bounds[3]
    if action in (OUT, IN):
        wanted = target + 1 if action == OUT else target - 1
        if wanted < bounds[0] or wanted > bounds[1]:
            return 0
        scale(h, function, wanted, ladders[function, vcpus * columns + memory])
        return 1
    if action == MORE_VCPUS:
        vcpus += 1
    elif action == LESS_VCPUS:
        vcpus -= 1
    elif action == MORE_MEMORY:
        memory += 1
    elif action == LESS_MEMORY:
        memory -= 1
    if target == 0 or vcpus < 0 or vcpus >= bounds[2] or memory < 0 or memory >= columns:
        return 0
    size = ladders[function, vcpus * columns + memory]
    if size < 0 or not resize(h, function, size):
        return 0
    places[function, VCPU_STEP], places[function, MEMORY_STEP] = vcpus, memory
    return 1


@compiled
def _measure_replicas(h: int, since: float, function: int, measures: "Reals", is_end: bool) -> None:
    """What a function's replicas hold, and how long those at work have been so."""
    now, slot = reals(h, CLOCK)[NOW], ints(h, SET_FIRST)[function]
    mine = measures[function]
    mine[VCPUS] = mine[MEMORY] = mine[READY_REPLICAS] = 0.0
    held = 0.0
    while slot >= 0:
        state, vcpus = ints(h, I_STATE)[slot], ints(h, I_VCPUS)[slot]
        held += vcpus
        if not state & DRAINING:
            mine[VCPUS] += vcpus
            mine[MEMORY] += ints(h, FLAVOUR_MEMORY)[ints(h, I_FLAVOUR)[slot]]
            if state & READY:
                mine[READY_REPLICAS] += 1
        if is_end and ints(h, I_BATCH)[slot] >= 0 and state & READY:
            began = reals(h, I_START)[slot] + reals(h, I_COLD)[slot]
            mine[BUSY] += (now - max(since, began)) * vcpus * 1e-3
        slot = ints(h, I_AFTER)[slot]
    if not is_end:
        mine[HELD] = held * 1e-3


_INTS, _REALS = types.Array(int64, 2, "C"), types.Array(float64, 2, "C")


@kept(int64(int64, float64, int64[::1], _INTS, _INTS, int64[::1], _REALS, _REALS, _REALS, float64[::1], float64[::1]))
def run_period(  # type: ignore[no-untyped-def]
    h: int, until: float, actions, places, ladders, bounds, measures, latencies, late, came, goals
) -> int:
    """Let every function act, run up to an instant, and measure what came of it.

    `bounds` are the least and the most replicas, and the lengths of the ladders of vCPUs and of memory. `goals` has for
    each stage how long after its request came it is meant to have ended.
    """
    c, x = ints(h, COUNT), reals(h, CLOCK)
    since = x[NOW]
    measures[:] = 0.0
    places[:, SAMPLES] = 0
    for function in range(c[FUNCTIONS]):
        if places[function, IS_PRESENT] != 0:
            done = _change(h, function, actions[function], places, ladders, bounds)
            if done < 0:
                return OUT_OF_ROOM
            measures[function, WAS_REFUSED] = 1.0 - done
            _measure_replicas(h, since, function, measures, False)
    x[STOP_AT] = until
    c[INSTANTS] += 1
    _draw_until(h, until, came)
    while True:
        if not _make_up(h):
            return OUT_OF_ROOM
        if c[WAITING] > 0 and least_loaded(h) != DONE:
            return OUT_OF_ROOM
        c[FRESH_COUNT] = c[WAKE_DUE] = 0
        status = _next_instant(h)
        if status == NEEDS_ARRIVALS:
            _draw_until(h, until, came)
            status = _next_instant(h)
        if status != _GO:
            break
        status = _apply(h)
        while status == NEEDS_ARRIVALS:
            _draw_until(h, until, came)
            status = _apply(h)
        if status == NEEDS_ROOM:
            return OUT_OF_ROOM
        _take_rows(h, since, places, measures, latencies, late, came, goals)
        if _fire(h) == NEEDS_ROOM:
            return OUT_OF_ROOM
    x[NOW] = until
    for function in range(c[FUNCTIONS]):
        mine = measures[function]
        _measure_replicas(h, since, function, measures, True)
        started, waiting = ints(h, TALLY)[function * TALLY_COLUMNS + 1], ints(h, FUNCTION_WAITING)[function]
        mine[ARRIVED] = started - places[function, STARTED] + waiting - places[function, WAITED]
        places[function, STARTED], places[function, WAITED] = started, waiting
        mine[SLOWEST] = _percentile(latencies[function], places[function, SAMPLES], int(mine[RAN]))
        mine[LATENESS] = _percentile(late[function], places[function, SAMPLES], int(mine[RAN]))
        mine[REPLICAS] = ints(h, TARGET)[function]
    stages = ints(h, STAGE_FUNCTION)
    for stage in range(len(stages)):
        task = ints(h, QUEUE_FIRST)[ints(h, STAGE_QUEUE)[stage]]
        if task >= 0:
            mine = measures[stages[stage]]
            mine[OLDEST] = max(mine[OLDEST], until - reals(h, T_READY)[task])
            since_arrival = until - reals(h, R_ARRIVAL)[task >> c[STAGE_BITS]]
            mine[LATENESS] = max(mine[LATENESS], since_arrival / goals[stage])
    return OK


@kept(int64(int64, int64, int64, _INTS, _INTS, int64[::1], _REALS))
def join(h: int, function: int, replicas: int, places, ladders, bounds, measures) -> int:  # type: ignore[no-untyped-def]
    """Let a function be there, with so many replicas in the size that `places` has for it."""
    if not has_room(h, bounds[1] + 8):
        return OUT_OF_ROOM
    places[function, IS_PRESENT] = 1
    at = places[function, VCPU_STEP] * bounds[3] + places[function, MEMORY_STEP]
    scale(h, function, replicas, ladders[function, at])
    measures[function] = 0.0
    _measure_replicas(h, reals(h, CLOCK)[NOW], function, measures, False)
    measures[function, REPLICAS] = replicas
    return OK


@kept(int64(int64, int64, _INTS))
def leave(h: int, function: int, places) -> int:  # type: ignore[no-untyped-def]
    """Let a function go: its replicas drain, and requests that need it are dropped."""
    places[function, IS_PRESENT] = 0
    if ints(h, SCALED)[function] != 0:
        scale(h, function, 0, ints(h, SET_SIZE)[function])
    c, stages, firsts = ints(h, COUNT), ints(h, STAGE_FUNCTION), ints(h, WORKFLOW_FIRST)
    for slot in range(c[REQUEST_SLOTS]):
        if ints(h, R_ID)[slot] >= 0 and ints(h, R_OPEN)[slot] != 0:
            workflow = ints(h, R_WORKFLOW)[slot]
            for stage in range(firsts[workflow], firsts[workflow + 1]):
                if stages[stage] == function:
                    refuse(h, slot, POLICY_REASON)
                    break
    for other in range(c[FUNCTIONS]):  # what was dropped did not arrive less
        places[other, WAITED] = ints(h, FUNCTION_WAITING)[other]
    return OK
