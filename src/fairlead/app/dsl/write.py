"""From a workflow to a document. Reading it again gives the same workflow."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import yaml

from fairlead.app.compose import ITEMS, Body, Call, Code, Each, Fork, Switch, name_of, steps
from fairlead.app.dsl.document import (
    DIRECTIVES,
    EXTENSION,
    FROM_INPUT,
    RESERVED_CALLS,
    duration_of,
    from_task,
    kept_as,
)
from fairlead.app.expression import Cases
from fairlead.app.fusion import unfused_workflow
from fairlead.app.manifest import Output, StageSpec

if TYPE_CHECKING:
    from fairlead.app.declare import AppWorkflow

_ITEM = "item"

Task = dict[str, object]


def write_workflow(workflow: "AppWorkflow", *, namespace: str = "default", version: str = "1.0.0") -> str:
    """The document of a workflow, in YAML. Its example stays behind: the DSL has no place for one.

    Raises `ValueError` for what a document cannot say: a chooser that is Python code (see `expression.cases`).
    """
    spec = workflow.spec
    plain = unfused_workflow(spec)
    for function in {stage.function for stage in plain.stages} & set(RESERVED_CALLS):
        raise ValueError(f"workflow {spec.name!r}: call {function} means something else in a document; rename it.")
    extension: dict[str, object] = {}
    name = spec.name.strip("_-").replace("_", "-").lower() or "workflow"
    if name != spec.name:
        extension["name"] = spec.name
    if spec.cost_usd is not None:
        extension["cost_usd"] = spec.cost_usd
    if spec.unfused is not None:
        extension["fuse"] = [stage.name for stage in spec.stages if stage.parts]
    if any(stage.compete > 1 for stage in spec.stages):
        extension["compete"] = {stage.name: stage.compete for stage in spec.stages if stage.compete > 1}
    document: Task = {"dsl": "1.0.0", "namespace": namespace, "name": name, "version": version}
    if spec.description:
        document["summary"] = spec.description
    if extension:
        document["metadata"] = {EXTENSION: extension}
    written: Task = {"document": document}
    if spec.slo_s is not None:
        written["timeout"] = {"after": duration_of(spec.slo_s)}
    try:
        written["do"] = _Writer(plain.stages).sequence(workflow.body)
    except ValueError as error:
        raise ValueError(f"workflow {spec.name!r}: {error}") from None
    text: str = yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=120)
    return text


class _Writer:
    """Writes bodies in the order in which they were compiled, so that stages come by their names."""

    def __init__(self, stages: Sequence[StageSpec]) -> None:
        self._stages = iter(stages)
        self._taken = {*(stage.name for stage in stages), *DIRECTIVES}
        bound = [source for stage in stages for source in stage.using.values()]
        self._exported = {source.stage for source in bound if isinstance(source, Output)}

    def sequence(self, body: Body, is_item: bool = False) -> list[Task]:
        """A body as a list of tasks; `is_item` says that its first call takes an item."""
        return [self._task(step, is_item and i == 0) for i, step in enumerate(steps(body))]

    def _task(self, body: Body, is_item: bool = False) -> Task:
        match body:
            case Code() | Call():
                return self._call(is_item)
            case Fork():
                name = self._name("fork")
                return {name: {"fork": {"compete": False, "branches": [self._one(each) for each in body.branches]}}}
            case Each():
                task: Task = {"for": {"each": _ITEM, "in": "${ . }"}}
                name = self._name("each")
                task["do"] = self.sequence(body.body, is_item=True)
                if body.items != ITEMS:
                    task["metadata"] = {EXTENSION: {"items": list(body.items)}}
                return {name: task}
            case Switch():
                return {self._name("switch"): {"do": list(self._switch(body))}}
        raise TypeError(f"{body!r} is no body that can be written.")

    def _call(self, is_item: bool) -> Task:
        """The next stage. What it takes is written where that is not simply what came before it."""
        stage = next(self._stages)
        task: Task = {"call": stage.function}
        if is_item or stage.using:
            argument = "input" if "input" not in stage.using else "argument"
            bound = {
                name: from_task(source.stage) if isinstance(source, Output) else FROM_INPUT
                for name, source in stage.using.items()
            }
            task["with"] = {argument: f"${{ ${_ITEM} }}" if is_item else "${ . }", **bound}
        if stage.name in self._exported:
            task["export"] = {"as": kept_as(stage.name)}
        return {stage.name: task}

    def _one(self, body: Body) -> Task:
        """A body as one task."""
        if len(steps(body)) > 1:
            name = self._name("steps")
            return {name: {"do": self.sequence(body)}}
        return self._task(body)

    def _switch(self, body: Switch) -> "Iterator[Task]":
        """The tasks of a list that is left when an arm is done."""
        if not isinstance(body.chooser, Cases):
            raise ValueError(
                f"the chooser {name_of(body.chooser)} is Python code, which a document cannot hold; "
                "write it as cases({label: expression}, default=label)."
            )
        choice = self._name("choose")
        arms = {label: self._arm(label, arm) for label, arm in body.arms.items() if arm is not None}
        then = {label: next(iter(arms[label])) if label in arms else "exit" for label in body.arms}
        labels: list[str] = []
        written: list[Task] = []
        for label, condition in (*body.chooser.conditions, (body.chooser.default, None)):
            labels.append(label)
            name = label if labels.count(label) == 1 else f"{label} ({labels.count(label)})"
            when = {} if condition is None else {"when": f"${{ {condition} }}"}
            written.append({name: {**when, "then": then[label]}})
        task: Task = {"switch": written}
        if len(set(body.shares.values())) > 1:
            task["metadata"] = {EXTENSION: {"weights": dict(body.shares)}}
        yield {choice: task}
        yield from arms.values()

    def _arm(self, label: str, body: Body) -> Task:
        name = self._name(label)
        return {name: {"do": self.sequence(body), "then": "exit"}}

    def _name(self, wanted: str) -> str:
        """A name that no other task has."""
        name, count = wanted, 1
        while name in self._taken:
            count += 1
            name = f"{wanted}-{count}"
        self._taken.add(name)
        return name
