"""What a keep-alive rule does to the pool: it lets instances go, and starts some before anybody asks."""

from fairlead.engine.sim.compiled.flow import start_instance
from fairlead.engine.sim.compiled.index import find
from fairlead.engine.sim.compiled.layout import (
    CLOCK,
    COUNT,
    EXPIRED,
    EXPIRED_COUNT,
    EXPIRED_NOW,
    FUNCTION_SHAPE,
    I_READY,
    I_STATE,
    NOW,
    PREWARM_COUNT,
    PREWARM_DONE,
    PREWARM_NOW,
    PREWARMED,
    READY,
    SHAPE_FLAVOUR,
    WARM_NODES,
)
from fairlead.engine.sim.compiled.pool import create, release, stop
from fairlead.engine.sim.compiled.rules import has_room
from fairlead.engine.sim.compiled.views import compiled, ints, reals


@compiled
def keep_up(h: int) -> bool:
    """Carry out what falls due at this instant; False for want of room in the arrays.

    A function of which an instance is idle needs no other. Where no node has room, none is started.
    """
    c = ints(h, COUNT)
    for i in range(c[EXPIRED_COUNT]):
        stop(h, ints(h, EXPIRED_NOW)[i], EXPIRED)
    c[EXPIRED_COUNT] = 0
    while c[PREWARM_DONE] < c[PREWARM_COUNT]:
        if not has_room(h, 1):
            return False
        shape = ints(h, FUNCTION_SHAPE)[ints(h, PREWARM_NOW)[c[PREWARM_DONE]]]
        c[PREWARM_DONE] += 1
        if ints(h, WARM_NODES)[ints(h, SHAPE_FLAVOUR)[shape]] == 0:
            node = find(h, shape, False)
            if node >= 0:
                start_instance(h, create(h, shape, node, False))
                c[PREWARMED] += 1
    c[PREWARM_DONE] = c[PREWARM_COUNT] = 0
    return True


@compiled
def prewarmed(h: int, slot: int) -> None:
    """An instance that nobody has asked for yet has started."""
    ints(h, I_STATE)[slot] |= READY
    reals(h, I_READY)[slot] = reals(h, CLOCK)[NOW]
    release(h, slot)
