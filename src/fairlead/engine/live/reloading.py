"""Deploys an app again when one of its files changes: `fairlead serve --reload`."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from fairlead.app.scenario import place_of_profile
from fairlead.app.snapshot import Snapshot
from fairlead.errors import FairleadError

_LOOK_S = 0.5

Stamps = dict[Path, tuple[int, int] | None]


class Deploying(Protocol):
    """The part of the host that is used here."""

    def snapshots(self) -> tuple[Snapshot, ...]:
        """The apps as they are served."""
        ...

    async def deploy(self, path: Path, *, replace: bool = False) -> object:
        """Serve what a file has now, beside the present generation until it is ready."""
        ...


async def reload_on_change(host: Deploying, say: Callable[[str], None], look_s: float = _LOOK_S) -> None:
    """Watch the files of every app, for ever; a change that has settled for `look_s` is deployed.

    The old generation goes on until the new one is ready, and stays if the new one cannot start. Each version is tried
    once. Files are compared by size and time of modification.
    """
    tried: dict[str, Stamps] = {}
    seen: dict[str, Stamps] = {}
    while True:
        for snapshot in host.snapshots():
            address = snapshot.address
            now = await asyncio.to_thread(_stamps, watched(snapshot))
            former = tried[address] = {**now, **tried.get(address, {})}  # a module that is new is no change of its own
            has_settled = seen.get(address) == now
            seen[address] = now
            changed = sorted(path.name for path in now if now[path] != former[path])
            if changed and has_settled:
                say(f"{snapshot.manifest.name}: {', '.join(changed)} changed; deploying it again")
                tried[address] = now
                await _deploy(host, snapshot.manifest.name, Path(address), say)
        await asyncio.sleep(look_s)


def watched(snapshot: Snapshot) -> list[Path]:
    """The files of an app whose changes matter: its modules, its data files, and its profile."""
    app = Path(snapshot.path)
    return [
        *(app.parent / name for name in (*snapshot.files, *snapshot.data)),
        place_of_profile(app),
    ]


def _stamps(paths: Iterable[Path]) -> Stamps:
    found: Stamps = {}
    for path in paths:
        try:
            about = path.stat()
        except OSError:
            found[path] = None
        else:
            found[path] = (about.st_size, about.st_mtime_ns)
    return found


async def _deploy(host: Deploying, app: str, path: Path, say: Callable[[str], None]) -> None:
    try:
        await host.deploy(path, replace=True)
    except (FairleadError, OSError) as error:  # a full disk, too
        say(f"{app}: the new version cannot be served, so the former one still is: {error}")
    else:
        say(f"{app}: the new version is served")
