"""What is known of a node or an instance at an instant."""

from collections.abc import Mapping, Sequence

import msgspec

COUNTERS = ("ipc", "memory_reads", "memory_writes", "l3_misses", "c0", "c1", "rest")
"""The seven counters of a node, in the order in which an agent observes them."""


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of a node. A counter is None where its provider cannot tell.

    Shares are in [0, 1]. What `ipc`, the two of memory and `l3_misses` count depends on the provider: hardware events,
    or how much slower a probe has become. Only samples of one provider compare. `extras` holds everything else that
    could be read, by name.
    """

    at_s: float  # of the monotonic clock
    ipc: float | None = None
    memory_reads: float | None = None
    memory_writes: float | None = None
    l3_misses: float | None = None
    c0: float | None = None
    c1: float | None = None
    rest: float | None = None
    extras: Mapping[str, float] = {}

    def vector(self) -> tuple[float, ...]:
        """The seven counters; what is unknown is 0."""
        return tuple(getattr(self, name) or 0.0 for name in COUNTERS)


class InstanceSignals(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of an instance. Rates are since the sample before."""

    at_s: float
    cpu_s: float | None = None  # in all
    busy_cores: float | None = None
    wait_share: float | None = None  # of the time in which its threads wanted to run
    throttled: float | None = None  # share of the periods of its quota
    rss_bytes: int | None = None


def mean(samples: Sequence[Signals]) -> Signals:
    """The mean of each signal over the samples that have it, at the instant of the last one."""
    names = dict.fromkeys(name for sample in samples for name in sample.extras)
    return Signals(
        at_s=samples[-1].at_s,
        extras={name: _mean([s.extras[name] for s in samples if name in s.extras]) or 0.0 for name in names},
        **{name: _mean([value for s in samples if (value := getattr(s, name)) is not None]) for name in COUNTERS},
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
