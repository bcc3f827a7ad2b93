"""Between the values of a caller and the buffers of a graph: what goes in is checked, what comes out gets its shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fairlead.kaas.devices import open_device
from fairlead.kaas.errors import RequestError
from fairlead.kaas.graph import Buffer, Graph

Array = npt.NDArray[np.generic]
_INTEGERS = "iu"
_FLOATS = (float, np.floating)
_NUMBERS = (int, np.integer, *_FLOATS)


def inputs_of_value(graph: Graph, value: object) -> dict[str, Array]:
    """The inputs of a graph by buffer: from a mapping, or from the value itself where there is one input.

    An array must have the type and shape of its buffer; a number or a list of numbers is converted. RequestError names
    the buffer, and says what it must be and what was found.
    """
    expected = [buffer for buffer in graph.buffers if buffer.is_sent]
    if len(expected) == 1 and not isinstance(value, Mapping):
        return {expected[0].name: _checked(expected[0], value)}
    names = [buffer.name for buffer in expected]
    if not isinstance(value, Mapping):
        found = type(value).__name__
        raise RequestError(f"{graph.name} takes a mapping with {_listed(names)}; got a value of type {found}.")
    unknown = [str(name)[:100] for name in value if name not in names]
    missing = [name for name in names if name not in value]
    if unknown or missing:
        wrong = [f"missing: {_listed(missing)}"] * bool(missing) + [f"unknown: {_listed(unknown)}"] * bool(unknown)
        raise RequestError(
            f"{graph.name} takes a mapping with {_listed(names) or 'nothing in it'}; {'; '.join(wrong)}."
        )
    return {buffer.name: _checked(buffer, value[buffer.name]) for buffer in expected}


def value_of_outputs(graph: Graph, outputs: Mapping[str, Array]) -> object:
    """What a caller gets: the array where there is one output, else a mapping by buffer."""
    if len(outputs) == 1:
        return next(iter(outputs.values()))
    return {buffer.name: outputs[buffer.name] for buffer in graph.buffers if buffer.is_returned}


def run_here(graph: Graph, inputs: Mapping[str, Array], constants: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a graph, from the NumPy reference of each of its kernels, in this process.

    `constants` has the value of every constant, by buffer. BuildError if a kernel has no reference.
    """
    device = open_device("numpy", Path())
    programs, _ = device.compile(graph)
    allocations = {}
    for buffer in graph.buffers:
        allocation = allocations[buffer.name] = device.alloc(buffer.size, is_zeroed=True)
        given = constants.get(buffer.name) if buffer.kind == "constant" else inputs.get(buffer.name)
        if given is not None:
            device.upload(allocation, np.ascontiguousarray(given).reshape(-1).view(np.uint8))
    launches = [
        device.bind(program, [allocations[argument.buffer] for argument in kernel.arguments])
        for program, kernel in zip(programs, graph.kernels, strict=True)
    ]
    for _ in range(graph.iterations):
        for launch in launches:
            device.launch(launch)
    found: dict[str, Array] = {}
    for buffer in graph.buffers:
        if buffer.is_returned:
            data = np.empty(buffer.size, np.uint8)
            device.download(allocations[buffer.name], data)
            found[buffer.name] = data.view(buffer.type).reshape(buffer.shape)
    return found


def _checked(buffer: Buffer, value: object) -> Array:
    wanted = np.dtype(buffer.type)
    if not isinstance(value, np.ndarray | np.generic):
        value = _converted(buffer, value, wanted)
    array = np.asarray(value)
    if array.dtype != wanted or array.shape != buffer.shape:
        raise _wrong(buffer, f"{array.dtype} {_shape(array.shape)}")
    return array


def _converted(buffer: Buffer, value: object, wanted: np.dtype[np.generic]) -> Array:
    """A number, or lists of numbers, in the type of the buffer.

    Its elements stay what they are until they are known to be numbers: as text, a thousand of them take the room of the
    longest a thousand times.
    """
    try:
        plain = np.asarray(value, dtype=object)
        is_ragged = plain.size > 0 and isinstance(plain.flat[0], list | tuple)
    except (ValueError, TypeError):
        is_ragged = True
    if is_ragged:  # lists of different lengths, or too many in each other
        raise _wrong(buffer, f"a value of type {type(value).__name__} that is no array of numbers")
    if plain.shape != buffer.shape:
        raise _wrong(buffer, f"values of shape {_shape(plain.shape)}")
    kinds = set(map(type, plain.flat))
    others = [kind for kind in kinds if not issubclass(kind, _NUMBERS) or issubclass(kind, bool)]
    if wanted.kind in _INTEGERS:
        others += [kind for kind in kinds if issubclass(kind, _FLOATS)]
    if others:
        raise _wrong(buffer, f"values of type {others[0].__name__}")
    if wanted.kind in _INTEGERS and plain.size:
        bounds = np.iinfo(wanted)  # type: ignore[type-var]  # it is an integer type
        low, high = int(plain.min()), int(plain.max())
        if low < bounds.min or high > bounds.max:
            raise _wrong(buffer, f"values below {bounds.min} or above {bounds.max}")
    try:
        with np.errstate(over="ignore"):
            return plain.astype(wanted)
    except OverflowError:  # a whole number that no float reaches
        raise _wrong(buffer, "a number that is too large") from None


def _wrong(buffer: Buffer, found: str) -> RequestError:
    return RequestError(f"Input {buffer.name!r} must be {buffer.type} {_shape(buffer.shape)}; got {found}.")


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20])
