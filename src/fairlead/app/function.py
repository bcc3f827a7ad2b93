"""A function of an app: the code, what an instance of it may use, and how to call it."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import Parameter, isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from math import isfinite
from typing import Any, NamedTuple, TypeVar

from fairlead.app.compose import Call, Code, Earlier, RequestInput, name_of
from fairlead.app.manifest import FunctionSpec
from fairlead.app.units import bytes_of
from fairlead.errors import suggestion

Number = TypeVar("Number", int, float)

MAX_CONFIGURATIONS = 10_000
"""Of one function; a scenario file holds no more either."""

CACHE_BYTES = 64 << 20
"""What the prediction cache of a function takes at most, where only a number of entries is given."""

MOST_CACHE_ENTRIES = 10_000_000
_DEVICE = re.compile(r"numpy|(?:opencl|cuda):[0-9]{1,3}")
MOST_CACHE_BYTES = 64 << 30

MISSING: object = object()
"""Says that nothing was given, where None would be something."""


class AppFunction(Code):
    """A function as declared. Called in a unit test it does what an instance does, in this process.

    A batched one takes the list of a batch's arguments and returns as many results. If there is a `setup`, its result
    comes first, before the argument: the first call gets it, and every later one has the same.
    """

    def __init__(self, code: Callable[..., object], setup: Callable[[], object] | None, spec: FunctionSpec) -> None:
        _check_code(code, spec, setup)
        self.name = spec.name
        self.spec = spec
        self.setup = setup
        self.parts: tuple[AppFunction, ...] = ()
        self._model = MISSING
        self.__wrapped__ = code
        self.__name__ = spec.name
        self.__doc__ = code.__doc__
        self._bindable = _beyond_the_argument(code, 1 + (setup is not None))

    def using(self, /, **earlier: Earlier) -> Call:
        """Call this function with further parameters bound to the outputs of earlier stages, or to `INPUT`.

        `decode >> detect >> crop.using(image=decode)` calls `crop(boxes, image=...)`. Of a batched function each such
        parameter is a list as long as the batch.
        """
        if not earlier:
            raise ValueError(f"{self.name}.using() binds nothing; give parameters, such as using(image=decode).")
        for parameter, value in earlier.items():
            if not isinstance(value, Code | Call | str | RequestInput):
                raise ValueError(
                    f"{self.name}.using({parameter}=...) must be a function of the app, the name of a stage, or INPUT; "
                    f"got {name_of(value)}."
                )
        self.check_bound(earlier, needs_all=False)
        return Call(self, using=earlier)

    def check_bound(self, names: Collection[str], *, needs_all: bool = True) -> None:
        """Raise `ValueError` unless these parameters can be bound and, if `needs_all`, no other one is left open."""
        if self._bindable is None:
            return
        code = f"{name_of(self.__wrapped__)}{signature(self.__wrapped__)}"
        for name in names:
            if name not in self._bindable:
                hint = suggestion(name, self._bindable) or " It must be one behind the argument."
                raise ValueError(f"function {self.name!r} has no parameter {name!r} to bind; it is {code}.{hint}")
        left = [name for name, is_needed in self._bindable.items() if is_needed and name not in names]
        if needs_all and left:
            binding = ", ".join(f"{name}=..." for name in left)
            hint = "" if self.setup else " (If its first parameter is the result of setup, declare setup=.)"
            raise ValueError(
                f"function {self.name!r} is {code}, and nothing gives it {', '.join(map(repr, left))}. Bind it to an "
                f"earlier stage: {self.name}.using({binding}).{hint}"
            )

    @property
    def is_batched(self) -> bool:
        """Whether it takes and returns lists."""
        return self.spec.is_batched

    def prepare(self) -> None:
        """Run `setup`, unless it has been: what makes the difference between a cold and a warm instance."""
        if self.setup is not None and self._model is MISSING:
            self._model = self.setup()

    def __call__(self, argument: object, /, **bound: object) -> object:
        """What the code gives for this argument; of a batched function, for this list of arguments.

        `bound` are parameters that a workflow binds with `using`.
        """
        if self.setup is None:
            return self.__wrapped__(argument, **bound)
        self.prepare()
        return self.__wrapped__(self._model, argument, **bound)

    def bundle(self) -> dict[str, bytes]:
        """The files that instances need of it beside the app's code, by name. Raises `ValueError`."""
        return {}

    def __repr__(self) -> str:
        return f"<function {self.name} of an app>"


class FusedFunction(AppFunction):
    """Functions that run one after the other in one instance; `parts` has them in order."""

    def __init__(self, parts: Sequence[AppFunction], spec: FunctionSpec) -> None:
        super().__init__(self._run, None, spec)
        self.__doc__ = " ".join(part.__doc__ for part in parts if part.__doc__) or None
        self.parts = tuple(parts)

    def prepare(self) -> None:
        """Run the `setup` of every part."""
        for part in self.parts:
            part.prepare()

    def _run(self, argument: object) -> object:
        values = argument if self.is_batched else [argument]
        assert isinstance(values, Sequence)
        for part in self.parts:
            if not part.is_batched:
                values = [part(value) for value in values]
                continue
            results = part(list(values))
            fault = batch_faults(results, len(values), part.name)
            if fault is not None:
                raise ValueError(fault)
            assert isinstance(results, Sequence)
            values = results
        return values if self.is_batched else values[0]


def numbers(value: object, name: str, *, least: float, is_open: bool = False) -> tuple[float, ...]:
    """One number, or several different ones in ascending order, each at least (`is_open`: above) `least`."""
    found = []
    for each in _listed(value):
        is_number = isinstance(each, int | float) and not isinstance(each, bool) and isfinite(each)
        if not is_number or each < least or (is_open and each == least):
            bound = "above" if is_open else "at least"
            raise ValueError(f"{name} must be a number {bound} {least:g}, or several; got {value!r}.")
        found.append(float(each))
    return _ascending(found, name, value)


def number(value: object, name: str, *, least: float, is_open: bool = False) -> float:
    """One number, at least (`is_open`: above) `least`."""
    found = numbers(value, name, least=least, is_open=is_open)
    if len(found) > 1:
        raise ValueError(f"{name} must be one number; got {value!r}.")
    return found[0]


def batch_sizes(value: object) -> tuple[int, ...]:
    """Batch sizes in ascending order. One number is the greatest: below it come the powers of two."""
    sizes = []
    for size in _listed(value):
        if type(size) is not int or size < 1:
            asked = "a whole number of at least 1, or several such as (1, 2, 4, 8)"
            raise ValueError(f"batch must be {asked}; got {value!r}.")
        sizes.append(size)
    if isinstance(value, int):
        sizes = [*(1 << power for power in range(value.bit_length()) if 1 << power < value), value]
    return _ascending(sizes, "batch", value)


def whole(value: object, name: str) -> int:
    """A whole number that is not negative."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be a whole number of at least 0; got {value!r}.")
    return value


def size_bytes(value: object, name: str) -> int:
    """A size: a number of bytes, or a text such as "64MB"."""
    found = bytes_of(value) if isinstance(value, str) else value
    if type(found) is not int or found < 0:
        raise ValueError(f"{name} must be a size such as '64MB', or a number of bytes; got {value!r}.")
    return found


def device_names(value: object, name: str) -> tuple[str, ...]:
    """Names of devices, each of them once."""
    listed = _listed(value)
    for each in listed:
        if not isinstance(each, str) or not _DEVICE.fullmatch(each):
            raise ValueError(f"{name} must be such as 'opencl:0', 'cuda:0' or 'numpy'; got {each!r}.")
    if len(set(listed)) < len(listed):
        raise ValueError(f"{name} names a device twice: {value!r}.")
    return tuple(listed)


class CacheBounds(NamedTuple):
    """What a prediction cache holds at most; 0 of both for none."""

    entries: int
    bytes: int


def cache_bounds(value: object) -> CacheBounds:
    """The bounds of a prediction cache: a number of entries, or a size such as "64MB"."""
    if type(value) is int and 0 <= value <= MOST_CACHE_ENTRIES:
        return CacheBounds(value, CACHE_BYTES if value else 0)
    size = bytes_of(value) if isinstance(value, str) else None
    if size is None or not 0 < size <= MOST_CACHE_BYTES:
        most = f"{MOST_CACHE_ENTRIES:,} entries and {MOST_CACHE_BYTES >> 30} GB are the most"
        raise ValueError(
            f"cache must be a number of entries, such as 10_000, or a size, such as '64MB' ({most}); got {value!r}."
        )
    return CacheBounds(MOST_CACHE_ENTRIES, size)


def _listed(value: object) -> list[Any]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes | dict) else [value]


def _ascending(found: list[Number], name: str, value: object) -> tuple[Number, ...]:
    if not found:
        raise ValueError(f"{name} must name at least one value; got {value!r}.")
    if len(set(found)) < len(found):
        raise ValueError(f"{name} names a value twice: {value!r}.")
    return tuple(sorted(found))


def _check_code(code: Callable[..., object], spec: FunctionSpec, setup: object) -> None:
    if not callable(code):
        raise ValueError(f"@app.function decorates a function; got {code!r}.")
    if setup is not None and not callable(setup):
        raise ValueError(f"setup of function {spec.name!r} must be a function without arguments; got {setup!r}.")
    if iscoroutinefunction(code) or isasyncgenfunction(code):
        raise ValueError(
            f"function {spec.name!r} is async; declare it with plain def. An instance runs one batch at a time, "
            "and others run beside it."
        )
    if isgeneratorfunction(code):
        raise ValueError(f"function {spec.name!r} yields; it must return its output, as a list if there are several.")
    if setup is not None and not _takes(setup, 0):
        raise ValueError(f"setup of function {spec.name!r} must take no argument; it has {signature(setup)}.")
    argument = "a list of arguments" if spec.is_batched else "one argument"
    wanted = argument if setup is None else f"the result of setup, then {argument}"
    if not _fits(code, 1 + (setup is not None)):
        raise ValueError(f"function {spec.name!r} must take {wanted}; it is {name_of(code)}{signature(code)}.")


def _takes(code: Callable[..., object], count: int) -> bool:
    """Whether exactly these positional arguments can be given; yes where Python cannot tell."""
    open_ones = _beyond_the_argument(code, count)
    return _fits(code, count) and not any((open_ones or {}).values())


def _fits(code: Callable[..., object], count: int) -> bool:
    """Whether this many positional arguments fit, if what else is needed is given by name."""
    try:
        parameters = signature(code).parameters.values()
    except (TypeError, ValueError):  # of some built-in functions
        return True
    positional = [p for p in parameters if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is Parameter.empty for p in positional if p.kind is Parameter.POSITIONAL_ONLY)
    most = float("inf") if any(p.kind is Parameter.VAR_POSITIONAL for p in parameters) else len(positional)
    return least <= count <= most


def _beyond_the_argument(code: Callable[..., object], count: int) -> Mapping[str, bool] | None:
    """The parameters that can be given by name besides the first `count`, and whether each must be.

    None where Python cannot tell, or any name will do.
    """
    try:
        parameters = list(signature(code).parameters.values())
    except (TypeError, ValueError):
        return None
    if any(p.kind is Parameter.VAR_KEYWORD for p in parameters):
        return None
    by_name = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    positional = [p for p in parameters if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    return {
        p.name: p.default is Parameter.empty for p in parameters if p.kind in by_name and p not in positional[:count]
    }


def batch_faults(results: object, count: int, name: str) -> str | None:
    """What is wrong with what a batched function returned; None if nothing is."""
    if not isinstance(results, Sequence) or isinstance(results, str | bytes):
        return f"the batched function {name!r} must return a list; it returned {type(results).__name__}."
    if len(results) != count:
        return f"the batched function {name!r} got {count} arguments and returned {len(results)} results."
    return None
