"""Runtime expressions: the small part of jq in which a switch can say when an arm is taken.

A path into the output (`.a.b`, `.[0]`, `.["odd name"]`), literals, comparisons, `and`, `or`, parentheses, and
`| not`. They mean what they mean in jq: a key that is missing gives null, null and false are false and all else
is true, and values of different types have an order: null, false, true, numbers, texts, lists, objects.
"""

import json
import re
from collections.abc import Callable, Mapping
from math import isnan
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Union

import msgspec

from fairlead.app.compose import Label, label_of

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*")
    | (?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<field>\.[A-Za-z_][A-Za-z0-9_]*)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<sign>==|!=|<=|>=|[<>|().\[\]])
    )""",
    re.VERBOSE,
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None}
_MOST_DEPTH = 50


class Path(msgspec.Struct, frozen=True):
    """A place in the output; without keys, all of it."""

    keys: tuple[str | int, ...]

    def __str__(self) -> str:
        text = "".join(
            f".{k}" if isinstance(k, str) and _NAME.fullmatch(k) else f"[{json.dumps(k)}]" for k in self.keys
        )
        return text if text.startswith(".") else f".{text}"


class Literal(msgspec.Struct, frozen=True):
    """A number, a text, a boolean or null."""

    value: bool | int | float | str | None

    def __str__(self) -> str:
        return json.dumps(self.value)


class Comparison(msgspec.Struct, frozen=True):
    """One value beside another."""

    left: "Expression"
    sign: str
    right: "Expression"

    def __str__(self) -> str:
        return f"{_inner(self.left)} {self.sign} {_inner(self.right)}"


class Both(msgspec.Struct, frozen=True):
    """Both must hold."""

    left: "Expression"
    right: "Expression"

    def __str__(self) -> str:
        return f"{_inner(self.left)} and {_inner(self.right)}"


class Either(msgspec.Struct, frozen=True):
    """One must hold."""

    left: "Expression"
    right: "Expression"

    def __str__(self) -> str:
        return f"{_inner(self.left)} or {_inner(self.right)}"


class Not(msgspec.Struct, frozen=True):
    """It must not hold."""

    of: "Expression"

    def __str__(self) -> str:
        return f"{_inner(self.of)} | not"


Expression = Union[Path, Literal, Comparison, Both, Either, Not]  # noqa: UP007 - an alias that names itself


def _inner(expression: Expression) -> str:
    return str(expression) if isinstance(expression, Path | Literal) else f"({expression})"


def parse_expression(text: str) -> Expression:
    """The expression in a text, with or without `${ }` around it. Raises `ValueError`."""
    stripped = text.strip()
    if stripped.startswith("${") and stripped.endswith("}"):
        stripped = stripped[2:-1]
    return _Parser(stripped, text).parse()


def evaluate(expression: Expression, value: object) -> object:
    """What an expression gives for a value. Raises `TypeError` where jq would raise too."""
    match expression:
        case Path(keys):
            for key in keys:
                value = _index(value, key)
            return value
        case Literal(literal):
            return literal
        case Comparison(left, sign, right):
            return _COMPARE[sign](_order(evaluate(left, value)), _order(evaluate(right, value)))
        case Both(left, right):
            return is_true(evaluate(left, value)) and is_true(evaluate(right, value))
        case Either(left, right):
            return is_true(evaluate(left, value)) or is_true(evaluate(right, value))
        case Not(of):
            return not is_true(evaluate(of, value))


def is_true(value: object) -> bool:
    """All but null and false is true: so are 0 and the empty text."""
    return value is not None and value is not False


class Cases(msgspec.Struct, frozen=True):
    """A chooser that reads like a table: the label of the first condition that holds, otherwise the default."""

    conditions: tuple[tuple[str, Expression], ...]
    default: str

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label that it can give."""
        return tuple(dict.fromkeys((*(label for label, _ in self.conditions), self.default)))

    def __call__(self, output: object) -> str:
        """The label for an output."""
        for label, condition in self.conditions:
            if is_true(evaluate(condition, output)):
                return label
        return self.default


def cases(conditions: Mapping[Label, str], *, default: Label) -> Cases:
    """A chooser for `switch` from expressions, which a Serverless Workflow document can hold, unlike Python code.

    `switch(cases({"large": ".size > 10"}, default="small"), {"large": shrink, "small": None})`.
    """
    parsed = tuple((label_of(label), parse_expression(text)) for label, text in conditions.items())
    if not parsed:
        raise ValueError("cases needs at least one condition, such as {'large': '.size > 10'}.")
    return Cases(parsed, label_of(default))


def _index(value: object, key: str | int) -> object:
    match value, key:
        case None, _:
            return None
        case Mapping(), str():
            return value.get(key)
        case ((list() | tuple()), int()):
            return value[key] if -len(value) <= key < len(value) else None
    what = json.dumps(key)
    raise TypeError(f"there is no {what} in a value of type {type(value).__name__}.")


def _order(value: object) -> tuple[Any, ...]:
    """A key that sorts values as jq does; equal for equal values only."""
    match value:
        case None:
            return (0,)
        case bool():
            return (2,) if value else (1,)
        case int() | float():
            return (3, -float("inf") if isnan(value) else value)
        case str():
            return (4, value)
        case bytes() | bytearray():
            return (5, bytes(value))
        case list() | tuple():
            return (6, [_order(each) for each in value])
        case Mapping():
            keys = sorted(value)
            return (7, keys, [_order(value[key]) for key in keys])
    raise TypeError(f"a value of type {type(value).__name__} cannot be compared.")


class _Parser:
    """Recursive descent; what binds least comes first: pipe, or, and, comparison."""

    def __init__(self, text: str, shown: str) -> None:
        self.shown = shown
        self.tokens = list(self._tokens(text))
        self.position = 0
        self.depth = 0

    def parse(self) -> Expression:
        found = self._pipe()
        if self.position < len(self.tokens):
            raise self._fault(f"{self.tokens[self.position][1]!r} is not expected there")
        return found

    def _tokens(self, text: str) -> "list[tuple[str, str]]":
        tokens: list[tuple[str, str]] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._fault(f"{text[position:].strip()[:10]!r} is outside the part of jq that is supported")
            assert match.lastgroup is not None
            tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        return tokens

    def _fault(self, why: str) -> ValueError:
        supported = "paths such as .a.b, literals, == != < <= > >=, and, or, parentheses and '| not'"
        return ValueError(f"{self.shown!r} cannot be read: {why}. Supported are {supported}.")

    def _next(self) -> tuple[str, str]:
        return self.tokens[self.position] if self.position < len(self.tokens) else ("end", "the end")

    def _take(self, *signs: str) -> str | None:
        kind, token = self._next()
        if kind in ("sign", "word") and token in signs:
            self.position += 1
            return token
        return None

    def _pipe(self) -> Expression:
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            raise self._fault(f"it is nested deeper than {_MOST_DEPTH}")
        found = self._or()
        while self._take("|"):
            if not self._take("not"):
                raise self._fault(f"after '|' only 'not' is supported, not {self._next()[1]!r}")
            found = Not(found)
        self.depth -= 1
        return found

    def _or(self) -> Expression:
        found = self._and()
        while self._take("or"):
            found = Either(found, self._and())
        return found

    def _and(self) -> Expression:
        found = self._comparison()
        while self._take("and"):
            found = Both(found, self._comparison())
        return found

    def _comparison(self) -> Expression:
        left = self._term()
        sign = self._take(*_COMPARE)
        if sign is None:
            return left
        found = Comparison(left, sign, self._term())
        if self._take(*_COMPARE):
            raise self._fault("comparisons cannot be chained")
        return found

    def _term(self) -> Expression:
        kind, token = self._next()
        if self._take("("):
            found = self._pipe()
            if not self._take(")"):
                raise self._fault("a parenthesis is not closed")
            return found
        if kind == "field" or token == ".":
            return self._path()
        self.position += 1
        if kind == "number":
            number = float(token)
            return Literal(int(token) if re.fullmatch(r"-?\d+", token) else number)
        if kind == "text":
            return Literal(self._string(token))
        if kind == "word" and token in _WORDS:
            value = _WORDS[token]
            assert value is None or isinstance(value, bool)
            return Literal(value)
        raise self._fault(f"{token!r} is not expected there")

    def _path(self) -> Path:
        keys: list[str | int] = []
        kind, token = self._next()
        self.position += 1
        if kind == "field":
            keys.append(token[1:])
        elif self._next()[0] == "text":  # ."odd name"
            keys.append(self._string(self._advance()))
        while True:
            kind, token = self._next()
            if kind == "field":
                keys.append(self._advance()[1:])
            elif self._take("["):
                keys.append(self._key())
                if not self._take("]"):
                    raise self._fault("a bracket is not closed")
            else:
                return Path(tuple(keys))

    def _key(self) -> str | int:
        kind, token = self._next()
        if kind == "text":
            return self._string(self._advance())
        if kind == "number" and re.fullmatch(r"-?\d+", token):
            return int(self._advance())
        raise self._fault("in brackets goes a whole number or a text in quotes")

    def _advance(self) -> str:
        self.position += 1
        return self.tokens[self.position - 1][1]

    def _string(self, token: str) -> str:
        try:
            found = json.loads(token)
        except ValueError:
            raise self._fault(f"{token} is no text as in JSON") from None
        assert isinstance(found, str)
        return found
