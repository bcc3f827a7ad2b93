"""Three small pieces of work whose CPU time tells what the machine is like: arithmetic, streaming, gathering.

They are timed by the CPU time of their own thread, so that waiting for a CPU does not count: that is for other signals
to say. The baseline of each is the least of its last runs, since on a shared machine nobody knows what undisturbed is.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import thread_time

import numpy as np

STREAM_BYTES = 32 * 2**20
GATHER_BYTES = 16 * 2**20
_GATHERED = 20_000
_TERMS = 20_000
_KEPT = 150  # runs that the baseline is the least of: five minutes of one every two seconds
_SMOOTHED = 3  # runs whose median counts: single ones are noise


class Probes:
    """Runs the probes on the CPUs of a place, once for all places of the same CPUs. Holds 48 MB.

    Args:
        every_s: The least time between two runs on the same CPUs.
    """

    def __init__(self, every_s: float = 2.0) -> None:
        if not every_s > 0:
            raise ValueError(f"every_s must be positive; got {every_s}.")
        self._every_s = every_s
        self._due: dict[tuple[int, ...], float] = {}
        self._times: dict[tuple[tuple[int, ...], str], deque[float]] = {}
        self._work: Mapping[str, Callable[[], object]] | None = None

    def prepare(self) -> None:
        """Make the arrays, and run each probe once: the first run is slow for reasons of its own."""
        if self._work is None:
            self._work = make_work()
            for work in self._work.values():
                work()

    def slowdowns(self, cpus: tuple[int, ...], now: float) -> Mapping[str, float]:
        """By probe, its time of late over its baseline: 1 is undisturbed. Empty until they have run."""
        if now >= self._due.get(cpus, now):
            self._due[cpus] = now + self._every_s
            self._run(cpus)
        return {name: slowdown(times) for (where, name), times in self._times.items() if where == cpus and times}

    def _run(self, cpus: tuple[int, ...]) -> None:
        self.prepare()
        assert self._work is not None
        own = os.sched_getaffinity(0)  # of this thread only
        with suppress(OSError):
            os.sched_setaffinity(0, cpus)
        try:
            for name, work in self._work.items():
                began = thread_time()
                work()
                self._times.setdefault((cpus, name), deque(maxlen=_KEPT)).append(thread_time() - began)
        finally:
            with suppress(OSError):
                os.sched_setaffinity(0, own)


def slowdown(times: deque[float]) -> float:
    """The median of the last runs over the least of all that are kept."""
    last = sorted(list(times)[-_SMOOTHED:])
    least = min(times)
    return last[len(last) // 2] / least if least > 0 else 1.0


def make_work() -> Mapping[str, Callable[[], object]]:
    """The three probes, on fresh arrays; a half to two milliseconds each."""
    stream = np.ones(STREAM_BYTES // 8)
    table = np.ones(GATHER_BYTES // 8)
    places = np.random.default_rng(0).integers(0, len(table), _GATHERED)
    out = np.empty(_GATHERED)
    return {
        "compute": lambda: sum(range(_TERMS)),
        "stream": stream.sum,
        "gather": lambda: np.take(table, places, out=out, mode="clip"),
    }
