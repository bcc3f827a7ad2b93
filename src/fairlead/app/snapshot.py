"""Snapshots: an app as it was when it was deployed, in one file.

A snapshot holds the texts of the app's own modules, its manifest and its measured profile. Instances load it in place
of the app file, so that later edits are seen by the next deployment only, and a gateway that starts again serves what
its predecessor served.
"""

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from fairlead.app.bundle import SUFFIX as FILES
from fairlead.app.bundle import remove
from fairlead.app.manifest import Manifest
from fairlead.errors import ConfigError, Fault

SUFFIX = ".snapshot"


class Snapshot(msgspec.Struct, frozen=True):
    """An app as it was deployed.

    `path` is the app file, which need not exist any more; `app` is the name of the variable, where the address had
    one. `files` are texts by their path relative to the app's folder. `profile` is the text of the measured profile
    beside the app file, if there was one. `data` has the data files that the app names, by the same paths.
    `requirements` are the packages that it needs, as lines of a requirements file.
    """

    path: str
    app: str | None
    manifest: Manifest
    files: dict[str, str]
    profile: str | None = None
    data: dict[str, bytes] = {}
    requirements: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """The app as `fairlead serve` takes it: the file, and the variable where it was named."""
        return self.path if self.app is None else f"{self.path}:{self.app}"


def source_digest(files: Mapping[str, str]) -> str:
    """A digest of an app's own texts: another one if any of its modules was changed."""
    digest = sha256()
    for name, text in sorted(files.items()):
        digest.update(f"{len(name)}:{name}{len(text)}:{text}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def is_snapshot(path: Path) -> bool:
    """Whether a path names a snapshot, and not an app file."""
    return path.suffix == SUFFIX


def read_snapshot(path: Path) -> Snapshot:
    """The snapshot in a file. Raises `ConfigError`."""
    try:
        snapshot = msgspec.json.decode(path.read_bytes(), type=Snapshot)
    except OSError as error:
        raise ConfigError(str(path), [Fault("", f"cannot be read: {error.strerror or error}.")]) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), [Fault("", f"is not a snapshot that this version can read: {error}.")]) from None
    outside = [name for name in snapshot.data if Path(name).is_absolute() or ".." in Path(name).parts]
    if outside:
        raise ConfigError(str(path), [Fault("data", f"must be files below the app's folder; got {outside[0]!r}.")])
    return snapshot


def keep_snapshot(folder: Path, snapshot: Snapshot) -> Path:
    """Write a snapshot; it is on disk when this returns. Raises `OSError`.

    The file is named by its content: one that is there already, and sound, is the same.
    """
    data = msgspec.json.format(msgspec.json.encode(snapshot), indent=1)
    path = folder / f"{snapshot.manifest.name}-{sha256(data).hexdigest()[:16]}{SUFFIX}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != data:
        write_synced(path, data)
    return path


def write_synced(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; it and its name are on disk when this returns. Only its owner may read it."""
    draft = path.with_name(f"{path.name}.draft")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def prune_snapshots(folder: Path, used: Collection[Path]) -> None:
    """Delete the snapshots that are not used."""
    with suppress(OSError):
        for path in folder.iterdir():
            owner = path.with_name(path.name.removesuffix(FILES))
            if owner not in used and path.suffix in (SUFFIX, FILES, ".draft"):
                remove(path)
