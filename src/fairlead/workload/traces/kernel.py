"""The compiled part of a stream: the calls of one minute, drawn, merged over all functions and put in order.

Every number is a hash of the seed and the call's number in the whole trace, so that the stream is the same whatever is
cut from it and in whatever pieces it is taken. Loaded only where a stream is read: numba takes half a second to load.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

INSTANT_BITS = 36
"""An instant is one of 2^36 in its minute, 0.9 ns apart: none is rounded into the next minute within 90 days."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_DRAWS = np.uint64(0xD1B54A32D192ED03)  # sets the numbers of the factors apart from those of the instants
_BELOW = np.uint64(64 - INSTANT_BITS)
_UNIT = 2.0**-52
_STEP_S = 60.0 / 2**INSTANT_BITS


@njit(cache=True)
def mixed(state: np.uint64) -> np.uint64:
    """The output function of splitmix64: 64 bits in, 64 bits that look drawn out."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@njit(cache=True)
def normal_quantile(p: float) -> float:
    """The standard normal quantile of p in (0, 1), to 1e-15: algorithm AS 241 of Wichura (1988), PPND16."""
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        top = ((2.5090809287301226727e3 * r + 3.3430575583588128105e4) * r + 6.7265770927008700853e4) * r
        top = (((top + 4.5921953931549871457e4) * r + 1.3731693765509461125e4) * r + 1.9715909503065514427e3) * r
        top = (top + 1.3314166789178437745e2) * r + 3.3871328727963666080e0
        low = ((5.2264952788528545610e3 * r + 2.8729085735721942674e4) * r + 3.9307895800092710610e4) * r
        low = (((low + 2.1213794301586595867e4) * r + 5.3941960214247511077e3) * r + 6.8718700749205790830e2) * r
        low = (low + 4.2313330701600911252e1) * r + 1.0
        return q * top / low
    r = math.sqrt(-math.log(p if q < 0 else 1.0 - p))
    if r <= 5.0:
        r -= 1.6
        top = ((7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r + 2.41780725177450611770e-1) * r
        top = (((top + 1.27045825245236838258e0) * r + 3.64784832476320460504e0) * r + 5.76949722146069140550e0) * r
        top = (top + 4.63033784615654529590e0) * r + 1.42343711074968357734e0
        low = ((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r + 1.51986665636164571966e-2) * r
        low = (((low + 1.48103976427480074590e-1) * r + 6.89767334985100004550e-1) * r + 1.67638483018380384940e0) * r
        low = (low + 2.05319162663775882187e0) * r + 1.0
    else:
        r -= 5.0
        top = ((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 1.24266094738807843860e-3) * r
        top = (((top + 2.65321895265761230930e-2) * r + 2.96560571828504891230e-1) * r + 1.78482653991729133580e0) * r
        top = (top + 5.46378491116411436990e0) * r + 6.65790464350110377720e0
        low = ((2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r + 1.84631831751005468180e-5) * r
        low = (((low + 7.86869131145613259100e-4) * r + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1) * r
        low = (low + 5.99832206555887937690e-1) * r + 1.0
    return -top / low if q < 0 else top / low


@njit(cache=True)
def fill_minute(
    seed: int,
    start_s: float,
    first_call: int,
    functions: NDArray[np.int32],
    counts: NDArray[np.int32],
    sigmas: NDArray[np.float64],
    buckets: NDArray[np.int32],
    at: int,
    keys: NDArray[np.uint64],
    times: NDArray[np.float64],
    called: NDArray[np.int32],
    draws: NDArray[np.float64],
) -> int:
    """Write the calls of a minute from place `at` on, in order; gives the place after them.

    A minute holds `counts[i]` calls of function `functions[i]`, numbered from `first_call` on. `buckets` is scratch of
    a power of two in length, `keys` scratch as long as the minute. A draw is a log-normal factor of mean 1.

    The hash of a call is its key: the upper bits are its instant, and no two calls have the same, as the hash can be
    undone. Hashed again it gives the call's factor.
    """
    seeded = mixed(np.uint64(seed) + _GOLDEN)
    total = 0
    for i in range(counts.size):
        total += counts[i]
    bits = 0
    while (2 << bits) <= total and (2 << bits) <= buckets.size:
        bits += 1
    # A sort by counting: how many fall in each of 2^bits parts of the minute, then each call into its part. The hash is
    # cheaper to make twice than to keep.
    shift = np.uint64(63 - bits)  # and one bit more, as a shift by 64 is undefined
    one = np.uint64(1)
    buckets[: 1 << bits] = 0
    state = seeded + np.uint64(first_call) * _GOLDEN
    for _ in range(total):
        buckets[np.int64((mixed(state) >> shift) >> one)] += np.int32(1)
        state += _GOLDEN
    place = np.int32(0)
    for i in range(1 << bits):
        held = buckets[i]
        buckets[i] = place
        place += held
    state = seeded + np.uint64(first_call) * _GOLDEN
    for i in range(counts.size):
        function = functions[i]
        for _ in range(counts[i]):
            key = mixed(state)
            bucket = np.int64((key >> shift) >> one)
            place = buckets[bucket]
            buckets[bucket] = place + np.int32(1)
            keys[place] = key
            called[at + place] = function
            state += _GOLDEN
    # Parts hold one or two calls each: what is left is an insertion over short distances.
    for i in range(1, total):
        key = keys[i]
        if keys[i - 1] > key:
            function = called[at + i]
            j = i - 1
            while j >= 0 and keys[j] > key:
                keys[j + 1] = keys[j]
                called[at + j + 1] = called[at + j]
                j -= 1
            keys[j + 1] = key
            called[at + j + 1] = function
    for i in range(total):
        key = keys[i]
        times[at + i] = start_s + np.float64(key >> _BELOW) * _STEP_S
        sigma = sigmas[called[at + i]]
        if sigma > 0.0:
            p = (np.float64(mixed(key ^ _DRAWS) >> np.uint64(12)) + 0.5) * _UNIT
            draws[at + i] = math.exp(sigma * normal_quantile(p) - 0.5 * sigma * sigma)
        else:
            draws[at + i] = 1.0
    return at + total
