"""The apps' code that an agent has: files named by the digest of their content, fetched from the gateway by pieces."""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from fairlead.app.bundle import remove
from fairlead.engine.live.links.control import MOST_CODE_BYTES, Fetch, Piece

_SUFFIXES = (".snapshot", ".py")
_MOST_KEPT = 50  # files; every deployment brings one


class CodeFolder:
    """The code of apps in a folder of this agent.

    Args:
        folder: Where files are kept.
        ask: Sends a request for a piece.
    """

    def __init__(self, folder: Path, ask: Callable[[Fetch], None]) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._ask = ask
        self._coming: dict[str, bytearray] = {}
        self._waiting: dict[str, list[tuple[str, Callable[[Path | str], None]]]] = {}

    def want(self, digest: str, name: str, then: Callable[[Path | str], None]) -> None:
        """Have `then` called with the file of this digest, at once where it is here, or with the error.

        Args:
            digest: SHA-256 of the content, as hexadecimal digits.
            name: The file's name at the gateway; only its suffix counts.
            then: Gets a path, or a text that says why there is no file.
        """
        suffix = Path(name).suffix
        if len(digest) != 64 or not all(c in "0123456789abcdef" for c in digest) or suffix not in _SUFFIXES:
            then(f"its code {name!r} has no digest or no known kind")
            return
        path = self._path(digest, suffix)
        if path.is_file():
            os.utime(path)
            then(path)
            return
        self._waiting.setdefault(digest, []).append((suffix, then))
        if digest not in self._coming:
            self._coming[digest] = bytearray()
            self._ask(Fetch(digest, 0))

    def take(self, piece: Piece) -> None:
        """Take in a piece that was asked for."""
        data = self._coming.get(piece.sha256)
        if data is None or piece.offset != len(data):
            return
        data += piece.data
        error = piece.error
        if not error and (piece.size > MOST_CODE_BYTES or len(data) > piece.size):
            error = f"it has {max(piece.size, len(data))} bytes; at most {MOST_CODE_BYTES} are taken"
        if not error and len(data) < piece.size:
            if piece.data:
                self._ask(Fetch(piece.sha256, len(data)))
                return
            error = "a part of it is missing"
        if not error and sha256(data).hexdigest() != piece.sha256:
            error = "its digest is wrong"
        self._finish(piece.sha256, bytes(data), error)

    def reset(self) -> None:
        """Forget what is being fetched: the connection has ended, and with it whoever waited."""
        self._coming.clear()
        self._waiting.clear()

    def _finish(self, digest: str, data: bytes, error: str) -> None:
        del self._coming[digest]
        for suffix, then in self._waiting.pop(digest, []):
            path = self._path(digest, suffix)
            if not error:
                try:
                    draft = path.with_suffix(".draft")
                    draft.write_bytes(data)
                    draft.rename(path)
                except OSError as fault:
                    error = str(fault)
            then(f"its code could not be fetched: {error}" if error else path)
        self._prune()

    def _prune(self) -> None:
        kept = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in kept[_MOST_KEPT:]:
            remove(path)

    def _path(self, digest: str, suffix: str) -> Path:
        return self._folder / f"{digest}{suffix}"
