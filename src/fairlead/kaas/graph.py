"""Kernel graphs: what to compute on a device, as frozen values.

A graph is a list of kernels, run in order, `iterations` times. Its buffers have names; a kernel takes literals, then
buffers. `docs/reference/kernel-graphs.md` describes every field. `parse_graph` is the way to get a checked one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from hashlib import blake2b
from math import prod
from typing import Annotated
from typing import Literal as OneOf

import msgspec

VERSION = 1

Access = OneOf["read", "write", "update"]
BufferKind = OneOf["input", "output", "inout", "temporary", "constant"]
ElementType = OneOf[
    "int8", "uint8", "int16", "uint16", "float16", "int32", "uint32", "float32", "int64", "uint64", "float64"
]
LiteralType = OneOf["int32", "uint32", "int64", "uint64", "float32", "float64"]
Lifetime = OneOf["request", "cached"]
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""JSON has whole numbers of any length, whose products could not even be shown."""

ITEM_BYTES: dict[str, int] = {
    "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "int32": 4, "uint32": 4, "float32": 4, "int64": 8,
    "uint64": 8, "float64": 8,
}  # fmt: skip


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The code of one or more kernels, in each language that it is written in."""

    opencl: str | None = None
    cuda: str | None = None


class Literal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number that is passed by value."""

    type: LiteralType
    value: int | float


class Argument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A buffer that a kernel takes, and what it does with it. `write` means all of the buffer; `update` reads too."""

    buffer: str
    access: Access


class Kernel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One launch: `grid` work groups of `block` work items each. Parameters are the literals, then the arguments.

    `name` is the function in the source; `reference` the kernel of `fairlead.kaas.reference` that does the same.
    """

    name: str
    source: str | None = None
    reference: str | None = None
    grid: tuple[Whole, ...]
    block: tuple[Whole, ...]
    literals: tuple[Literal, ...] = ()
    arguments: tuple[Argument, ...]


class Buffer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Named device memory. `offset` (bytes) is where a constant begins in the value under its key.

    `lifetime`, for constants: `cached` ones stay on the device until their room is needed, `request` ones do not.
    """

    name: str
    kind: BufferKind
    type: ElementType = "float32"
    shape: tuple[Whole, ...]
    key: str | None = None
    offset: Whole = 0
    lifetime: Lifetime | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * ITEM_BYTES[self.type]

    @property
    def is_sent(self) -> bool:
        """Whether its bytes come with each request."""
        return self.kind in ("input", "inout")

    @property
    def is_returned(self) -> bool:
        """Whether its bytes come back with each answer."""
        return self.kind in ("output", "inout")

    @property
    def is_cached(self) -> bool:
        """Whether it stays on the device when its request has ended."""
        return self.kind == "constant" and self.lifetime != "request"


class Graph(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """Kernels in order, `iterations` times, and the buffers they use."""

    version: Whole
    name: str
    iterations: Whole = 1
    sources: dict[str, Source] = {}
    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]

    @cached_property
    def digest(self) -> str:
        """A name for exactly this graph, its keys included."""
        return blake2b(_encoder.encode(self), digest_size=16).hexdigest()

    @cached_property
    def by_name(self) -> dict[str, Buffer]:
        """The buffers, by name."""
        return {buffer.name: buffer for buffer in self.buffers}

    @cached_property
    def size(self) -> int:
        """Bytes of all its buffers."""
        return sum(buffer.size for buffer in self.buffers)

    @cached_property
    def sent_bytes(self) -> int:
        """Bytes that come with each request."""
        return sum(buffer.size for buffer in self.buffers if buffer.is_sent)

    @cached_property
    def returned_bytes(self) -> int:
        """Bytes that come back with each answer."""
        return sum(buffer.size for buffer in self.buffers if buffer.is_returned)

    def key_of(self, buffer: Buffer) -> str:
        """The key of a buffer's value: its own, or "graph/buffer"."""
        return buffer.key if buffer.key is not None else f"{self.name}/{buffer.name}"

    def rekey(self, keys: Mapping[str, str]) -> Graph:
        """The same graph with other keys for the buffers that are named."""
        unknown = sorted(set(keys) - self.by_name.keys())
        if unknown:
            raise ValueError(f"keys must name buffers of {self.name}; got {', '.join(unknown)}.")
        buffers = tuple(msgspec.structs.replace(b, key=keys.get(b.name, b.key)) for b in self.buffers)
        return msgspec.structs.replace(self, buffers=buffers)


_encoder = msgspec.json.Encoder(order="deterministic")


def graph_json(graph: Graph) -> bytes:
    """A graph in its file format."""
    return _encoder.encode(graph)
