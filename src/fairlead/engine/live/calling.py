"""Calling a function with the arguments of a batch; a fused one part by part.

Between the parts of a fused function a value is what it would be between two instances: a copy that went through the
same encoding. So a workflow gives the same answers fused and unfused. Values that the encoding leaves as they are and
that cannot be changed, such as text and bytes, are handed on without a copy.
"""

import traceback
from collections.abc import Sequence

from fairlead.app import AppFunction
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


def call(function: AppFunction, arguments: list[object], using: Sequence[Names] = ()) -> Sequence[object]:
    """One output per argument; an exception in the place of an output is that one's failure.

    `using` names, for each argument, the further parameters that its stage binds: where there are some, the argument is
    a list of itself and their values.
    """
    if any(using):
        return _call_bound(function, arguments, using)
    if function.parts:
        return _call_parts(function.parts, arguments)
    if not function.is_batched:
        return [function(argument) for argument in arguments]
    return _listed(function, arguments, function(arguments))


def _call_bound(function: AppFunction, arguments: list[object], using: Sequence[Names]) -> list[object]:
    """A batched function runs once for all arguments that bind the same parameters."""
    outputs: list[object] = [None] * len(arguments)
    for names in dict.fromkeys(using):
        places = [place for place, each in enumerate(using) if each == names]
        if not names:
            found = call(function, [arguments[place] for place in places])
        else:
            rows = [_row(arguments[place], names) for place in places]
            if function.is_batched:
                plain, *bound = ([row[i] for row in rows] for i in range(len(names) + 1))
                found = _listed(function, plain, function(plain, **dict(zip(names, bound, strict=True))))
            else:
                found = [function(row[0], **dict(zip(names, row[1:], strict=True))) for row in rows]
        for place, output in zip(places, found, strict=True):
            outputs[place] = output
    return outputs


def _row(value: object, names: Names) -> list[object]:
    """The argument and the values of these parameters, as `routes` put them together."""
    assert isinstance(value, list), f"a stage that binds {', '.join(names)} gets a list"
    return value


def _listed(function: AppFunction, arguments: list[object], outputs: object) -> Sequence[object]:
    """What a batched function returned, if it is one output for each argument."""
    if not isinstance(outputs, list | tuple):
        raise TypeError(f"{function.name} is batched and must return a list; got {type(outputs).__name__}.")
    if len(outputs) != len(arguments):
        raise ValueError(f"{function.name} was called with {len(arguments)} and returned {len(outputs)} results.")
    return outputs


def _call_parts(parts: Sequence[AppFunction], arguments: list[object]) -> list[object]:
    """What the last part gives. A part is not called for those that failed before it."""
    values = list(arguments)
    left = list(range(len(values)))
    for i, part in enumerate(parts):
        if not left:
            break
        is_last = i == len(parts) - 1
        for place, output in zip(left, _outputs(part, [values[place] for place in left]), strict=True):
            values[place] = output if is_last else _handed_on(part, output)
        left = [place for place in left if not isinstance(values[place], PartError)]
    return values


def _outputs(part: AppFunction, arguments: list[object]) -> list[object]:
    if not part.is_batched:
        return [_one(part, argument) for argument in arguments]
    try:
        outputs = call(part, arguments)
    except Exception as error:
        return [_failed(part, error)] * len(arguments)
    return [_failed(part, output) if isinstance(output, Exception) else output for output in outputs]


def _one(part: AppFunction, argument: object) -> object:
    try:
        output = part(argument)
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
    if error.__traceback__ is not None:  # raised, and not only given back
        traceback.print_exception(error)
    return PartError(part.name, error)
