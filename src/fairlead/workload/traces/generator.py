"""A trace made up from published statistics, for a machine without one.

M. Shahrad et al., "Serverless in the Wild", USENIX ATC 2020, describe a cloud's functions by laws. Their numbers are
recalled, not checked against the text; the guide's page on traces says which, and compares them with an excerpt of the
data. What the paper does not say is taken from that excerpt: how much the runs of one function differ, and that popular
functions are shorter.

**Differs from the paper:** its 45 % and 81 % of *apps* that are called at most once an hour and once a minute hold here
of functions; triggers other than timers do not depend on popularity; there is no week, all functions share one daily
curve, and apart from timers calls are Poisson; the mean of a function is at most 600 s; an owner has one app.
"""

from statistics import NormalDist

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.workload.traces.azure2019 import OTHER_MEMORY_MB, Progress
from fairlead.workload.traces.fit import fitted
from fairlead.workload.traces.trace import MEMORY_COLUMNS, MINUTES_PER_DAY, Trace, by_minute

HOURLY_SHARE, MINUTELY_SHARE = 0.45, 0.81
"""Of the functions, those called at most once an hour, and at most once a minute."""

DURATION_LOG_MEAN, DURATION_LOG_SIGMA = -0.38, 2.36
"""Of a function's mean duration in seconds, which is log-normal."""

BURR_C, BURR_K, BURR_SCALE_MB = 11.652, 0.221, 107.083
"""Of an app's memory, which has a Burr XII law."""

TRIGGERS = {
    "http": 0.550,
    "queue": 0.152,
    "event": 0.022,
    "orchestration": 0.069,
    "timer": 0.156,
    "storage": 0.028,
    "others": 0.022,
}
"""Share of the functions; the published figures add up to 0.999."""

BASELINE = 0.5
"""Share of the calls that does not follow the time of day."""

_RUN_SIGMA = 0.85  # of one function's runs: half-normal with this scale, as in the excerpt (quartiles 0.2, 0.5, 1.0)
_POPULAR_IS_SHORT = -0.32  # correlation of log calls and log mean duration in the excerpt
# P(an app has more than k functions) = exp(-0.777 k^0.586): 54 % have one, 5 % more than ten, and half of all functions
# are in apps of at most six.
_APP_SCALE, _APP_SHAPE = 0.777, 0.586
_MOST_S = 600.0
_PEAK_MINUTE = 15 * 60
_PERIODS = np.array([1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 240, 360, 480, 720, 1440, 2880, 10080])
_QUANTILES = {0: -3.0, 1: -2.3263478740408408, 25: -0.6744897501960817, 50: 0.0}  # the others lie opposite
_BLOCK = 1024  # functions at once


def generate(
    functions: int = 10_000,
    *,
    minutes: int = MINUTES_PER_DAY,
    invocations: int | None = None,
    seed: int = 0,
    progress: Progress = lambda share, doing: None,
) -> Trace:
    """So many functions over so many minutes, from midnight on, with about so many calls in all.

    Without `invocations`, 10,000 a day per function. Four fifths of the functions have the rates of the paper whatever
    the total; how steeply the rest rises is what makes the total. Each function is called at least once.
    """
    if functions < 1:
        raise ValueError(f"functions must be at least 1; got {functions}.")
    if not 1 <= minutes <= 366 * MINUTES_PER_DAY:
        raise ValueError(f"minutes must be from 1 to {366 * MINUTES_PER_DAY}; got {minutes}.")
    if invocations is None:
        invocations = max(functions, 10_000 * functions * minutes // MINUTES_PER_DAY)
    if not functions <= invocations <= 2**40:
        raise ValueError(f"invocations must be at least one per function and at most 2^40; got {invocations}.")
    rng = np.random.default_rng((seed, 0x7A))
    order = rng.permutation(functions)  # of functions by popularity
    rank = (np.arange(functions) + 0.5) / functions
    triggers, per_minute, periods = _popularity(rank, invocations / minutes, rng)
    starts, called, counts = _calls(per_minute[order], periods[order], minutes, rng, progress)
    calls = np.bincount(called, weights=counts, minlength=functions).astype(np.int64)
    table = _functions(triggers[order], rank[order], calls, rng)
    progress(1.0, "done")
    return Trace(source=f"generated, seed {seed}", functions=table, starts=starts, called=called, counts=counts)


def _popularity(
    rank: NDArray[np.float64], total_per_minute: float, rng: np.random.Generator
) -> tuple[NDArray[np.str_], NDArray[np.float64], NDArray[np.int64]]:
    """Trigger, mean calls per minute, and period in minutes (0 for what is not a timer), by rising popularity."""
    is_body = rank <= MINUTELY_SHARE
    # Rates by the day, log-linear in the rank: once a day, once an hour, once a minute.
    knots = np.log([1.0, 24.0, 1440.0])
    rates = np.exp(np.interp(rank, [0.0, HOURLY_SHARE, MINUTELY_SHARE], knots)) / MINUTES_PER_DAY
    rates *= min(1.0, total_per_minute / rates.sum())  # a trace of few calls is all rarer
    (body,) = np.nonzero(is_body)  # has all timers, as they are at most as frequent as minutes
    timers = rng.choice(body, size=min(body.size, round(TRIGGERS["timer"] * rank.size)), replace=False)
    periods = np.zeros(rank.size, dtype=np.int64)
    wanted = np.log(1 / rates[timers])
    periods[timers] = _PERIODS[np.abs(np.log(_PERIODS)[None, :] - wanted[:, None]).argmin(axis=1)]
    rates[timers] = 1 / periods[timers]
    excess = (1 - MINUTELY_SHARE) / (1 - rank[~is_body])
    rates[~is_body] *= excess ** _steepness(total_per_minute - rates[is_body].sum(), rates[~is_body], excess)
    names = [name for name in TRIGGERS if name != "timer"]
    shares = np.array([TRIGGERS[name] for name in names])
    triggers = np.array(names)[rng.choice(len(names), size=rank.size, p=shares / shares.sum())]
    triggers[timers] = "timer"
    return triggers, rates, periods


def _steepness(wanted: float, rates: NDArray[np.float64], excess: NDArray[np.float64]) -> float:
    """The exponent of the tail that makes its rates add up to what is wanted; 0 where they already do."""
    if not rates.size or wanted <= rates.sum():
        return 0.0
    low, high = 0.0, 1.0
    while (rates * excess**high).sum() < wanted and high < 64:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if (rates * excess**middle).sum() < wanted else (low, middle)
    return high


def _calls(
    per_minute: NDArray[np.float64],
    periods: NDArray[np.int64],
    minutes: int,
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    now = np.arange(minutes)
    day = 2 * np.pi * (now - _PEAK_MINUTE) / MINUTES_PER_DAY
    shape = BASELINE + (1 - BASELINE) * (1 + np.cos(day))
    shape /= shape.mean()
    phases = (rng.random(periods.size) * np.where(periods, periods, 1)).astype(np.int64)
    who, when, how_often = [], [], []
    for first in range(0, per_minute.size, _BLOCK):
        block = slice(first, min(first + _BLOCK, per_minute.size))
        period = periods[block]
        is_timer = period > 0
        table = rng.poisson(np.where(is_timer, 0.0, per_minute[block])[:, None] * shape).astype(np.int32)
        table[is_timer] = (now - phases[block][is_timer, None]) % period[is_timer, None] == 0
        (silent,) = np.nonzero(~table.any(axis=1))
        table[silent, rng.integers(minutes, size=silent.size)] = 1
        rows, columns = np.nonzero(table)
        who.append((rows + first).astype(np.int32))
        when.append(columns.astype(np.int32))
        how_often.append(table[rows, columns])
        progress(0.9 * block.stop / per_minute.size, "drawing calls")
    return by_minute(np.concatenate(who), np.concatenate(when), np.concatenate(how_often), minutes)


def _functions(
    triggers: NDArray[np.str_], rank: NDArray[np.float64], calls: NDArray[np.int64], rng: np.random.Generator
) -> pl.DataFrame:
    """The functions as if they had been read: with what the files would say of their times and memory."""
    functions = rank.size
    app = _apps(functions, rng)
    app_mb = BURR_SCALE_MB * ((1 - rng.random(app[-1] + 1)) ** (-1 / BURR_K) - 1) ** (1 / BURR_C)
    memory_mb = app_mb[app] / np.bincount(app)[app]
    popularity = np.array([NormalDist().inv_cdf(share) for share in rank.tolist()])
    apart = np.sqrt(1 - _POPULAR_IS_SHORT**2) * rng.standard_normal(functions)
    mean_s = np.exp(DURATION_LOG_MEAN + DURATION_LOG_SIGMA * (_POPULAR_IS_SHORT * popularity + apart))
    mean_s = np.clip(mean_s, 0.001, _MOST_S)
    sigma = _RUN_SIGMA * np.abs(rng.standard_normal(functions))
    median_ms = 1000 * mean_s * np.exp(-(sigma**2) / 2)
    width = len(str(functions))
    quantiles = _QUANTILES | {100 - percentile: -z for percentile, z in _QUANTILES.items()}
    at = {percentile: median_ms * np.exp(sigma * quantiles[percentile]) for percentile in sorted(quantiles)}
    recorded = pl.DataFrame(
        {
            "owner": [f"owner-{number:0{width}}" for number in app],
            "app": [f"app-{number:0{width}}" for number in app],
            "name": [f"function-{number:0{width}}" for number in range(functions)],
            "trigger": triggers.tolist(),
            "Average": 1000 * mean_s,
            "Count": calls,
            "Minimum": at[0],
            "Maximum": at[100],
            **{f"percentile_Average_{percentile}": values for percentile, values in at.items()},
            "SampleCount": calls,
            **dict.fromkeys(MEMORY_COLUMNS[1:], memory_mb),
        }
    )
    return fitted(recorded, OTHER_MEMORY_MB)[0]


def _apps(functions: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The number of each function's app; an app's functions follow each other."""
    beyond_first = (rng.standard_exponential(functions) / _APP_SCALE) ** (1 / _APP_SHAPE)
    return np.repeat(np.arange(functions), 1 + beyond_first.astype(np.int64))[:functions]
