"""Larger replicas when they are slow, as many as the load needs: two thresholds and a square root.

**Not ENSURE, and not a paper.** It stands where a rule-based rival such as ENSURE (A. Suresh et al., "ENSURE: Efficient
Scheduling and Autonomous Resource Management in Serverless Environments", ACSOS 2020) would stand beside learning
scalers. Of that system we know the abstract only: it classifies functions, regulates the CPU of those on one node, and
scales by a rule from operations research. This rule is ours and has its constants from nobody.

* Up: a function whose 99th percentile is above `high` of its objective gets one step more vCPUs per replica.
* Down: one whose percentile is below `low` of it, while its replicas work less than `utilisation` of their time, gets
  one step less.
* Replicas: square-root staffing, R + `margin` sqrt(R), rounded up, for an offered load of R = arrivals per second x
  seconds that a run is believed to take in the size it has now.

What the rule leaves open, and what we chose: the objective of a function is its share of its workflow's
(`measuring.function_slos`). What waits counts as latency by its age, or a function that serves nobody would look quick.
A period in which nothing ran or waited is no reason for another size. The load is that of the last period, unsmoothed,
and what waits adds nothing to it. A size for which there is no room is not taken. Until the first control period
functions are not scaled; then every one gets its least number before any gets more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from fairlead.model import Configuration, Record
from fairlead.policy.base import Action, Policy, Resize, Scale, Site, View
from fairlead.policy.kit.headcount import check_replicas, rounded_up, within
from fairlead.policy.kit.ladder import first_rung, vcpu_rungs
from fairlead.policy.kit.measuring import Measures, Meter, function_slos


@dataclass
class Threshold(Policy):
    """Give slow functions more vCPUs per replica, quick and idle ones less, and replicas by square-root staffing.

    Args:
        high: Times its objective; a function whose 99th percentile is above gets more vCPUs. At least `low`.
        low: Times its objective; a function below may get less. At least 0.
        utilisation: Share of the time that its replicas work, in (0, 1]; a function below `low` and this gets less.
        margin: Replicas beyond the offered load, in square roots of it; at least 0.
        min_replicas: Of each function; at least 1.
        max_replicas: Of each function.
    """

    high: float = 1.15
    low: float = 0.7
    utilisation: float = 0.5
    margin: float = 1.0
    min_replicas: int = 1
    max_replicas: int = 20

    def __post_init__(self) -> None:
        if not 0 <= self.low < inf:
            raise ValueError(f"low must be finite and not negative; got {self.low}.")
        if not self.low <= self.high < inf:
            raise ValueError(f"high must be at least low ({self.low}) and finite; got {self.high}.")
        if not 0 < self.utilisation <= 1:
            raise ValueError(f"utilisation must be in (0, 1]; got {self.utilisation}.")
        if not 0 <= self.margin < inf:
            raise ValueError(f"margin must be finite and not negative; got {self.margin}.")
        check_replicas(self.min_replicas, self.min_replicas, self.max_replicas, least=1)

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._meter = Meter(site.functions)
        slos = function_slos(site.workflows, site.profiles)
        self._slo_s = [slos[name] for name in site.functions]
        self._rungs = [vcpu_rungs(site.profiles[name], f, site.cluster) for name, f in site.functions.items()]
        # One without rungs, such as a GPU function, keeps the first size that it is declared with.
        self._first = [
            Configuration(vcpus=rung) if (rung := first_rung(rungs)) is not None else profile.configurations[0]
            for rungs, profile in zip(self._rungs, (site.profiles[name] for name in site.functions), strict=True)
        ]
        self._is_first = True

    def observe(self, record: Record) -> None:
        self._meter.observe(record)

    def adjust(self, view: View) -> Iterator[Action]:
        measured = self._meter.close(view)
        try:
            if self._is_first:
                self._is_first = False
                # One that replaces another scaler finds functions scaled, and waits for a period of its own measures.
                begun = [i for i, function in enumerate(self._meter.functions) if view.scaled(function) is None]
                for i in begun:
                    yield Scale(self._meter.functions[i], self.min_replicas, self._first[i])
            else:
                begun = list(range(len(self._meter.functions)))
                yield from self._resize(view, measured)
            yield from self._scale(view, measured, begun)
        finally:
            self._meter.open(view)

    def _resize(self, view: View, measured: Measures) -> Iterator[Action]:
        slowest_s, utilisation = measured.slowest_s, measured.utilisation
        for i, function in enumerate(self._meter.functions):
            step = self._step(self._slo_s[i], float(slowest_s[i]), float(utilisation[i]))
            scaled = view.scaled(function)
            if not step or scaled is None or scaled.configuration is None:
                continue
            vcpus = _beside(self._rungs[i], scaled.configuration.vcpus, step)
            if vcpus is not None and view.resizes(function, vcpus):
                yield Resize(function, vcpus)

    def _step(self, slo_s: float, slowest_s: float, utilisation: float) -> int:
        """One rung up, down or none."""
        if slowest_s > self.high * slo_s:
            return 1
        return -1 if 0 < slowest_s < self.low * slo_s and utilisation < self.utilisation else 0

    def _scale(self, view: View, measured: Measures, places: Sequence[int]) -> Iterator[Action]:
        for i in places:
            function = self._meter.functions[i]
            scaled = view.scaled(function)
            if scaled is None or scaled.configuration is None:
                continue
            run_s = view.profile(function).latency_s(scaled.configuration)
            load = float(measured.arrived[i]) / self._meter.period_s * run_s
            wanted = rounded_up(load + self.margin * sqrt(load))
            wanted = within(wanted, self.min_replicas, self.max_replicas)
            if wanted != scaled.instances:
                yield Scale(function, wanted)


def _beside(rungs: tuple[float, ...], vcpus: float, step: int) -> float | None:
    """The next size above (1) or below (-1) this one; None if there is none."""
    others = [rung for rung in rungs if (rung - vcpus) * step > 0]
    return min(others, key=lambda rung: abs(rung - vcpus), default=None)
