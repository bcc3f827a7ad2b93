"""ESG: every stage is planned when it starts, together with what follows, as cheaply as the time that is left allows.

X. Hui, Y. Xu, Z. Guo, X. Shen: ESG: Pipeline-Conscious Efficient Scheduling of DNN Workflows on Serverless Platforms
with Shareable GPUs, HPDC 2024. Implemented from its slides: application-function-wise queues, ESG_1Q (best-first
search with two prunings over a group of stages), dominator-based SLO distribution, ESG_Dispatch.

**Differs from the paper**, whose full text was not available:

* The search is `frontier` by default, which finds the same paths as the published `dual-blade` in fewer steps.
* Times are those that 95 % of runs keep; which ones the authors plan with is not stated.
* Queues are visited in turn, each from where the last call ended; the sources give no order.
* When no path meets the budget: the fastest configuration as long as the deadline can be met by the mean time, then the
  cheapest in full batches, as haste no longer helps. The sources are silent.
* What is warm is tried first, for all configurations of the ranked queue, before anything is started cold.
* The minimum configuration after failed rounds, and pre-warming by a smoothed inter-arrival time, are recalled.
* Maps are ours: a mapped stage is planned in batches of up to as many as its map has items on average, at the cost of
  all of them, and containers are started ahead of need for all of them. That items may have to run one after the other
  is not planned for: the search does not look at what is free.
* Nothing is refused or dropped, as published.
* Where the cluster has no devices and fewer vCPUs than one container of each function holds, containers are started
  ahead for the mean demand only, and none cold while one of the function is busy. The descriptions are silent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

import numpy as np

from fairlead.policy.base import Action, Policy, Site, View
from fairlead.policy.esg.planner import Planner
from fairlead.policy.esg.warming import Warming
from fairlead.policy.kit.dispatching import Dispatcher
from fairlead.policy.kit.locality import Locality, keeps_slices


@dataclass
class Esg(Policy):
    """Search the cheapest configurations of a group of stages within the time left; start the first that fits.

    Args:
        paths: How many of the cheapest paths a search gives (K), at least 1. Their first configurations, each once,
            are tried in that order.
        group_size: Stages that are planned together at most, at least 1.
        headroom: Share of the time left that is not planned, in [0, 1): for noise, transfers and waiting.
        method: `frontier`, or `dual-blade` as published: the same result in more steps.
        rounds: After so many instants at which nothing fitted, a queue may take the minimum configuration; at least 1.
        refresh_s: How often corrected profiles are taken over, in seconds.
        prewarms: Whether containers are started ahead of need, by the smoothed time between arrivals.
    """

    paper: ClassVar[str] = "ESG, HPDC 2024"

    paths: int = 5
    group_size: int = 3
    headroom: float = 0.05
    method: Literal["frontier", "dual-blade"] = "frontier"
    rounds: int = 3
    refresh_s: float = 30.0
    prewarms: bool = True

    def __post_init__(self) -> None:
        for name in ("paths", "group_size", "rounds"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}.")
        if not 0 <= self.headroom < 1:
            raise ValueError(f"headroom must be in [0, 1); got {self.headroom}.")
        if not 0 < self.refresh_s <= inf:
            raise ValueError(f"refresh_s must be positive; got {self.refresh_s}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._planner = Planner(site, self.paths, self.group_size, self.method, self.refresh_s, self.headroom)
        holds_slices = keeps_slices(site)
        self._dispatcher = Dispatcher(
            Locality(keeps_slices=holds_slices),
            self.rounds,
            self._planner.least,
            self._planner.sizes,
            # One more would drive out another, or take a vCPU from what runs for as long as it starts.
            prepares=not (self.prewarms and (holds_slices or self._planner.is_crowded)),
            is_crowded=self._planner.is_crowded,
        )
        self._warming = Warming(site, self._planner) if self.prewarms else None

    def decide(self, view: View) -> Iterator[Action]:
        self._planner.refresh(view)
        if self._warming is not None:
            self._warming.note(view)
        yield from self._dispatcher.serve(view, self._planner.rank)
        if self._warming is not None:
            yield from self._warming.ahead(view)
