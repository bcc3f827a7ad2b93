"""Textbook queues: waits and losses that are known exactly, and intervals around what was measured."""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy import stats


class Interval(NamedTuple):
    """A mean and how far the truth may lie from it, by batch means."""

    mean: float
    half_width: float

    def contains(self, value: float) -> bool:
        return abs(value - self.mean) <= self.half_width


def erlang_b(servers: int, offered: float) -> float:
    """Share of calls that find all servers busy and are lost; by the recursion over servers."""
    loss = 1.0
    for busy in range(1, servers + 1):
        loss = offered * loss / (busy + offered * loss)
    return loss


def erlang_c(servers: int, offered: float) -> float:
    """Share of calls that wait."""
    loss = erlang_b(servers, offered)
    return servers * loss / (servers - offered * (1 - loss))


def mmc_wait_s(servers: int, load: float, service_s: float = 1.0) -> float:
    """Mean wait in M/M/c."""
    return erlang_c(servers, servers * load) * service_s / (servers * (1 - load))


def mg1_wait_s(load: float, squared_variation: float, service_s: float = 1.0) -> float:
    """Mean wait in M/G/1: Pollaczek-Khinchine. The squared coefficient of variation is 0 for M/D/1, 1 for M/M/1."""
    return load * service_s * (1 + squared_variation) / (2 * (1 - load))


def relaxation_s(servers: int, load: float, service_s: float = 1.0) -> float:
    """How long M/M/c remembers its state: the time constant with which correlations of its queue die away."""
    if load < 1 / servers:
        return service_s
    return service_s / (sqrt(servers) - sqrt(servers * load)) ** 2


def batch_means(values: Sequence[float], batches: int = 20, confidence: float = 0.99) -> Interval:
    """A mean with its confidence interval: means of long batches are nearly independent and nearly normal."""
    array = np.asarray(values, dtype=float)
    length = len(array) // batches
    means = array[len(array) - batches * length :].reshape(batches, length).mean(axis=1)
    error = means.std(ddof=1) / sqrt(batches)
    return Interval(float(means.mean()), float(stats.t.ppf((1 + confidence) / 2, batches - 1) * error))
