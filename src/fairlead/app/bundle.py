"""Data files that belong to an app: kept in its snapshot, and unpacked wherever an instance loads it.

The folder into which they are unpacked stands for the app's own, so `Path(__file__).parent / "weights.bin"` is found on
every node, and two versions of an app each have their own files.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

SUFFIX = ".files"
"""Ends the name of the folder beside a snapshot into which its files are unpacked."""

MOST_BYTES = 32 << 20
"""Size limit of an app's data files together: larger ones belong into shared storage."""


def read_files(folder: Path, patterns: Sequence[str]) -> dict[str, bytes]:
    """The files below a folder that match these patterns, by their relative path. Raises `ValueError`."""
    found: dict[str, bytes] = {}
    size = 0
    for pattern in patterns:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise ValueError(f"files must be below the app's folder; got {pattern!r}.")
        matches = [path for path in sorted(folder.glob(pattern)) if path.is_file()]
        if not matches:
            raise ValueError(f"files: nothing below the app's folder is called {pattern!r}.")
        for path in matches:
            name = path.relative_to(folder).as_posix()
            size += path.stat().st_size if name not in found else 0
            if size > MOST_BYTES:
                raise ValueError(f"files: together they must have at most {MOST_BYTES >> 20} MB.")
            found[name] = path.read_bytes()
    return found


def unpack(snapshot: Path, files: Mapping[str, bytes]) -> Path:
    """The folder with a snapshot's files, which is made on first use. Raises `OSError`."""
    folder = snapshot.with_name(f"{snapshot.name}{SUFFIX}").resolve()
    if folder.is_dir():
        return folder
    draft = Path(mkdtemp(prefix=f"{folder.name}.", suffix=".draft", dir=folder.parent))
    try:
        for name, data in files.items():
            path = draft / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        with suppress(OSError):  # another instance was quicker
            os.rename(draft, folder)
        return folder
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def remove(path: Path) -> None:
    """Delete a snapshot, or a folder of files beside one."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
