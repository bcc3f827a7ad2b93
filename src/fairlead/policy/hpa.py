"""Replicas by utilisation: the Horizontal Pod Autoscaler of Kubernetes.

The autoscaler `autoscaling/v2` on CPU utilisation, by the Kubernetes documentation ("Horizontal Pod Autoscaling",
algorithm details and default behaviour). Not a paper, but what most clusters have.

**Differs from Kubernetes:**

* Utilisation is the share of ready replicas that are at work: an instance works on one batch at a time, with all its
  CPUs. It is averaged over the control periods since the last decision; there, over what the metrics server has last
  seen.
* Replicas that have not started are taken for idle before more are asked for, as there; when fewer are asked for, the
  number wanted last counts, there the number of ready ones.
* At most so many more are asked for per decision, there per 15 s: the same at the default period. Scaling down has no
  limit but the stabilisation window, as there by default.
* Until the first control period functions are not scaled: the dispatcher starts instances as it needs them.
* Where a function wants more replicas than there is room for, they come as room comes up.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from fairlead.policy.base import Action, Policy, Scale, Site, View
from fairlead.policy.kit.headcount import ROUNDING, check_replicas, headcounts, rounded_up, within


@dataclass
class Hpa(Policy):
    """Keep the share of busy replicas near a target, up at once and down only after a while.

    Args:
        target: Share of the ready replicas that should be at work, in (0, 1].
        tolerance: How far the ratio of utilisation to target may be from 1 without a change, in [0, 1).
        period_s: How often to decide, in seconds; at every control period where that is longer.
        stabilisation_s: The highest number wanted in so many seconds keeps replicas from being taken away.
        scale_up_replicas: How many more replicas may be asked for at once; at least 1.
        scale_up_share: The same as a share of those there are, at least 0; the larger of both counts.
        initial: Replicas at the first control period.
        min_replicas: Of each function; at least 1.
        max_replicas: Of each function; None sets no limit.
    """

    paper: ClassVar[str] = "Kubernetes, autoscaling/v2 defaults"

    target: float = 0.8
    tolerance: float = 0.1
    period_s: float = 15.0
    stabilisation_s: float = 300.0
    scale_up_replicas: int = 4
    scale_up_share: float = 1.0
    initial: int = 1
    min_replicas: int = 1
    max_replicas: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.target <= 1:
            raise ValueError(f"target must be in (0, 1]; got {self.target}.")
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"tolerance must be in [0, 1); got {self.tolerance}.")
        for name in ("period_s", "stabilisation_s", "scale_up_share"):
            if not 0 <= getattr(self, name) < inf:
                raise ValueError(f"{name} must be finite and not negative; got {getattr(self, name)}.")
        if self.scale_up_replicas < 1:
            raise ValueError(f"scale_up_replicas must be at least 1; got {self.scale_up_replicas}.")
        check_replicas(self.initial, self.min_replicas, self.max_replicas, least=1)

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._functions = tuple(site.functions)
        self._loads = [_Load() for _ in self._functions]
        self._due = -inf  # when to decide next; minus infinity before the first control period

    def adjust(self, view: View) -> Iterator[Action]:
        now, is_first = view.now, self._due == -inf
        if not is_first:
            for load, count in zip(self._loads, headcounts(view, self._functions), strict=True):
                load.busy += count.busy
                load.ready += count.ready
                load.all += max(count.ready, load.replicas)
        if now < self._due:
            return
        self._due = now + self.period_s
        for function, load in zip(self._functions, self._loads, strict=True):
            replicas = self._begin(load, now) if is_first else self._decide(load, now)
            load.busy = load.ready = load.all = 0
            if is_first or replicas != load.replicas:
                load.replicas = replicas
                yield Scale(function, replicas)

    def _begin(self, load: "_Load", now: float) -> int:
        initial = within(self.initial, self.min_replicas, self.max_replicas)
        load.wanted = [(now, initial)]
        return initial

    def _decide(self, load: "_Load", now: float) -> int:
        if not load.ready:
            return load.replicas  # nothing was measured
        wanted = within(self._recommended(load), self.min_replicas, self.max_replicas)
        load.wanted = [(at, many) for at, many in load.wanted if at >= now - self.stabilisation_s]
        load.wanted.append((now, wanted))
        if wanted > load.replicas:
            by_share = rounded_up(load.replicas * (1 + self.scale_up_share))
            return min(wanted, max(load.replicas + self.scale_up_replicas, by_share))
        return min(load.replicas, max(many for _, many in load.wanted))

    def _recommended(self, load: "_Load") -> int:
        """How many replicas would be busy as wanted, doing what was done since the last decision."""
        many = load.ready
        if load.busy > load.ready * self.target:
            many = load.all  # those that have not started will take some of the work
            if load.busy <= load.all * self.target:
                return load.replicas
        if abs(load.busy / (many * self.target) - 1) <= self.tolerance + ROUNDING:
            return load.replicas
        # Sums of whole numbers and one division: another engine gets the same, in whatever order it adds.
        return rounded_up(load.replicas * load.busy / (many * self.target))


class _Load:
    """One function: sums over the samples since the last decision, and what was wanted in the stabilisation window."""

    __slots__ = ("all", "busy", "ready", "replicas", "wanted")

    def __init__(self) -> None:
        self.busy = 0
        self.ready = 0
        self.all = 0  # ready ones, and those that were asked for and are not
        self.replicas = 0  # that were asked for last
        self.wanted: list[tuple[float, int]] = []  # when, and how many
