"""What a workflow answers, worked out stage by stage in this process: for unit tests, and to say what sources mean."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fairlead.app.compile import Compiled
from fairlead.app.function import AppFunction, batch_faults
from fairlead.app.manifest import Collected, FirstOf, Input, Item, Listed, Output, Source, StageSpec, WorkflowSpec

ABSENT: object = object()
"""What a source gives whose stages did not run."""


def answer(spec: WorkflowSpec, compiled: Compiled, value: object) -> object:
    """The answer of a workflow to a value; what a function or a chooser raises comes through."""
    run = _Run(spec, compiled, value)
    for stage in spec.stages:
        run.stage(stage)
    return run.get(spec.answer, None)


class _Run:
    """One request. Outputs are by stage and item; the item is None outside of maps."""

    def __init__(self, spec: WorkflowSpec, compiled: Compiled, value: object) -> None:
        self.specs = {stage.name: stage for stage in spec.stages}
        self.compiled = compiled
        self.value = value
        self.outputs: dict[tuple[str, int | None], object] = {}
        self.labels: dict[tuple[str, int | None], str] = {}
        self.maps: dict[str, StageSpec] = {}  # by stage inside a map: the one that opened it

    def stage(self, stage: StageSpec) -> None:
        """Run a stage as often as it has to."""
        opener = self._opener(stage)
        if opener is None:
            self._invoke(stage, None)
            return
        self.maps[stage.name] = opener
        for item in range(len(self._items(opener) or ())):
            self._invoke(stage, item)

    def get(self, source: Source, item: int | None) -> object:
        """What a source gives, for one item inside a map; `ABSENT` if its stages did not run."""
        match source:
            case Input():
                return self.value
            case Output(stage):
                return self.outputs.get((stage, item if stage in self.maps else None), ABSENT)
            case Item(of):
                return _list(self.get(of, None), of)[item or 0]
            case Listed(parts):
                values = [self.get(part, item) for part in parts]
                return ABSENT if any(value is ABSENT for value in values) else values
            case FirstOf(parts):
                return next((value for part in parts if (value := self.get(part, item)) is not ABSENT), ABSENT)
            case Collected(of):
                items = self._items(self.maps[_first_output(of)])
                return ABSENT if items is None else [self.get(of, each) for each in range(len(items))]

    def _opener(self, stage: StageSpec) -> StageSpec | None:
        if stage.map is not None:
            return stage
        return None if stage.join else next((self.maps[name] for name in stage.after if name in self.maps), None)

    def _items(self, opener: StageSpec) -> Sequence[object] | None:
        """What a map goes over; None if it did not come to it."""
        assert isinstance(opener.source, Item)
        value = self.get(opener.source.of, None)
        return None if value is ABSENT else _list(value, opener.source.of)

    def _invoke(self, stage: StageSpec, item: int | None) -> None:
        if not self._is_taken(stage, item):
            return
        argument = self.get(stage.source, item)
        if argument is ABSENT:
            return
        function = self.compiled.codes[stage.name]
        assert isinstance(function, AppFunction)
        bound = {name: self.get(source, item) for name, source in stage.using.items()}
        self.outputs[stage.name, item] = output = call(function, argument, bound)
        if stage.chooses:
            self.labels[stage.name, item] = self.compiled.switches[stage.name].choose(output)

    def _is_taken(self, stage: StageSpec, item: int | None) -> bool:
        if stage.when is None:
            return True
        (chooser,) = stage.after
        label = self.labels.get((chooser, item))
        return label is not None and self.specs[chooser].arms[label] == stage.name


def call(function: AppFunction, argument: object, bound: Mapping[str, object] = MappingProxyType({})) -> object:
    """One invocation of a function, batched or not, with what its further parameters are bound to."""
    if not function.is_batched:
        return function(argument, **bound)
    results = function([argument], **{name: [value] for name, value in bound.items()})
    fault = batch_faults(results, 1, function.name)
    if fault is not None:
        raise ValueError(fault)
    assert isinstance(results, Sequence)
    return results[0]


def _list(value: object, of: Input | Output) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        whose = "the input" if isinstance(of, Input) else f"the output of {of.stage!r}"
        raise ValueError(f"{whose} must be a list, as each goes over it; got {type(value).__name__}.")
    return value


def _first_output(source: Source) -> str:
    """A stage inside the map that a collected source comes from."""
    match source:
        case Output(stage):
            return stage
        case Listed(parts) | FirstOf(parts):
            return _first_output(parts[0])
    raise TypeError(f"{source!r} cannot be collected.")
