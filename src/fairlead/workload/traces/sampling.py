"""Traces cut to size: fewer functions of the same mix, or fewer calls of the same functions."""

from dataclasses import replace

import numpy as np

from fairlead.workload.traces.trace import Trace, by_minute

_WIDE = 4.0  # a stratum whose busiest function has so many times the calls of its least busy one is not of one kind


def sample(trace: Trace, functions: int, seed: int = 0) -> Trace:
    """So many functions, stratified by popularity: one of each stratum of equally many, in order of calls.

    It is drawn at random, except in the strata at the top, whose few functions make most of all calls and differ by
    orders of magnitude: there it is the one nearest to the mean, so that the calls per function stay what they are.
    """
    if not 1 <= functions <= len(trace):
        raise ValueError(f"functions must be from 1 to {len(trace)}; got {functions}.")
    rng = np.random.default_rng((seed, 0x5A))
    calls = trace.calls
    order = np.lexsort((np.arange(len(trace)), calls))
    bounds = np.arange(functions + 1) * len(trace) // functions
    drawn = rng.random(functions)
    chosen = np.empty(functions, dtype=np.int64)
    for i in range(functions):
        stratum = order[bounds[i] : bounds[i + 1]]
        held = calls[stratum]
        is_top = i >= 0.9 * functions and held[-1] > _WIDE * max(1, held[0])
        pick = int(np.argmin(np.abs(held - held.mean()))) if is_top else int(drawn[i] * stratum.size)
        chosen[i] = stratum[pick]
    return trace.keep(chosen)


def scale(trace: Trace, factor: float) -> Trace:
    """The counts times a factor, as whole numbers whose running sum is the exact one rounded.

    The sum runs through one function after the other, so that nothing is lost where functions are called a few times
    only: each has its share of calls within 1, and all together exactly theirs.
    """
    if not 0 < factor < np.inf:
        raise ValueError(f"factor must be positive and finite; got {factor}.")
    if trace.invocations * factor > 2**53:
        raise ValueError(f"factor must leave a number that can be counted; got {factor:g}.")
    begins, minutes, counts = trace.by_function
    running = np.rint(np.cumsum(counts, dtype=np.float64) * factor).astype(np.int64)
    scaled = np.diff(running, prepend=0)
    if scaled.size and scaled.max() > np.iinfo(np.int32).max:
        raise ValueError(f"factor must leave at most 2^31 calls per function and minute; got {factor:g}.")
    is_left = scaled > 0
    functions = np.repeat(np.arange(len(trace), dtype=np.int32), np.diff(begins))
    starts, called, left = by_minute(
        functions[is_left], minutes[is_left], scaled[is_left].astype(np.int32), trace.minutes
    )
    return replace(trace, starts=starts, called=called, counts=left)
