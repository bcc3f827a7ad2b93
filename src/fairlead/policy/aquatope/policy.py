"""Aquatope: fixed configurations, found offline by Bayesian optimisation under uncertainty, and a pool of containers.

Z. Zhou, Y. Zhang, C. Delimitrou: AQUATOPE: QoS-and-Uncertainty-Aware Resource Management for Multi-stage Serverless
Workflows, ASPLOS 2023: its container resource manager and its pool of pre-warmed containers, by the numbers of the
published code; adapted to batch, vCPUs and vGPUs as a rival of ESG (HPDC 2024), whose slides say of it: trained
offline, negligible scheduling time, configurations fixed.

**Differs from the paper:**

* A function has three coordinates, batch, vCPUs and vGPUs, where the paper has CPU and memory. Options are listed, not
  continuous: the cube is cut into equal cells, one per option, and acquisition is maximised over the options.
* A trial runs the workflow `samples` times in the declared model of its functions, unloaded and warm, in full batches,
  and takes the 95th percentile of the latencies; the published code runs it once on the cluster. Each choice is tried
  once, as there.
* Both models see logarithms: of the cost, and of latency over SLO. What is feasible and what is best is the same; times
  and costs here differ by two orders of magnitude, which a stationary process models poorly.
* Noisy expected improvement is that of Letham et al., in closed form for each of the draws, its points chosen one
  after the other; the published code has a library's Monte-Carlo form of it. It counts an infeasible point as cost 0,
  which is better than any feasible one; here a draw without a feasible point compares with its worst point.
* Points are outliers by the standard deviation; the published code passes the variance, compares with the penalised
  objective, and drops them for good. Here they are judged anew each round, and stay candidates for the choice.
* The best is the cheapest feasible one observed. Where none is feasible, the published penalty of 100 for each would
  prefer the cheapest; here it is the one nearest to the SLO.
* The pool is sized by the smoothed mean of the containers wanted at once and `deviations` standard deviations. The
  published predictor, a recurrent network with dropout on calendar features, is left out: a run here lasts minutes and
  has no days to learn from.
* Batches: as many as wait go together, at most as planned, in the smallest batch size of the same vCPUs and vGPUs; a
  full batch is not waited for.
* Where all nodes that could run a planned configuration are lost, the quickest that another can run stands in.
* Queues, nodes and cold starts are those of ESG's dispatcher, as for all its rivals, but for the minimum configuration
  that it may take after failures: configurations are fixed here, and they fare better without.
* Where the cluster has no devices and fewer vCPUs than one container of each function holds, containers are started
  ahead for the mean demand only, and none cold while one of the function is busy. The descriptions are silent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from sys import maxsize
from typing import ClassVar

import numpy as np

from fairlead.model import Configuration, Invocation
from fairlead.planning.feasibility import could_run
from fairlead.policy.aquatope.pool import Pool
from fairlead.policy.base import Action, Plan, Policy, Site, View
from fairlead.policy.kit.crowding import is_crowded
from fairlead.policy.kit.dispatching import Dispatcher, Ranked
from fairlead.policy.kit.expected import mean_items
from fairlead.policy.kit.locality import Locality, keeps_slices
from fairlead.policy.kit.options import all_options
from fairlead.policy.kit.preplanned import Shrinking, step

_LOOK_S = 1.0  # how often nodes are listed


@dataclass
class Aquatope(Policy):
    """Train once per workflow, then run every stage as planned.

    Args:
        initial: Random choices that are tried first, at least 2.
        search_rounds: Rounds of Bayesian optimisation, at least 0.
        per_round: Choices that are tried in a round, at least 1.
        draws: Draws of the models for an expected improvement, at least 1.
        restarts: Starts of a search for the most promising choice, at least 1.
        raw: Random choices from which these starts are taken, at least 1.
        samples: Runs of the workflow in a trial, at least 1.
        deviations: Standard deviations above the mean demand for which containers are kept; at least 0.
        prewarms: Whether containers are started ahead of need.
    """

    paper: ClassVar[str] = "Aquatope, ASPLOS 2023"

    initial: int = 10
    search_rounds: int = 20
    per_round: int = 3
    draws: int = 32
    restarts: int = 10
    raw: int = 32
    samples: int = 20
    deviations: float = 2.0
    prewarms: bool = True

    def __post_init__(self) -> None:
        least = {"initial": 2, "search_rounds": 0}
        for name in ("initial", "search_rounds", "per_round", "draws", "restarts", "raw", "samples"):
            value = getattr(self, name)
            if value < least.get(name, 1):
                raise ValueError(f"{name} must be at least {least.get(name, 1)}; got {value}.")
        if not 0 <= self.deviations < inf:
            raise ValueError(f"deviations must be finite and not negative; got {self.deviations}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        # Loads compiled code, which takes longer than most commands that only name this policy.
        from fairlead.planning.bayesian import Effort  # noqa: PLC0415
        from fairlead.policy.aquatope.training import subject, train  # noqa: PLC0415

        effort = Effort(
            initial=self.initial,
            rounds=self.search_rounds,
            per_round=self.per_round,
            draws=self.draws,
            restarts=self.restarts,
            raw=self.raw,
        )
        self._known = known = all_options(site)
        self._planned: dict[tuple[str, str], Configuration] = {}
        self._steps: dict[str, tuple[str, ...]] = {}
        self._latency_s: dict[str, float] = {}
        for name, workflow in site.workflows.items():
            seed = int(rng.integers(2**32))
            found = train(subject(workflow, site, known), effort, self.samples, seed)
            chosen = dict(zip(workflow.functions, found.configurations, strict=True))
            self._planned |= {(name, function): configuration for function, configuration in chosen.items()}
            self._steps[name] = tuple(step(stage.name, chosen[stage.function]) for stage in workflow.stages)
            self._latency_s[name] = found.latency_s
        self._shrinking = Shrinking(known)
        # The minimum configuration that ESG's dispatcher may take after failures is not used: plans are fixed.
        locality = Locality(keeps_slices=keeps_slices(site))
        sizes = self._sizes().__getitem__
        crowded = is_crowded(site, known)
        self._dispatcher = Dispatcher(
            locality, maxsize, self._least, sizes, prepares=not self.prewarms, is_crowded=crowded
        )
        self._trained = dict(self._planned)
        self._functions = site.functions
        self._kinds = frozenset(site.cluster.kinds)
        self._look = 0.0
        items: dict[tuple[str, str], float] = {}
        for name, workflow in site.workflows.items():
            for stage, mean in zip(workflow.stages, mean_items(workflow), strict=True):
                items[name, stage.function] = max(mean, items.get((name, stage.function), 0.0))
        self._pool = Pool(self._planned, self.deviations, items, is_crowded=crowded) if self.prewarms else None
        self._promised = -1

    def decide(self, view: View) -> Iterator[Action]:
        for request in view.fresh:
            if request.id > self._promised:
                self._promised = request.id
                finish = request.arrival + self._latency_s[request.workflow]
                yield Plan(request.id, self._steps[request.workflow], finish)
        self._note_kinds(view)
        yield from self._dispatcher.serve(view, self._rank)
        if self._pool is not None:
            yield from self._pool.ahead(view)

    def _note_kinds(self, view: View) -> None:
        """Where every node that could run a planned configuration is gone, plan the quickest that another can run."""
        if view.now < self._look:  # nodes are a full listing
            return
        self._look = view.now + _LOOK_S
        nodes = {node.kind: node for node in view.nodes}
        if nodes.keys() == self._kinds:
            return
        self._kinds = frozenset(nodes)
        for (workflow, name), configuration in self._trained.items():
            own, function = self._known[name], self._functions[name]
            usable = [
                (latency_s, other)
                for other, latency_s in zip(own.configurations, own.latency_s, strict=True)
                if any(could_run(node, function, other) for node in nodes.values())
            ]
            if usable and all(other != configuration for _, other in usable):
                configuration = min(usable)[1]
            self._planned[workflow, name] = configuration

    def _least(self, function: str) -> Configuration:
        return self._known[function].configurations[self._known[function].least]

    def _sizes(self) -> dict[str, tuple[Configuration, ...]]:
        """For each function the smallest configuration of each GPU share that is planned for it."""
        found: dict[str, dict[float, Configuration]] = {name: {} for name in self._known}
        for (_, function), configuration in self._planned.items():
            least = self._shrinking.fill(function, configuration, 1)
            sizes = found[function]
            sizes[least.vgpus] = min(least, sizes.get(least.vgpus, least))
        return {name: tuple(sizes.values()) for name, sizes in found.items()}

    def _rank(self, view: View, head: Invocation, count: int) -> Ranked:
        configuration = self._planned[head.workflow, head.function]
        return Ranked((self._shrinking.fill(head.function, configuration, count),))
