"""Runs that were done before, one small file each, found by what they depend on.

A key is the hash of scenario, load, policy, code and seed, so an entry never becomes wrong; it is only no longer
asked for. Whatever is not a whole entry of this key is taken for absent, and its run is done again.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec

from fairlead.league.figures import Outcome

FOLDER_VARIABLE = "FAIRLEAD_CACHE"
"""The environment variable that names the folder in which runs are kept."""

_WALL = "wall.json"


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a file. `of` says in words which run it is, for people who look into the folder."""

    key: str
    of: str
    outcome: Outcome


def default_folder() -> Path:
    """Where runs are kept unless told otherwise: `$FAIRLEAD_CACHE`, or `fairlead/league` in the user's cache folder."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fairlead" / "league"


class Cache:
    """The runs in one folder. None as the folder keeps nothing and finds nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def find(self, key: str, limit_s: float) -> Outcome | None:
        """The outcome of the run with this key; None if it must be done.

        A run that took too long is known to take longer than its limit, so it is found for this limit and lower ones.
        """
        if self.folder is None:
            return None
        try:
            entry = msgspec.json.decode(self._path(key).read_bytes(), type=_Entry)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        if entry.key != key:
            return None
        outcome = entry.outcome
        if outcome.status == "done":
            return outcome if outcome.figures is not None else None
        is_known = outcome.status == "too slow" and outcome.limit_s is not None and limit_s <= outcome.limit_s
        return outcome if is_known else None

    def keep(self, key: str, outcome: Outcome, of: str) -> None:
        """Store an outcome. Errors are not kept: their cause may lie outside of what the key covers."""
        if self.folder is not None and outcome.status != "error":
            _write(self._path(key), msgspec.json.encode(_Entry(key=key, of=of, outcome=outcome)))

    def wall_times(self) -> dict[str, float]:
        """Seconds that the runs of a cell took when they were last done, by a name of the cell. For planning only."""
        if self.folder is None:
            return {}
        try:
            return msgspec.json.decode((self.folder / _WALL).read_bytes(), type=dict[str, float])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return {}

    def keep_wall_times(self, seconds: Mapping[str, float]) -> None:
        """Store those of some cells beside those of others."""
        if self.folder is not None and seconds:
            _write(self.folder / _WALL, msgspec.json.encode({**self.wall_times(), **seconds}))

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / f"{key}.json"


def _write(path: Path, content: bytes) -> None:
    """Write a file so that whoever reads it finds all of it or nothing, whenever this process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".part", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.replace(file.name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(file.name)
            raise
