"""Reading plain data strictly: every fault is kept with its path, and reading goes on.

Types are checked here, ranges by the values themselves: `build` tries a constructor and finds out
which of the settings it refuses, so that a range is stated once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf, isnan
from typing import TypeVar

from fairlead.errors import Fault, suggestion
from fairlead.workload.parse.document import describe

T = TypeVar("T")
D = TypeVar("D")

Check = Callable[[object], object]  # gives the value as wanted, or raises ValueError

_FORBIDDEN_IN_NAMES = frozenset(".*,= \t\r\n")


class Section:
    """One mapping of a file: hands out its settings, and knows which it was never asked for."""

    def __init__(self, data: Mapping[object, object], path: str, faults: list[Fault]) -> None:
        self._data = data
        self._known: dict[str, None] = {}
        self.path = path
        self.faults = faults

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def at(self, key: str | int) -> str:
        """The path of a setting in here."""
        return f"{self.path}.{key}" if self.path else str(key)

    def fault(self, key: str | int | None, message: str) -> None:
        """Keep a fault of one setting, or of the whole."""
        self.faults.append(Fault(self.path if key is None else self.at(key), message))

    def raw(self, key: str) -> object:
        """A setting as it is; None where it is missing."""
        self._known[key] = None
        return self._data.get(key)

    def get(self, key: str, check: Callable[[object], T], default: D) -> T | D:
        """A setting that `check` accepts; the default where it is missing or wrong."""
        value = self.raw(key)
        if key not in self._data:
            return default
        return self.accept(key, value, check, default)

    def accept(self, key: str | int, value: object, check: Callable[[object], T], default: D) -> T | D:
        """The value if `check` accepts it; else the default, with a fault."""
        try:
            return check(value)
        except ValueError as error:
            self.fault(key, str(error))
            return default

    def read(self, checks: Mapping[str, Check]) -> dict[str, object]:
        """All of these settings that are there and of the right type."""
        missing = object()
        values = {key: self.get(key, check, missing) for key, check in checks.items()}
        return {key: value for key, value in values.items() if value is not missing}

    def require(self, *keys: str) -> bool:
        """Whether all of these are there; a fault for each that is not."""
        for key in keys:
            self._known[key] = None
            if key not in self._data:
                self.fault(key, "is missing.")
        return all(key in self._data for key in keys)

    def one_of(self, *keys: str) -> str | None:
        """The only one of these that is there; a fault unless there is exactly one."""
        self._known.update(dict.fromkeys(keys))
        given = [key for key in keys if key in self._data]
        if len(given) == 1:
            return given[0]
        self.fault(None, f"needs exactly one of {', '.join(keys)}; got {' and '.join(given) or 'none'}.")
        return None

    def part(self, key: str) -> "Section | None":
        """A mapping in here; None where it is missing or wrong."""
        found = self.get(key, mapping, None)
        return None if found is None else Section(found, self.at(key), self.faults)

    def section(self, key: str) -> "Section":
        """A mapping in here; empty where it is missing or wrong."""
        return Section(self.get(key, mapping, {}), self.at(key), self.faults)

    def named_sections(self) -> Iterator[tuple[str, "Section"]]:
        """Every entry of this mapping that is itself a mapping, with its name."""
        for name in self.names():
            entry = self.part(name)
            if entry is not None:
                yield name, entry

    def names(self) -> Iterator[str]:
        """The keys of this mapping, each checked to be a name."""
        for key in self._data:
            try:
                yield a_name(key)
            except ValueError as error:
                self.fault(str(key), str(error))

    def sections(self, key: str) -> list["Section"]:
        """A list of mappings in here."""
        return [Section(data, f"{self.at(key)}.{i}", self.faults) for i, data in self._accepted(key, mapping)]

    def all_of(self, key: str, check: Callable[[object], T]) -> list[T]:
        """A list of values, each accepted by `check`."""
        return [value for _, value in self._accepted(key, check)]

    def _accepted(self, key: str, check: Callable[[object], T]) -> Iterator[tuple[int, T]]:
        values: list[object] = self.get(key, sequence, [])
        for i, value in enumerate(values):
            try:
                yield i, check(value)
            except ValueError as error:
                self.fault(f"{key}.{i}", str(error))

    def known_name(self, key: str, available: Iterable[str] | None, what: str) -> str | None:
        """A name that must be one of these; None where it is missing or wrong."""
        if not self.require(key):
            return None
        return self.get(key, one_of_names(available, what), None)

    def build(self, make: Callable[..., T], values: Mapping[str, object], base: Mapping[str, object] = {}) -> T | None:
        """`make(**base, **values)`, or None with a fault for each value that it refuses.

        An error that begins with the name of a value is that value's; it is set aside to find the next one.
        `base` holds stand-ins for what `make` requires; a value of the same name takes their place.
        """
        left = dict(values)
        built: T | None = None
        while built is None:
            try:
                built = make(**{**base, **left})
            except ValueError as error:
                key, _, message = str(error).partition(" ")
                if key not in left:
                    self.fault(None, str(error))
                    return None
                self.fault(key, message if message.startswith("must ") else str(error))
                del left[key]
        return built if len(left) == len(values) else None

    def rest(self, *known: str) -> dict[object, object]:
        """All settings but these; who takes them checks them."""
        return {key: value for key, value in self._data.items() if key not in known}

    def finish(self) -> None:
        """A fault for every key that nobody asked for."""
        for key in self._data:
            if key not in self._known:
                self.fault(str(key), f"unknown key.{suggestion(str(key), self._known)}")


def number(value: object) -> float:
    """A finite number."""
    found = number_or_inf(value)
    if found in (inf, -inf):
        raise ValueError("must be finite; got infinity.")
    return found


def number_or_inf(value: object) -> float:
    """A number; infinity stands for no limit."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number; got {describe(value)}.")
    try:
        found = float(value)
    except OverflowError:
        raise ValueError("is too large a number.") from None
    if isnan(found):
        raise ValueError("must be a number; got NaN.")
    return found


def integer(value: object) -> int:
    """A whole number; 4.0 and 1e3 are accepted."""
    found = number(value)
    if found != int(found):
        raise ValueError(f"must be a whole number; got {value}.")
    if abs(found) > 2**53:
        raise ValueError("is too large a number.")
    return int(found)


def truth(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false; got {describe(value)}.")
    return value


def text(value: object) -> str:
    """Text that is not empty."""
    if not isinstance(value, str):
        raise ValueError(f"must be text; got {describe(value)}.")
    if not value.strip():
        raise ValueError("must not be empty.")
    return value


def a_name(value: object) -> str:
    """Text that can be part of a dotted path."""
    found = text(value)
    if not _FORBIDDEN_IN_NAMES.isdisjoint(found) or not found.isprintable():
        raise ValueError(f"a name holds no dots, blanks, commas, '=' or '*'; got {found!r}.")
    return found


def choice(*options: str) -> Callable[[object], str]:
    """One of these words."""

    def check(value: object) -> str:
        if value in options and isinstance(value, str):
            return value
        near = suggestion(value, options) if isinstance(value, str) else ""
        raise ValueError(f"must be one of {', '.join(options)}; got {describe(value)}.{near}")

    return check


def one_of_names(available: Iterable[str] | None, what: str) -> Callable[[object], str]:
    """The name of something that was declared elsewhere; None leaves unknown what was, so that any name will do."""
    if available is None:
        return text
    names = list(available)

    def check(value: object) -> str:
        if text(value) not in names:
            raise ValueError(f"there is no {what} {value!r}.{suggestion(str(value), names)}")
        return str(value)

    return check


def mapping(value: object) -> Mapping[object, object]:
    """A mapping."""
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping; got {describe(value)}.")
    return value


def sequence(value: object) -> list[object]:
    """A list."""
    if not isinstance(value, list):
        raise ValueError(f"must be a list; got {describe(value)}.")
    return value
