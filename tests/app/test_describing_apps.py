"""Describing an app in a process of its own: nothing a file does reaches whoever asks."""

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from fairlead.app import Manifest, load_app
from fairlead.app.describe import describe
from fairlead.errors import ConfigError

APP = """
import os, sys
from fairlead.app import App

print("hello from the app")
os.write(1, b"and from below Python\\n")
app = App("shop")


@app.function(batch=4, setup=lambda: 1 / 0)
def many(model, xs):
    return xs


app.workflow("w", many, slo="800ms", example=b"\\x00")
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "app.py"
        path.write_text(text)
        return path

    return write


def test_the_manifest_is_that_of_the_app_whatever_the_file_prints(write):
    before = set(sys.modules)  # other tests may have loaded apps
    manifest = describe(write(APP))
    assert manifest.name == "shop"
    assert manifest.functions[0].batch == (1, 2, 4)
    assert (manifest.workflows[0].slo_s, manifest.workflows[0].example) == (0.8, b"\xc4\x01\x00")
    assert not any(name == "shop" or name.startswith("fairlead_app_") for name in set(sys.modules) - before)


def test_the_command_prints_json_only(write):
    path = write(APP)
    done = subprocess.run(
        [sys.executable, "-m", "fairlead.app.describe", str(path)], capture_output=True, timeout=300, check=True
    )
    assert msgspec.json.decode(done.stdout, type=Manifest) == describe(path)
    assert b"hello from the app" in done.stderr


def test_the_command_explains_faults_and_wrong_use(write):
    command = [sys.executable, "-m", "fairlead.app.describe"]
    wrong = subprocess.run([*command, str(write("1 / 0\n"))], capture_output=True, timeout=300, check=False)
    assert (wrong.returncode, wrong.stdout) == (1, b"")
    assert b"app.py: line 1: ZeroDivisionError" in wrong.stderr
    assert subprocess.run(command, capture_output=True, timeout=300, check=False).returncode == 2


def test_faults_of_the_file_come_back_as_they_are(write):
    path = write("x = 1\n1 / 0\n")
    with pytest.raises(ConfigError) as caught:
        describe(path)
    assert str(caught.value) == f"{path}: line 2: ZeroDivisionError: division by zero"


def test_an_app_without_a_workflow_is_refused(write):
    with pytest.raises(ConfigError, match="the app 'x' has no workflow; declare one"):
        describe(write("from fairlead import App\napp = App('x')\n"))


def test_a_file_that_ends_its_process_hard_is_reported_with_its_last_words(write):
    with pytest.raises(ConfigError, match=r"(?s)ended with 7\. It printed last:\nlast words"):
        describe(write("import os\nos.write(2, b'last words')\nos._exit(7)\n"))
    with pytest.raises(ConfigError, match="ended by SIGKILL"):
        describe(write("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"))


def test_a_file_that_hangs_is_ended_with_all_that_it_started(write, tmp_path):
    note = tmp_path / "pid"
    text = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    for limit_s in (3, 10, 60):  # on a busy machine the file may not have come to its child by then
        with pytest.raises(ConfigError, match=f"took more than {limit_s} s to be described; move slow work into setup"):
            describe(write(text), timeout_s=limit_s)
        if note.exists():
            break
    _wait_until_gone(int(note.read_text()))


def test_threads_and_processes_that_a_file_leaves_behind_do_not_keep_the_answer(write, tmp_path):
    note = tmp_path / "pid"
    text = (
        "import subprocess, sys, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
    )
    assert describe(write(text + APP), timeout_s=60).name == "shop"
    _wait_until_gone(int(note.read_text()))


def test_neither_the_library_nor_a_file_in_the_working_folder_gets_in_the_way(write, tmp_path, monkeypatch):
    (tmp_path / "msgspec.py").write_text("raise RuntimeError('the wrong one')\n")
    monkeypatch.chdir(tmp_path)
    assert describe("app.py" if write(APP) else "").name == "shop"


def test_an_instance_loads_nothing_heavy():
    heavy = ["polars", "numpy", "yaml", "rich", "typer", "fairlead.model", "fairlead.workload"]
    code = f"import sys, fairlead.app; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300, check=True)
    assert done.stdout.strip() == b"[]"


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("fairlead.app.scenario, fairlead.app.describe, fairlead.app.dsl", "polars rich typer"),
        ("fairlead.engine.live.process", "polars rich typer"),
        ("fairlead.cli.serve, fairlead.cli.agent, fairlead.cli.load", "polars"),
    ],
    ids=["for-an-app", "gateway", "commands"],
)
def test_who_serves_or_sends_loads_no_table_library(modules, heavy):
    code = f"import sys, {modules}; print([name for name in {heavy.split()} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300, check=True)
    assert done.stdout.strip() == b"[]"


def test_load_app_gives_the_same_manifest(write):
    path = write(APP)
    before = list(sys.path)
    try:
        assert load_app(path).manifest() == describe(path)
    finally:
        sys.path[:] = before
        sys.modules.pop("fairlead_app_app", None)


def _wait_until_gone(pid, timeout_s=60.0):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        state = Path(f"/proc/{pid}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            return  # ended; nobody has asked after it yet
        time.sleep(0.05)
    raise AssertionError(f"process {pid} is still there")
