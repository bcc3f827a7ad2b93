"""The `optimise` part of a workflow in a scenario file: which stages to fuse, and which run as competing copies.

It is carried out last, on the whole scenario, so that a `load` of arrivals refers to the workflow as it is written and
what arrives stays the same whether it is optimised or not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from fairlead.model import Workflow
from fairlead.model.slots import slots
from fairlead.workload.parse.cluster import why_not
from fairlead.workload.parse.document import describe
from fairlead.workload.parse.reader import Section, integer, one_of_names, sequence
from fairlead.workload.scenario import Scenario
from fairlead.workload.transform import compete, fuse

Chains = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is to be done to one workflow, and where the file says so. `fuse` of None fuses every chain it can."""

    section: Section
    workflow: str
    fuse: Chains | None = ()
    compete: Mapping[str, int]


def parse_optimise(section: Section, workflows: Mapping[str, Workflow]) -> list[Wish]:
    """The wishes for these workflows, those of the section that have no faults."""
    wishes = []
    for name, workflow in workflows.items():
        entry = section.section(name)
        part = None if entry.raw("optimise") is None else entry.part("optimise")
        if part is None:
            continue
        before = len(part.faults)
        stages = [stage.name for stage in workflow.stages]
        wish = Wish(section=part, workflow=name, fuse=_parse_fuse(part, stages), compete=_parse_compete(part, stages))
        part.finish()
        if len(part.faults) == before:
            wishes.append(wish)
    return wishes


def optimised(scenario: Scenario, wishes: list[Wish]) -> Scenario:
    """The scenario with all wishes fulfilled, copies first; what cannot be done is a fault of the file."""
    declared = set(scenario.functions)
    for wish in wishes:
        for stage, copies in wish.compete.items():
            scenario = compete(scenario, wish.workflow, stage, copies)
        try:
            scenario = fuse(scenario, wish.workflow, wish.fuse)
        except ValueError as error:
            wish.section.fault("fuse", str(error))
            continue
        for name in set(scenario.workflows[wish.workflow].functions) - declared:
            _check_placement(wish, name, scenario)
    return scenario


def _parse_fuse(part: Section, stages: list[str]) -> Chains | None:
    value = part.raw("fuse")
    if "fuse" not in part or value is False:
        return ()
    if value is True:
        return None
    if not isinstance(value, list):
        part.fault("fuse", f"must be true, false, or a list of chains of stages; got {describe(value)}.")
        return ()
    known = one_of_names(stages, "stage")

    def chain(value: object) -> tuple[str, ...]:
        return tuple(known(name) for name in sequence(value))

    return tuple(part.all_of("fuse", chain))


def _parse_compete(part: Section, stages: list[str]) -> dict[str, int]:
    section = part.section("compete")
    copies = {}
    for name in section.names():
        section.accept(name, name, one_of_names(stages, "stage"), "")
        copies[name] = section.get(name, _copies, 1)
    return copies


def _copies(value: object) -> int:
    found = integer(value)
    if found < 1:
        raise ValueError(f"the number of copies must be at least 1; got {found}.")
    return found


def _check_placement(wish: Wish, name: str, scenario: Scenario) -> None:
    """A fused function is larger than its parts: each of its configurations must still run somewhere."""
    function, profile, nodes = scenario.functions[name], scenario.profiles[name], scenario.cluster.nodes
    for configuration in profile.configurations:
        able = [node for node in nodes if profile.latency_s(configuration, node.kind) < inf]
        if not any(slots(node, function, configuration) for node in able):
            reason = why_not(able, function, configuration)
            wish.section.fault("fuse", f"no node can hold {name} at {configuration}: {reason}.")
            return
