"""What passes between gateway, runtime and instances.

A value is never looked into on its way: it is the bytes that an instance wrote (MessagePack), a reference to a
file that holds such bytes, or a list of values. Only instances, and the gateway's edge, decode it.

A reference is the text `NAME:SIZE`, and `NAME:SIZE@NODE@ADDRESS` where nodes have stores of their own: `ADDRESS` is
where that node serves reads. Both are empty for a value that the gateway itself keeps.
"""

from collections.abc import Sequence
from importlib import import_module
from math import prod
from mmap import mmap
from struct import pack
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union

import msgspec

from fairlead.errors import FairleadError

if TYPE_CHECKING:
    Value = Union[bytes, str, Sequence["Value"]]  # noqa: UP007 - an alias that names itself
else:
    Value = Any  # what a message holds there is checked by whoever reads it: msgspec knows no such union

Outcome = Literal["completed", "failed", "rejected", "dropped", "cancelled"]

MOST_ITEMS = 10_000
"""Items that one list may give to a map stage, where no other limit is set."""


class InputError(FairleadError, ValueError):
    """A workflow cannot take this input. `code` is a word for programs: `not_a_list` or `too_many_items`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


LOST_INPUT = "an input cannot be read: "
"""Begins the error of an invocation whose input was lost with the node that held it."""


class LostValueError(FairleadError):
    """A value cannot be read any more: the node that holds it is gone, or does not have it.

    `node` is that node; empty for the gateway, and on one machine.
    """

    def __init__(self, message: str, node: str = "") -> None:
        super().__init__(message)
        self.node = node


class Result(msgspec.Struct, frozen=True, array_like=True):
    """What one invocation of a batch gave. `arm` is the label of the arm it chose; `items` the length of a split list.

    A split output is a list of values, one per item. `lost_at` is the node from which an input could not be read.
    """

    ok: bool
    value: Value = b""
    arm: str | None = None
    items: int = 1
    error: str | None = None
    lost_at: str = ""
    traceback: str | None = None  # of an error that the function raised


class Reference(NamedTuple):
    """What the text of a reference says. `home` is its end, from the first `@` on; empty on one machine."""

    name: str
    size: int
    home: str

    @property
    def node(self) -> str:
        """The node that holds the value; empty for the gateway, and on one machine."""
        return self.home[1:].partition("@")[0]

    @property
    def address(self) -> str:
        """Where the value can be read; empty for the gateway, and on one machine."""
        return self.home[1:].partition("@")[2]


def reference(text: str) -> Reference:
    """The parts of a reference. Raises ValueError."""
    name, _, rest = text.partition(":")
    size, at, home = rest.partition("@")
    if not size.isdigit() or not size.isascii():
        raise ValueError(f"{text[:100]!r} is not a reference to a stored value.")
    return Reference(name, int(size), at + home)


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended. Instants are seconds of the run's clock."""

    request: int
    workflow: str
    outcome: Outcome
    arrival: float
    end: float
    deadline: float
    value: Value | None = None  # of a completed request
    reason: str | None = None
    code: str | None = None  # a word for programs, of a failure that no function caused
    retry_after_s: float | None = None
    cost_usd: float = 0.0
    promised: float | None = None  # the instant that the policy promised, where it did
    wait_s: float = 0.0  # over all its invocations
    cold_s: float = 0.0
    run_s: float = 0.0
    traceback: str | None = None  # of the function that failed

    @property
    def cause(self) -> str | None:
        """Why its deadline was missed: queue, cold or service for a late answer, else the outcome; None if kept."""
        if self.is_in_time:
            return None
        if self.outcome != "completed":
            return self.outcome
        late_s = self.end - self.deadline
        return "cold" if self.cold_s >= late_s else "queue" if self.wait_s >= late_s else "service"

    @property
    def latency_s(self) -> float:
        """From arrival to the end."""
        return self.end - self.arrival

    @property
    def is_in_time(self) -> bool:
        """Whether it was answered by its deadline."""
        return self.outcome == "completed" and self.end <= self.deadline


_MOST_EMPTY = 100_000  # lists that an array without elements stands for: it has no bytes, whatever its shape
_ARRAY = 1  # MessagePack extension: a NumPy array as (dtype, shape, data)


def encode(value: object) -> bytes:
    """A Python value as MessagePack. NumPy arrays go as they are; what cannot be sent raises TypeError."""
    return _encoder.encode(value)


def decode(data: bytes | bytearray | mmap) -> object:
    """The Python value of such bytes."""
    return _decoder.decode(data)


def list_length(data: bytes) -> int | None:
    """The number of items of an encoded list, read from its head alone; None if the bytes hold no list."""
    kind = data[0] if data else 0
    if kind & 0xF0 == 0x90:
        return kind & 0x0F
    size = {0xDC: 2, 0xDD: 4}.get(kind)
    return None if size is None else int.from_bytes(data[1 : 1 + size], "big")


def array_head(length: int) -> bytes:
    """The bytes that begin an encoded list of this length: its encoded items follow."""
    if length < 16:
        return bytes([0x90 | length])
    return pack(">BH", 0xDC, length) if length < 1 << 16 else pack(">BI", 0xDD, length)


def split(data: bytes) -> list[bytes]:
    """The items of an encoded list, each still encoded."""
    return [bytes(item) for item in _items.decode(data)]


def check_items(data: bytes, most: int) -> None:
    """Raise InputError if this is not an encoded list of at most `most` items. Costs the same for any length."""
    length = list_length(data)
    if length is None:
        found = "a different type" if not data else _kind(data[0])
        raise InputError("not_a_list", f"this workflow maps over its input, which must be a list; got {found}.")
    if length > most:
        raise InputError(
            "too_many_items",
            f"this workflow maps over its input, which may have at most {most} items; got {length}. "
            "Send several requests.",
        )


def _kind(head: int) -> str:
    """The Python type that a first byte of MessagePack announces."""
    for first, last, name in _KINDS:
        if first <= head <= last:
            return name
    return "int"


_KINDS = (
    (0x80, 0x8F, "dict"),
    (0xA0, 0xBF, "str"),
    (0xC0, 0xC0, "None"),
    (0xC2, 0xC3, "bool"),
    (0xC4, 0xC6, "bytes"),
    (0xC7, 0xC9, "array"),
    (0xCA, 0xCB, "float"),
    (0xD4, 0xD8, "array"),
    (0xD9, 0xDB, "str"),
    (0xDE, 0xDF, "dict"),
)


def to_json(value: object) -> bytes:
    """A decoded value as JSON: arrays become lists, bytes base64."""
    return _json.encode(value)


def _to_message(value: object) -> object:
    if type(value).__module__ == "numpy":  # without importing it: most functions do not use it
        array: Any = value
        if type(value).__name__ == "ndarray" and not array.dtype.hasobject:
            shape = list(array.shape)
            return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode([array.dtype.str, shape, array.tobytes()]))
        if hasattr(value, "item"):
            return array.item()
    raise TypeError(f"a value of type {type(value).__name__} cannot be passed on; return plain values or arrays.")


def _from_extension(code: int, data: memoryview) -> object:
    if code != _ARRAY:
        raise ValueError(f"{code} is not a known extension.")
    kind, shape, raw = msgspec.msgpack.decode(data, type=tuple[str, list[int], bytes])
    if 0 in shape and prod(shape[: shape.index(0)]) > _MOST_EMPTY:
        raise ValueError(f"an array of shape {shape[:8]} stands for more than {_MOST_EMPTY} empty lists.")
    numpy = import_module("numpy")  # on demand: instances that pass plain values start without it
    return numpy.frombuffer(raw, dtype=numpy.dtype(kind)).reshape(shape)


def _to_plain(value: object) -> object:
    if type(value).__module__ == "numpy":
        array: Any = value
        return array.tolist()
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form.")


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_message)
_decoder = msgspec.msgpack.Decoder(ext_hook=_from_extension)
_items = msgspec.msgpack.Decoder(list[msgspec.Raw])
_json = msgspec.json.Encoder(enc_hook=_to_plain)
