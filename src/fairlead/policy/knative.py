"""Replicas by concurrency, with a calm window and a quick one that panics.

The Knative Pod Autoscaler of Knative Serving, by its documentation ("Knative Serving autoscaling defaults", and the
pages on its own settings and on scale to zero). Not a paper, but what concurrency-target autoscaling means in practice.

**Differs from Knative:**

* Concurrency is sampled at every control period; there, proxies report averages over every second. Its autoscaler
  decides every 2 s; here `control_period_s` says how often.
* An instance works on one batch at a time. One at work counts as `target` invocations, as it can take no more; `target`
  is 1 by default, there 100.
* What finds no replica waits in the dispatcher's queue, which stands for the activator. From zero replicas the first is
  started at the next control period, not at once. There is no burst capacity.
* Until the first control period functions are not scaled: the dispatcher starts instances as it needs them.
* In panic, the number that is never gone below is the one wanted when the panic began, or more; there, the largest
  number wanted since.
* A replica that is being let go counts as ready until its batch ends.
* The grace period delays the last step to zero by its full length; there it is an upper bound on a hand-over.
* Where a function wants more replicas than there is room for, they come as room comes up.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, inf
from typing import ClassVar

import numpy as np

from fairlead.policy.base import Action, Policy, Scale, Site, View
from fairlead.policy.kit.headcount import Headcount, check_replicas, headcounts, rounded_up, within


@dataclass
class Knative(Policy):
    """Give every function so many replicas that each has its target concurrency, quickly when load jumps up.

    Args:
        target: Invocations that a replica works on at a time: 1, or its batch size; at least 1.
        utilisation: Share of the target that is aimed at, in (0, 1]. What is left is room for bursts.
        stable_window_s: Over which concurrency is averaged, in seconds; also how long a panic lasts at least.
        panic_window_s: Over which it is averaged to notice a burst, in seconds; at most the stable window.
        panic_threshold: How many times the ready replicas the panic window must want for a panic; at least 1.
        max_scale_up_rate: How many times the ready replicas may be wanted at once; above 1.
        max_scale_down_rate: By how much the ready replicas may be divided at once; above 1.
        grace_s: How long the last replica stays after a stable window without work, in seconds.
        initial: Replicas at the first control period.
        min_replicas: Of each function; 0 lets idle functions go.
        max_replicas: Of each function; None sets no limit.
    """

    paper: ClassVar[str] = "Knative Serving, autoscaling defaults"

    target: int = 1
    utilisation: float = 0.7
    stable_window_s: float = 60.0
    panic_window_s: float = 6.0
    panic_threshold: float = 2.0
    max_scale_up_rate: float = 1000.0
    max_scale_down_rate: float = 2.0
    grace_s: float = 30.0
    initial: int = 1
    min_replicas: int = 0
    max_replicas: int | None = None

    def __post_init__(self) -> None:
        if self.target < 1:
            raise ValueError(f"target must be at least 1; got {self.target}.")
        if not 0 < self.utilisation <= 1:
            raise ValueError(f"utilisation must be in (0, 1]; got {self.utilisation}.")
        if not 0 < self.stable_window_s < inf:
            raise ValueError(f"stable_window_s must be positive and finite; got {self.stable_window_s}.")
        if not 0 < self.panic_window_s <= self.stable_window_s:
            raise ValueError(f"panic_window_s must be in (0, stable_window_s]; got {self.panic_window_s}.")
        if not 1 <= self.panic_threshold < inf:
            raise ValueError(f"panic_threshold must be at least 1 and finite; got {self.panic_threshold}.")
        for name in ("max_scale_up_rate", "max_scale_down_rate"):
            if not 1 < getattr(self, name) < inf:
                raise ValueError(f"{name} must be above 1 and finite; got {getattr(self, name)}.")
        if not 0 <= self.grace_s < inf:
            raise ValueError(f"grace_s must be finite and not negative; got {self.grace_s}.")
        check_replicas(self.initial, self.min_replicas, self.max_replicas, least=0)

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._functions = tuple(site.functions)
        self._loads = [_Load() for _ in self._functions]
        self._times: list[float] = []  # of the samples in the stable window

    def adjust(self, view: View) -> Iterator[Action]:
        now = view.now
        counts = headcounts(view, self._functions)
        is_first = not self._times
        expired = sum(at <= now - self.stable_window_s for at in self._times)
        self._times = [*self._times[expired:], now]
        recent = sum(at > now - self.panic_window_s for at in self._times)
        for function, load, count in zip(self._functions, self._loads, counts, strict=True):
            load.samples = [*load.samples[expired:], count.busy * self.target + count.waiting]
            wanted = self._begin(load, now) if is_first else self._wanted(load, count, recent, now)
            wanted = within(wanted, self.min_replicas, self.max_replicas)
            if is_first or wanted != load.replicas:
                load.replicas = wanted
                yield Scale(function, wanted)

    def _begin(self, load: "_Load", now: float) -> int:
        if self.initial > 1:  # as if there had been a burst: nothing yet says that so many are too many
            load.panicked = now
        return self.initial

    def _wanted(self, load: "_Load", count: Headcount, recent: int, now: float) -> int:
        ready = max(1, count.ready)
        stable_total, panic_total = sum(load.samples), sum(load.samples[-recent:])
        per_replica = self.target * self.utilisation
        # Sums of whole numbers and one division: another engine gets the same, in whatever order it adds.
        stable = rounded_up(stable_total / (len(load.samples) * per_replica))
        panic = rounded_up(panic_total / (recent * per_replica))
        if panic >= self.panic_threshold * ready:
            load.panicked = now
        elif now > load.panicked + self.stable_window_s:
            load.panicked = -inf
        least, most = floor(ready / self.max_scale_down_rate), rounded_up(self.max_scale_up_rate * ready)
        wanted = min(max(stable, least), most)
        if load.panicked > -inf:
            wanted = max(wanted, min(max(panic, least), most), load.replicas)
        if stable_total:
            load.emptied = inf
        else:
            load.emptied = min(load.emptied, now)
        if wanted == 0 and load.replicas and now < load.emptied + self.grace_s:
            return 1
        return wanted


class _Load:
    """One function: its concurrency in the stable window, oldest first, and what was made of it."""

    __slots__ = ("emptied", "panicked", "replicas", "samples")

    def __init__(self) -> None:
        self.samples: list[int] = []
        self.replicas = 0  # that were asked for last
        self.panicked = -inf  # when there was last a reason to panic; minus infinity outside of a panic
        self.emptied = inf  # when the stable window was first found empty; infinity while it is not
