"""A trace as a stream of arrivals: minute by minute, in bounded memory, the same for a seed however it is taken.

Every call comes at an instant drawn evenly from its minute, and has a log-normal factor for how long it takes.
"""

from collections.abc import Iterator

import numpy as np

from fairlead.workload.chunks import Chunk
from fairlead.workload.traces.trace import Trace

CHUNK = 1 << 18
_MOST_BUCKETS = 1 << 20
_MOST_PER_MINUTE = 2**31 - 1


def chunks(
    trace: Trace, seed: int = 0, *, start_minute: int = 0, minutes: int | None = None, chunk: int = CHUNK
) -> Iterator[Chunk]:
    """The calls of a trace, or of some of its minutes, in chunks of `chunk` arrivals; the last may be shorter.

    Time 0 is the beginning of `start_minute`, which counts from 0. A function is its place in the trace, as in
    `Trace.scenario`; one without a spread has no draw. A call has its numbers from the seed and its place in the whole
    trace: a window holds the same calls as that part of the whole. Memory is that of a chunk and of the busiest minute.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1; got {chunk}.")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be from 0 to 2^63 - 1; got {seed}.")
    first, last = trace.span(start_minute, minutes)
    busiest = int(np.diff(trace.calls_before[first : last + 1]).max())
    if busiest > _MOST_PER_MINUTE:
        raise ValueError(f"a minute may hold {_MOST_PER_MINUTE} calls at most; got {busiest}.")
    return _chunks(trace, seed, first, last, chunk, busiest)


def _chunks(trace: Trace, seed: int, first: int, last: int, chunk: int, busiest: int) -> Iterator[Chunk]:
    from fairlead.workload.traces.kernel import fill_minute  # noqa: PLC0415 - numba takes half a second to load

    sigmas = trace.column("sigma").astype(np.float64)
    has_spread = sigmas > 0
    room = chunk + busiest
    times, called, draws = np.empty(room), np.empty(room, dtype=np.int32), np.empty(room)
    keys = np.empty(busiest, dtype=np.uint64)
    buckets = np.empty(min(_MOST_BUCKETS, 1 << max(0, busiest - 1).bit_length()), dtype=np.int32)

    def piece(begin: int, end: int) -> Chunk:
        who = called[begin:end].copy()
        factors = draws[begin:end]
        return Chunk(times[begin:end].copy(), who, factors.copy() if has_spread.all() else factors[has_spread[who]])

    filled = 0
    for minute in range(first, last):
        functions, counts = trace.minute(minute)
        start_s = (minute - first) * 60.0
        number = int(trace.calls_before[minute])
        filled = fill_minute(
            seed, start_s, number, functions, counts, sigmas, buckets, filled, keys, times, called, draws
        )
        taken = 0
        while filled - taken >= chunk:
            yield piece(taken, taken + chunk)
            taken += chunk
        if taken:
            left = filled - taken
            for array in (times, called, draws):
                array[:left] = array[taken:filled]
            filled = left
    if filled:
        yield piece(0, filled)
