"""Placement environments in little memory, for scenarios where an idle instance holds nothing.

The same steps as in `stepping`, to the last bit of what is shown, for clusters without devices in which nothing has to
be moved, evicted or shared: then an idle instance is a node and a release time, and an environment tens of kilobytes
instead of most of a megabyte. A thousand environments then stay near the processor, on which their speed depends.

A run of a task is one entry in a heap: when, and (order, node, task) in one word. Waiting tasks stand in a ring, as do
the idle instances of one function on one node: the one used last goes first, and those at the other end expire.
"""

from itertools import count as _numbers

from numba import boolean, float64, int64, types
from numpy import inf, nan

from fairlead.engine.sim.compiled.layout import FIELDS as LAYOUT_FIELDS
from fairlead.engine.sim.compiled.layout import LEVEL_BITS
from fairlead.engine.sim.compiled.luck import choose, exponential, factor, scatter
from fairlead.engine.sim.compiled.packing import CROWD, CUT_OFF, ENDED, IN_TIME, LONGEST, OPEN_TIME, OUT_OF_ROOM
from fairlead.engine.sim.compiled.singles import address, fetch, floats
from fairlead.engine.sim.compiled.views import compiled, ints, kept, reals

FIRST_FIELD = LAYOUT_FIELDS  # numbers that no record of `layout` has
_f = _numbers(FIRST_FIELD)
# --- fields of one environment
C = next(_f)  # whole numbers by the positions below
X = next(_f)  # real numbers
FREE = next(_f)  # by node: thousandths of a vCPU
IDLE = next(_f)  # by (function, node): idle instances, perhaps with expired ones
OLDEST = next(_f)  # by (function, node): place of the oldest in its ring
EXPIRY = next(_f)  # by function: none of its instances expires before
RING = next(_f)  # release times
HEAP_AT = next(_f)  # of every second word; four children each
HEAP_WHAT = next(_f)
LINE_AT = next(_f)  # waiting tasks: since when; every second word
LINE_TASK = next(_f)
R_REALS = next(_f)  # by request: arrival, then its draws
R_INTS = next(_f)  # by request: workflow and stages left, then the open predecessors of its stages, 8 to a word
SPARE = next(_f)  # request slots that were used before and are free
OBSERVATION = next(_f)
# --- shared by all
TOTAL = next(_f)
KIND = next(_f)
FREE_SCALE = next(_f)
WARM_SCALE = next(_f)
RING_FIRST = next(_f)  # by (function, node): where its ring lies, and one more
VCPUS = next(_f)  # by function
BASE = next(_f)  # by (function, kind): time of a run; infinite where there is none
COLD = next(_f)
KEEP = next(_f)  # by function: keep-alive
SLO = next(_f)  # by workflow
SLO_SCALE = next(_f)  # by workflow: one over its SLO
FIRST = next(_f)  # by workflow: its first stage, and one more
ENTRY = next(_f)
ENTRIES = next(_f)
OPEN_BEFORE = next(_f)  # by (workflow, word): open predecessors at first
STAGE_FUNCTION = next(_f)
THEN = next(_f)
SUCCESSORS = next(_f)
SPREAD = next(_f)
NOISE = next(_f)
CHANCES = next(_f)
WIDTH = next(_f)  # by workflow: how many draws
DRAW_KIND = next(_f)
DRAW_SIGMA = next(_f)
ARRIVAL_AT = next(_f)  # where arrivals are given
ARRIVAL_WORKFLOW = next(_f)
ARRIVAL_DRAWS = next(_f)
FIELDS = next(_f)

_c = _numbers()
RANDOM = next(_c)  # the generator: first, as `luck` has it
SEED = next(_c)
EPISODE = next(_c)
STEPS = next(_c)
MOST_STEPS = next(_c)
IS_OVER = next(_c)
REWARDS = next(_c)
NODES = next(_c)
FUNCTIONS = next(_c)
KINDS = next(_c)
UNIT = next(_c)  # thousandths of a vCPU to a level
FACTOR = next(_c)  # see `layout.CPU_FACTOR`
DRAWS = next(_c)
STRIDE = next(_c)  # words of a request
WORDS = next(_c)  # of open predecessors
SLOTS = next(_c)
LINE_MASK = next(_c)
RUNNING = next(_c)  # in the heap
ORDER = next(_c)
LINE_FIRST = next(_c)
WAITING = next(_c)
OPEN = next(_c)
FRESH = next(_c)  # slots that were used so far
SPARES = next(_c)
FREED = next(_c)  # the node on which a run ended last
BLOCKED = next(_c)  # a function that fits nowhere until one ends; -1 for none
GIVEN = next(_c)  # arrivals that are given; -1 where they are drawn
ARRIVED = next(_c)
DRAWN = next(_c)
COLD_STARTS = next(_c)
COMPLETED = next(_c)
COUNTS = next(_c)

_x = _numbers()
NOW = next(_x)
REWARD = next(_x)
NEXT_ARRIVAL = next(_x)
GAP = next(_x)
PENALTY = next(_x)
LATENCY_SUM = next(_x)
CLOCKS = next(_x)

# A task is its request's slot and its stage over all workflows, in one word; what is in the heap is an order, a task,
# a node, and whether an instance has started or a run has ended.
STAGE_BITS, SLOT_BITS, NODE_BITS = 8, 13, 11
_STAGE_MASK, _NODE_MASK, _TASK_MASK = (1 << STAGE_BITS) - 1, (1 << NODE_BITS) - 1, (1 << (STAGE_BITS + SLOT_BITS)) - 1
_TASK_SHIFT = NODE_BITS + 1
_ORDER_SHIFT = _TASK_SHIFT + STAGE_BITS + SLOT_BITS

_NEAR_LINES = 36


# --- the heap: by instant, then by order


@compiled
def _push(h: int, instant: float, task: int, node: int, is_start: int) -> None:
    c, times, whats = ints(h, C), reals(h, HEAP_AT), ints(h, HEAP_WHAT)
    c[ORDER] += 1
    i = c[RUNNING]
    c[RUNNING] = i + 1
    while i > 0:
        parent = (i - 1) >> 2
        if times[2 * parent] <= instant:
            break
        times[2 * i], whats[2 * i] = times[2 * parent], whats[2 * parent]
        i = parent
    times[2 * i] = instant
    whats[2 * i] = (c[ORDER] << _ORDER_SHIFT) | (task << _TASK_SHIFT) | (node << 1) | is_start


@compiled
def _pop(h: int) -> None:
    c, times, whats = ints(h, C), reals(h, HEAP_AT), ints(h, HEAP_WHAT)
    last = c[RUNNING] - 1
    c[RUNNING] = last
    instant, what = times[2 * last], whats[2 * last]
    i = 0
    while True:
        first = 4 * i + 1
        if first >= last:
            break
        child, soonest = first, times[2 * first]
        if first + 4 <= last:  # without branches: which one is first cannot be guessed
            second, third, fourth = times[2 * first + 2], times[2 * first + 4], times[2 * first + 6]
            child, soonest = (first + 1, second) if second < soonest else (child, soonest)
            other, sooner = (first + 3, fourth) if fourth < third else (first + 2, third)
            child, soonest = (other, sooner) if sooner < soonest else (child, soonest)
            equal = (times[2 * first] == soonest) + (second == soonest) + (third == soonest) + (fourth == soonest)
        else:
            equal = 2
        if equal > 1:
            child, soonest = first, times[2 * first]
            for other in range(first + 1, min(first + 4, last)):
                at = times[2 * other]
                if at < soonest or (at == soonest and whats[2 * other] < whats[2 * child]):
                    child, soonest = other, at
        if instant < soonest or (instant == soonest and what < whats[2 * child]):
            break
        times[2 * i], whats[2 * i] = soonest, whats[2 * child]
        i = child
    times[2 * i], whats[2 * i] = instant, what


# --- requests


@compiled
def _wait(h: int, task: int) -> None:
    c = ints(h, C)
    place = 2 * ((c[LINE_FIRST] + c[WAITING]) & c[LINE_MASK])
    c[WAITING] += 1
    ints(h, LINE_TASK)[place] = task
    reals(h, LINE_AT)[place] = reals(h, X)[NOW]


@compiled
def _arrive(h: int) -> bool:
    """Take in the next arrival; False if there is no slot for it."""
    c, x = ints(h, C), reals(h, X)
    if c[SPARES] > 0:
        c[SPARES] -= 1
        slot = ints(h, SPARE)[c[SPARES]]
    elif c[FRESH] < c[SLOTS]:
        slot = c[FRESH]
        c[FRESH] += 1
    else:
        return False
    real, whole = reals(h, R_REALS), ints(h, R_INTS)
    at = slot * c[STRIDE]
    real[at] = x[NOW]
    draws = at + 2 + c[WORDS]
    if c[GIVEN] < 0:
        workflow = choose(c, reals(h, CHANCES))
        first = workflow * c[DRAWS]
        for i in range(ints(h, WIDTH)[workflow]):
            real[draws + i] = factor(c, ints(h, DRAW_KIND)[first + i], reals(h, DRAW_SIGMA)[first + i])
        x[NEXT_ARRIVAL] += x[GAP] * exponential(c)
    else:
        workflow = ints(h, ARRIVAL_WORKFLOW)[c[ARRIVED]]
        for i in range(ints(h, WIDTH)[workflow]):
            real[draws + i] = reals(h, ARRIVAL_DRAWS)[c[DRAWN] + i]
        c[DRAWN] += ints(h, WIDTH)[workflow]
        x[NEXT_ARRIVAL] = reals(h, ARRIVAL_AT)[c[ARRIVED] + 1] if c[ARRIVED] + 1 < c[GIVEN] else inf
    c[ARRIVED] += 1
    c[OPEN] += 1
    whole[at + 1] = (workflow << 32) | (ints(h, FIRST)[workflow + 1] - ints(h, FIRST)[workflow])
    for i in range(c[WORDS]):
        whole[at + 2 + i] = ints(h, OPEN_BEFORE)[workflow * c[WORDS] + i]
    for i in range(ints(h, ENTRY)[workflow], ints(h, ENTRY)[workflow + 1]):
        _wait(h, (slot << STAGE_BITS) | ints(h, ENTRIES)[i])
    return True


@compiled
def _function(h: int, task: int) -> int:
    """The function of a task."""
    return ints(h, STAGE_FUNCTION)[task & _STAGE_MASK]


@compiled
def _work_s(h: int, task: int, function: int, node: int) -> float:
    c = ints(h, C)
    stage = task & _STAGE_MASK
    seconds = reals(h, BASE)[function * c[KINDS] + ints(h, KIND)[node]]
    draws = (task >> STAGE_BITS) * c[STRIDE] + 2 + c[WORDS]
    which = ints(h, SPREAD)[stage]
    if which >= 0:
        seconds *= reals(h, R_REALS)[draws + which]
    which = ints(h, NOISE)[stage]
    if which >= 0:
        seconds *= reals(h, R_REALS)[draws + which]
    return seconds


@compiled
def _take(h: int, node: int, vcpus: int) -> None:
    """Use some of a node, and show it."""
    free = ints(h, FREE)
    free[node] -= vcpus
    floats(h, OBSERVATION)[node] = free[node] * reals(h, FREE_SCALE)[node]


@compiled
def _finish(h: int, task: int, node: int) -> None:
    """A run has ended: its instance is idle, the next stages wait, or the request is answered."""
    c, x, whole = ints(h, C), reals(h, X), ints(h, R_INTS)
    stage = task & _STAGE_MASK
    function = ints(h, STAGE_FUNCTION)[stage]
    _take(h, node, -ints(h, VCPUS)[function])
    c[FREED], c[BLOCKED] = node, -1
    cell = function * c[NODES] + node
    first, room = ints(h, RING_FIRST)[cell], ints(h, RING_FIRST)[cell + 1] - ints(h, RING_FIRST)[cell]
    place = ints(h, OLDEST)[cell] + ints(h, IDLE)[cell]
    if place >= room:
        place -= room
    reals(h, RING)[first + place] = x[NOW]
    ints(h, IDLE)[cell] += 1
    expires = x[NOW] + reals(h, KEEP)[function]
    if expires < reals(h, EXPIRY)[function]:
        reals(h, EXPIRY)[function] = expires
    slot = task >> STAGE_BITS
    at = slot * c[STRIDE]
    for i in range(ints(h, THEN)[stage], ints(h, THEN)[stage + 1]):
        successor = ints(h, SUCCESSORS)[i]
        is_ready = True
        if c[WORDS] > 0:
            local = successor - ints(h, FIRST)[whole[at + 1] >> 32]
            word, shift = at + 2 + (local >> 3), 8 * (local & 7)
            whole[word] -= 1 << shift
            is_ready = (whole[word] >> shift) & 255 == 0
        if is_ready:
            _wait(h, (slot << STAGE_BITS) | successor)
    whole[at + 1] -= 1
    if whole[at + 1] & 0xFFFFFFFF == 0:
        c[OPEN] -= 1
        c[COMPLETED] += 1
        latency_s = x[NOW] - reals(h, R_REALS)[at]
        x[LATENCY_SUM] += latency_s
        if c[REWARDS] == IN_TIME:
            x[REWARD] += 1.0 if latency_s <= reals(h, SLO)[whole[at + 1] >> 32] else -1.0
        ints(h, SPARE)[c[SPARES]] = slot
        c[SPARES] += 1


# --- where there is room


@compiled
def _fits(h: int, function: int, node: int) -> bool:
    kinds = ints(h, C)[KINDS]
    return (
        ints(h, FREE)[node] >= ints(h, VCPUS)[function]
        and reals(h, BASE)[function * kinds + ints(h, KIND)[node]] != inf
    )


@compiled
def _fits_anywhere(h: int, function: int) -> bool:
    c = ints(h, C)
    if c[BLOCKED] == function:
        return False
    if _fits(h, function, c[FREED]):
        return True
    for node in range(c[NODES]):
        if _fits(h, function, node):
            return True
    c[BLOCKED] = function
    return False


@compiled
def _emptiest(h: int, function: int, needs_warm: bool) -> int:
    """The emptiest node that fits; -1 if there is none."""
    c, free, idle = ints(h, C), ints(h, FREE), ints(h, IDLE)
    best, most = -1, ints(h, VCPUS)[function]  # what a node must have free to be better
    for node in range(c[NODES]):
        if free[node] >= most and _fits(h, function, node) and (not needs_warm or idle[function * c[NODES] + node] > 0):
            best, most = node, ((free[node] * c[FACTOR] >> LEVEL_BITS) + 1) * c[UNIT]
    return best


@compiled
def _expire(h: int, function: int) -> None:
    """Let go of a function's idle instances whose time is up; none expires before the time that is noted then."""
    c, now = ints(h, C), reals(h, X)[NOW]
    if now < reals(h, EXPIRY)[function]:
        return
    idle, oldest, firsts, keep = ints(h, IDLE), ints(h, OLDEST), ints(h, RING_FIRST), reals(h, KEEP)[function]
    soonest = inf
    for cell in range(function * c[NODES], (function + 1) * c[NODES]):
        room = firsts[cell + 1] - firsts[cell]
        while idle[cell] > 0:
            expires = reals(h, RING)[firsts[cell] + oldest[cell]] + keep
            if expires > now:
                soonest = min(soonest, expires)
                break
            idle[cell] -= 1
            oldest[cell] = oldest[cell] + 1 if oldest[cell] + 1 < room else 0
    reals(h, EXPIRY)[function] = soonest


# --- from decision to decision


@compiled
def _go_on(h: int) -> int:
    """Until a task is first in line that fits somewhere; 0 then, else why the episode is over."""
    c, x = ints(h, C), reals(h, X)
    times, whats = reals(h, HEAP_AT), ints(h, HEAP_WHAT)
    while True:
        if c[WAITING] > 0 and _fits_anywhere(h, _function(h, ints(h, LINE_TASK)[2 * c[LINE_FIRST]])):
            return CUT_OFF if c[STEPS] >= c[MOST_STEPS] else 0
        event = times[0] if c[RUNNING] > 0 else inf
        now = min(event, x[NEXT_ARRIVAL])
        if now == inf:
            return ENDED
        if c[REWARDS] == OPEN_TIME:
            x[REWARD] -= (now - x[NOW]) * c[OPEN]
        x[NOW] = now
        last = c[ORDER]  # what is scheduled now for now belongs to the next instant
        while c[RUNNING] > 0 and times[0] == now and whats[0] >> _ORDER_SHIFT <= last:
            what = whats[0]
            _pop(h)
            task, node = (what >> _TASK_SHIFT) & _TASK_MASK, (what >> 1) & _NODE_MASK
            if what & 1:
                _push(h, now + _work_s(h, task, _function(h, task), node), task, node, 0)
            else:
                _finish(h, task, node)
        while x[NEXT_ARRIVAL] == now:
            if not _arrive(h):
                return OUT_OF_ROOM


@compiled
def _observe(h: int) -> None:
    """As in `stepping`."""
    c, x, shown = ints(h, C), reals(h, X), floats(h, OBSERVATION)
    nodes, functions = c[NODES], c[FUNCTIONS]
    at = 2 * nodes  # what is free of each node is shown already
    for other in range(functions):
        shown[at + other] = 0.0
    waited, slack = 0.0, 1.0
    if c[WAITING] > 0:
        task = ints(h, LINE_TASK)[2 * c[LINE_FIRST]]
        function = _function(h, task)
        shown[at + function] = 1.0
        request = (task >> STAGE_BITS) * c[STRIDE]
        scale_s = reals(h, SLO_SCALE)[ints(h, R_INTS)[request + 1] >> 32]
        waited = min(LONGEST, (x[NOW] - reals(h, LINE_AT)[2 * c[LINE_FIRST]]) * scale_s)
        slack = max(-LONGEST, 1.0 - (x[NOW] - reals(h, R_REALS)[request]) * scale_s)
        _expire(h, function)
        idle, scale = ints(h, IDLE), reals(h, WARM_SCALE)
        first = function * nodes
        for node in range(nodes):
            shown[nodes + node] = idle[first + node] * scale[first + node]
    else:
        for node in range(nodes):
            shown[nodes + node] = 0.0
    at += functions
    shown[at] = c[WAITING] / (c[WAITING] + CROWD)
    shown[at + 1] = waited
    shown[at + 2] = slack


@compiled
def _begin(h: int) -> int:
    """A new episode, up to its first decision."""
    c, x = ints(h, C), reals(h, X)
    c[EPISODE] += 1
    c[RANDOM] = scatter(c[SEED], c[EPISODE])
    for node in range(c[NODES]):
        ints(h, FREE)[node] = ints(h, TOTAL)[node]
        _take(h, node, 0)
    for cell in range(c[FUNCTIONS] * c[NODES]):
        ints(h, IDLE)[cell] = ints(h, OLDEST)[cell] = 0
    for function in range(c[FUNCTIONS]):
        reals(h, EXPIRY)[function] = inf
    for i in range(RUNNING, OPEN + 1):
        c[i] = 0
    c[BLOCKED] = -1
    c[STEPS] = c[FRESH] = c[SPARES] = c[FREED] = c[ARRIVED] = c[DRAWN] = c[COLD_STARTS] = c[COMPLETED] = 0
    x[NOW] = x[LATENCY_SUM] = 0.0
    if c[GIVEN] < 0:
        x[NEXT_ARRIVAL] = x[GAP] * exponential(c)
    else:
        x[NEXT_ARRIVAL] = reals(h, ARRIVAL_AT)[0] if c[GIVEN] > 0 else inf
    c[IS_OVER] = _go_on(h)
    x[REWARD] = 0.0
    _observe(h)
    return c[IS_OVER]


@compiled
def _step(h: int, action: int) -> int:
    """Carry out an answer and go on to the next question; says how the episode ended, 0 if it did not."""
    c, x = ints(h, C), reals(h, X)
    task = ints(h, LINE_TASK)[2 * c[LINE_FIRST]]
    function = _function(h, task)
    x[REWARD] = 0.0
    if action < 0 or action >= c[NODES] or not _fits(h, function, action):
        action = _emptiest(h, function, False)
        x[REWARD] = -x[PENALTY]
    c[WAITING] -= 1
    # An empty line begins at the beginning again, where memory is near.
    c[LINE_FIRST] = (c[LINE_FIRST] + 1) & c[LINE_MASK] if c[WAITING] > 0 else 0
    _take(h, action, ints(h, VCPUS)[function])
    _expire(h, function)
    cell = function * c[NODES] + action
    if ints(h, IDLE)[cell] > 0:
        ints(h, IDLE)[cell] -= 1
        _push(h, x[NOW] + _work_s(h, task, function, action), task, action, 0)
    else:
        c[COLD_STARTS] += 1
        _push(h, x[NOW] + reals(h, COLD)[function * c[KINDS] + ints(h, KIND)[action]], task, action, 1)
    c[STEPS] += 1
    c[IS_OVER] = _go_on(h)
    _observe(h)
    return c[IS_OVER]


# --- what Python calls: as in `stepping`


@compiled
def _fetch_row(h: int) -> None:
    """What every step looks at, of an environment whose turn comes soon."""
    for i in range(_NEAR_LINES):
        fetch(h + 16 * FIRST_FIELD + 64 * i)


@compiled
def _fetch_more(h: int, action: int) -> None:
    """What its step will look at further off: of the run that ends next, and of the task that is asked about."""
    c = ints(h, C)
    at = address(h, R_REALS)
    task = ints(h, LINE_TASK)[2 * c[LINE_FIRST]]
    fetch(at + 8 * (task >> STAGE_BITS) * c[STRIDE])
    what = ints(h, HEAP_WHAT)[0]
    fetch(at + 8 * ((what >> _TASK_SHIFT & _TASK_MASK) >> STAGE_BITS) * c[STRIDE])
    for i in range(c[RUNNING] >> 2):
        fetch(address(h, HEAP_AT) + 64 * i)


@kept(int64(int64))
def reset_one(h: int) -> int:
    """Begin an episode of one environment; says how it ended, if it did at once."""
    return _begin(h)


@kept(float64(int64, int64))
def step_one(h: int, action: int) -> float:
    """One step of one environment: its reward; not a number if the episode is over, and stays so until a reset."""
    if ints(h, C)[IS_OVER] != 0:
        reals(h, X)[REWARD] = 0.0
        return nan
    return nan if _step(h, action) != 0 else reals(h, X)[REWARD]


@kept(int64(int64, int64, boolean[::1]))
def reset_many(h: int, apart: int, chosen) -> int:  # type: ignore[no-untyped-def]
    """Begin an episode of those environments that are chosen."""
    for i in range(len(chosen)):
        if chosen[i]:
            _begin(h + i * apart)
    return 0


@kept(int64(int64, int64, int64[::1], float64[::1], boolean[::1], boolean[::1]))
def step_many(h: int, apart: int, actions, rewards, terminated, truncated) -> int:  # type: ignore[no-untyped-def]
    """One step of each environment; one that is over begins anew. Says how many ran out of room."""
    short, count = 0, len(actions)
    for i in range(count):
        if i + 3 < count:
            _fetch_row(h + 3 * apart)
            _fetch_more(h + apart, actions[i + 1])
        if ints(h, C)[IS_OVER] != 0:
            how = _begin(h)
            rewards[i] = 0.0
        else:
            how = _step(h, actions[i])
            rewards[i] = reals(h, X)[REWARD]
        terminated[i] = how == ENDED
        truncated[i] = how > ENDED
        if how == OUT_OF_ROOM:
            short += 1
        h += apart
    return short


@kept(types.void(int64, types.Array(types.int8, 1, "C")))
def mask(h: int, allowed) -> None:  # type: ignore[no-untyped-def]
    """On which nodes the oldest waiting invocation fits."""
    c = ints(h, C)
    for node in range(c[NODES]):
        allowed[node] = 0
        if c[WAITING] > 0 and _fits(h, _function(h, ints(h, LINE_TASK)[2 * c[LINE_FIRST]]), node):
            allowed[node] = 1


@kept(float64(int64, int64))
def rehearse(h: int, steps: int) -> float:
    """So many steps of one environment by the rule of `fifo`, decided inside: the limit that no caller can pass."""
    c, total = ints(h, C), 0.0
    for _ in range(steps):
        if c[IS_OVER] != 0:
            _begin(h)
        else:
            function = _function(h, ints(h, LINE_TASK)[2 * c[LINE_FIRST]])
            node = _emptiest(h, function, True)
            _step(h, _emptiest(h, function, False) if node < 0 else node)
            total += reals(h, X)[REWARD]
    return total
