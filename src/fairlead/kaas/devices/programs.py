"""Compiled code on disk, by digest of everything it depends on.

An entry begins with a checksum: a torn or altered one counts as absent. The folder is shared by processes; entries
are replaced whole. When there are more than `most` entries, the oldest go.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from fairlead.kaas.errors import BuildError
from fairlead.kaas.graph import Graph, Kernel

_SUM = 32
_MOST_KEPT = 1024  # programs, or graphs, in a process; more are rare, and found again on disk

V = TypeVar("V")


def keep(kept: dict[str, V], key: str, value: V) -> None:
    """Remember what was compiled, in the process; when there is too much, all else is forgotten."""
    if len(kept) >= _MOST_KEPT:
        kept.clear()
    kept[key] = value


def sources_of(graph: Graph, language: str) -> Iterator[tuple[Kernel, str]]:
    """Each kernel of a graph with its source in "OpenCL" or "CUDA". BuildError for one that has none."""
    for kernel in graph.kernels:
        source = None if kernel.source is None else getattr(graph.sources[kernel.source], language.lower())
        if source is None:
            raise BuildError(f"Kernel {kernel.name!r} of {graph.name} has no source in {language}.")
        yield kernel, source


class ProgramCache:
    """Binaries in a folder, which is made if it is not there."""

    def __init__(self, folder: Path, most: int = 2048) -> None:
        self._folder = folder
        self._most = most
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def key(self, *parts: str) -> str:
        """A name for code that depends on exactly these texts."""
        digest = blake2b(digest_size=20)
        for part in parts:
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()

    def get(self, key: str) -> bytes | None:
        """A binary, if it is there and whole."""
        try:
            data = (self._folder / key).read_bytes()
        except OSError:
            return None
        body = data[_SUM:]
        return body if data[:_SUM] == blake2b(body, digest_size=_SUM).digest() else None

    def put(self, key: str, binary: bytes) -> None:
        """Keep a binary. A full disk is no fault: it is compiled again next time."""
        draft = self._folder / f"{key}.{uuid4().hex}"
        try:
            draft.write_bytes(blake2b(binary, digest_size=_SUM).digest() + binary)
            os.replace(draft, self._folder / key)
            self._prune()
        except OSError:
            draft.unlink(missing_ok=True)

    def _prune(self) -> None:
        entries = [entry for entry in os.scandir(self._folder) if entry.is_file()]
        if len(entries) > self._most:
            entries.sort(key=lambda entry: entry.stat().st_mtime)
            for entry in entries[: len(entries) - self._most]:
                Path(entry.path).unlink(missing_ok=True)
