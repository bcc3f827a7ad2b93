"""From what was recorded of a function's runs to the law of one run.

The law is log-normal. Its two numbers are the least-squares line through the logarithms of the 1st, 25th, 50th, 75th
and 99th percentile over the standard normal quantiles; as these lie evenly around 0, the median is simply the geometric
mean of the five. Of 500 functions of the data set of 2019, weighted by calls, the mean of the laws is within 3 % of
the recorded mean; through the middle half alone it would be six times that, as a few functions decide.
"""

from statistics import NormalDist

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.profile.laws import MOST_SIGMA

PERCENTILES = (1, 25, 50, 75, 99)
LEAST_S = 0.0005
"""What a time of 0 ms counts as: the files round to 1 ms."""

_QUANTILES = np.array([NormalDist().inv_cdf(percentile / 100) for percentile in PERCENTILES])


def log_normal(percentiles_s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Median and sigma of each row of percentiles, which are seconds."""
    logs = np.log(np.maximum(percentiles_s, LEAST_S))
    sigmas = (logs - logs.mean(axis=1, keepdims=True)) @ _QUANTILES / (_QUANTILES @ _QUANTILES)
    # Equal percentiles leave a sigma of some 1e-17, which would be a spread.
    return np.exp(logs.mean(axis=1)), np.where(sigmas < 1e-9, 0.0, np.minimum(sigmas, MOST_SIGMA))


def fitted(recorded: pl.DataFrame, other_memory_mb: float) -> tuple[pl.DataFrame, int, int]:
    """The functions with `mean_s`, `median_s`, `sigma` and `memory_mb`, and how many had no times and no memory.

    Who has no record is given the median of the others: of the means for the times, with the median sigma. Where nobody
    has a record of memory, it is `other_memory_mb`.
    """
    percentiles = recorded.select(f"percentile_Average_{percentile}" for percentile in PERCENTILES).to_numpy() / 1000
    has_times = np.logical_not(np.isnan(percentiles).any(axis=1))
    median_s, sigma = log_normal(np.where(has_times[:, None], percentiles, 1.0))
    mean_s = recorded["Average"].to_numpy() / 1000
    # Some functions have a mean of 0 ms and percentiles above it; the law knows better.
    law_s = median_s * np.exp(sigma**2 / 2)
    mean_s = np.where(mean_s > 0, mean_s, law_s)
    if not has_times.all():
        other_sigma = float(np.median(sigma[has_times])) if has_times.any() else 0.0
        other_s = float(np.median(mean_s[has_times])) if has_times.any() else 1.0
        sigma = np.where(has_times, sigma, other_sigma)
        median_s = np.where(has_times, median_s, other_s * np.exp(-(other_sigma**2) / 2))
        mean_s = np.where(has_times, mean_s, other_s)
    memory_mb = recorded["AverageAllocatedMb"].to_numpy()
    has_memory = ~np.isnan(memory_mb)
    other_mb = float(np.median(memory_mb[has_memory])) if has_memory.any() else other_memory_mb
    columns = {
        "mean_s": mean_s,
        "median_s": median_s,
        "sigma": sigma,
        "memory_mb": np.where(has_memory, memory_mb, other_mb),
    }
    functions = recorded.with_columns(**{name: pl.Series(values) for name, values in columns.items()})
    return functions, int((~has_times).sum()), int((~has_memory).sum())
