"""Where the values of a request go: from what it brought, from stage to stage, to its answer."""

from collections.abc import Mapping

from fairlead.app.manifest import Collected, FirstOf, Input, Item, Listed, Output, Source, StageSpec, WorkflowSpec
from fairlead.engine.live.values import Value

Outputs = dict[tuple[str, int], Value]  # by stage and item


class Route:
    """A workflow's stages, and how their arguments are put together."""

    __slots__ = ("_regions", "first_maps", "keys", "spec", "stages")

    def __init__(self, spec: WorkflowSpec) -> None:
        self.spec = spec
        self.stages: Mapping[str, StageSpec] = {stage.name: stage for stage in spec.stages}
        self.keys = {stage.name: f"{spec.name}/{stage.name}" for stage in spec.stages}
        self.first_maps = tuple(stage.name for stage in spec.stages if stage.map is not None and not stage.after)
        self._regions = _regions(spec)

    def argument(self, stage: str, item: int, given: Value, outputs: Outputs, items: Mapping[str, int]) -> Value:
        """What a stage is called with: its argument, or the list of it and what further parameters are bound to.

        `items` has the number of items of each map that has begun, by its stage.
        """
        spec = self.stages[stage]
        found = self._resolve(spec.source, item, given, outputs, items)
        assert found is not None, f"{stage} was started before its input was there"
        if not spec.using:
            return found
        bound = [self._resolve(source, item, given, outputs, items) for source in spec.using.values()]
        return [found, *(value for value in bound if value is not None)]

    def answer(self, given: Value, outputs: Outputs, items: Mapping[str, int]) -> Value:
        """What the request is answered with, once every stage is done; an empty list where nothing ran."""
        found = self._resolve(self.spec.answer, 0, given, outputs, items)
        return [] if found is None else found

    def region(self, stage: str) -> str | None:
        """The map stage whose items a stage runs through; None outside."""
        return self._regions[stage]

    def _resolve(
        self, source: Source, item: int, given: Value, outputs: Outputs, items: Mapping[str, int]
    ) -> Value | None:
        """The value of a source; None where what should give it did not run."""
        match source:
            case Input():
                return given
            case Output(stage):
                return outputs.get((stage, item if self._regions[stage] is not None else 0))
            case Item(of):
                whole = self._resolve(of, 0, given, outputs, items)
                assert isinstance(whole, list | tuple), "what is mapped over has been split"
                part: Value = whole[item]
                return part
            case Collected(of):
                count = items.get(self._region_of(of))
                if count is None:  # the map did not begin: it is in an arm that was not taken
                    return None
                parts = [self._resolve(of, each, given, outputs, items) for each in range(count)]
                return [part for part in parts if part is not None]
            case Listed(parts_of):
                listed = [self._resolve(part, item, given, outputs, items) for part in parts_of]
                return None if None in listed else [part for part in listed if part is not None]
            case FirstOf(parts_of):
                for part_of in parts_of:
                    found = self._resolve(part_of, item, given, outputs, items)
                    if found is not None:
                        return found
                return None

    def _region_of(self, source: Source) -> str:
        """The map through which a source inside one runs."""
        match source:
            case Output(stage):
                return self._regions[stage] or ""
            case Listed(parts) | FirstOf(parts):
                return next((region for part in parts if (region := self._region_of(part))), "")
            case Item(of) | Collected(of):
                return self._region_of(of)
        return ""


def _regions(spec: WorkflowSpec) -> dict[str, str | None]:
    regions: dict[str, str | None] = {}
    for stage in spec.stages:  # in topological order
        around = [region for p in stage.after if (region := regions[p]) is not None]
        regions[stage.name] = stage.name if stage.map else None if stage.join or not around else around[0]
    return regions
