"""Calling a function with the arguments of a batch; a fused one part by part.

Between the parts of a fused function a value is what it would be between two instances: a copy that went through the
same encoding. So a workflow gives the same answers fused and unfused. Values that the encoding leaves as they are and
that cannot be changed, such as text and bytes, are handed on without a copy.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fairlead.app import AppFunction
from fairlead.app.current import Run, entered
from fairlead.engine.live.values import decode, encode

_UNCHANGED = (str, bytes, bool, float, type(None))


class PartError(Exception):
    """A part of a fused function failed for one argument; `cause` is what it raised."""

    def __init__(self, part: str, cause: Exception) -> None:
        super().__init__(f"{part}: {cause}")
        self.part = part
        self.cause = cause


Names = tuple[str, ...]
"""The parameters of a function that a stage binds besides its argument."""


def call(
    function: AppFunction, arguments: list[object], using: Sequence[Names] = (), run: Run | None = None
) -> Sequence[object]:
    """One output per argument; an exception in the place of an output is that one's failure.

    `using` names, for each argument, the further parameters that its stage binds: where there are some, the argument is
    a list of itself and their values. `run` is what the function may know of the requests that the arguments are from.
    """
    if run is None:
        run = Run()
    if using and any(using):
        return _call_bound(function, arguments, using, run)
    if function.parts:
        return _call_parts(function.parts, arguments, run)
    return _call_all(function, arguments, run, range(len(arguments)))


def _call_bound(function: AppFunction, arguments: list[object], using: Sequence[Names], run: Run) -> list[object]:
    """A batched function runs once for all arguments that bind the same parameters."""
    outputs: list[object] = [None] * len(arguments)
    for names in dict.fromkeys(using):
        places = [place for place, each in enumerate(using) if each == names]
        plain, *bound = zip(*(_row(arguments[place], names) for place in places), strict=True)
        found = _call_all(function, list(plain), run, places, dict(zip(names, map(list, bound), strict=True)))
        for place, output in zip(places, found, strict=True):
            outputs[place] = output
    return outputs


def _row(value: object, names: Names) -> Sequence[object]:
    """The argument and the values of these parameters, as `routes` put them together."""
    if not names:
        return [value]
    assert isinstance(value, list), f"a stage that binds {', '.join(names)} gets a list"
    return value


def _call_all(
    function: AppFunction,
    arguments: list[object],
    run: Run,
    places: Sequence[int],
    bound: Mapping[str, list[object]] = MappingProxyType({}),
) -> Sequence[object]:
    """The outputs of one function, for the arguments at these places of the batch.

    `bound` has the values of further parameters, one for each argument.
    """
    if not function.is_batched:
        return [
            _call_one(function, argument, run, place, {name: values[i] for name, values in bound.items()})
            for i, (place, argument) in enumerate(zip(places, arguments, strict=True))
        ]
    with entered(run.part(places)):
        outputs = function(arguments, **bound)
    if not isinstance(outputs, list | tuple):
        raise TypeError(f"{function.name} is batched and must return a list; got {type(outputs).__name__}.")
    if len(outputs) != len(arguments):
        raise ValueError(f"{function.name} was called with {len(arguments)} and returned {len(outputs)} results.")
    return outputs


def _call_one(
    function: AppFunction,
    argument: object,
    run: Run,
    place: int,
    bound: Mapping[str, object] = MappingProxyType({}),
) -> object:
    with entered(run, place):
        return function(argument, **bound)


def _call_parts(parts: Sequence[AppFunction], arguments: list[object], run: Run) -> list[object]:
    """What the last part gives. A part is not called for those that failed before it."""
    values = list(arguments)
    left = list(range(len(values)))
    for i, part in enumerate(parts):
        if not left:
            break
        is_last = i == len(parts) - 1
        for place, output in zip(left, _outputs(part, [values[place] for place in left], run, left), strict=True):
            values[place] = output if is_last else _handed_on(part, output)
        left = [place for place in left if not isinstance(values[place], PartError)]
    return values


def _outputs(part: AppFunction, arguments: list[object], run: Run, places: Sequence[int]) -> list[object]:
    if not part.is_batched:
        return [_one(part, argument, run, place) for place, argument in zip(places, arguments, strict=True)]
    try:
        outputs = _call_all(part, arguments, run, places)
    except Exception as error:
        return [_failed(part, error)] * len(arguments)
    return [_failed(part, output) if isinstance(output, Exception) else output for output in outputs]


def _one(part: AppFunction, argument: object, run: Run, place: int) -> object:
    try:
        output = _call_one(part, argument, run, place)
    except Exception as error:
        return _failed(part, error)
    return _failed(part, output) if isinstance(output, Exception) else output


def _handed_on(part: AppFunction, value: object) -> object:
    """What the next part gets."""
    if type(value) in _UNCHANGED or isinstance(value, PartError):
        return value
    try:
        return decode(encode(value))
    except Exception as error:
        return _failed(part, error)


def _failed(part: AppFunction, error: Exception) -> PartError:
    return PartError(part.name, error)
