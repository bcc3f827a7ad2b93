"""`fairlead simulate --engine`: which engine runs, and that one cannot tell from the results."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead.cli import app
from fairlead.cli import simulate as module
from fairlead.cli.compiling import CompilingError
from fairlead.engine.sim.simulate import is_for_compiled
from fairlead.workload import load_scenario

SHORT = ("quickstart", "--set", "duration_s=8", "--set", "warmup_s=1")
MEASURED = ("decision_s", "run_wall_s", "engine")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def every_run_is_long(monkeypatch):
    """Long enough for `auto` to take the compiled engine."""
    monkeypatch.setattr(sys.modules["fairlead.engine.sim.simulate"], "_WORTH_COMPILING", 0)


def simulate(*args, code=0):
    result = CliRunner().invoke(app, ["simulate", *args])
    assert result.exit_code == code, result.output
    return result


def results(*args):
    return json.loads(simulate(*args, "--json", "-", "--quiet").stdout)["results"]


def without_measured(found):
    return [{key: value for key, value in one.items() if key not in MEASURED} for one in found]


def test_both_engines_give_the_same_results():
    policies = ("-p", "fifo", "-p", "least-loaded", "-p", "earliest-deadline", "--seeds", "2")
    python, compiled = (results(*SHORT, *policies, "--engine", engine) for engine in ("python", "compiled"))
    assert {one["engine"] for one in python} == {"python"}
    assert {one["engine"] for one in compiled} == {"compiled"}
    assert without_measured(python) == without_measured(compiled)


def test_and_the_same_records_to_the_byte(folder):
    for engine in ("python", "compiled"):
        simulate(*SHORT, "-p", "fifo", "--engine", engine, "--out", engine)
    tables = sorted(path.relative_to("python") for path in Path("python").rglob("*.parquet"))
    assert len(tables) == 3
    for table in tables:
        assert ("python" / table).read_bytes() == ("compiled" / table).read_bytes()


def test_results_do_not_depend_on_the_number_of_processes():
    alone = results(*SHORT, "-p", "fifo", "--seeds", "2", "--engine", "compiled")
    together = results(*SHORT, "-p", "fifo", "--seeds", "2", "--engine", "compiled", "--jobs", "2")
    assert without_measured(alone) == without_measured(together)
    assert {one["engine"] for one in together} == {"compiled"}


def test_without_a_choice_a_short_run_is_left_to_the_python_engine():
    (one,) = results(*SHORT, "-p", "fifo")
    assert one["engine"] == "python"
    assert "engine" not in simulate(*SHORT, "-p", "fifo").stdout


def test_a_run_is_long_from_200_000_invocations_on():
    # 36 requests a second of 4 invocations each
    for duration_s, is_long in ((1388, False), (1389, True)):
        scenario = load_scenario("quickstart", overrides={"duration_s": duration_s})
        assert is_for_compiled(scenario, "auto") is is_long
        assert is_for_compiled(scenario, "compiled")
        assert not is_for_compiled(scenario, "python")


@pytest.mark.usefixtures("every_run_is_long")
def test_without_a_choice_a_long_run_is_compiled_where_that_is_possible():
    found = results(*SHORT, "-p", "fifo", "-p", "fairlead")
    assert [one["engine"] for one in found] == ["compiled", "python"]


@pytest.mark.usefixtures("every_run_is_long")
def test_the_table_says_which_engine_it_was():
    printed = simulate(*SHORT, "-p", "fifo", "-p", "fairlead").stdout
    assert "Run by the compiled engine: fifo. The Python engine did: fairlead.\n" in printed
    assert "Run by the compiled engine.\n" in simulate(*SHORT, "-p", "fifo").stdout


@pytest.mark.usefixtures("every_run_is_long")
def test_where_machine_code_cannot_be_kept_only_who_insists_on_it_is_refused(monkeypatch):
    def load_engine(*, is_quiet):
        raise CompilingError("There is no folder. Set NUMBA_CACHE_DIR.")

    monkeypatch.setattr(module, "load_engine", load_engine)
    done = simulate(*SHORT, "-p", "fifo")
    assert "Warning: There is no folder. Set NUMBA_CACHE_DIR. Until then the Python engine" in done.stderr
    assert "compiled engine" not in done.stdout
    done = simulate(*SHORT, "-p", "fifo", "--engine", "compiled", code=1)
    assert done.stderr.startswith("Error: There is no folder. Set NUMBA_CACHE_DIR.")


def test_what_is_not_covered_is_refused_before_anything_runs():
    done = simulate(*SHORT, "-p", "fifo", "-p", "fairlead", "--engine", "compiled", "--json", "all.json", code=2)
    assert done.stderr.startswith("Error: The compiled engine does not cover quickstart: it has no rule for the policy")
    assert "--engine python" in done.stderr
    assert "Simulating" not in done.stderr
    assert "FAIRLEAD_TRACEBACK" not in done.stderr
    assert not Path("all.json").exists()


def test_an_engine_of_another_name_is_refused_with_the_names():
    done = simulate(*SHORT, "--engine", "fast", code=2)
    assert "'python', 'compiled', 'auto'" in done.stderr


def test_the_page_says_how_to_get_it_again():
    simulate(*SHORT, "-p", "fifo", "--engine", "compiled", "--report", "page.html")
    assert "--engine compiled" in Path("page.html").read_text(encoding="utf-8")


def test_the_compiled_engine_is_not_even_loaded_for_a_short_run(folder):
    code = (
        "import sys; from typer.testing import CliRunner; from fairlead.cli import app; "
        f"done = CliRunner().invoke(app, {['simulate', *SHORT, '-p', 'fifo']!r}); "
        "sys.exit(done.exit_code or 'numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0
