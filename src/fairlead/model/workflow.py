"""A workflow: functions in a directed acyclic graph, with one objective for the whole.

A stage runs when all its predecessors are done. Four things go beyond a plain graph:

* a **branch**: the successors of a stage that carry `when` are arms of one branch, of which exactly one is taken
  (none, with the probability that is left over). An arm not taken counts as done, and so does all
  that only it leads to.
* a **map**: a stage with `map` runs once per item of its predecessor's output; the stages after it run
  item by item, until
* a **join**: a stage with `join` waits for every item of its predecessors and runs once.
* **competition**: a stage with `compete` runs as so many copies at once, and the first answer wins; what waits or runs
  of the others is given up. It fails only when every copy has.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType

import msgspec

from fairlead.errors import Fault, suggestion
from fairlead.model.slo import SLO


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a workflow: which function, after which stages.

    `when` is the probability of this arm of a branch; `map` the least and greatest number of items; `compete` the
    number of copies that race, inside a map for each item.
    """

    name: str
    function: str
    after: tuple[str, ...] = ()
    when: float | None = None
    map: tuple[int, int] | None = None
    join: bool = False
    compete: int = 1


class Workflow(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Stages by name, in topological order, and the objective they share."""

    name: str
    stages: tuple[Stage, ...]
    slo: SLO = SLO()

    def __post_init__(self) -> None:
        faults = workflow_faults(self.stages)
        if faults:
            raise ValueError("; ".join(str(fault) for fault in faults))
        by_name = {stage.name: stage for stage in self.stages}
        ordered = tuple(by_name[name] for name in _topological(self.stages))
        msgspec.structs.force_setattr(self, "stages", ordered)

    @classmethod
    def chain(cls, name: str, *functions: str, slo: SLO = SLO()) -> "Workflow":
        """One stage after the other, each named like its function."""
        stages = tuple(
            Stage(name=function, function=function, after=functions[i - 1 : i] if i else ())
            for i, function in enumerate(functions)
        )
        return cls(name=name, stages=stages, slo=slo)

    @cached_property
    def regions(self) -> Mapping[str, str | None]:
        """For each stage, the map stage whose items it runs through; None outside any map."""
        return MappingProxyType(_regions(self.stages))

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """The functions used, each once, in order of first use."""
        return tuple(dict.fromkeys(stage.function for stage in self.stages))


def workflow_faults(stages: Sequence[Stage]) -> list[Fault]:
    """Everything that keeps these stages from being a workflow; paths begin with the stage's name."""
    if not stages:
        return [Fault("", "a workflow needs at least one stage.")]
    names = [stage.name for stage in stages]
    faults = [Fault(name, "this stage is declared twice.") for name in sorted({n for n in names if names.count(n) > 1})]
    for stage in stages:
        faults += _stage_faults(stage, set(names))
    if faults:
        return faults
    try:
        _topological(stages)
    except CycleError as error:
        cycle = error.args[1]
        return [Fault(cycle[0], f"stages form a cycle: {' -> '.join(reversed(cycle))}.")]
    faults += _branch_faults(stages)
    return faults or list(_region_faults(stages))


def _stage_faults(stage: Stage, names: set[str]) -> Iterator[Fault]:
    for predecessor in stage.after:
        if predecessor not in names:
            yield Fault(f"{stage.name}.after", f"there is no stage {predecessor!r}.{suggestion(predecessor, names)}")
    if len(set(stage.after)) < len(stage.after):
        yield Fault(f"{stage.name}.after", "a predecessor is listed twice.")
    if stage.when is not None:
        if not 0 <= stage.when <= 1:
            yield Fault(f"{stage.name}.when", f"a probability must be in [0, 1]; got {stage.when}.")
        if len(stage.after) != 1:
            yield Fault(
                f"{stage.name}.when", f"an arm of a branch has exactly one predecessor; got {len(stage.after)}."
            )
    if stage.map is not None:
        low, high = stage.map
        if not 1 <= low <= high:
            yield Fault(
                f"{stage.name}.map", f"the numbers of items must be at least 1 and in order; got {low} to {high}."
            )
        if len(stage.after) > 1:
            yield Fault(f"{stage.name}.map", f"a map stage has at most one predecessor; got {len(stage.after)}.")
        if stage.join:
            yield Fault(f"{stage.name}.join", "a stage cannot map and join at once; put a stage between.")
    if stage.compete < 1:
        yield Fault(f"{stage.name}.compete", f"the number of copies must be at least 1; got {stage.compete}.")


def _branch_faults(stages: Sequence[Stage]) -> Iterator[Fault]:
    for stage in stages:
        total = sum(s.when for s in stages if s.when is not None and s.after == (stage.name,))
        if total > 1 + 1e-9:
            yield Fault(stage.name, f"the arms after this stage have probabilities that sum to {total:g}, above 1.")


def _region_faults(stages: Sequence[Stage]) -> Iterator[Fault]:
    by_name = {stage.name: stage for stage in stages}
    regions: dict[str, str | None] = {}
    sources: dict[str, tuple[int, int]] = {}
    for name in _topological(stages):
        stage = by_name[name]
        around = {regions[p] for p in stage.after} - {None}
        regions[name] = None
        if stage.map is not None:
            regions[name] = name
            if around:
                yield Fault(
                    f"{name}.map", f"a map inside the map of {min(map(str, around))!r} is not supported; join first."
                )
            source = stage.after[0] if stage.after else ""
            if sources.setdefault(source, stage.map) != stage.map:
                yield Fault(f"{name}.map", "maps over the same output must have the same number of items.")
        elif stage.join:
            if not around:
                yield Fault(f"{name}.join", "there is no map before this stage to join.")
        elif len(around) > 1:
            yield Fault(f"{name}.after", "the items of two maps meet here; add 'join: true'.")
        elif around:
            regions[name] = around.pop()


def _regions(stages: Sequence[Stage]) -> dict[str, str | None]:
    regions: dict[str, str | None] = {}
    for stage in stages:  # in topological order
        around = [region for p in stage.after if (region := regions[p]) is not None]
        regions[stage.name] = stage.name if stage.map else None if stage.join or not around else around[0]
    return regions


def _topological(stages: Sequence[Stage]) -> list[str]:
    """Names in an order that respects `after` and, within it, the order of declaration."""
    sorter = TopologicalSorter({stage.name: stage.after for stage in stages})
    sorter.prepare()
    position = {stage.name: i for i, stage in enumerate(stages)}
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=position.__getitem__)
        order += ready
        sorter.done(*ready)
    return order
