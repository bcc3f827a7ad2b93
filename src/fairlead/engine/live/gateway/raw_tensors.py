"""The binary tensor data extension of the Open Inference Protocol: elements follow the JSON as raw bytes.

Numbers are little-endian. An element of BYTES is its length, as four bytes, and then its content.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.tensors import Made, Tensor, nested, to_plain

HEADER = b"inference-header-content-length"
SIZE = "binary_data_size"

_DTYPES = {
    "BOOL": "?",
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "BF16": "<u2",
    "FP32": "<f4",
    "FP64": "<f8",
}
_length = Struct("<I")


def split(body: bytes, header: bytes | None) -> tuple[bytes, bytes]:
    """The JSON part of a body, and the raw bytes after it; `header` is the length of the JSON part, if it was sent."""
    if header is None:
        return body, b""
    size = int(header) if header.isascii() and header.isdigit() and len(header) < 20 else -1
    if not 0 <= size <= len(body):
        shown = header.decode("latin-1")[:80]
        found = f"Inference-Header-Content-Length must be the size of the body's JSON part; got {shown!r}"
        raise Problem(400, "invalid_header", f"{found} for a body of {len(body)} bytes.")
    return body[:size], body[size:]


def read_inputs(tensors: Sequence[Tensor], raw: bytes) -> list[object]:
    """Each input as nested lists: from its own data, or from its share of the raw bytes, which follow each other."""
    given: list[object] = []
    first = 0
    for tensor in tensors:
        size = (tensor.parameters or {}).get(SIZE)
        if size is None:
            given.append(to_plain(tensor))
            continue
        left = len(raw) - first
        if type(size) is not int or not 0 <= size <= left or tensor.data:
            found = f"parameters.{SIZE} must be a number of bytes, {left} at most, and stands instead of data"
            raise Problem(400, "invalid_tensor", f"Input {tensor.name!r}: {found}; got {str(size)[:80]}.")
        given.append(nested(tensor, _elements(tensor, raw[first : first + size])))
        first += size
    if first < len(raw):
        found = f"{len(raw) - first} bytes follow the JSON that are part of no input."
        raise Problem(400, "invalid_tensor", f"{found} Each raw input needs parameters.{SIZE}.")
    return given


def write(output: Made, *, is_raw: bool) -> tuple[Tensor, bytes]:
    """An output as its part of the JSON and its raw bytes, of which there are none for an output in JSON alone."""
    name, shape, datatype, elements, parameters = output
    if is_raw:
        raw = _packed(output)
        return Tensor(name, shape, datatype, None, {**(parameters or {}), SIZE: len(raw)}), raw
    if datatype == "BYTES" and any(isinstance(element, bytes) for element in elements):
        parameters = {"content_type": "base64"}
        elements = [element if isinstance(element, bytes) else element.encode() for element in elements]
    return Tensor(name, shape, datatype, elements if isinstance(elements, list) else elements.tolist(), parameters), b""


def _elements(tensor: Tensor, raw: bytes) -> list[Any]:
    if tensor.datatype == "BYTES":
        return _texts(tensor, raw)
    dtype = np.dtype(_DTYPES[tensor.datatype])
    if len(raw) % dtype.itemsize:
        found = f"{len(raw)} bytes are no whole number of elements of type {tensor.datatype}."
        raise Problem(400, "invalid_tensor", f"Input {tensor.name!r}: {found}")
    if tensor.datatype == "BOOL":
        dtype = np.dtype(np.uint8)  # any value but 0 is true; NumPy's own type takes 0 and 1 only
    array = np.frombuffer(raw, dtype)
    if tensor.datatype == "BOOL":
        array = array != 0
    elif tensor.datatype == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    elements: list[Any] = array.tolist()
    return elements


def _texts(tensor: Tensor, raw: bytes) -> list[Any]:
    """Elements of BYTES: as text if all of them are UTF-8, else as bytes."""
    parts: list[bytes] = []
    first = 0
    while first < len(raw):
        content = first + _length.size
        end = content + _length.unpack_from(raw, first)[0] if content <= len(raw) else len(raw) + 1
        if end > len(raw):
            found = "its raw bytes end within an element; each is its length, as four bytes, and its content."
            raise Problem(400, "invalid_tensor", f"Input {tensor.name!r}: {found}")
        parts.append(raw[content:end])
        first = end
    try:
        return [part.decode() for part in parts]
    except UnicodeDecodeError:
        return parts


def _packed(output: Made) -> bytes:
    _, _, datatype, elements, _ = output
    if datatype == "BYTES":
        texts = [element if isinstance(element, bytes) else element.encode() for element in elements]
        return b"".join(part for text in texts for part in (_length.pack(len(text)), text))
    if datatype == "BF16":
        return _rounded(np.asarray(elements, dtype=np.float32)).tobytes()
    return np.asarray(elements, dtype=_DTYPES[datatype]).tobytes()


def _rounded(array: "NDArray[np.float32]") -> "NDArray[np.uint16]":
    """The nearest BF16 of each number, ties to even: the upper half of its bits."""
    bits = array.view(np.uint32)
    upper = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    return np.where(np.isnan(array), 0x7FC0, upper).astype("<u2")
