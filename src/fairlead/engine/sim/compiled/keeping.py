"""Keep-alive rules, as far as the pool asks them: when an idle instance goes, what it is worth, when one is wanted.

`keep_alive` has the rules' parameters and their papers. By time, the pool keeps its own lists; here are the other two.

By histogram, an idle instance has at most one event to come. `I_VALUE` is its instant: an event that finds the
instance's time moved on asks for another, and a use of the instance asks for none. The same goes for pre-warming, by
function. By worth, `I_VALUE` is the worth.
"""

from numpy import inf

from fairlead.engine.sim.compiled.events import schedule
from fairlead.engine.sim.compiled.layout import (
    BY_HISTOGRAM,
    CLOCK,
    COUNT,
    EXPIRE,
    EXPIRED_COUNT,
    EXPIRED_NOW,
    FLAVOUR_FUNCTION,
    FLAVOUR_MEMORY,
    FUNCTION_COLD,
    I_EXPIRES,
    I_FLAVOUR,
    I_ID,
    I_NODE,
    I_STATE,
    I_TASKS,
    I_VALUE,
    IDLE,
    KEEP_INTS,
    KEEP_REALS,
    KEEP_RULE,
    KINDS,
    NODE_KIND,
    NOW,
    PREWARM,
    PREWARM_COUNT,
    PREWARM_NOW,
)
from fairlead.engine.sim.compiled.views import compiled, ints, reals

# --- by histogram: settings first, then a row per function
BINS, LEAST_SAMPLES, INT_SETTINGS = range(3)
RUNS, INSIDE, OUTSIDE, SQUARES, HEAD, BELOW_HEAD, TAIL, BELOW_TAIL, INT_COLUMNS = range(9)  # then the bins
BIN_S, HEAD_SHARE, TAIL_SHARE, MARGIN, LEAST_SPREAD, MOST_OUTSIDE, MEAN_MARGIN, REAL_SETTINGS = range(8)
ENDED, IDLE_SUM, PREWARM_S, KEEP_S, UNTIL, PREWARM_AT, PREWARM_ARMED, REAL_COLUMNS = range(8)

# --- by worth: per function in whole numbers; the real ones are the clocks of the nodes
FREQUENCY, LIVING, WORTH_COLUMNS = range(3)


@compiled
def _function(h: int, slot: int) -> int:
    return ints(h, FLAVOUR_FUNCTION)[ints(h, I_FLAVOUR)[slot]]


@compiled
def born(h: int, slot: int) -> None:
    """An instance has been created."""
    if ints(h, COUNT)[KEEP_RULE] == BY_HISTOGRAM:
        reals(h, I_VALUE)[slot] = inf
    else:
        ints(h, KEEP_INTS)[_function(h, slot) * WORTH_COLUMNS + LIVING] += 1


@compiled
def gone(h: int, slot: int) -> None:
    """An instance has ended; a function without any is forgotten."""
    if ints(h, COUNT)[KEEP_RULE] != BY_HISTOGRAM:
        own, row = ints(h, KEEP_INTS), _function(h, slot) * WORTH_COLUMNS
        own[row + LIVING] -= 1
        if own[row + LIVING] == 0:
            own[row + FREQUENCY] = 0


@compiled
def take_up(h: int, slot: int) -> None:
    """An instance takes up a batch."""
    c, function = ints(h, COUNT), _function(h, slot)
    if c[KEEP_RULE] == BY_HISTOGRAM:
        _end_idle_time(h, function)
        return
    own, row, node = ints(h, KEEP_INTS), function * WORTH_COLUMNS, ints(h, I_NODE)[slot]
    own[row + FREQUENCY] += 1
    cold_s = reals(h, FUNCTION_COLD)[function * c[KINDS] + ints(h, NODE_KIND)[node]]
    size = max(1, ints(h, FLAVOUR_MEMORY)[ints(h, I_FLAVOUR)[slot]])
    reals(h, I_VALUE)[slot] = reals(h, KEEP_REALS)[node] + own[row + FREQUENCY] * cold_s / size


@compiled
def rise(h: int, slot: int) -> None:
    """The clock of a node rises to the worth of what is evicted there."""
    clocks, node = reals(h, KEEP_REALS), ints(h, I_NODE)[slot]
    clocks[node] = max(clocks[node], reals(h, I_VALUE)[slot])


@compiled
def turn_idle(h: int, slot: int) -> None:
    """An instance has nothing to do: by histogram, decide until when it stays."""
    if ints(h, COUNT)[KEEP_RULE] != BY_HISTOGRAM:
        return
    now, function = reals(h, CLOCK)[NOW], _function(h, slot)
    own, row = reals(h, KEEP_REALS), REAL_SETTINGS + function * REAL_COLUMNS
    if ints(h, I_TASKS)[slot] == 0:  # pre-warmed: it has not run yet
        until = own[row + UNTIL]
    else:
        runs = _row(h, function) + RUNS
        ints(h, KEEP_INTS)[runs] -= 1
        own[row + ENDED] = now
        until = now + own[row + KEEP_S]
        if own[row + PREWARM_S] > 0:
            if ints(h, KEEP_INTS)[runs] == 0:
                own[row + UNTIL] = until
                at = now + own[row + PREWARM_S]
                own[row + PREWARM_AT] = at
                if at < own[row + PREWARM_ARMED]:
                    own[row + PREWARM_ARMED] = at
                    schedule(h, at, PREWARM, function, 0)
            until = now
    if until <= now:
        _let_go(h, slot)
    else:
        reals(h, I_EXPIRES)[slot] = until
        _arm(h, slot)


@compiled
def _arm(h: int, slot: int) -> None:
    """Make sure that an event comes when an instance expires, or earlier."""
    until = reals(h, I_EXPIRES)[slot]
    if until < reals(h, I_VALUE)[slot]:
        reals(h, I_VALUE)[slot] = until
        schedule(h, until, EXPIRE, slot, ints(h, I_ID)[slot])


@compiled
def _let_go(h: int, slot: int) -> None:
    c = ints(h, COUNT)
    ints(h, EXPIRED_NOW)[c[EXPIRED_COUNT]] = slot
    c[EXPIRED_COUNT] += 1


@compiled
def note_expiry(h: int, slot: int, now: float) -> None:
    """The event of an instance has come."""
    armed = reals(h, I_VALUE)
    if armed[slot] != now:
        return  # an earlier one was asked for later, and has come
    armed[slot] = inf
    if ints(h, I_STATE)[slot] & IDLE:
        if reals(h, I_EXPIRES)[slot] <= now:
            _let_go(h, slot)
        else:
            _arm(h, slot)


@compiled
def note_prewarming(h: int, function: int, now: float) -> None:
    """The event of a function has come."""
    c, own, row = ints(h, COUNT), reals(h, KEEP_REALS), REAL_SETTINGS + function * REAL_COLUMNS
    if own[row + PREWARM_ARMED] != now:
        return
    own[row + PREWARM_ARMED] = inf
    at = own[row + PREWARM_AT]
    if at <= now:
        own[row + PREWARM_AT] = inf
        ints(h, PREWARM_NOW)[c[PREWARM_COUNT]] = function
        c[PREWARM_COUNT] += 1
    elif at < inf:
        own[row + PREWARM_ARMED] = at
        schedule(h, at, PREWARM, function, 0)


# --- the histogram of a function's idle times


@compiled
def _row(h: int, function: int) -> int:
    return INT_SETTINGS + function * (INT_COLUMNS + ints(h, KEEP_INTS)[BINS])


@compiled
def _end_idle_time(h: int, function: int) -> None:
    """A function is called: if none of its instances was at work, its idle time is over."""
    whole, own = ints(h, KEEP_INTS), reals(h, KEEP_REALS)
    counts, row = _row(h, function), REAL_SETTINGS + function * REAL_COLUMNS
    own[row + PREWARM_AT] = inf
    whole[counts + RUNS] += 1
    if whole[counts + RUNS] > 1 or own[row + ENDED] < 0:
        return
    idle_s = reals(h, CLOCK)[NOW] - own[row + ENDED]
    own[row + IDLE_SUM] += idle_s
    place = idle_s / own[BIN_S]
    if place < whole[BINS]:
        number = int(place)
        at = counts + INT_COLUMNS + number
        whole[counts + SQUARES] += 2 * whole[at] + 1
        whole[at] += 1
        whole[counts + INSIDE] += 1
        _move_quantile(h, counts, HEAD, BELOW_HEAD, number, own[HEAD_SHARE])
        _move_quantile(h, counts, TAIL, BELOW_TAIL, number, own[TAIL_SHARE])
    else:
        whole[counts + OUTSIDE] += 1
    _set_windows(h, counts, row)


@compiled
def _move_quantile(h: int, counts: int, bin_at: int, below_at: int, number: int, share: float) -> None:
    """Bring a quantile's bin, and how many lie below it, up to date after one more in bin `number`."""
    whole, bins = ints(h, KEEP_INTS), counts + INT_COLUMNS
    wanted = share * whole[counts + INSIDE]
    where, below = whole[counts + bin_at], whole[counts + below_at]
    if number < where:
        below += 1
    while below + whole[bins + where] < wanted:
        below += whole[bins + where]
        where += 1
    while where > 0 and below >= wanted:
        where -= 1
        below -= whole[bins + where]
    whole[counts + bin_at], whole[counts + below_at] = where, below


@compiled
def _set_windows(h: int, counts: int, row: int) -> None:
    """Decide when a function's instance is wanted again after a run, and until when."""
    whole, own = ints(h, KEEP_INTS), reals(h, KEEP_REALS)
    inside, outside = whole[counts + INSIDE], whole[counts + OUTSIDE]
    seen = inside + outside
    prewarm_s, keep_s = 0.0, whole[BINS] * own[BIN_S]
    if seen >= whole[LEAST_SAMPLES]:
        if outside > own[MOST_OUTSIDE] * seen:
            mean_s = own[row + IDLE_SUM] / seen
            prewarm_s, keep_s = mean_s * (1 - own[MEAN_MARGIN]), mean_s * (1 + own[MEAN_MARGIN])
        elif float(whole[counts + SQUARES]) * whole[BINS] >= own[LEAST_SPREAD] * inside * inside:
            prewarm_s = whole[counts + HEAD] * own[BIN_S] * (1 - own[MARGIN])
            keep_s = (whole[counts + TAIL] + 1) * own[BIN_S] * (1 + own[MARGIN])
    own[row + PREWARM_S], own[row + KEEP_S] = prewarm_s, keep_s
