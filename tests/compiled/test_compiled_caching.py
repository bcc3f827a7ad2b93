"""After `fairlead warmup` no process compiles anything, wherever the machine code is kept."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fairlead

SOURCE = Path(fairlead.__file__).parents[1]
USES_ALL = Path(__file__).with_name("run_cached.py")
LONGEST_S = 600  # all is compiled at most once in a test


def run(*arguments, source=SOURCE, **environment):
    """A Python process of its own, with what it printed; None leaves a variable out."""
    given = {**os.environ, "PYTHONPATH": str(source), **environment}
    given = {key: value for key, value in given.items() if value is not None}
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def warm_up(**kwargs):
    return run("-m", "fairlead", "warmup", **kwargs)


def check_nothing_is_compiled(**kwargs):
    found = json.loads(run(USES_ALL, **kwargs).splitlines()[-1])
    assert found["compiled"] == []
    assert found["misses"] == 0
    assert found["hits"] > 5
    return [Path(folder) for folder in found["folders"]]


def test_a_later_process_compiles_nothing():
    done = "Nothing to do: "
    assert warm_up().startswith(done) or warm_up().startswith(done)
    check_nothing_is_compiled()


@pytest.fixture
def installed(tmp_path):
    """The package as in an installation that its users cannot write to.

    A file where the folder of compiled code would be keeps out even those who may write anywhere.
    """
    library = tmp_path / "lib"
    shutil.copytree(SOURCE / "fairlead", library / "fairlead", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in {file.parent for file in library.rglob("*.py")}:
        (folder / "__pycache__").touch()
    _let_write(library, False)
    yield library
    _let_write(library, True)


def _let_write(folder, may_write):
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755 if may_write else 0o555)


@pytest.mark.slow
def test_nor_where_the_source_is_read_only_and_the_code_is_kept_elsewhere(installed, tmp_path):
    code = tmp_path / "code"
    where = {"source": installed, "NUMBA_CACHE_DIR": str(code)}
    before = sorted(installed.rglob("*"))
    assert f"kept in {code}.\n" in warm_up(**where)
    assert all(folder.is_relative_to(code) for folder in check_nothing_is_compiled(**where))
    assert warm_up(**where) == f"Nothing to do: all is compiled already, and kept in {code}.\n"
    assert sorted(installed.rglob("*")) == before


ONE_PART = """
from fairlead.cli.compiling import telling
from fairlead.cli.warmup import PARTS

with telling("", is_quiet=True) as told:
    PARTS[-1].make()
print(told.count)
"""


@pytest.mark.parametrize(
    "variable",
    [
        pytest.param("NUMBA_CACHE_DIR", id="chosen"),
        pytest.param("XDG_CACHE_HOME", id="user's", marks=pytest.mark.slow),
    ],
)
def test_one_part_is_kept_beside_a_read_only_source(installed, tmp_path, variable):
    # As above for the part that takes the least time, and for both folders that there are.
    where = {"source": installed, "NUMBA_CACHE_DIR": None, variable: str(tmp_path / "code")}
    before = sorted(installed.rglob("*"))
    assert int(run("-c", ONE_PART, **where)) > 0
    assert int(run("-c", ONE_PART, **where)) == 0
    assert list((tmp_path / "code").rglob("*.nbc"))
    assert sorted(installed.rglob("*")) == before


def test_where_nothing_can_be_written_the_message_says_what_to_set(installed, tmp_path):
    (tmp_path / "file").touch()
    given = {
        **os.environ,
        "PYTHONPATH": str(installed),
        "HOME": str(tmp_path / "file"),
        "XDG_CACHE_HOME": str(tmp_path / "file" / "cache"),
    }
    given.pop("NUMBA_CACHE_DIR", None)
    for words in (["warmup"], ["simulate", "quickstart", "--engine", "compiled"]):
        done = subprocess.run(
            [sys.executable, "-m", "fairlead", *words],
            cwd=tmp_path,
            env=given,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        assert "no folder in which machine code can be kept. Set NUMBA_CACHE_DIR" in done.stderr
        assert "Traceback" not in done.stderr
