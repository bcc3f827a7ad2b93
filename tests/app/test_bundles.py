"""Data files of an app: they go with its snapshot, and each version has its own."""

import shutil
import subprocess
import sys

import pytest

from fairlead.app.bundle import read_files
from fairlead.app.describe import take_snapshot
from fairlead.app.snapshot import keep_snapshot, prune_snapshots
from fairlead.errors import ConfigError

APP = """
from pathlib import Path
from fairlead.app import App

app = App("bundled", files=["weights/*.txt"])

@app.function
def weigh(value):
    return (Path(__file__).parent / "weights" / "own.txt").read_text()

app.workflow("weigh", weigh)
"""
LOAD = "import sys; from fairlead.app import load_app; print(load_app(sys.argv[1]).functions['weigh'](0))"


def folder_with(tmp_path, text: str):
    folder = tmp_path / "app"
    (folder / "weights").mkdir(parents=True)
    (folder / "weights" / "own.txt").write_text(text)
    (folder / "app.py").write_text(APP)
    return folder


def answer(snapshot) -> str:
    return subprocess.run([sys.executable, "-c", LOAD, snapshot], check=True, capture_output=True, text=True).stdout


def test_each_version_finds_its_own_files_where_the_apps_folder_is_gone(tmp_path):
    kept = []
    for text in ("one", "two"):
        folder = folder_with(tmp_path, text)
        kept.append(keep_snapshot(tmp_path / "kept", take_snapshot(folder / "app.py")))
        shutil.rmtree(folder)
    assert [answer(path).strip() for path in (*kept, *kept)] == ["one", "two", "one", "two"]
    prune_snapshots(tmp_path / "kept", kept[:1])
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == [kept[0].name, f"{kept[0].name}.files"]


def test_a_pattern_without_a_file_is_told(tmp_path):
    folder = folder_with(tmp_path, "one")
    shutil.rmtree(folder / "weights")
    with pytest.raises(ConfigError, match=r"nothing below the app's folder is called 'weights/\*\.txt'"):
        take_snapshot(folder / "app.py")


@pytest.mark.parametrize("pattern", ["/etc/hostname", "../other"])
def test_files_outside_the_apps_folder_are_refused(tmp_path, pattern):
    with pytest.raises(ValueError, match="must be below the app's folder"):
        read_files(tmp_path, [pattern])
