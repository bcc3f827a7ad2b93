"""The YAML of a document, read strictly, and what its values may be."""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from os import PathLike
from pathlib import Path

import yaml

from fairlead.errors import ConfigError, Fault, suggestion

MAX_BYTES = 1 << 20
RESERVED_CALLS = ("a2a", "asyncapi", "grpc", "http", "mcp", "openapi")
"""What `call` means in every document; no function of an app can be called by such a name."""

DIRECTIVES = ("continue", "exit", "end")
EXTENSION = "fairlead"
"""Where, under `metadata`, stands what the DSL has no words for."""

FROM_INPUT = "${ $workflow.input }"
"""The input of the request, as an argument of a later call."""

_PARTS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000, "milliseconds": 1}
_ISO = re.compile(r"P(?:(\d+(?:\.\d+)?)D)?(?:T(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_ISO_S = (86_400, 3600, 60, 1)

Data = Mapping[object, object]


class _Loader(yaml.SafeLoader):
    """Refuses a key that is given twice, and aliases: few bytes could stand for endless data."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.get_mark()
            raise yaml.constructor.ConstructorError(None, None, "aliases (*) are not supported", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return dict(super().construct_mapping(node, deep))


def open_document(source: str | PathLike[str]) -> tuple[str, Data]:
    """What it is called in messages, and its data. A text of one line is a path. Raises `ConfigError`."""
    if isinstance(source, str) and "\n" in source:
        name, content = "the document", source.encode()
    else:
        name = str(source)
        try:
            with Path(source).open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ConfigError(name, [Fault("", f"cannot be read: {error.strerror or error}.")]) from None
    if len(content) > MAX_BYTES:
        raise ConfigError(name, [Fault("", f"is larger than {MAX_BYTES >> 20} MiB.")])
    try:
        data = yaml.load(content, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(name, [Fault(where, f"{getattr(error, 'problem', None) or error}.")]) from None
    if not isinstance(data, Mapping):
        raise ConfigError(name, [Fault("", "must be a mapping with document and do.")])
    return name, data


class Reader:
    """One mapping of a document: takes what is known, and makes faults of the rest."""

    def __init__(self, data: Data, path: str, faults: list[Fault]) -> None:
        self._data = data
        self._taken: set[object] = set()
        self.path = path
        self.faults = faults

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def at(self, key: object) -> str:
        """The path of one of its keys."""
        return f"{self.path}.{key}" if self.path else str(key)

    def fault(self, key: str | None, message: str) -> None:
        """Note a fault; without a key, of the whole."""
        self.faults.append(Fault(self.path if key is None else self.at(key), message))

    def raw(self, key: str) -> object:
        """A value as it is; None without one."""
        self._taken.add(key)
        return self._data.get(key)

    def text(self, key: str, *, is_needed: bool = True) -> str | None:
        """A text that is not empty; None without one, or with a fault."""
        value = self.raw(key)
        if value is None and not is_needed:
            return None
        if not isinstance(value, str) or not value:
            self.fault(key, "must be given, as a text." if value is None else f"must be a text; got {value!r}.")
            return None
        return value

    def section(self, key: str, *, is_needed: bool = False) -> "Reader | None":
        """A mapping inside; None without one, or with a fault."""
        value = self.raw(key)
        if isinstance(value, Mapping):
            return Reader(value, self.at(key), self.faults)
        if value is not None or is_needed:
            self.fault(key, "must be given, as a mapping." if value is None else f"must be a mapping; got {value!r}.")
        return None

    def tasks(self, key: str) -> "list[tuple[str, Reader]]":
        """A list of mappings with one key each: names, and what they stand for; empty with a fault."""
        value = self.raw(key)
        if not isinstance(value, list) or not value:
            self.fault(key, "must be a list of at least one {name: ...}.")
            return []
        return list(self._named(key, value))

    def extension(self) -> "Reader | None":
        """What `metadata` has for us; the rest of it is for others."""
        metadata = self.section("metadata")
        if metadata is None or EXTENSION not in metadata:
            return None
        return metadata.section(EXTENSION)

    def finish(self, known: Mapping[str, str] = {}) -> None:
        """Refuse every key that nobody took, with what is known of it."""
        for key in self._data:
            if key not in self._taken:
                hint = known.get(str(key)) or f"is not supported here.{suggestion(str(key), map(str, self._taken))}"
                self.fault(str(key), hint)

    def _named(self, key: str, value: list[object]) -> "Iterator[tuple[str, Reader]]":
        seen: set[str] = set()
        for i, entry in enumerate(value):
            where = f"{key}.{i}"
            if not isinstance(entry, Mapping) or len(entry) != 1:
                self.fault(where, "must be a mapping with one key, its name.")
                continue
            ((name, content),) = entry.items()
            if not isinstance(name, str) or not name:
                self.fault(where, f"its name must be a text; got {name!r}. Put it in quotes.")
            elif not isinstance(content, Mapping):
                self.fault(f"{key}.{name}", "must be a mapping.")
            elif name in seen:
                self.fault(f"{key}.{name}", "two entries of this list have this name.")
            else:
                seen.add(name)
                yield name, Reader(content, self.at(f"{key}.{name}"), self.faults)


def kept_as(task: str) -> str:
    """The expression that keeps the output of a task for later ones, by its name."""
    return f'${{ $context + {{"{task}": .}} }}'


def from_task(task: str) -> str:
    """The expression that gives what a task kept, as an argument of a later call."""
    return f'${{ $context["{task}"] }}'


def duration_s(value: object) -> float:
    """A duration in seconds: a text of ISO 8601, or a mapping of days to milliseconds. Raises `ValueError`."""
    shown = "a text such as PT0.8S or a mapping such as {milliseconds: 800}"
    found: float | None = None
    if isinstance(value, Mapping) and value and all(key in _PARTS for key in value):
        numbers = [(number, _PARTS[str(key)]) for key, number in value.items()]
        if all(type(number) is int and number >= 0 for number, _ in numbers):
            found = sum(number * ms for number, ms in numbers) / 1000
    elif isinstance(value, str) and (match := _ISO.fullmatch(value)) and any(match.groups()):
        found = float(sum(Decimal(part) * unit for part, unit in zip(match.groups(), _ISO_S, strict=True) if part))
    if found is None or found <= 0:
        raise ValueError(f"must be a positive duration, {shown}; got {value!r}.")
    return found


def duration_of(seconds: float) -> object:
    """A duration as a document has it; reading it gives the very same number."""
    milliseconds = round(seconds * 1000)
    if milliseconds / 1000 == seconds:
        return {"milliseconds": milliseconds}
    return f"PT{Decimal(repr(seconds)):f}S"
