"""`fairlead warmup`: what it reaches, and what it says. What it compiles is in `tests/compiled`."""

import subprocess
import sys
from pathlib import Path

import pytest
from numba import njit
from run_cli import SOURCE, run_cli
from typer.testing import CliRunner

from fairlead.cli import app
from fairlead.cli import warmup as command
from fairlead.cli.compiling import CompilingError, telling

KEEPS = ("cache=True", "@kept", "from fairlead.planning.search.compiled import compiled")
"""How a file says that the machine code of its functions is kept on disk."""


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").touch()
    chosen = tmp_path / "file" / "code"
    done = run_cli("warmup", cwd=tmp_path, NUMBA_CACHE_DIR=str(chosen))
    assert done.returncode == 1
    assert f"NUMBA_CACHE_DIR={chosen} cannot be written" in done.stderr
    assert "Set NUMBA_CACHE_DIR to a folder that can be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_module_that_keeps_machine_code_belongs_to_a_part():
    packages = tuple(part.package for part in command.PARTS)
    keeping = []
    for file in (SOURCE / "fairlead").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if file != Path(command.__file__) and any(sign in text for sign in KEEPS):
            keeping.append(".".join(file.relative_to(SOURCE).with_suffix("").parts))
    assert len(keeping) > 5
    assert [name for name in keeping if not name.startswith(packages)] == []


def test_each_part_is_named_while_it_is_compiled_and_with_its_time(monkeypatch):
    parts = (
        command.Part(name="one thing", package="one", make=lambda: twice(njit), takes="an hour"),
        command.Part(name="another", package="another", make=lambda: None),
    )
    monkeypatch.setattr(command, "PARTS", parts)
    monkeypatch.setattr(command, "_folder", lambda: Path("somewhere"))
    done = CliRunner().invoke(app, ["warmup"])
    assert done.exit_code == 0, done.output
    assert done.stderr == "Compiling one thing (once; an hour)...\n"
    first, last = done.stdout.splitlines()
    assert first.startswith("Compiled one thing in ")
    assert last.startswith("All is compiled, in ")
    assert last.endswith("kept in somewhere.")


def test_where_nothing_is_compiled_it_says_so(monkeypatch):
    monkeypatch.setattr(command, "PARTS", (command.Part(name="a thing", package="a", make=lambda: None),))
    monkeypatch.setattr(command, "_folder", lambda: Path("somewhere"))
    done = CliRunner().invoke(app, ["warmup"])
    assert done.output == "Nothing to do: all is compiled already, and kept in somewhere.\n"
    assert CliRunner().invoke(app, ["warmup", "--quiet"]).output == ""


# --- what is said while anything is compiled -------------------------------------------------------------------------


def twice(compiler):
    """Compile something, for two kinds of numbers."""
    plus_one = compiler(lambda x: x + 1)
    assert (plus_one(1), plus_one(1.5)) == (2, 2.5)


def test_who_compiles_is_told_once(capsys):
    with telling("Wait...") as told:
        assert capsys.readouterr().err == ""
        twice(njit)
    assert capsys.readouterr().err == "Wait...\n"
    assert told.count == 2


def test_who_compiles_nothing_or_is_quiet_is_told_nothing(capsys):
    with telling("Wait..."):
        pass
    with telling("Wait...", is_quiet=True):
        twice(njit)
    assert capsys.readouterr().err == ""


def test_a_full_disk_is_told_with_what_to_do():
    with pytest.raises(CompilingError, match=r"No space left on device.*Set NUMBA_CACHE_DIR"), telling("Wait..."):
        raise OSError(28, "No space left on device")


def test_any_other_error_stays_what_it_is():
    with pytest.raises(RuntimeError, match=r"^mine$"), telling("Wait..."):
        raise RuntimeError("mine")


def test_the_list_of_commands_does_not_load_numba(tmp_path):
    code = (
        "import sys; from typer.testing import CliRunner; from fairlead.cli import app; "
        "done = CliRunner().invoke(app, ['--help']); assert 'warmup' in done.stdout; sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=300, check=False).returncode == 0
