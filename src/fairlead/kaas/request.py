"""What a caller hands to an executor, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fairlead.kaas.errors import RequestError
from fairlead.kaas.graph import Graph
from fairlead.kaas.wire import MOST_PAYLOAD, Counts, Resident, Timings

MOST_KEY = 256  # characters of a key, as in a graph
_MOST_KEYS = 64 << 10  # characters of all keys of a request


@dataclass(frozen=True, kw_only=True)
class Request:
    """A graph to run for a tenant. `inputs` has every input and inout buffer; `keys` replace keys of constants.

    `limit_s` bounds the run: when it is exceeded, the process is killed and the request fails.
    """

    tenant: str
    graph: Graph
    inputs: Mapping[str, npt.ArrayLike | bytes | memoryview] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    limit_s: float = 10.0

    def __post_init__(self) -> None:
        if not 1 <= len(self.tenant) <= 256:
            raise ValueError(f"tenant must have 1 to 256 characters; got {len(self.tenant)}.")
        for text in (self.tenant, *self.keys, *self.keys.values()):
            text.encode()  # UnicodeEncodeError, which is a ValueError, for what no message can hold
        if not self.limit_s > 0:
            raise ValueError(f"limit_s must be positive; got {self.limit_s}.")


@dataclass(frozen=True)
class Answer:
    """The outputs of a request, as one block of bytes in the order of the graph's buffers, and what it took."""

    graph: Graph
    payload: bytearray
    timings: Timings
    counts: Counts

    @property
    def outputs(self) -> dict[str, memoryview]:
        """The bytes of every output and inout buffer."""
        found, start, view = {}, 0, memoryview(self.payload)
        for buffer in self.graph.buffers:
            if buffer.is_returned:
                found[buffer.name] = view[start : start + buffer.size]
                start += buffer.size
        return found

    def array(self, name: str) -> npt.NDArray[np.generic]:
        """An output in its type and shape."""
        buffer = self.graph.by_name[name]
        return np.frombuffer(self.outputs[name], buffer.type).reshape(buffer.shape)

    @property
    def is_cold(self) -> bool:
        """Whether something was compiled or loaded for it."""
        return bool(self.counts.compiled or self.counts.compulsory_misses or self.counts.capacity_misses)


@dataclass(frozen=True, kw_only=True)
class Status:
    """A device: its memory now, and the totals since its executor started, restarts included.

    `device_s` is the time that each tenant's kernels ran; `peak_bytes` is of the present process.
    """

    device: str
    name: str
    memory_bytes: int
    used_bytes: int
    pinned_bytes: int
    peak_bytes: int
    residents: tuple[Resident, ...]
    counts: Counts
    device_s: dict[str, float]
    answered: int
    waiting: int
    restarts: int


def inputs_of(request: Request) -> list[memoryview]:
    """The bytes of a request's inputs, in the order of the graph's buffers. RequestError if they do not fit it."""
    graph = request.graph
    expected = [buffer for buffer in graph.buffers if buffer.is_sent]
    names = {buffer.name for buffer in expected}
    unknown, missing = sorted(set(request.inputs) - names), sorted(names - set(request.inputs))
    if unknown or missing:
        parts = [f"missing: {', '.join(missing)}"] * bool(missing) + [f"unknown: {', '.join(unknown)}"] * bool(unknown)
        raise RequestError(f"Inputs of {graph.name} are wrong; {'; '.join(parts)}.")
    wrong = sorted(n for n in request.keys if n not in graph.by_name or graph.by_name[n].kind != "constant")
    if wrong:
        raise RequestError(f"keys must name constants of {graph.name}; got {', '.join(wrong)[:200]}.")
    lengths = [len(key) for key in request.keys.values()]
    if sum(lengths) > _MOST_KEYS or not all(1 <= length <= MOST_KEY for length in lengths):
        raise RequestError(f"keys must have 1 to {MOST_KEY} characters each, and at most {_MOST_KEYS} in a request.")
    for way, size in (("sends", graph.sent_bytes), ("returns", graph.returned_bytes)):
        if size > MOST_PAYLOAD:
            raise RequestError(f"{graph.name} {way} {size} bytes with a request; at most {MOST_PAYLOAD} are possible.")
    parts_of: list[memoryview] = []
    for buffer in expected:
        value = request.inputs[buffer.name]
        if isinstance(value, bytes | memoryview):
            data = memoryview(value).cast("B")
        else:
            array = np.ascontiguousarray(value)
            if array.dtype != np.dtype(buffer.type):
                raise RequestError(f"Input {buffer.name!r} must be {buffer.type}; got {array.dtype}.")
            data = array.reshape(-1).view(np.uint8).data
        if data.nbytes != buffer.size:
            raise RequestError(f"Input {buffer.name!r} must have {buffer.size} bytes; got {data.nbytes}.")
        parts_of.append(data)
    return parts_of
