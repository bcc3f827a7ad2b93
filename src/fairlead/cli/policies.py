"""`fairlead policies`: who can decide, and what can be set."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import cleandoc
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fairlead.cli.choices import admit_own
from fairlead.cli.errors import warn
from fairlead.policy import Policy, parameters, policy_class, policy_names, role


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One setting of a policy."""

    name: str
    type: str
    default: object
    text: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """All that is shown of a policy."""

    name: str
    role: str
    paper: str
    summary: str
    details: str
    parameters: tuple[Parameter, ...]

    @property
    def page(self) -> str:
        """The name of its page in the documentation."""
        return f"policies/{self.name}"

    def as_json(self) -> dict[str, object]:
        """The entry as JSON values; a number that JSON does not have becomes its text."""
        return {
            "name": self.name,
            "role": self.role,
            "paper": self.paper or None,
            "summary": self.summary,
            "page": self.page,
            "parameters": [
                {"name": one.name, "type": one.type, "default": _json_default(one.default), "text": one.text}
                for one in self.parameters
            ],
        }


def policies(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", show_default=False, callback=admit_own, help="Show this policy and its parameters."
        ),
    ] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """List every policy, or show one with its parameters."""
    if name is not None:
        entry = describe(name, policy_class(name))
        if is_json:
            typer.echo(json.dumps(entry.as_json(), indent=1, allow_nan=False))
        else:
            _show(entry)
        return
    entries = _load_all()
    if is_json:
        typer.echo(json.dumps({"policies": [one.as_json() for one in entries]}, indent=1, allow_nan=False))
    else:
        _show_all(entries)


def describe(name: str, policy: type[Policy]) -> Entry:
    """What a policy's class says of itself: its docstring, its fields and their `Args`."""
    text, _, _ = cleandoc(policy.__doc__ or "").partition("\nArgs:\n")
    texts: dict[str, str] = {}
    for one in reversed(policy.__mro__):  # what it inherits, then its own
        texts |= parse_args(cleandoc(one.__doc__ or "").partition("\nArgs:\n")[2])
    summary, _, details = text.partition("\n")
    return Entry(
        name=name,
        role=role(policy),
        paper=policy.paper,
        summary=summary.strip(),
        details=details.strip(),
        parameters=tuple(
            Parameter(name=key, type=describe_type(kind), default=default, text=texts.get(key, ""))
            for key, (kind, default) in parameters(policy).items()
        ),
    )


def parse_args(section: str) -> Mapping[str, str]:
    """The `Args` section of a docstring as text by name; it ends at the first line that is not indented."""
    texts: dict[str, list[str]] = {}
    current: list[str] = []
    for line in section.splitlines():
        if line.strip() and not line.startswith(" "):
            break
        begin = re.match(r" {4}(\w+): ?(.*)", line)
        if begin:
            current = texts.setdefault(begin[1], [])
            current.append(begin[2])
        else:
            current.append(line.strip())
    return {name: " ".join(part for part in lines if part) for name, lines in texts.items()}


def describe_type(kind: object) -> str:
    """A type as people write it: `int or none`, `compat | fixed`."""
    if get_origin(kind) is Literal:
        return " | ".join(str(value) for value in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(describe_type(one) for one in get_args(kind))
    if kind is NoneType:
        return "none"
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _load_all() -> list[Entry]:
    entries = []
    for name in policy_names():
        try:
            entries.append(describe(name, policy_class(name)))
        except Exception as error:  # one broken package must not hide the other policies
            warn(f"Policy {name!r} cannot be loaded: {type(error).__name__}: {error}")
    return entries


def _show_all(entries: list[Entry]) -> None:
    console = Console(highlight=False)
    name_width = max((len(one.name) for one in entries), default=0)
    for paper in sorted({one.paper for one in entries}):  # the baselines, which have none, come first
        console.print(Text(paper or "Baselines", style="bold"))
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(min_width=name_width + 2, no_wrap=True)
        table.add_column(min_width=len("dispatch"), no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        for one in entries:
            if one.paper == paper:
                table.add_row(*(Text(text) for text in (f"  {one.name}", one.role, one.summary)))
        console.print(table)
        console.print()
    typer.echo("What can be set: fairlead policies NAME")


def _show(entry: Entry) -> None:
    console = Console(highlight=False)
    console.print(Text.assemble((entry.name, "bold"), f" ({entry.role})"))
    console.print(Text(entry.summary))
    if entry.details:
        paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", entry.details)]
        console.print(Text("\n" + "\n\n".join(paragraphs)))
    if ":" not in entry.name:  # a class of the user's own has neither
        console.print(Text(f"\nPaper: {entry.paper or 'none, a baseline'}\nPage:  {entry.page}"))
    if not entry.parameters:
        console.print("It has no parameters.")
        return
    prefix = "policy" if entry.role == "dispatch" else "scaler"
    console.print(f"\nParameters, set with --set {prefix}.KEY=VALUE:")
    for one in entry.parameters:
        default = "none" if one.default is None else str(one.default)
        console.print(Text.assemble("  ", (one.name, "bold"), f"  {one.type}, default {default}"))
        if one.text:
            console.print(Padding(Text(one.text), (0, 0, 0, 6)))


def _json_default(value: object) -> object:
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value)):
        return value
    if isinstance(value, list | tuple):
        return [_json_default(item) for item in value]
    return str(value)
