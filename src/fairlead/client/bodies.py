"""Inputs as bytes and bytes as outputs: JSON, raw bytes, and raw tensors of the Open Inference Protocol."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlead.client.connections import Reply

JSON = "application/json"
RAW = "application/octet-stream"

_HEADER = "inference-header-content-length"
_SIZE = "binary_data_size"
_DATATYPES = {
    "bool": "BOOL",
    **{f"{sign}int{bits}": f"{sign}int{bits}".upper() for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
}
_DTYPES = {datatype: np.dtype(name).newbyteorder("<") for name, datatype in _DATATYPES.items()}

Array = NDArray[Any]


class _Tensor(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    data: list[Any] | None = None
    parameters: dict[str, Any] = {}


class _Inferred(msgspec.Struct):
    outputs: list[_Tensor]


_inferred = msgspec.json.Decoder(_Inferred)


def to_json(value: object) -> bytes:
    """A value as JSON. Raises `TypeError` or `ValueError` for what has no JSON form, before anything is sent."""
    return json.dumps(value, default=_plain, allow_nan=False).encode()


def _plain(value: object) -> object:
    if callable(plain := getattr(value, "tolist", None)):  # arrays, tensors, and their numbers
        return plain()
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes can be sent as the whole input only; inside a JSON input, make them a text.")
    raise TypeError(f"a value of type {type(value).__name__} cannot be sent; send JSON values, arrays or bytes.")


def read_output(reply: Reply) -> object:
    """The answer to a raw body: bytes, a text, or what JSON stands for, by its content type."""
    kind = reply.headers.get("content-type", "")
    if kind.startswith(RAW):
        return reply.body
    return reply.body.decode() if kind.startswith("text/") else msgspec.json.decode(reply.body)


def tensors_of(inputs: object) -> Mapping[str, Array]:
    """Arrays by name; one array alone is called "input"."""
    given = inputs if isinstance(inputs, Mapping) else {"input": inputs}
    found = {}
    for name, value in given.items():
        array = np.asarray(value)
        if array.dtype.name not in _DATATYPES:
            known = ", ".join(_DATATYPES)
            raise TypeError(f"{name!r} must be an array of numbers ({known}); got {array.dtype}.")
        found[str(name)] = array
    if not found:
        raise ValueError("inputs must have at least one array; got none.")
    return found


def raw_body(tensors: Mapping[str, Array]) -> tuple[bytes, dict[str, str]]:
    """The body of an inference request, and its headers: the arrays follow the JSON as raw bytes."""
    raw = {
        name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes() for name, array in tensors.items()
    }
    inputs = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": _DATATYPES[array.dtype.name],
            "parameters": {_SIZE: len(raw[name])},
        }
        for name, array in tensors.items()
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    headers = {"Content-Type": RAW, _HEADER: str(len(head))}
    return b"".join((head, *raw.values())), headers


def output_of(reply: Reply) -> object:
    """What an inference answer holds: one output alone, or all of them by name."""
    size = reply.headers.get(_HEADER)
    cut = len(reply.body) if size is None else int(size)
    left = memoryview(reply.body)[cut:]
    found: dict[str, object] = {}
    for tensor in _inferred.decode(reply.body[:cut]).outputs:
        size_bytes = tensor.parameters.get(_SIZE)
        raw = None if size_bytes is None else left[:size_bytes]
        left = left[size_bytes or 0 :]
        found[tensor.name] = _value(tensor, raw)
    return found["output"] if list(found) == ["output"] else found


def _value(tensor: _Tensor, raw: memoryview | None) -> object:
    if tensor.datatype in _DTYPES:
        dtype = _DTYPES[tensor.datatype]
        flat = np.array(tensor.data, dtype) if raw is None else np.frombuffer(raw, dtype).copy()
        return flat.reshape(tensor.shape)
    texts = _texts(raw) if raw is not None else tensor.data or []
    if tensor.parameters.get("content_type") == "application/json":
        return msgspec.json.decode(texts[0])
    return texts


def _texts(raw: memoryview) -> list[bytes | str]:
    """Elements of BYTES: each its length, as four bytes, and its content."""
    found: list[bytes | str] = []
    while raw:
        end = 4 + int.from_bytes(raw[:4], "little")
        content = bytes(raw[4:end])
        try:
            found.append(content.decode())
        except UnicodeDecodeError:
            found.append(content)
        raw = raw[end:]
    return found
