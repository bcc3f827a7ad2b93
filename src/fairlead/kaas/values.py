"""The host's values, by tenant and key: files that the processes of all devices of a machine can map.

A key names one value for ever. Another value under the same key is refused: cached copies of the first would answer for
it. Take a new key (`Graph.rekey`), and `remove` the old one.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from fairlead.kaas.errors import ValueMissingError


class Values:
    """Values in a folder, which is made if it is not there. Only its owner can read it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, tenant: str, key: str, value: npt.ArrayLike | bytes | memoryview) -> None:
        """Keep a value. ValueError if the key has another one."""
        data = _bytes(value)
        path = self._path(tenant, key)
        try:
            known = path.read_bytes()
        except FileNotFoundError:
            draft = path.with_name(f"{path.name}.{uuid4().hex}")
            draft.write_bytes(data)
            os.replace(draft, path)
            return
        if known != data:
            raise ValueError(f"key {key!r} has another value already; use a new key for a new value.")

    def has(self, tenant: str, key: str) -> bool:
        """Whether the key has a value."""
        return self._path(tenant, key).exists()

    def remove(self, tenant: str, key: str) -> None:
        """Drop a value; copies on devices stay until they are evicted or forgotten."""
        self._path(tenant, key).unlink(missing_ok=True)

    def read(self, tenant: str, key: str, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """These bytes of a value, mapped. ValueMissingError if they are not there."""
        path = self._path(tenant, key)
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            raise ValueMissingError(f"Key {key!r} has no value; put one before the request.") from None
        if offset + size > found:
            raise ValueMissingError(f"Key {key!r} has {found} bytes; bytes {offset} to {offset + size} were asked for.")
        return np.memmap(path, np.uint8, "r", offset, (size,))

    def _path(self, tenant: str, key: str) -> Path:
        name = blake2b(f"{len(tenant)}:{tenant}{key}".encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
        return self._folder / name


def _bytes(value: npt.ArrayLike | bytes | memoryview) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.tobytes() if isinstance(value, memoryview) else np.ascontiguousarray(value).tobytes()
