"""What every function is called with: each workflow's example, taken through the real functions."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from fairlead.app.fusion import unfused_workflow
from fairlead.app.manifest import (
    Collected,
    FirstOf,
    Input,
    Item,
    Listed,
    Manifest,
    Output,
    Source,
    StageSpec,
    WorkflowSpec,
)
from fairlead.engine.live.measuring.bench import UnmeasurableError
from fairlead.engine.live.routes import Outputs, Route
from fairlead.engine.live.values import Result, Value, decode, encode

Call = Callable[[str, str, Value], Awaitable[Result]]
"""Runs one invocation: function, "workflow/stage", argument. Raises `UnmeasurableError`."""

MOST_ITEMS = 16
"""Of one map: enough to see how inputs differ."""


class Examples:
    """Inputs by function, each with the stage that it belongs to, and the outputs that they led to."""

    def __init__(self) -> None:
        self.inputs: dict[str, list[tuple[str, Value]]] = {}
        self.outputs: dict[str, list[Value]] = {}
        self.faults: dict[str, str] = {}

    def batch(self, function: str, size: int) -> tuple[list[str], list[Value]]:
        """Stages and inputs of a batch: the examples in turn."""
        known = self.inputs[function]
        chosen = [known[i % len(known)] for i in range(size)]
        return [stage for stage, _ in chosen], [value for _, value in chosen]


async def collect(manifest: Manifest, wanted: Collection[str], call: Call, found: Examples | None = None) -> Examples:
    """Take every example through its workflow, as far as the wanted functions need it.

    A stage that fails is noted, and what depends on it is left out. What there is so far is in `found`, where given.
    """
    found = Examples() if found is None else found
    inside = {part.name for part in manifest.parts} & set(wanted)
    for workflow in manifest.workflows:
        if workflow.example is not None:
            await _walk(workflow, workflow.example, _needed(workflow, wanted), call, found)
            if inside and workflow.unfused is not None:  # the parts of fused functions, one by one
                plain = unfused_workflow(workflow)
                await _walk(plain, workflow.example, _needed(plain, inside), call, found)
    return found


def _needed(workflow: WorkflowSpec, wanted: Collection[str]) -> list[StageSpec]:
    """The stages of these functions and all that come before them, in order."""
    needed: set[str] = set()
    for stage in reversed(workflow.stages):
        if stage.function in wanted or stage.name in needed:
            needed |= {stage.name, *stage.after}
    return [stage for stage in workflow.stages if stage.name in needed]


async def _walk(
    workflow: WorkflowSpec, example: bytes, stages: Sequence[StageSpec], call: Call, found: Examples
) -> None:
    given: Value = example
    if workflow.splits_input:
        parts = decode(example)
        assert isinstance(parts, Sequence)
        given = [encode(part) for part in parts]
    walk = _Walk(Route(workflow), given, call, found)
    for stage in stages:
        if walk.is_taken(stage):
            await walk.run(stage)
    # An arm that the example does not take is tried with what its chooser gave: better than not to know it at all.
    for stage in stages:
        if stage.function not in found.inputs and stage.function not in found.faults:
            await walk.run(stage, is_kept=False)


class _Walk:
    """One example on its way through a workflow."""

    def __init__(self, route: Route, given: Value, call: Call, found: Examples) -> None:
        self._route = route
        self._given = given
        self._call = call
        self._found = found
        self._outputs: Outputs = {}
        self._items: dict[str, int] = {}
        self._arms: dict[tuple[str, int], str | None] = {}

    def is_taken(self, stage: StageSpec) -> bool:
        """Whether every predecessor ran; of the first stage of an arm, whether it was chosen for some item."""
        return not stage.after or any(self._count(name) for name in stage.after)

    async def run(self, stage: StageSpec, *, is_kept: bool = True) -> None:
        """Run a stage for each of its items, and keep what it was called with and gave."""
        if stage.map is not None:
            self._items[stage.name] = min(self._length(stage), MOST_ITEMS)
        region = self._route.region(stage.name)
        key = self._route.keys[stage.name]
        for item in range(1 if region is None else self._items.get(region, 0)):
            sources = (stage.source, *stage.using.values())
            if not all(self._is_there(source, item) for source in sources) or (
                is_kept and not self._is_chosen(stage, item)
            ):
                continue
            argument = self._route.argument(stage.name, item, self._given, self._outputs, self._items)
            try:
                result = await self._call(stage.function, key, argument)
            except UnmeasurableError as error:
                self._found.faults.setdefault(stage.function, str(error))
                return
            self._found.inputs.setdefault(stage.function, []).append((key, argument))
            self._found.outputs.setdefault(stage.function, []).append(result.value)
            if is_kept:
                self._outputs[stage.name, item] = result.value
                self._arms[stage.name, item] = result.arm

    def _length(self, stage: StageSpec) -> int:
        """How many items a map goes over; 0 where what it goes over is not there."""
        assert isinstance(stage.source, Item)
        of = stage.source.of
        whole = self._given if isinstance(of, Input) else self._outputs.get((of.stage, 0))
        return len(whole) if isinstance(whole, list | tuple) else 0

    def _is_there(self, source: Source, item: int) -> bool:
        """Whether what a source stands for has been computed."""
        match source:
            case Output(stage):
                return (stage, item if self._route.region(stage) is not None else 0) in self._outputs
            case Item(of):
                return self._is_there(of, 0)
            case Collected(of):
                return any(self._is_there(of, one) for one in range(MOST_ITEMS))
            case Listed(parts):
                return all(self._is_there(part, item) for part in parts)
            case FirstOf(parts):
                return any(self._is_there(part, item) for part in parts)
        return True

    def _is_chosen(self, stage: StageSpec, item: int) -> bool:
        if stage.when is None:
            return True
        (chooser,) = stage.after
        label = self._arms.get((chooser, item))
        arms: Mapping[str, str | None] = self._route.stages[chooser].arms
        return label is not None and arms.get(label) == stage.name

    def _count(self, stage: str) -> int:
        return sum(name == stage for name, _ in self._outputs)
