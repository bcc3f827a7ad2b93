"""Tensors out of a file that old versions of PyTorch wrote, without PyTorch and without running what is in it.

Such a file is five pickles (a magic number, a protocol, facts about the machine, the tensors, the keys of their
storages) and then, in the order of the keys, each storage as its length and its numbers. An unpickler that knows four
names makes views of NumPy arrays, and refuses every other name: a file that asks for one could otherwise run anything.
"""

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_KINDS = {"FloatStorage": "<f4", "LongStorage": "<i8"}


@dataclass(frozen=True)
class _Pending:
    """A tensor whose numbers come later in the file."""

    storage: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class _Kind:
    name: str


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.kinds: dict[str, str] = {}

    def persistent_load(self, pid: Any) -> str:
        what, kind, key, _device, _length, view = pid
        if what != "storage" or not isinstance(kind, _Kind) or view is not None:
            raise ValueError(f"{pid!r} is no storage of numbers.")
        self.kinds[str(key)] = kind.name
        return str(key)

    def find_class(self, module: str, name: str) -> Any:
        allowed: dict[tuple[str, str], Callable[..., object] | _Kind] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _pending,
            **{("torch", kind): _Kind(kind) for kind in _KINDS},
        }
        if (module, name) not in allowed:
            raise ValueError(f"the file asks for {module}.{name}, which no file of tensors needs.")
        return allowed[module, name]


def _pending(storage: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_unused: object) -> _Pending:
    return _Pending(storage, offset, shape, strides)


def read_tensors(data: bytes) -> dict[str, NDArray[Any]]:
    """The tensors of such a file, by name. ValueError if it is none, or holds anything else."""
    file = io.BytesIO(data)
    try:
        magic, protocol, _machine = (_Unpickler(file).load() for _ in range(3))
        if magic != _MAGIC or protocol != _PROTOCOL:
            raise ValueError("it does not begin as a file of tensors.")
        unpickler = _Unpickler(file)
        pending = unpickler.load()
        keys = _Unpickler(file).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, TypeError) as error:
        raise ValueError(f"it is no file of tensors: {error}") from None
    storages = {}
    for key in keys:
        kind = np.dtype(_KINDS[unpickler.kinds[key]])
        length = int.from_bytes(file.read(8), "little")
        numbers = file.read(length * kind.itemsize)
        if len(numbers) != length * kind.itemsize:
            raise ValueError("it ends too early.")
        storages[key] = np.frombuffer(numbers, dtype=kind)
    return {name: _array(tensor, storages[tensor.storage]) for name, tensor in pending.items()}


def _array(tensor: _Pending, storage: NDArray[Any]) -> NDArray[Any]:
    last = tensor.offset + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.strides, strict=True))
    # With steps back among them, what comes last would not lie at the end.
    if min(tensor.strides, default=0) < 0 or not 0 <= tensor.offset <= last < len(storage):
        raise ValueError("a tensor lies outside of its storage.")
    strides = [step * storage.itemsize for step in tensor.strides]
    view = np.lib.stride_tricks.as_strided(storage[tensor.offset :], tensor.shape, strides, writeable=False)
    return np.array(view)  # a copy, of the same shape also where there is no axis
