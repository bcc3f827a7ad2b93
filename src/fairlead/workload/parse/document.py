"""YAML text to plain data, with limits: what is too large, too deep or ambiguous is refused, not guessed at.

Scalars follow YAML 1.2: `1e-3` is a number, `no` and `on` are text, `010` is ten. A key may not be given twice.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from fairlead.errors import ConfigError, Fault

MAX_BYTES = 4 * 2**20
MAX_DEPTH = 32
MAX_VALUES = 200_000
MAX_ALIASES = 256


class _RefusedError(Exception):
    """Valid YAML that goes beyond a limit."""

    def __init__(self, message: str, mark: Any) -> None:
        super().__init__(_at_line(message, mark))


class _Loader(yaml.SafeLoader):
    """A safe loader that counts as it goes, so that it stops before memory or the stack do."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 (declared so by the base class)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._values = 0
        self._aliases = 0
        self._extents: dict[int, tuple[int, int]] = {}  # values and levels of each finished node, aliases expanded

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        is_alias = self.check_event(yaml.AliasEvent)
        self._aliases += is_alias
        self._depth += 1
        self._values += 1
        if self._aliases > MAX_ALIASES:
            raise _RefusedError(f"there are more than {MAX_ALIASES} aliases", mark)
        if self._depth > MAX_DEPTH:
            raise _RefusedError(f"values are nested deeper than {MAX_DEPTH} levels", mark)
        if self._values > MAX_VALUES:
            raise _RefusedError(f"there are more than {MAX_VALUES:,} values", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if is_alias and id(node) not in self._extents:
            raise _RefusedError("a value contains itself", mark)
        if node is not None and not is_alias:
            self._extents[id(node)] = self._extent(node)
        return node

    def _extent(self, node: yaml.Node) -> tuple[int, int]:
        inside: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
            inside = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            inside = node.value
        extents = [self._extents[id(part)] for part in inside]
        values = 1 + sum(extent[0] for extent in extents)
        levels = 1 + max((extent[1] for extent in extents), default=0)
        if values > MAX_VALUES or levels > MAX_DEPTH:
            limits = f"{MAX_VALUES:,} values or {MAX_DEPTH} levels"
            raise _RefusedError(f"aliases expand to more than {limits}", node.start_mark)
        return values, levels


def _check_keys(node: yaml.MappingNode) -> None:
    seen = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _RefusedError("a key must be plain text", key.start_mark)
        if key.value in seen:
            raise _RefusedError(f"the key {key.value!r} is given twice", key.start_mark)
        seen.add(key.value)


_RESOLVERS: tuple[tuple[str, str, list[str] | None], ...] = (
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", list("-+.")),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", ["<"]),
)
for _tag, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})\\Z"), _first)


def parse_document(content: bytes | str, source: str) -> dict[object, object]:
    """The mapping that a YAML text holds. Raises `ConfigError`."""
    text = _decode(content, source)
    if not text.strip():
        raise _error(source, "the file is empty.")
    data = _load(text, source)
    if data is None:
        raise _error(source, "the file holds nothing but comments.")
    if not isinstance(data, dict):
        raise _error(source, f"the file must hold a mapping of settings; got {describe(data)}.")
    return data


def parse_value(text: str) -> object:
    """One value as it would be read in a file. Raises `ValueError`."""
    try:
        return _load(text, "") if text.strip() else None
    except ConfigError as error:
        raise ValueError(error.faults[0].message) from None


def plain_copy(data: object, source: str, depth: int = 0) -> Any:
    """A deep copy of mappings and sequences as dictionaries and lists. Raises `ConfigError` when too deep."""
    if depth > MAX_DEPTH:
        raise _error(source, f"values are nested deeper than {MAX_DEPTH} levels.")
    if isinstance(data, Mapping):
        return {key: plain_copy(value, source, depth + 1) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return [plain_copy(value, source, depth + 1) for value in data]
    return data


def describe(value: object) -> str:
    """What was found, in the words of someone who reads the file."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}" if len(str(value)) <= 40 else "a number of many digits"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 40 else value[:37] + '...'!r}"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return f"a {type(value).__name__}"


def _load(text: str, source: str) -> object:
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except _RefusedError as error:
        raise _error(source, f"{error}.") from None
    except yaml.MarkedYAMLError as error:
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise _error(source, f"{_at_line(f'not valid YAML: {problem}', error.problem_mark)}.") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number of more digits than Python reads
        raise _error(source, f"not valid YAML: {' '.join(str(error).split())}.") from None


def _decode(content: bytes | str, source: str) -> str:
    if len(content) > MAX_BYTES:
        raise _error(source, f"the file is larger than {MAX_BYTES // 2**20} MiB.")
    if isinstance(content, str):
        return content
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise _error(source, "the file is not text in UTF-8; a scenario is a YAML file.")
    return text


def _at_line(message: str, mark: Any) -> str:
    return message if mark is None else f"line {mark.line + 1}: {message}"


def _error(source: str, message: str) -> ConfigError:
    return ConfigError(source, [Fault("", message)])
