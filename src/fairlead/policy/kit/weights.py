"""Files of trained networks: safetensors, with what they were trained for in the header. Not a policy.

Nothing in a file is run, and nothing is taken on trust: form, version and a digest are checked here, names, shapes and
numbers by whose networks they are.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from fairlead.errors import ConfigError, Fault

Array = NDArray[np.float32]

LARGEST_BYTES = 256 * 1024 * 1024


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of file: its name and version, and what to say of a file of another kind."""

    name: str
    version: int
    otherwise: str


def write_weights(path: Path, form: Form, arrays: Mapping[str, Array], description: msgspec.Struct) -> None:
    """Write a file, whole or not at all."""
    held = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    header = {
        "format": form.name,
        "version": str(form.version),
        "digest": _digest(held),
        "description": msgspec.json.encode(description).decode(),
    }
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(save_arrays(held, metadata=header))
    partial.replace(path)


def read_weights(path: Path, form: Form) -> tuple[dict[str, Array], str]:
    """The arrays of a file, and its description, still text. Raises `ConfigError`, which says what is wrong."""
    source = str(path)
    try:
        if path.stat().st_size > LARGEST_BYTES:
            fail(source, f"is larger than {LARGEST_BYTES // 1024**2} MiB.")
        content = path.read_bytes()
    except OSError as error:
        fail(source, f"cannot be read: {error.strerror or error}.")
    try:
        arrays = load_arrays(content)
        header = _header(content)
    except (SafetensorError, ValueError, KeyError) as error:
        fail(source, f"is not a safetensors file, or is cut off: {str(error).splitlines()[0]}.")
    if header.get("format") != form.name:
        fail(source, form.otherwise)
    if header.get("version") != str(form.version):
        fail(source, f"has version {header.get('version')!r} of the format; this Fairlead reads {form.version}.")
    if header.get("digest") != _digest(arrays):
        fail(source, "is damaged: its numbers are not those that were written.")
    return arrays, header.get("description", "")


def check_finite(source: str, arrays: Mapping[str, Array]) -> None:
    """Raise `ConfigError` if a number is not finite."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            fail(source, f"holds numbers that are not finite, in {name}.")


def fail(source: str, message: str) -> NoReturn:
    """Say what is wrong with a file."""
    raise ConfigError(source, [Fault("", message)])


def _header(content: bytes) -> dict[str, str]:
    length = int.from_bytes(content[:8], "little")
    metadata: dict[str, str] = msgspec.json.decode(content[8 : 8 + length]).get("__metadata__", {})
    return metadata


def _digest(arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
