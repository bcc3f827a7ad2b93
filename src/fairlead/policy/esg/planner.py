"""ESG_1Q: which configurations to try for the head of a queue, best first."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fairlead.model import Configuration, Invocation, Stage
from fairlead.planning.search import Method, Recall, Search
from fairlead.planning.split import Split, slo_split
from fairlead.policy.base import Site, View
from fairlead.policy.kit.crowding import is_crowded
from fairlead.policy.kit.dispatching import Ranked
from fairlead.policy.kit.expected import mean_items
from fairlead.policy.kit.options import Options, all_options, graph_of, stage_weights

Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class Expected:
    """What a stage is expected to run with, if a request comes alone and nothing is late."""

    stage: Stage
    configuration: Configuration
    latency_s: float


@dataclass(frozen=True)
class _Bounded:
    """A function's options up to a batch size, and where a configuration of each GPU share stands among them."""

    options: Options
    sizes: tuple[tuple[Configuration, Marks], ...]  # the smallest of a share, and who has that share
    cheapest: tuple[int, ...]  # positions by cost

    @classmethod
    def of(cls, options: Options, batch: int) -> "_Bounded":
        least = min(each.batch for each in options.configurations)
        kept = [i for i, each in enumerate(options.configurations) if each.batch <= max(batch, least)]
        own = Options(
            tuple(options.configurations[i] for i in kept),
            tuple(options.latency_s[i] for i in kept),
            tuple(options.cost_usd[i] for i in kept),
        )
        shares = np.array([each.vgpus for each in own.configurations])
        cheapest = sorted(range(len(kept)), key=lambda i: (own.cost_usd[i], i))
        return cls(own, tuple((smallest, shares == smallest.vgpus) for smallest in own.sizes), tuple(cheapest))


@dataclass(frozen=True)
class _Planned:
    """What the head of a queue is searched with, for batches up to a size."""

    search: Search
    recall: Recall
    bounded: _Bounded
    fraction: float  # of the time left: what the rest of the group may take


Part = tuple[str, int, float]
"""A stage of a search: its function, its largest batch, and its invocations per invocation of the first stage."""


class Planner:
    """Ranks configurations from tables that are renewed now and then.

    A batch is bounded by what waits, in the stage that is about to start and in those planned with it: what is together
    now stays together. A map multiplies it: after one invocation there are as many as the map has items on average, in
    batches of up to that many, and all of them cost. Searches are prepared when they are first needed.
    """

    def __init__(
        self, site: Site, paths: int, group_size: int, method: Method, refresh_s: float, headroom: float
    ) -> None:
        self._site = site
        self._paths = paths
        self._method = method
        self._refresh_s = refresh_s
        self._usable = 1 - headroom
        self._counts_steps = site.step_s > 0  # how many steps a search takes depends on its budget
        self._due = refresh_s
        declared = all_options(site)
        self.is_crowded = is_crowded(site, declared)
        self._stages = {
            (name, stage.name): i
            for name, workflow in site.workflows.items()
            for i, stage in enumerate(workflow.stages)
        }
        self._splits: dict[str, Split] = {
            name: slo_split(graph_of(workflow), stage_weights(workflow, declared), group_size=group_size)
            for name, workflow in site.workflows.items()
        }
        self._items = {name: mean_items(workflow) for name, workflow in site.workflows.items()}
        self._bounds = {name: sorted({each.batch for each in known.configurations}) for name, known in declared.items()}
        self._load(declared)
        Search([[(1.0, 1.0)]] * 2).run(2.0, paths, method)  # compiled now: the first decision must not wait for it

    def refresh(self, view: View) -> None:
        """Take over what was learned of the profiles, if it is time."""
        if view.now >= self._due:
            self._due = view.now + self._refresh_s
            self._load(all_options(self._site, {name: view.profile(name) for name in self._site.functions}))

    def _load(self, known: dict[str, Options]) -> None:
        self._options = known
        self._least = {name: each.configurations[each.least] for name, each in known.items()}
        self._sizes = {name: each.sizes for name, each in known.items()}
        self._bounded: dict[tuple[str, int], _Bounded] = {}
        self._searches: dict[tuple[Part, ...], Search] = {}
        self._planned: dict[tuple[str, int, int], _Planned] = {}  # by workflow, stage and batch

    def least(self, function: str) -> Configuration:
        """The minimum configuration."""
        return self._least[function]

    def sizes(self, function: str) -> tuple[Configuration, ...]:
        """The smallest configuration of each GPU share."""
        return self._sizes[function]

    def rank(self, view: View, head: Invocation, count: int) -> Ranked:
        """The configurations to try for the oldest of so many that wait, best first."""
        return self._rank(view, head, count, None)

    def expected(self, workflow: str) -> Iterator[Expected]:
        """What each stage of a workflow is planned with when a request arrives alone."""
        flow, split, items = self._site.workflows[workflow], self._splits[workflow], self._items[workflow]
        for group, share in zip(split.groups, split.group_share, strict=True):
            parts = tuple([(flow.stages[i].function, max(1, int(items[i])), items[i] / items[group[0]]) for i in group])
            paths = self._search(parts).run(flow.slo.latency_s * share * self._usable, 1, self._method).paths
            for position, i in enumerate(group):
                options = self._bound(*parts[position][:2]).options
                if paths:
                    choice = paths[0].choice[position]
                else:
                    choice = min(range(len(options.latency_s)), key=options.latency_s.__getitem__)
                yield Expected(flow.stages[i], options.configurations[choice], options.latency_s[choice])

    def _rank(self, view: View, head: Invocation, count: int, marks: Marks | None) -> Ranked:
        position = self._stages[head.workflow, head.stage]
        bounds = self._bounds[head.function]
        batch = bounds[max(0, bisect_right(bounds, count) - 1)] if bounds[0] <= count else 1
        planned = self._planned.get((head.workflow, position, batch)) or self._plan(head, position, batch)
        search, bounded = planned.search, planned.bounded
        budget_s = (head.deadline - view.now) * planned.fraction * self._usable
        if marks is None and not self._counts_steps:
            found = planned.recall.run(budget_s)
        else:
            found = search.run(budget_s, self._paths, self._method, marks)
        again = None
        if marks is None:
            again = partial(self._among_warm, head=head, count=count, bounded=bounded)
        configurations = bounded.options.configurations
        if found.paths:
            ranked = list(dict.fromkeys([configurations[path.choice[0]] for path in found.paths]))
        else:
            ranked = self._too_late(bounded, budget_s < search.fastest_s / 2, marks)
        return Ranked(ranked, found.steps, again=again)

    def _plan(self, head: Invocation, position: int, batch: int) -> "_Planned":
        """What a queue is searched with, prepared when it is first needed."""
        split, items = self._splits[head.workflow], self._items[head.workflow]
        stages = self._site.workflows[head.workflow].stages
        ratios = [(i, items[i] / items[position]) for i in split.rest(position)]
        search = self._search(tuple([(stages[i].function, max(1, int(batch * n)), n) for i, n in ratios]))
        found = _Planned(
            search,
            Recall(search, self._paths, self._method),
            self._bound(head.function, batch),
            split.fraction(position),
        )
        self._planned[head.workflow, position, batch] = found
        return found

    def _among_warm(self, view: View, *, head: Invocation, count: int, bounded: _Bounded) -> Ranked:
        """As `rank`, among the GPU shares of which a container is warm where there is room."""
        marks = np.zeros(len(bounded.options.configurations), dtype=np.bool_)
        for smallest, own in bounded.sizes:
            if view.place(head.function, smallest, "warm") is not None:
                marks |= own
        if not marks.any():
            return Ranked(())
        return self._rank(view, head, count, marks)

    def _too_late(self, bounded: _Bounded, is_hopeless: bool, marks: Marks | None) -> list[Configuration]:
        """No path meets the budget: be quick while that may help, else be cheap."""
        usable = [i for i in bounded.cheapest if marks is None or marks[i]]
        if not is_hopeless:
            usable.sort(key=bounded.options.latency_s.__getitem__)
        return [bounded.options.configurations[i] for i in usable[: self._paths]]

    def _bound(self, function: str, batch: int) -> _Bounded:
        key = (function, batch)
        found = self._bounded.get(key)
        if found is None:
            found = self._bounded[key] = _Bounded.of(self._options[function], batch)
        return found

    def _search(self, parts: tuple[Part, ...]) -> Search:
        found = self._searches.get(parts)
        if found is None:
            stages = []
            for function, batch, count in parts:
                own = self._bound(function, batch).options
                stages.append([(latency_s, count * usd) for latency_s, usd in own.pairs()])
            found = self._searches[parts] = Search(stages)
        return found
