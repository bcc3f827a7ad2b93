"""Tensors of the Open Inference Protocol from and to plain values."""

from math import prod
from typing import Annotated, Any, Literal

import msgspec

from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.values import to_json

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"
]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**62)]

_MOST_DIMENSIONS = 32
_INT64 = (-(2**63), 2**63 - 1)


class Tensor(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A tensor: its elements in row-major order, flat or nested."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    shape: Annotated[list[Size], msgspec.Meta(max_length=_MOST_DIMENSIONS)]
    datatype: Datatype
    data: list[Any]
    parameters: dict[str, Any] | None = None


def to_plain(tensor: Tensor) -> object:
    """A tensor as nested lists of its shape (the element itself for a shape without dimensions), checked."""
    elements = _flat(tensor.data)
    expected = prod(tensor.shape)
    if len(elements) != expected:
        found = f"its data has {len(elements)} elements, its shape {tensor.shape} asks for {expected}."
        raise Problem(400, "invalid_tensor", f"Input {tensor.name!r}: {found}")
    is_valid = _checker(tensor.datatype)
    for element in elements:
        if not is_valid(element):
            shown = repr(element)[:80]
            raise Problem(400, "invalid_tensor", f"Input {tensor.name!r}: {shown} is not of type {tensor.datatype}.")
    if expected == 0:
        return []  # a shape such as [10**9, 0] would be a billion empty lists
    if not tensor.shape:
        return elements[0]
    for size in reversed(tensor.shape[1:]):
        elements = [elements[first : first + size] for first in range(0, len(elements), size)]
    return elements


def from_plain(name: str, value: object) -> Tensor:
    """A value as a tensor. What has no regular shape or no common type becomes one element of JSON text."""
    if hasattr(value, "tolist"):  # an array
        value = value.tolist()
    shape: list[int] = []
    probe = value
    while isinstance(probe, list) and len(shape) < _MOST_DIMENSIONS:
        shape.append(len(probe))
        probe = probe[0] if probe else None
    elements = _regular(value, shape)
    datatype = None if elements is None else _datatype(elements)
    if elements is None or datatype is None:
        return Tensor(name, [1], "BYTES", [to_json(value).decode()], {"content_type": "application/json"})
    return Tensor(name, shape or [1], datatype, elements)


def _flat(data: list[Any], depth: int = 0) -> list[Any]:
    if not any(isinstance(element, list) for element in data):
        return data
    if depth >= _MOST_DIMENSIONS:
        raise Problem(400, "invalid_tensor", f"Data may be nested {_MOST_DIMENSIONS} deep at most.")
    flat: list[Any] = []
    for element in data:
        if isinstance(element, list):
            flat += _flat(element, depth + 1)
        else:
            flat.append(element)
    return flat


def _checker(datatype: str) -> Any:
    if datatype == "BOOL":
        return lambda element: isinstance(element, bool)
    if datatype == "BYTES":
        return lambda element: isinstance(element, str)
    if datatype.startswith("FP"):
        return lambda element: isinstance(element, int | float) and not isinstance(element, bool)
    bits = int(datatype.rpartition("INT")[2])
    least, most = (0, 2**bits - 1) if datatype.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return lambda element: isinstance(element, int) and not isinstance(element, bool) and least <= element <= most


def _regular(value: object, shape: list[int]) -> list[Any] | None:
    level: list[Any] = [value]
    for size in shape:
        if any(not isinstance(part, list) or len(part) != size for part in level):
            return None
        level = [element for part in level for element in part]
    return level


def _datatype(elements: list[Any]) -> Datatype | None:
    kinds = {type(element) for element in elements}
    if kinds == {bool}:
        return "BOOL"
    if kinds == {str}:
        return "BYTES"
    if kinds == {int} and all(_INT64[0] <= element <= _INT64[1] for element in elements):
        return "INT64"
    if kinds and kinds <= {int, float}:
        return "FP64"
    return "FP64" if not elements else None
