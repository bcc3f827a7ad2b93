"""How a request goes through its workflow: which stages are open, joined, skipped, and what is ready next."""

from collections.abc import Mapping, Sequence

from fairlead.model import Function, Invocation, Request, Stage, Workflow


class StagePlan:
    """A stage with everything about its place in the graph worked out once."""

    __slots__ = (
        "arms",
        "copies",
        "fan_in",
        "function",
        "function_name",
        "index",
        "is_join",
        "name",
        "output_mb",
        "predecessors",
        "queue",
        "region",
        "successors",
        "then",
    )

    def __init__(self, index: int, stage: Stage, function: Function, queue: tuple[str, str]) -> None:
        self.index = index
        self.name = stage.name
        self.function = function
        self.function_name = function.name
        self.queue = queue
        self.output_mb = function.output_mb
        self.fan_in = len(stage.after)
        self.is_join = stage.join
        self.copies = stage.compete
        self.region = -1  # index of the map stage it runs through, -1 outside
        self.predecessors: tuple[StagePlan, ...] = ()
        self.successors: tuple[StagePlan, ...] = ()
        self.then: list[tuple[StagePlan, int]] = []  # the successors, as `advance` gives them outside maps
        self.arms: frozenset[str] = frozenset()  # names of successors of which one is taken


class WorkflowPlan:
    """A workflow's stages in topological order, linked."""

    __slots__ = (
        "entries",
        "fan_ins",
        "is_chain",
        "is_plain",
        "latency_s",
        "moves_data",
        "name",
        "stages",
        "workflow",
    )

    def __init__(self, workflow: Workflow, functions: Mapping[str, Function]) -> None:
        self.workflow = workflow
        self.name = workflow.name
        self.latency_s = workflow.slo.latency_s
        self.stages = [
            StagePlan(i, stage, functions[stage.function], (workflow.name, stage.function))
            for i, stage in enumerate(workflow.stages)
        ]
        by_name = {plan.name: plan for plan in self.stages}
        for plan, stage in zip(self.stages, workflow.stages, strict=True):
            region = workflow.regions[stage.name]
            plan.region = -1 if region is None else by_name[region].index
            plan.predecessors = tuple(by_name[name] for name in stage.after)
            plan.successors = tuple(by_name[s.name] for s in workflow.stages if stage.name in s.after)
            plan.then = [(successor, 0) for successor in plan.successors]
            plan.arms = frozenset(s.name for s in workflow.stages if s.when is not None and s.after == (stage.name,))
        self.entries = [plan for plan in self.stages if not plan.predecessors]
        self.moves_data = any(plan.output_mb for plan in self.stages)
        # Plain workflows (no map, no branch) need only counters of open predecessors, chains not even those.
        self.is_plain = all(plan.region < 0 and not plan.arms for plan in self.stages)
        self.fan_ins = [plan.fan_in for plan in self.stages]
        self.is_chain = self.is_plain and all(fan_in <= 1 for fan_in in self.fan_ins)  # or a tree: nothing joins


class Race:
    """The copies of one (stage, item): the first answer wins, and the stage fails with the last of them.

    `latest` has the last attempt of each copy, `batches` every batch that one of them was started in.
    """

    __slots__ = ("batches", "is_open", "latest", "left")

    def __init__(self, copies: int) -> None:
        self.is_open = True
        self.left = copies  # how many have not failed for good
        self.latest: dict[int, Invocation] = {}
        self.batches: list[int] = []


class RequestState:
    """One open request: what is left of it, what was made for it, what it has cost."""

    __slots__ = (
        "_items",
        "_left",
        "_ran",
        "_resolved",
        "_tally",
        "cost_usd",
        "invocations",
        "is_chain",
        "is_open",
        "left",
        "notes",
        "offer",
        "outputs",
        "plan",
        "plan_steps",
        "promised",
        "races",
        "request",
        "unresolved",
    )

    def __init__(self, request: Request, plan: WorkflowPlan) -> None:
        self.request = request
        self.plan = plan
        self.is_open = True
        self.cost_usd = 0.0
        self.promised: float | None = None
        self.plan_steps: str | None = None
        self.notes: Sequence[object] = ()  # of the policy on its plan
        self.offer: tuple[float | None, float | None] = (None, None)  # latency and cost, on a refusal
        self.invocations: list[Invocation] = []  # all that were ever made for it
        self.unresolved = len(
            plan.stages
        )  # (stage, item) pairs not yet done or skipped; a region counts once until known
        self.is_chain = plan.is_chain
        self.left = [] if plan.is_chain else plan.fan_ins.copy()
        self.outputs: dict[tuple[int, int], tuple[str, float]] | None = {} if plan.moves_data else None  # node and MB
        self.races: dict[tuple[int, int], Race] = {}  # of stages with several copies, by (stage, item)
        if not plan.is_plain:
            self._items: dict[int, int] = {}  # by map stage: how many items, once known
            self._left: dict[tuple[int, int], int] = {}  # open predecessors by (stage, item)
            self._ran: set[tuple[int, int]] = set()  # (stage, item) with a predecessor that really ran
            self._resolved: dict[int, bool] = {}  # stages outside maps that are done (True) or skipped
            self._tally: dict[int, int] = {}  # stages inside maps: how many of their items are resolved

    def begin(self, items: int) -> list[tuple[StagePlan, int]]:
        """What is ready on arrival, as (stage, item)."""
        if self.plan.is_plain:
            return [(stage, 0) for stage in self.plan.entries]
        ready: list[tuple[StagePlan, int]] = []
        for stage in self.plan.entries:
            if stage.region < 0:
                ready.append((stage, 0))
            else:
                self._open_region(stage, items, ready)
                ready += [(stage, item) for item in range(items)]
        return ready

    def advance(self, stage: StagePlan, item: int, arm: str | None, items: int) -> list[tuple[StagePlan, int]]:
        """What becomes ready because this stage is done. `unresolved` of 0 afterwards says that the request is."""
        if self.plan.is_plain:
            self.unresolved -= 1
            left = self.left
            ready = []
            for successor in stage.successors:
                left[successor.index] -= 1
                if left[successor.index] == 0:
                    ready.append((successor, 0))
            return ready
        ready = []
        self._resolve(stage, item, arm, items, True, ready)
        return ready

    def _resolve(
        self, stage: StagePlan, item: int, arm: str | None, items: int, ran: bool, ready: list[tuple[StagePlan, int]]
    ) -> None:
        """Count a stage as done or, if it did not run, as skipped."""
        self.unresolved -= 1
        were_open = set(self._items)
        if stage.region < 0:
            self._resolved[stage.index] = ran
        else:
            self._tally[stage.index] = self._tally.get(stage.index, 0) + 1
        for successor in stage.successors:
            taken = ran and (successor.name not in stage.arms or successor.name == arm)
            if successor.region == stage.region:
                self._arrive(successor, item, taken, ready)
            elif stage.region >= 0:  # leaving a map: the successor joins
                if taken:
                    self._ran.add((successor.index, 0))
                if self._tally[stage.index] == self._items[stage.region]:
                    self._arrive(successor, 0, False, ready)
            elif successor.index == successor.region or successor.region in were_open:  # into a map: all items wait
                if successor.index == successor.region:
                    self._open_region(successor, items if taken else 1, ready)
                for each in range(self._items[successor.region]):
                    self._arrive(successor, each, taken, ready)

    def _arrive(self, stage: StagePlan, item: int, taken: bool, ready: list[tuple[StagePlan, int]]) -> None:
        """One predecessor of a (stage, item) is resolved."""
        key = (stage.index, item)
        left = self._left.get(key, stage.fan_in) - 1
        self._left[key] = left
        if taken:
            self._ran.add(key)
        if left == 0:
            if key in self._ran:
                ready.append((stage, item))
            else:  # nothing that leads here ran: skipped, and so is what only it leads to
                self._resolve(stage, item, None, 1, False, ready)

    def _open_region(self, opener: StagePlan, items: int, ready: list[tuple[StagePlan, int]]) -> None:
        """The number of a map's items is known: its stages now count once per item."""
        self._items[opener.index] = items
        inside = [stage for stage in self.plan.stages if stage.region == opener.index]
        self.unresolved += (items - 1) * len(inside)
        for stage in inside:  # predecessors outside the map that were resolved before it opened
            early = [
                p for p in stage.predecessors if p.region < 0 and stage is not opener and p.index in self._resolved
            ]
            for item in range(items):
                for predecessor in early:
                    self._arrive(stage, item, self._resolved[predecessor.index], ready)
        if items == 0:  # an empty map is done at once, and its join runs
            for stage in inside:
                for successor in stage.successors:
                    if successor.region != opener.index:
                        self._arrive(successor, 0, True, ready)
