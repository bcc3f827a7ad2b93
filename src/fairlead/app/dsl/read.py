"""From a document to a body."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from os import PathLike
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fairlead.app.compile import compile_body
from fairlead.app.compose import INPUT, ITEMS, Body, Call, Each, Earlier, Fork, Label, each, fork
from fairlead.app.dsl.document import FROM_INPUT, RESERVED_CALLS, Reader, duration_s, from_task, kept_as, open_document
from fairlead.app.dsl.flow import PendingSwitch, TaskList
from fairlead.app.expression import Expression, parse_expression
from fairlead.app.names import checked_name
from fairlead.errors import ConfigError, Fault, suggestion

if TYPE_CHECKING:
    from fairlead.app.declare import App

Made = TypeVar("Made")

_VERSION = re.compile(r"1\.0\.\d+")
_SEMANTIC = re.compile(r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
_WHOLE = re.compile(r"(?:\$\{\s*\.\s*\}|\.)")
_FROM_INPUT = re.compile(r"\$\{\s*\$workflow\.input\s*\}")
_FROM_TASK = re.compile(r"""\$\{\s*\$context(?:\.|\[")([A-Za-z_][\w-]*)(?:"\])?\s*\}""", re.ASCII)
_KEPT = re.compile(r"""\$\{\s*\$context\s*\+\s*\{\s*"?([A-Za-z_][\w-]*)"?\s*:\s*\.\s*\}\s*\}""", re.ASCII)

_IN_A_WORKFLOW = {
    "input": "is not supported: every function takes what came before as it is; transform it in a function.",
    "output": "is not supported: the answer is what the last task gives; transform it in a function.",
    "use": "is not supported: `call` names the functions of the app.",
    "schedule": "is not supported: a workflow runs when it is called.",
    "evaluate": "is not supported: expressions are jq.",
}
_IN_A_TASK = {
    "if": "is not supported; use a switch with a default that goes on.",
    "input": "is not supported: a task takes what came before as it is; transform it in a function.",
    "output": "is not supported: the next task takes what this one gives; transform it in a function.",
    "export": "is supported for a call only, to keep its output by the name of the task.",
    "timeout": "is not supported for a task: the workflow has one timeout, its SLO; see run_limit_s of a function.",
    "while": "is not supported: every item is done, side by side.",
    "emit": "tasks are not supported: do this in a function.",
    "listen": "tasks are not supported: a workflow runs when it is called.",
    "raise": "tasks are not supported: let a function raise.",
    "run": "tasks are not supported: do this in a function.",
    "set": "tasks are not supported: do this in a function.",
    "try": "tasks are not supported: see retries of a function.",
    "wait": "tasks are not supported: do this in a function.",
}


class ReadWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """What a document says."""

    name: str
    body: Body
    slo_s: float | None = None
    cost_usd: float | None = None
    description: str = ""
    fuse: Sequence[str] = ()
    compete: Mapping[str, int] = {}


def read_workflow(source: str | PathLike[str], app: "App") -> ReadWorkflow:
    """The workflow in a document: a path, or its text. Its calls are of the app's functions.

    Raises `ConfigError` with every fault, each with its path and, where something is not supported, its name.
    """
    where, data = open_document(source)
    faults: list[Fault] = []
    top = Reader(data, "", faults)
    head = _read_head(top)
    slo_s = _read_timeout(top)
    tasks = _Tasks(app, faults)
    body = tasks.sequence(top, "do", is_top=True)
    tasks.check_kept()
    top.finish(_IN_A_WORKFLOW)
    if not faults and body is not None:
        try:
            compile_body(body)
        except ValueError as error:
            faults.append(Fault("do", str(error)))
    if faults or body is None:
        raise ConfigError(where, faults)
    return ReadWorkflow(body=body, slo_s=slo_s, **head)  # type: ignore[arg-type]


def _read_head(top: Reader) -> dict[str, object]:
    document = top.section("document", is_needed=True)
    if document is None:
        return {}
    version = document.text("dsl")
    if version is not None and not _VERSION.fullmatch(version):
        document.fault("dsl", f"must be 1.0.x; got {version!r}.")
    document.text("namespace")
    own_version = document.text("version")
    if own_version is not None and not _SEMANTIC.fullmatch(own_version):
        document.fault("version", f"must be a semantic version such as 1.0.0; got {own_version!r}.")
    name = document.text("name")
    summary = document.text("summary", is_needed=False)
    for ignored in ("title", "tags"):
        document.raw(ignored)
    found: dict[str, object] = {"name": name, "description": summary or ""}
    extension = document.extension()
    if extension is not None:
        found["name"] = extension.text("name", is_needed=False) or name
        cost_usd = extension.raw("cost_usd")
        is_number = isinstance(cost_usd, int | float) and not isinstance(cost_usd, bool)
        if cost_usd is not None and not (is_number and 0 < cost_usd < float("inf")):  # type: ignore[operator]
            extension.fault("cost_usd", f"must be a positive number; got {cost_usd!r}.")
        found["cost_usd"] = cost_usd
        found |= _read_granularity(extension)
        extension.finish()
    if found["name"] is not None:
        _check_name(document, "name", found["name"], "a workflow")
    document.finish()
    return found


def _read_granularity(extension: Reader) -> dict[str, object]:
    """Which stages are fused, and which compete. Whether they can be is seen when the workflow is declared."""
    fuse, compete = extension.raw("fuse"), extension.raw("compete")
    if fuse is not None and not (isinstance(fuse, list) and all(isinstance(each, str) for each in fuse)):
        extension.fault("fuse", f"must be a list of chains, such as [a+b]; got {fuse!r}.")
    if compete is not None and not (isinstance(compete, Mapping) and all(type(n) is int for n in compete.values())):
        extension.fault("compete", f"must have the number of copies by stage, such as {{b: 2}}; got {compete!r}.")
    return {"fuse": fuse or (), "compete": compete or {}}


def _read_timeout(top: Reader) -> float | None:
    if isinstance(top.raw("timeout"), str):
        top.fault("timeout", "by name is not supported: give {after: ...} here.")
        return None
    timeout = top.section("timeout")
    if timeout is None:
        return None
    after = timeout.raw("after")
    timeout.finish()
    try:
        return duration_s(after)
    except ValueError as error:
        timeout.fault("after", str(error))
        return None


def _check_name(reader: Reader, key: str | None, name: object, kind: str) -> None:
    try:
        checked_name(name, kind)
    except ValueError as error:
        reader.fault(key, str(error))


class _Tasks:
    """Reads tasks into bodies. Where one has a fault, its body is None."""

    def __init__(self, app: "App", faults: list[Fault]) -> None:
        self._app = app
        self._faults = faults
        self._exported: set[str] = set()
        self._taken: list[tuple[Reader, str]] = []  # by whom, and from which task

    def sequence(self, owner: Reader, key: str, *, is_top: bool = False, item: str | None = None) -> Body | None:
        """The tasks of a list as one body. `item` is what the first call takes, inside a `for`."""
        before = len(self._faults)
        tasks = owner.tasks(key)
        listed = TaskList(tasks, is_top)
        found: list[Body | PendingSwitch | None] = []
        for i, (name, task) in enumerate(tasks):
            found.append(self._task(name, task, listed, i, item if i == 0 else None))
        if not tasks or len(self._faults) > before:
            return None
        body = self._made(owner, key, lambda: listed.follow(found))
        return body if len(self._faults) == before else None

    def _task(self, name: str, task: Reader, listed: TaskList, i: int, item: str | None) -> Body | PendingSwitch | None:
        kinds = [kind for kind in ("call", "fork", "switch", "for", "do") if kind in task]
        if "for" in kinds and "do" in kinds:
            kinds.remove("do")
        body: Body | PendingSwitch | None = None
        match kinds:
            case ["call"]:
                body = self._call(name, task, item)
            case ["do"]:
                body = self.sequence(task, "do", item=item)
            case ["fork"]:
                body = self._fork(task)
            case ["for"]:
                body = self._for(task)
            case ["switch"]:
                body = self._switch(task, listed, i)
            case []:
                if not any(kind in task for kind in _IN_A_TASK):
                    task.fault(None, "must have one of call, do, fork, for and switch.")
            case _:
                task.fault(None, f"must have one of call, do, fork, for and switch; got {' and '.join(kinds)}.")
        if kinds != ["switch"]:
            listed.successors[i] = [listed.target(i, task, is_needed=False)]
        task.raw("metadata")
        task.finish(_IN_A_TASK)
        return body

    def _call(self, name: str, task: Reader, item: str | None) -> Body | None:
        called = task.text("call")
        functions = self._app.functions
        _check_name(task, None, name, "a task that calls")
        if called in RESERVED_CALLS:
            task.fault("call", f"{called} is not supported: call a function of the app, and let it do this.")
        elif called is not None and called not in functions:
            known = ", ".join(functions) or "none"
            hint = suggestion(called, functions)
            task.fault("call", f"the app has no function {called!r}.{hint} Those it has: {known}.")
        using = self._with(task, item)
        self._export(name, task)
        if called is None or called not in functions:
            return None
        function = functions[called]
        self._made(task, "with", lambda: function.check_bound(using))
        return function if name == called and not using else Call(function, name, using)

    def _with(self, task: Reader, item: str | None) -> "dict[str, Earlier]":
        """What the parameters of a call are bound to, besides its argument, which is always what it takes anyway."""
        arguments = task.section("with")
        if arguments is None:
            return {}
        given = task.raw("with")
        assert isinstance(given, dict)
        takes = "${ . }" if item is None else f"${{ ${item} }}"
        wanted = _WHOLE if item is None else re.compile(rf"(?:\$\{{\s*\${re.escape(item)}\s*\}}|\${re.escape(item)})")
        using: dict[str, Earlier] = {}
        own = 0
        for name, value in given.items():
            text = value if isinstance(value, str) else ""
            if wanted.fullmatch(text):
                own += 1
            elif _FROM_INPUT.fullmatch(text):
                using[str(name)] = INPUT
            elif kept := _FROM_TASK.fullmatch(text):
                using[str(name)] = kept[1]
                self._taken.append((task, kept[1]))
            else:
                own = 2
        if own != 1:
            task.fault(
                "with",
                f"may only hold the one argument a function takes, such as {{input: '{takes}'}}, and parameters bound "
                f"to '{from_task('TASK')}' or '{FROM_INPUT}'.",
            )
        return using

    def _export(self, name: str, task: Reader) -> None:
        """A call may keep its output for later ones, by its own name."""
        section = task.section("export")
        if section is None:
            return
        kept = section.text("as")
        section.finish()
        if kept is not None and (found := _KEPT.fullmatch(kept)) and found[1] == name:
            self._exported.add(name)
        else:
            section.fault("as", f"may only keep the output by the name of the task: '{kept_as(name)}'; got {kept!r}.")

    def check_kept(self) -> None:
        """Every task whose output is taken later must export it."""
        for task, name in self._taken:
            if name not in self._exported:
                task.fault("with", f"takes the output of {name!r}, which must export it: as '{kept_as(name)}'.")

    def _fork(self, task: Reader) -> Fork | None:
        section = task.section("fork")
        if section is None:
            return None
        if section.raw("compete") not in (None, False):
            section.fault("compete", "is not supported: all branches run to their end.")
        before = len(self._faults)
        branches = section.tasks("branches")
        section.finish()
        # A branch is a task of its own, and what it may do after itself is nothing.
        bodies = [self._task(name, branch, TaskList([(name, branch)], False), 0, None) for name, branch in branches]
        for (_, branch), body in zip(branches, bodies, strict=True):
            if isinstance(body, PendingSwitch):
                branch.fault(None, "a branch cannot be a switch by itself; put it into a do, after a call.")
        if len(self._faults) > before:
            return None
        return self._made(section, "branches", lambda: fork(*[body for body in bodies if isinstance(body, Body)]))

    def _for(self, task: Reader) -> Each | None:
        section = task.section("for")
        if section is None:
            return None
        variable = section.text("each", is_needed=False) or "item"
        over = section.text("in")
        if over is not None and not _WHOLE.fullmatch(over.strip()):
            section.fault("in", f"must be '${{ . }}', the whole output before it; got {over!r}.")
        if "at" in section:
            section.raw("at")
            section.fault("at", "is not supported: items do not know their number.")
        section.finish()
        items: object = list(ITEMS)
        extension = task.extension()
        if extension is not None:
            items = extension.raw("items") or items
            extension.finish()
        if not isinstance(items, list) or len(items) != 2:
            task.fault("metadata.fairlead.items", f"must be the least and the greatest number; got {items!r}.")
            return None
        body = self.sequence(task, "do", item=variable)
        if body is None:
            return None
        return self._made(task, "for", lambda: each(body, items=(items[0], items[1])))

    def _switch(self, task: Reader, listed: TaskList, i: int) -> PendingSwitch | None:
        before = len(self._faults)
        conditions: list[tuple[str, Expression]] = []
        targets: dict[str, int] = {}
        defaults: list[str] = []
        for label, case in task.tasks("switch"):
            targets[label] = listed.target(i, case, is_needed=True)
            when = case.text("when", is_needed=False)
            if when is None:
                defaults.append(label)
            else:
                self._made(case, "when", lambda: conditions.append((label, parse_expression(when))))  # noqa: B023
            case.finish()
        if len(defaults) > 1:
            task.fault("switch", f"only one case may be without when; got {' and '.join(defaults)}.")
        if defaults and "then" in task:
            task.fault("then", "means nothing beside a case without when.")
        if not conditions and len(self._faults) == before:
            task.fault("switch", "needs at least one case with when.")
        weights = self._weights(task)
        if not defaults:  # if no case matches, it goes on as any other task does
            defaults = [
                next(name for n in count(1) if (name := "default" if n == 1 else f"default-{n}") not in targets)
            ]
            targets[defaults[0]] = listed.target(i, task, is_needed=False)
        task.raw("then")
        if len(self._faults) > before:
            return None
        listed.successors[i] = list(dict.fromkeys(targets.values()))
        return PendingSwitch(task, tuple(conditions), defaults[0], targets, weights)

    def _weights(self, task: Reader) -> "Mapping[Label, float] | None":
        extension = task.extension()
        if extension is None:
            return None
        weights = extension.raw("weights")
        extension.finish()
        if weights is None or isinstance(weights, Mapping):
            return weights
        extension.fault("weights", f"must be a mapping from cases to numbers; got {weights!r}.")
        return None

    def _made(self, reader: Reader, key: str, make: "Callable[[], Made]") -> "Made | None":
        """What `make` gives; a value that it refuses is a fault."""
        try:
            return make()
        except ValueError as error:
            reader.fault(key, str(error))
            return None
