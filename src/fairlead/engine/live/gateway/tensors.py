"""Tensors of the Open Inference Protocol from and to plain values."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain
from math import prod
from operator import mul
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.values import decode, to_json

Datatype = Literal[
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "BF16",
    "FP32",
    "FP64",
    "BYTES",
]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**62)]

_MOST_DIMENSIONS = 32
_RANGES: dict[str, tuple[int, int]] = {
    f"{sign}INT{bits}": (0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for sign in ("", "U")
    for bits in (8, 16, 32, 64)
}
_FLOATS = ("FP16", "BF16", "FP32", "FP64")
_LARGEST = {"FP16": 65504.0, "BF16": float.fromhex("0x1.fep127"), "FP32": float.fromhex("0x1.fffffep127")}
_OF_NUMPY: dict[str, Datatype] = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
}


class Tensor(msgspec.Struct, omit_defaults=True):
    """A tensor: its elements in row-major order, flat or nested.

    `data` is missing where the elements follow the JSON as raw bytes; then `parameters.binary_data_size` is their size.
    """

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    shape: Annotated[list[Size], msgspec.Meta(max_length=_MOST_DIMENSIONS)]
    datatype: Datatype
    data: list[Any] | None = None
    parameters: dict[str, Any] | None = None


class Made(NamedTuple):
    """A workflow's output before it is written as JSON or as raw bytes: its elements are flat."""

    name: str
    shape: list[int]
    datatype: Datatype
    elements: "list[Any] | NDArray[Any]"
    parameters: dict[str, Any] | None = None


class TensorMetadata(msgspec.Struct):
    """What is known of an input or output. A dimension of -1 may have any size."""

    name: str
    datatype: Datatype
    shape: list[int]


ANY_INPUT = TensorMetadata("input", "BYTES", [-1])
ANY_OUTPUT = TensorMetadata("output", "BYTES", [-1])


def require_room(tensors: Sequence[Tensor], most: int) -> None:
    """Refuse tensors whose shapes stand for more than `most` nested lists: [n, 1, 1, 1] is 3 n + 1 of them."""
    lists = sum(1 + sum(accumulate(tensor.shape[:-1], mul)) for tensor in tensors if prod(tensor.shape))
    if lists > most:
        shown = str(lists) if lists < 10**15 else "more than 10**15"
        found = f"The inputs' shapes stand for {shown} nested lists; at most {most} are taken (max_containers)."
        raise Problem(400, "invalid_tensor", f"{found} Leave out dimensions of size 1, or send fewer rows.")


def to_plain(tensor: Tensor) -> object:
    """Nested lists of a tensor's shape (the element itself for a shape without dimensions), checked.

    Elements of the floating-point types become floats, so that a function sees 1.0 where JSON has 1.
    """
    return nested(tensor, _checked(tensor, _flat(tensor)))


def nested(tensor: Tensor, elements: list[Any]) -> object:
    """Flat elements as nested lists of the tensor's shape; Problem if they are too few or too many."""
    expected = prod(tensor.shape)
    if len(elements) != expected:
        found = f"its data has {len(elements)} elements, its shape {tensor.shape} asks for {expected}."
        raise Problem(400, "invalid_tensor", f"Input {tensor.name!r}: {found}")
    if expected == 0:
        return []  # a shape such as [10**9, 0] would be a billion empty lists
    if not tensor.shape:
        return elements[0]
    for size in reversed(tensor.shape[1:]):
        elements = [elements[first : first + size] for first in range(0, len(elements), size)]
    return elements


def from_plain(name: str, value: object, inputs: Sequence[Tensor] = ()) -> Made:
    """A workflow's output as a tensor; `inputs` are those of its request, whose datatypes it takes where they fit.

    A NumPy array keeps its own type. A value without a regular shape or a common type becomes one element of JSON text.
    """
    if isinstance(value, np.ndarray):
        if (own := _OF_NUMPY.get(value.dtype.name)) is not None:
            return Made(name, list(value.shape) or [1], own, value.ravel())
        value = value.tolist()
    shape: list[int] = []
    probe = value
    while isinstance(probe, list) and len(shape) < _MOST_DIMENSIONS:
        shape.append(len(probe))
        probe = probe[0] if probe else None
    alike = [tensor for tensor in inputs if tensor.name == name] or inputs
    if value == [] and len(alike) == 1 and 0 in alike[0].shape:
        return Made(name, alike[0].shape, alike[0].datatype, [])  # a list cannot tell [0, 3] from [0]
    elements = _regular(value, shape)
    datatype = None if elements is None else _datatype(elements, shape, alike)
    if elements is None or datatype is None:
        return Made(name, [1], "BYTES", [to_json(value).decode()], {"content_type": "application/json"})
    return Made(name, shape or [1], datatype, elements)


@lru_cache(maxsize=64)
def inputs_of(example: bytes | None) -> list[TensorMetadata]:
    """The inputs that a workflow takes, as its example shows them: its first dimension may have any size."""
    if example is None:
        return [ANY_INPUT]
    value = decode(example)
    if isinstance(value, dict):
        if len(value) < 2 or not all(isinstance(key, str) and key for key in value):
            return [ANY_INPUT]  # one tensor arrives bare, so no tensor arrives as this object
        parts = value
    else:
        parts = {"input": value}
    made = [(from_plain(name, part), part) for name, part in parts.items()]
    if any(tensor.parameters for tensor, _ in made):
        return [ANY_INPUT]
    return [
        TensorMetadata(
            tensor.name,
            tensor.datatype,
            [-1, *tensor.shape[1:]] if isinstance(part, list) or (isinstance(part, np.ndarray) and part.ndim) else [],
        )
        for tensor, part in made
    ]


def _flat(tensor: Tensor) -> list[Any]:
    level = tensor.data
    if level is None:
        found = "it has neither data nor parameters.binary_data_size; shared memory is not supported."
        raise Problem(400, "invalid_tensor", f"Input {tensor.name!r}: {found}")
    for _ in range(_MOST_DIMENSIONS + 1):
        kinds = set(map(type, level))
        if list not in kinds:
            return level
        if kinds != {list}:
            found = "its data has both lists and elements in one list."
            raise Problem(400, "invalid_tensor", f"Input {tensor.name!r}: {found}")
        level = list(chain.from_iterable(level))
    raise Problem(400, "invalid_tensor", f"Data may be nested {_MOST_DIMENSIONS} deep at most.")


def _checked(tensor: Tensor, elements: list[Any]) -> list[Any]:
    datatype = tensor.datatype
    kinds = set(map(type, elements))
    range_ = _RANGES.get(datatype)
    allowed = {bool} if datatype == "BOOL" else {str} if datatype == "BYTES" else {int} if range_ else {int, float}
    if not kinds <= allowed:
        raise _wrong(tensor, next(element for element in elements if type(element) not in allowed))
    if range_ is not None and elements:
        for extreme in (min(elements), max(elements)):
            if not range_[0] <= extreme <= range_[1]:
                raise _wrong(tensor, extreme)
    elif int in kinds:  # of a floating-point type
        try:
            return list(map(float, elements))
        except OverflowError:
            raise _wrong(tensor, max(elements, key=abs)) from None
    return elements


def _wrong(tensor: Tensor, element: object) -> Problem:
    shown = repr(element)[:80]
    return Problem(400, "invalid_tensor", f"Input {tensor.name!r}: {shown} is not of type {tensor.datatype}.")


def _regular(value: object, shape: list[int]) -> list[Any] | None:
    level: list[Any] = [value]
    for size in shape:
        if set(map(type, level)) != {list} or set(map(len, level)) != {size}:
            return None if level else []
        level = list(chain.from_iterable(level))
    return level


def _datatype(elements: list[Any], shape: list[int], inputs: Sequence[Tensor]) -> Datatype | None:
    kinds = set(map(type, elements))
    if kinds == {bool}:
        return "BOOL"
    if kinds and kinds <= {str, bytes}:
        return "BYTES"
    if not elements:
        named = {tensor.datatype for tensor in inputs}
        return named.pop() if len(named) == 1 else "FP64"
    if kinds == {int}:
        least, most = min(elements), max(elements)
        same = {tensor.datatype for tensor in inputs if tensor.datatype in _RANGES and tensor.shape == shape}
        tried: list[Datatype] = [*(same if len(same) == 1 else ()), "INT64", "UINT64"]
        return next((kind for kind in tried if _RANGES[kind][0] <= least and most <= _RANGES[kind][1]), None)
    if kinds <= {int, float}:
        named = {tensor.datatype for tensor in inputs if tensor.datatype in _FLOATS}
        return _narrowest(elements, named.pop()) if len(named) == 1 else "FP64"
    return None


def _narrowest(elements: list[Any], wanted: Datatype) -> Datatype:
    largest = _LARGEST.get(wanted)
    if largest is None:
        return "FP64"
    sizes = np.abs(np.array(elements, dtype=np.float64))
    sizes = sizes[np.isfinite(sizes)]
    return wanted if not sizes.size or sizes.max() <= largest else "FP64"
