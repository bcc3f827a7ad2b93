"""`serve --reload`: a changed file is deployed, once, and a broken one leaves what is served."""

import asyncio
import os
from pathlib import Path

import pytest

from fairlead.app.manifest import Manifest
from fairlead.app.snapshot import Snapshot
from fairlead.engine.live.reloading import reload_on_change
from fairlead.errors import ConfigError, Fault


class Apps:
    """A host that notes what it is told to deploy."""

    def __init__(self, *names: str, folder: Path) -> None:
        self.folder, self.names = folder, names
        self.deployed: list[Path] = []
        self.fault: Exception | None = None
        self.looks = 0

    def snapshots(self) -> tuple[Snapshot, ...]:
        self.looks += 1
        manifest = Manifest(name="shop", functions=(), workflows=())
        return (Snapshot(str(self.folder / "app.py"), None, manifest, dict.fromkeys(self.names, "")),)

    async def deploy(self, path: Path, *, replace: bool = False) -> None:
        assert replace
        self.deployed.append(path)
        if self.fault is not None:
            raise self.fault


def change(path: Path, text: str) -> None:
    path.write_text(text)
    when = path.stat().st_mtime_ns + 1_000_000_000  # file systems may have coarse clocks
    os.utime(path, ns=(when, when))


def watch(host: Apps, *steps) -> list[str]:
    said: list[str] = []

    async def run() -> None:
        task = asyncio.create_task(reload_on_change(host, said.append, look_s=0.002))
        for step in (*steps, lambda: None):
            enough = host.looks + 4
            while host.looks < enough:
                await asyncio.sleep(0.001)
            step()
        task.cancel()

    asyncio.run(run())
    return said


def test_a_changed_module_is_deployed_once(tmp_path):
    for name in ("app.py", "lib.py", "other.py"):
        (tmp_path / name).write_text("")
    host = Apps("app.py", "lib.py", folder=tmp_path)
    said = watch(host, lambda: change(tmp_path / "other.py", "x = 1"), lambda: change(tmp_path / "lib.py", "x = 1"))
    assert host.deployed == [tmp_path / "app.py"]
    assert said == ["shop: lib.py changed; deploying it again", "shop: the new version is served"]


def test_a_new_profile_is_a_change(tmp_path):
    (tmp_path / "app.py").write_text("")
    host = Apps("app.py", folder=tmp_path)
    watch(host, lambda: change(tmp_path / "app.profile.json", "{}"))
    assert len(host.deployed) == 1


def test_a_module_that_joins_with_a_deployment_is_no_further_change(tmp_path):
    (tmp_path / "app.py").write_text("")
    host = Apps("app.py", folder=tmp_path)

    def import_more() -> None:
        (tmp_path / "new.py").write_text("")
        change(tmp_path / "app.py", "import new")
        host.names = ("app.py", "new.py")

    watch(host, import_more, lambda: None)
    assert len(host.deployed) == 1


@pytest.mark.parametrize(
    "fault",
    [ConfigError("app.py", [Fault("line 1", "is no Python.")]), OSError(28, "No space left on device")],
    ids=["app", "disk"],
)
def test_a_version_that_cannot_start_is_tried_once_and_the_next_one_again(tmp_path, fault):
    (tmp_path / "app.py").write_text("")
    host = Apps("app.py", folder=tmp_path)
    host.fault = fault

    def mend() -> None:
        assert len(host.deployed) == 1
        host.fault = None
        change(tmp_path / "app.py", "x = 1")

    said = watch(host, lambda: change(tmp_path / "app.py", "("), lambda: None, mend, lambda: None)
    assert len(host.deployed) == 2
    assert "the former one still is" in said[1]
    assert said[-1] == "shop: the new version is served"
