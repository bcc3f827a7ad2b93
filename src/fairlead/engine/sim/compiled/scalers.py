"""Built-in scalers: `policy.knative` and `policy.hpa`, with the same sums and the same order of operations.

A control instant has two parts. First every function is counted and decided upon; then the changes are carried out, one
function after the other. The second part can be broken off for want of room (`NEEDS_ROOM`) and called again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor

import numpy as np
from numpy import inf

from fairlead.engine.sim.compiled import layout as at
from fairlead.engine.sim.compiled.layout import (
    CLOCK,
    COUNT,
    DONE,
    FLAVOUR_FUNCTION,
    FUNCTION_FIRST,
    FUNCTION_WAITING,
    FUNCTIONS,
    I_FLAVOUR,
    I_ID,
    I_STATE,
    IDLE,
    INFINITE,
    INSTANCE_SLOTS,
    NEEDS_ROOM,
    NEEDS_SCALING,
    NOW,
    READY,
    SCALED,
    SCALER,
    SCALER_AT,
    SCALER_INTS,
    SCALER_REALS,
    SET_SIZE,
    SHAPES,
)
from fairlead.engine.sim.compiled.memory import Memory
from fairlead.engine.sim.compiled.rules import has_room
from fairlead.engine.sim.compiled.scaling import most_to_start, scale
from fairlead.engine.sim.compiled.views import compiled, ints, reals
from fairlead.model import Configuration
from fairlead.policy import Policy
from fairlead.policy.hpa import Hpa
from fairlead.policy.kit.headcount import ROUNDING
from fairlead.policy.knative import Knative

NOBODY, KNATIVE, HPA, ASKED = range(4)
KNOWN: tuple[str, ...] = ("knative", "hpa")

# SCALER_INTS: the rings' room, where the shared one begins and how long it is; settings (of which the last is knative's
# target or hpa's steps); then a row for each function.
_ROOM, _FIRST, _LENGTH, _INITIAL, _MIN, _MAX, _STEP = range(7)
_HEAD = 7
# A row: what was counted, what is wanted, sums, where its own ring begins and how long it is; then the ring itself.
_READY, _BUSY, _REPLICAS, _IS_CHANGED, _SUM, _SUM_READY, _SUM_ALL, _OWN_FIRST, _OWN_LENGTH = range(9)
_RING = 9
# SCALER_REALS: settings, the shared ring of instants, then for each function two instants (knative) or a ring (hpa).
_STABLE, _PANIC, _THRESHOLD, _UP, _DOWN, _GRACE, _PER_REPLICA = range(7)  # of knative
_TARGET, _TOLERANCE, _PERIOD, _STABILISATION, _SHARE, _DUE = range(6)  # of hpa
_TIMES = 7


@dataclass
class Asked(Policy):
    """A scaler outside of the loop: at each control instant `advance` stops with NEEDS_SCALING.

    Whoever runs it may then call `scale` and `resize`, and goes on.

    Args:
        sizes: By function, the sizes that its replicas may get besides its own configurations.
    """

    sizes: Mapping[str, Sequence[Configuration]] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """A scaler by number, 0 for none, and its settings: it looks `window_s` back, and decides every so often."""

    number: int
    whole: tuple[int, ...] = ()
    real: tuple[float, ...] = ()
    window_s: float = 0.0
    every_s: float = 0.0
    sizes: Mapping[str, Sequence[Configuration]] = field(default_factory=dict)

    def prepare(self, memory: Memory) -> None:
        """Lay out what the scaler remembers."""
        if self.number not in (KNATIVE, HPA):
            return
        functions = int(memory[at.COUNT][at.FUNCTIONS])
        every_s = max(self.every_s, float(memory[at.CLOCK][at.CONTROL_PERIOD]))
        room = ceil(self.window_s / every_s) + 3  # one at either end, and one for rounding
        whole = np.zeros(_HEAD + functions * (_RING + room), np.int64)
        whole[_ROOM] = room
        whole[_INITIAL : _INITIAL + len(self.whole)] = self.whole
        own = np.array([-inf, inf]) if self.number == KNATIVE else np.zeros(room)
        memory[at.SCALER_INTS] = whole
        settings = np.append(np.array(self.real, float), np.zeros(_TIMES - len(self.real)))
        memory[at.SCALER_REALS] = np.concatenate([settings, np.zeros(room), np.tile(own, functions)])


def choice_of(scaler: Policy) -> Choice | None:
    """The compiled twin of a scaler; None if it has none."""
    if type(scaler) is Knative:
        return _choice_of_knative(scaler)
    if type(scaler) is Hpa:
        return _choice_of_hpa(scaler)
    return Choice(ASKED, sizes=scaler.sizes) if type(scaler) is Asked else None


def _choice_of_knative(scaler: Knative) -> Choice | None:
    whole = (scaler.initial, scaler.min_replicas, _limit(scaler.max_replicas), scaler.target)
    if not all(isinstance(value, int) for value in whole):
        return None
    real = (
        scaler.stable_window_s,
        scaler.panic_window_s,
        scaler.panic_threshold,
        scaler.max_scale_up_rate,
        scaler.max_scale_down_rate,
        scaler.grace_s,
        scaler.target * scaler.utilisation,
    )
    return Choice(KNATIVE, whole, real, window_s=scaler.stable_window_s)


def _choice_of_hpa(scaler: Hpa) -> Choice | None:
    whole = (scaler.initial, scaler.min_replicas, _limit(scaler.max_replicas), scaler.scale_up_replicas)
    if not all(isinstance(value, int) for value in whole):
        return None
    real = (
        scaler.target,
        scaler.tolerance + ROUNDING,
        scaler.period_s,
        scaler.stabilisation_s,
        1 + scaler.scale_up_share,
        -inf,
    )
    return Choice(HPA, whole, real, window_s=scaler.stabilisation_s, every_s=scaler.period_s)


def _limit(max_replicas: int | None) -> int:
    return INFINITE if max_replicas is None else max_replicas


@compiled
def adjust(h: int) -> int:
    """Let the run's scaler decide for every function, and carry it out."""
    c = ints(h, COUNT)
    if c[SCALER] == ASKED:
        c[SCALER_AT] = 1 - c[SCALER_AT]  # it has had its turn when the loop comes back
        return NEEDS_SCALING if c[SCALER_AT] != 0 else DONE
    if c[SCALER_AT] == 0:
        _count(h)
        if c[SCALER] == KNATIVE:
            _knative(h)
        else:
            _hpa(h)
        c[SCALER_AT] = 1
    whole = ints(h, SCALER_INTS)
    while c[SCALER_AT] <= c[FUNCTIONS]:
        function = c[SCALER_AT] - 1
        row = _row(h, function)
        if whole[row + _IS_CHANGED] != 0:
            replicas = whole[row + _REPLICAS]
            size = _size(h, function)
            if not has_room(h, most_to_start(h, function, replicas, size) + 1):
                return NEEDS_ROOM
            whole[row + _IS_CHANGED] = 0
            scale(h, function, replicas, size)
        c[SCALER_AT] += 1
    c[SCALER_AT] = 0
    return DONE


@compiled
def _size(h: int, function: int) -> int:
    """The size of a function's replicas: as it is, or at first that of its first configuration."""
    if ints(h, SCALED)[function] != 0:
        return ints(h, SET_SIZE)[function]
    return ints(h, SHAPES)[ints(h, FUNCTION_FIRST)[function]]


@compiled
def _row(h: int, function: int) -> int:
    return _HEAD + function * (_RING + ints(h, SCALER_INTS)[_ROOM])


@compiled
def _count(h: int) -> None:
    """How many instances of each function have started, and how many of them work; as `policy.headcount` counts."""
    c, whole = ints(h, COUNT), ints(h, SCALER_INTS)
    for function in range(c[FUNCTIONS]):
        row = _row(h, function)
        whole[row + _READY] = whole[row + _BUSY] = 0
    ids, states, flavours = ints(h, I_ID), ints(h, I_STATE), ints(h, I_FLAVOUR)
    for slot in range(c[INSTANCE_SLOTS]):
        if ids[slot] >= 0 and states[slot] & READY:
            row = _row(h, ints(h, FLAVOUR_FUNCTION)[flavours[slot]])
            whole[row + _READY] += 1
            if not states[slot] & IDLE:
                whole[row + _BUSY] += 1


@compiled
def _want(h: int, function: int, replicas: int, is_first: bool) -> None:
    """Note how many replicas a function shall have, within its limits."""
    whole, row = ints(h, SCALER_INTS), _row(h, function)
    replicas = min(max(replicas, whole[_MIN]), whole[_MAX])
    if is_first or replicas != whole[row + _REPLICAS]:
        whole[row + _REPLICAS] = replicas
        whole[row + _IS_CHANGED] = 1


@compiled
def _rounded_up(number: float) -> int:
    number -= ROUNDING
    return INFINITE if number > 1e18 else ceil(number)


# --- knative


@compiled
def _knative(h: int) -> None:
    whole, real = ints(h, SCALER_INTS), reals(h, SCALER_REALS)
    now, room, former, length = reals(h, CLOCK)[NOW], whole[_ROOM], whole[_FIRST], whole[_LENGTH]
    is_first = length == 0
    expired = 0
    while expired < length and real[_TIMES + (former + expired) % room] <= now - real[_STABLE]:
        expired += 1
    first, length = (former + expired) % room, length - expired + 1
    whole[_FIRST], whole[_LENGTH] = first, length
    newest = (first + length - 1) % room
    real[_TIMES + newest] = now
    recent = 0
    while recent < length and real[_TIMES + (first + length - 1 - recent) % room] > now - real[_PANIC]:
        recent += 1
    for function in range(ints(h, COUNT)[FUNCTIONS]):
        row = _row(h, function)
        ring = row + _RING
        for i in range(expired):
            whole[row + _SUM] -= whole[ring + (former + i) % room]
        sample = whole[row + _BUSY] * whole[_STEP] + ints(h, FUNCTION_WAITING)[function]
        whole[ring + newest] = sample
        whole[row + _SUM] += sample
        if is_first:
            if whole[_INITIAL] > 1:
                real[_TIMES + room + 2 * function] = now
            wanted = whole[_INITIAL]
        else:
            quick = 0
            for i in range(recent):
                quick += whole[ring + (first + length - 1 - i) % room]
            wanted = _by_concurrency(h, function, quick, recent)
        _want(h, function, wanted, is_first)


@compiled
def _by_concurrency(h: int, function: int, quick: int, recent: int) -> int:
    """How many replicas a function should have; `quick` is the sum of its last so many samples."""
    whole, real, now = ints(h, SCALER_INTS), reals(h, SCALER_REALS), reals(h, CLOCK)[NOW]
    row, panicked = _row(h, function), _TIMES + whole[_ROOM] + 2 * function
    emptied = panicked + 1
    total, replicas, ready = whole[row + _SUM], whole[row + _REPLICAS], max(1, whole[row + _READY])
    stable = _rounded_up(total / (whole[_LENGTH] * real[_PER_REPLICA]))
    panic = _rounded_up(quick / (recent * real[_PER_REPLICA]))
    if panic >= real[_THRESHOLD] * ready:
        real[panicked] = now
    elif now > real[panicked] + real[_STABLE]:
        real[panicked] = -inf
    least, most = floor(ready / real[_DOWN]), _rounded_up(real[_UP] * ready)
    wanted = min(max(stable, least), most)
    if real[panicked] > -inf:
        wanted = max(wanted, min(max(panic, least), most), replicas)
    real[emptied] = inf if total != 0 else min(real[emptied], now)
    if wanted == 0 and replicas != 0 and now < real[emptied] + real[_GRACE]:
        return 1
    return wanted


# --- hpa


@compiled
def _hpa(h: int) -> None:
    whole, real, now = ints(h, SCALER_INTS), reals(h, SCALER_REALS), reals(h, CLOCK)[NOW]
    functions = ints(h, COUNT)[FUNCTIONS]
    is_first = real[_DUE] == -inf
    if not is_first:
        for function in range(functions):
            row = _row(h, function)
            whole[row + _SUM] += whole[row + _BUSY]
            whole[row + _SUM_READY] += whole[row + _READY]
            whole[row + _SUM_ALL] += max(whole[row + _READY], whole[row + _REPLICAS])
    if now < real[_DUE]:
        return
    real[_DUE] = now + real[_PERIOD]
    for function in range(functions):
        row = _row(h, function)
        if is_first:
            wanted = min(max(whole[_INITIAL], whole[_MIN]), whole[_MAX])
            _remember(h, function, wanted)
        else:
            wanted = _by_utilisation(h, function)
        whole[row + _SUM] = whole[row + _SUM_READY] = whole[row + _SUM_ALL] = 0
        _want(h, function, wanted, is_first)


@compiled
def _remember(h: int, function: int, wanted: int) -> None:
    """Note what is wanted, and forget what lies before the stabilisation window."""
    whole, real, now = ints(h, SCALER_INTS), reals(h, SCALER_REALS), reals(h, CLOCK)[NOW]
    room, row = whole[_ROOM], _row(h, function)
    times = _TIMES + room * (1 + function)
    first, length = whole[row + _OWN_FIRST], whole[row + _OWN_LENGTH]
    while length > 0 and real[times + first] < now - real[_STABILISATION]:
        first, length = (first + 1) % room, length - 1
    newest = (first + length) % room
    real[times + newest] = now
    whole[row + _RING + newest] = wanted
    whole[row + _OWN_FIRST], whole[row + _OWN_LENGTH] = first, length + 1


@compiled
def _by_utilisation(h: int, function: int) -> int:
    """How many replicas a function should have after what was counted since the last decision."""
    whole, real = ints(h, SCALER_INTS), reals(h, SCALER_REALS)
    row, room = _row(h, function), whole[_ROOM]
    replicas = whole[row + _REPLICAS]
    if whole[row + _SUM_READY] == 0:
        return replicas  # nothing was measured
    wanted = min(max(_recommended(h, function), whole[_MIN]), whole[_MAX])
    _remember(h, function, wanted)
    if wanted > replicas:
        by_share = _rounded_up(replicas * real[_SHARE])
        return min(wanted, max(replicas + whole[_STEP], by_share))
    highest = wanted
    for i in range(whole[row + _OWN_LENGTH]):
        highest = max(highest, whole[row + _RING + (whole[row + _OWN_FIRST] + i) % room])
    return min(replicas, highest)


@compiled
def _recommended(h: int, function: int) -> int:
    """How many replicas would be busy as wanted, doing what was done since the last decision."""
    whole, real, row = ints(h, SCALER_INTS), reals(h, SCALER_REALS), _row(h, function)
    busy, many, replicas = whole[row + _SUM], whole[row + _SUM_READY], whole[row + _REPLICAS]
    target = real[_TARGET]
    if busy > many * target:
        many = whole[row + _SUM_ALL]
        if busy <= many * target:
            return replicas
    if abs(busy / (many * target) - 1) <= real[_TOLERANCE]:
        return replicas
    return _rounded_up(replicas * busy / (many * target))
