"""The `workflows` part of a scenario file: stages, their order, and the objective."""

from collections.abc import Collection, Mapping

from fairlead.errors import Fault
from fairlead.model import SLO, Stage, Workflow, workflow_faults
from fairlead.workload.parse.document import describe
from fairlead.workload.parse.reader import Check, Section, integer, number, number_or_inf, one_of_names, text, truth

_SLO: dict[str, Check] = {"latency_s": number_or_inf, "cost_usd": number_or_inf}


def parse_workflows(section: Section, functions: Collection[str] | None) -> dict[str, Workflow]:
    """Workflows by name; `functions` are the names that their stages may use, None where that is not known."""
    found = {name: _parse_workflow(name, entry, functions) for name, entry in section.named_sections()}
    return {name: workflow for name, workflow in found.items() if workflow is not None}


def _parse_workflow(name: str, entry: Section, functions: Collection[str] | None) -> Workflow | None:
    before = len(entry.faults)
    slo_section = entry.section("slo")
    slo = slo_section.build(SLO, slo_section.read(_SLO))
    slo_section.finish()
    stages: list[Stage] = []
    if entry.require("stages"):
        part = entry.section("stages")
        stages = [_parse_stage(stage, part, functions) for stage in part.names()]
        if len(entry.faults) == before:
            entry.faults += [_located(fault, part) for fault in workflow_faults(stages)]
    entry.raw("optimise")  # read later, when everything else is known
    entry.finish()
    if len(entry.faults) > before or slo is None:
        return None
    return Workflow(name=name, stages=tuple(stages), slo=slo)


def _parse_stage(name: str, part: Section, functions: Collection[str] | None) -> Stage:
    is_function = one_of_names(functions, "function")
    match part.raw(name):
        case list():
            part.accept(name, name, is_function, "")
            return Stage(name=name, function=name, after=tuple(part.all_of(name, text)))
        case Mapping():
            entry = part.section(name)
            function = entry.get("function", is_function, name)
            if "function" not in entry:
                part.accept(name, name, is_function, "")
            stage = Stage(
                name=name,
                function=function,
                after=tuple(entry.all_of("after", text)),
                when=entry.get("when", number, None),
                map=entry.get("map", _items, None),
                join=entry.get("join", truth, False),
                compete=entry.get("compete", integer, 1),
            )
            entry.finish()
            return stage
        case other:
            part.fault(name, f"must be a list of predecessors, or a mapping; got {describe(other)}.")
            return Stage(name=name, function=name)


def _items(value: object) -> tuple[int, int]:
    if isinstance(value, list):
        if len(value) != 2:
            raise ValueError(f"must be a number of items, or the least and the greatest; got {len(value)} values.")
        return integer(value[0]), integer(value[1])
    items = integer(value)
    return items, items


def _located(fault: Fault, stages: Section) -> Fault:
    """The fault of a stage as one of the file: a stage that is a plain list has no `after` of its own."""
    stage, _, setting = fault.path.partition(".")
    path = stages.at(fault.path) if fault.path else stages.path
    if setting == "after" and isinstance(stages.raw(stage), list):
        path = stages.at(stage)
    return Fault(path, fault.message)
