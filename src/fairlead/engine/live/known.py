"""What a gateway leaves for the next one: which apps are served, from which snapshots, and the last generation.

Kept in `apps.json` and the folder `sources` of the state folder.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from fairlead.app.describe import take_snapshot
from fairlead.app.scenario import place_of_profile
from fairlead.app.snapshot import Snapshot, is_snapshot, keep_snapshot, prune_snapshots, read_snapshot, write_synced
from fairlead.errors import ConfigError, Fault

Log = Callable[[str], None]


class Source(msgspec.Struct, frozen=True):
    """Where a deployment comes from: a snapshot, and the file that it is kept in."""

    file: Path
    snapshot: Snapshot


class KnownApp(msgspec.Struct, frozen=True):
    """An app that is to be served: the name of its snapshot's file, and the address that it was made from."""

    snapshot: str
    address: str


class _Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    generation: int
    apps: dict[str, KnownApp]


class KnownApps:
    """The apps of a state folder."""

    def __init__(self, state: Path, log: Log, *, profiled: bool = True) -> None:
        self._profiled = profiled
        self._file = state / "apps.json"
        self._sources = state / "sources"
        self._numbers = state / "generation"
        self._log = log

    def read(self) -> tuple[int, Mapping[str, KnownApp] | None]:
        """The last generation, and the apps that were served when the state was last written; None if not known."""
        try:
            text = self._file.read_bytes()
            try:
                known = msgspec.json.decode(text, type=_Known)
                return known.generation, known.apps
            except msgspec.ValidationError:  # as earlier versions wrote it: an app file for each name
                paths = msgspec.json.decode(text, type=dict[str, str])
                return 0, {name: KnownApp("", path) for name, path in paths.items()}
        except FileNotFoundError:
            return 0, None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._log(f"what was served before is not known: {self._file}: {error}")
            return 0, None

    def last_generation(self) -> int:
        """The last generation that any gateway of this state folder began to start; 0 for none."""
        try:
            return int(self._numbers.read_text("ascii"))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            self._log(f"the last generation is not known: {self._numbers}: {error}")
            return 0

    def begin(self, generation: int) -> None:
        """Note, before anything of it is started, that a generation is taken: its instances may outlive this gateway.

        Without this note, a gateway that crashed while it deployed would have its keys given out again.
        """
        try:
            self._numbers.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_synced(self._numbers, b"%d" % generation)
        except OSError as error:  # a full disk must not keep an app from being served
            self._log(f"a restart may give out the generation {generation} again: {error}")

    def write(self, generation: int, apps: Mapping[str, KnownApp], in_use: Collection[Path]) -> None:
        """Leave word of these apps, and delete the snapshots that are neither named nor in use."""
        data = msgspec.json.format(msgspec.json.encode(_Known(generation, dict(apps))), indent=1)
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_synced(self._file, data)
        except OSError as error:  # a full disk must not keep an app from being served
            self._log(f"a restart will not know what is served now: {error}")
            return
        prune_snapshots(self._sources, {*in_use, *(self._sources / app.snapshot for app in apps.values())})

    def take(self, path: Path) -> Source:
        """A snapshot of an app file as it is now, on disk; a snapshot stands for itself. Raises ConfigError."""
        if is_snapshot(path):
            return Source(path, read_snapshot(path))
        snapshot = take_snapshot(path)
        return self.keep(with_profile(snapshot) if self._profiled else snapshot)

    def keep(self, snapshot: Snapshot) -> Source:
        """Bring a snapshot to disk. Raises ConfigError."""
        try:
            return Source(keep_snapshot(self._sources, snapshot), snapshot)
        except OSError as error:
            what = f"the snapshot of the app cannot be written: {error.strerror}."
            raise ConfigError(str(self._sources), [Fault("", what)]) from None

    def find(self, app: KnownApp) -> Source:
        """The source of an app that was served before: its snapshot, or, without one, the app file as it is now."""
        file = self._sources / app.snapshot
        try:
            if app.snapshot:
                return Source(file, read_snapshot(file))
        except ConfigError as error:
            self._log(f"{error} The app file is read again.")
        return self.take(Path(app.address))


def with_profile(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the measured profile that lies beside the app file, if there is one. Raises ConfigError."""
    beside = place_of_profile(snapshot.path)
    try:
        text = beside.read_text("utf-8", "replace") if beside.is_file() else None
    except OSError as error:
        raise ConfigError(str(beside), [Fault("", f"cannot be read: {error.strerror}.")]) from None
    return msgspec.structs.replace(snapshot, profile=text)
