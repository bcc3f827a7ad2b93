"""Snapshots of apps: what was described is what instances load, whatever becomes of the files."""

import subprocess
import sys

import msgspec
import pytest

from fairlead.app.describe import take_snapshot
from fairlead.app.snapshot import Snapshot, keep_snapshot, prune_snapshots, read_snapshot
from fairlead.errors import ConfigError

APP = """
from pathlib import Path
import helper, package.inner
from fairlead.app import App

app = App("shop")


@app.function()
def which(x):
    import late
    data = Path(__file__).with_name("data.txt").read_text()
    return [helper.WORD, package.inner.WORD, late.WORD, data, Path(__file__).name, Path(helper.__file__).name]


@app.function()
def boom(x):
    return helper.boom()


app.workflow("which", which)
app.workflow("boom", boom)
"""

RUN = """
import sys, traceback
from fairlead.app import load_app
app = load_app(sys.argv[1])
try:
    print(*app.functions[sys.argv[2]](1))
except Exception:
    print(traceback.format_exc())
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "app"
    (folder / "package").mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    (folder / "helper.py").write_text("WORD = 'helper-1'\ndef boom():\n    raise ValueError('the first')\n")
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "inner.py").write_text("from .deep import WORD\n")
    (folder / "package" / "deep.py").write_text("WORD = 'inner-1'\n")
    (folder / "late.py").write_text("from later import WORD\n")
    (folder / "later.py").write_text("WORD = 'late-1'\n")
    (folder / "other.py").write_text("raise RuntimeError('nothing imports this')\n")
    (folder / "data.txt").write_text("data-1")
    return folder


def load(path, function="which") -> str:
    done = subprocess.run([sys.executable, "-c", RUN, str(path), function], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_snapshot_has_every_module_of_the_folder_that_the_app_imports(folder):
    snapshot = take_snapshot(folder / "app.py")
    assert sorted(snapshot.files) == [
        "app.py",
        "helper.py",
        "late.py",
        "later.py",
        "package/__init__.py",
        "package/deep.py",
        "package/inner.py",
    ]
    assert (snapshot.path, snapshot.app, snapshot.manifest.name) == (str(folder / "app.py"), None, "shop")
    assert snapshot.files["app.py"] == APP


def test_an_instance_sees_the_snapshot_after_every_file_was_edited(folder, tmp_path):
    path = keep_snapshot(tmp_path / "sources", take_snapshot(folder / "app.py"))
    for file in folder.rglob("*.py"):
        file.write_text("raise RuntimeError('edited')\n")
    assert load(path) == "helper-1 inner-1 late-1 data-1 app.py helper.py"


def test_an_instance_sees_the_snapshot_after_every_module_was_deleted_and_the_data_beside_the_app_is_as_it_is(
    folder, tmp_path
):
    path = keep_snapshot(tmp_path / "sources", take_snapshot(folder / "app.py"))
    for file in folder.rglob("*.py"):
        file.unlink()
    (folder / "package").rmdir()
    (folder / "data.txt").write_text("data-2")
    assert load(path) == "helper-1 inner-1 late-1 data-2 app.py helper.py"


def test_tracebacks_show_the_lines_that_ran(folder, tmp_path):
    path = keep_snapshot(tmp_path / "sources", take_snapshot(folder / "app.py"))
    (folder / "helper.py").write_text("# a line more\n# and another\n# and\n")
    shown = load(path, "boom")
    assert f"File \"{folder / 'helper.py'}\", line 3, in boom\n    raise ValueError('the first')" in shown


def test_a_module_in_a_folder_without_init_and_one_by_its_coding_are_kept(tmp_path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "word.py").write_bytes("# coding: latin-1\nWORD = 'gr\xfcn'\n".encode("latin-1"))
    (tmp_path / "app.py").write_text(
        "from plain.word import WORD\nfrom fairlead.app import App\napp = App('a')\n"
        "@app.function()\ndef f(x):\n    return [ascii(WORD)]\napp.workflow('f', f)\n"
    )
    path = keep_snapshot(tmp_path / "sources", take_snapshot(tmp_path / "app.py"))
    (tmp_path / "plain" / "word.py").unlink()
    (tmp_path / "plain").rmdir()
    assert load(path, "f") == r"'gr\xfcn'"


def test_installed_packages_in_the_folder_are_not_kept(tmp_path):
    installed = tmp_path / "env" / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "library.py").write_text("WORD = 1\n")
    (tmp_path / "app.py").write_text(
        f"import sys\nsys.path.insert(0, {str(installed)!r})\nimport library\nfrom fairlead.app import App\n"
        "app = App('a')\n@app.function()\ndef f(x):\n    return [library.WORD]\napp.workflow('f', f)\n"
    )
    snapshot = take_snapshot(tmp_path / "app.py")
    assert list(snapshot.files) == ["app.py"]
    assert load(keep_snapshot(tmp_path / "sources", snapshot), "f") == "1"


def test_one_of_several_apps_is_the_one_that_was_named(folder, tmp_path):
    (folder / "app.py").write_text(APP + "\nsecond = App('second')\n")
    snapshot = take_snapshot(f"{folder / 'app.py'}:app")
    assert (snapshot.app, snapshot.address) == ("app", f"{folder / 'app.py'}:app")
    assert "helper-1" in load(keep_snapshot(tmp_path / "sources", snapshot))


def test_equal_snapshots_are_one_file_and_those_not_in_use_are_deleted(folder, tmp_path):
    sources = tmp_path / "sources"
    first = keep_snapshot(sources, take_snapshot(folder / "app.py"))
    assert keep_snapshot(sources, take_snapshot(folder / "app.py")) == first
    (folder / "helper.py").write_text("WORD = 'helper-2'\n")
    second = keep_snapshot(sources, take_snapshot(folder / "app.py"))
    assert {path.stat().st_mode & 0o777 for path in sources.iterdir()} == {0o600}
    assert sources.stat().st_mode & 0o777 == 0o700
    prune_snapshots(sources, {second})
    assert list(sources.iterdir()) == [second]
    assert isinstance(read_snapshot(second), Snapshot)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"path": 1}', b'{"path": "\xff"}'])
def test_a_file_that_is_no_snapshot_is_refused_with_its_name(tmp_path, content):
    path = tmp_path / "app.snapshot"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"app\.snapshot: .*is not a snapshot that this version can read"):
        read_snapshot(path)


@pytest.mark.parametrize("name", ["../up", "/etc/up", "a/../../up"])
def test_a_snapshot_puts_no_file_outside_of_its_folder(folder, tmp_path, name):
    made = take_snapshot(folder / "app.py")
    kept = keep_snapshot(tmp_path / "sources", msgspec.structs.replace(made, data={name: b"x"}))
    with pytest.raises(ConfigError, match="must be files below the app's folder"):
        read_snapshot(kept)
