"""Which requests of a long run are recorded."""

from fairlead.engine.sim.compiled.layout import (
    COUNT,
    EVERY_SO_MANY,
    R_ARRIVAL,
    R_ID,
    RECORD_WINDOWS,
    SAMPLE_EVERY,
    SAMPLING,
)
from fairlead.engine.sim.compiled.views import compiled, ints, reals


@compiled
def is_sampled(h: int, slot: int) -> bool:
    """Whether a request belongs to the sample: by its number, or by its arrival."""
    c = ints(h, COUNT)
    if c[SAMPLING] == EVERY_SO_MANY:
        return ints(h, R_ID)[slot] % c[SAMPLE_EVERY] == 0
    windows, arrival = reals(h, RECORD_WINDOWS), reals(h, R_ARRIVAL)[slot]
    for i in range(0, len(windows), 2):
        if windows[i] <= arrival < windows[i + 1]:
            return True
    return False
