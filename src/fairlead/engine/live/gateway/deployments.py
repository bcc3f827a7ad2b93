"""Changes to what is served: deploy uploaded code, remove, scale, move. What the host refuses becomes an answer."""

import asyncio
import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.app.describe import describe
from fairlead.app.manifest import Manifest
from fairlead.app.snapshot import write_synced
from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.journal import JournalFullError
from fairlead.errors import DuplicateNameError, FairleadError, UnknownNameError

if TYPE_CHECKING:
    from fairlead.engine.live.gateway.app import Gateway

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")


def find_app(gateway: "Gateway", name: str) -> Manifest:
    """The app of that name, or 404."""
    manifests = gateway.host.manifests()
    for manifest in manifests:
        if manifest.name == name:
            return manifest
    error = UnknownNameError("app", name[:200], [manifest.name for manifest in manifests])
    raise Problem(404, "unknown_app", str(error))


def require_function(manifest: Manifest, name: str) -> None:
    """404 unless the app has that function."""
    known = [function.name for function in manifest.functions]
    if name not in known:
        raise Problem(404, "unknown_function", str(UnknownNameError("function", name[:200], known)))


def require_upload(gateway: "Gateway") -> None:
    """403 unless apps may be deployed and removed."""
    if not (gateway.settings.allow_deploy and gateway.settings.token):
        found = "Deploying and removing apps is off: it needs a token and 'fairlead serve --allow-deploy'."
        raise Problem(403, "deploy_off", found)


async def deploy(gateway: "Gateway", name: str, source: str, *, replace: bool) -> Manifest:
    """Deploy the text as an app of that name: kept in the state folder, described, then started.

    Deployments go one after another: each needs the machine, and two of one app would race.
    """
    require_upload(gateway)
    gateway.intake.require_running()
    if NAME.fullmatch(name) is None:
        message = f"An app's name has letters, digits, '-' and '_', and begins with a letter; got {name[:80]!r}."
        raise Problem(422, "invalid_app", message)
    async with gateway.deploying:
        if not replace and any(manifest.name == name for manifest in gateway.host.manifests()):
            raise Problem(409, "app_exists", f"There is already an app {name!r}: replace it with PUT /v1/apps/{name}.")
        folder = gateway.settings.state / "apps"
        try:
            path, is_new = await asyncio.to_thread(_store, folder, name, source)
        except OSError as error:
            raise Problem(
                507, "disk_full", f"The source cannot be kept: {error.strerror}.", retry_after_s=1.0
            ) from None
        try:
            described = await asyncio.to_thread(describe, path)
            if described.name != name:
                message = f"The source declares the app {described.name!r}; {name!r} was asked for."
                raise Problem(422, "invalid_app", message)
            manifest = await gateway.host.deploy(path, replace=replace)
        except BaseException as error:
            if is_new:
                path.unlink(missing_ok=True)
            if isinstance(error, DuplicateNameError):
                raise Problem(409, "app_exists", str(error)) from None
            if isinstance(error, FairleadError):
                message = str(error).replace(str(path), f"{name}.py")
                raise Problem(422, "invalid_app", message) from None
            raise
        await asyncio.to_thread(_forget, folder, name, path)
        gateway.intake.refresh()
        gateway.runner.deployed(name)
        return manifest


async def remove(gateway: "Gateway", name: str) -> None:
    """Remove an app, forget its names, and end the asynchronous requests that still wait for it."""
    async with gateway.deploying:
        try:
            await gateway.host.remove(name)
        except UnknownNameError as error:
            if not gateway.runner.waits_for(name):
                raise Problem(404, "unknown_app", str(error)) from None
        finally:
            gateway.intake.refresh()
        await asyncio.to_thread(_forget, gateway.settings.state / "apps", name, None)
        try:
            await gateway.runner.removed(name)
        except JournalFullError as error:
            message = f"The app {name!r} is removed, but requests that wait for it cannot be ended: {error}"
            raise Problem(507, "journal_full", message, retry_after_s=error.retry_after_s) from None


def scale_function(gateway: "Gateway", app: str, name: str, instances: int | None) -> None:
    """Scale, with the host's refusal as an answer."""
    try:
        gateway.host.scale(app, name, instances)
    except UnknownNameError as error:
        raise Problem(404, "unknown_function", str(error)) from None
    except (FairleadError, ValueError) as error:
        raise Problem(409, "not_scaled", str(error)) from None


def move_function(gateway: "Gateway", app: str, name: str, node: str) -> None:
    """Move, with the host's refusal as an answer."""
    try:
        gateway.host.move(app, name, node)
    except UnknownNameError as error:
        raise Problem(404, "unknown_node", str(error)) from None


def _store(folder: Path, name: str, source: str) -> tuple[Path, bool]:
    """Bring a text to disk; its file, and whether that is new. Named by content: a former text is left as it is."""
    data = source.encode()
    path = folder / f"{name}-{sha256(data).hexdigest()[:16]}.py"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.read_bytes() == data:
        return path, False
    write_synced(path, data)
    return path, True


def _forget(folder: Path, name: str, current: Path | None) -> None:
    """Delete the former texts of an app: instances that still run have snapshots of them."""
    mine = re.compile(re.escape(name) + r"-[0-9a-f]{16}\.py")
    for path in folder.iterdir() if folder.is_dir() else ():
        if mine.fullmatch(path.name) and path != current:
            path.unlink(missing_ok=True)
