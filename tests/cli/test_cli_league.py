"""`fairlead league` as people type it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from run_cli import SOURCE, run_cli
from typer.testing import CliRunner

from fairlead.cli import app

TINY = "extends: quickstart\nname: tiny\nduration_s: 2\nwarmup_s: 0.5\n"
TOUCHY = '''"""FIFO under another name."""

from dataclasses import dataclass

from fairlead.policy.fifo import Fifo


@dataclass
class Touchy(Fifo):
    """Does what FIFO does, until it is told to raise."""

    def decide(self, view):
        {line}
        yield from super().decide(view)
'''
APP = """from fairlead import App

app = App("small")


@app.function
def work(value):
    return value


app.workflow("only", work, slo="200ms")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAIRLEAD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tiny.yaml").write_text(TINY)
    return tmp_path


@pytest.fixture
def touchy(folder: Path) -> Path:
    """A policy of another package, registered by its entry point."""
    package = folder / "outside"
    described = package / "touchy-1.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: touchy\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[fairlead.policies]\ntouchy = touchy:Touchy\n")
    (package / "touchy.py").write_text(TOUCHY.format(line="pass"))
    return package / "touchy.py"


def invoke(*args: str):
    return CliRunner().invoke(app, ["league", *args])


def outside(touchy: Path, *args: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(SOURCE), str(touchy.parent)))
    return run_cli("league", "tiny.yaml", "--load", "1", "--jobs", "1", *args, cwd=touchy.parents[1], PYTHONPATH=path)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["quickstrt"], "Did you mean 'quickstart'"),
        (["quickstart", "-p", "orionn"], "Did you mean 'orion'"),
        (["quickstart", "-p", "knative"], "knative scales"),
        (["quickstart", "--load", "0"], "--load must be positive numbers"),
        (["quickstart", "--load", "-1"], "--load must be positive numbers"),
        (["quickstart", "--load", "half"], "got 'half'"),
        (["quickstart", "--load", ""], "--load must be positive numbers"),
        (["quickstart", "--load", "1,,2"], "--load must be positive numbers"),
        (["quickstart", "--limit-s", "0"], "--limit-s must be a positive number"),
        (["quickstart", "--seeds", "0"], "at least 1"),
        (["quickstart", "--jobs", "none"], "at least 1"),
        (["quickstart", "--full"], "leave out the names"),
        (["quickstart", "--cache", "x", "--no-cache"], "exclude each other"),
        (["quickstart", "--cache", "tiny.yaml"], "a folder is needed"),
        (["quickstart", "--report", "."], "a file is needed"),
        (["tiny.yaml", "./tiny.yaml"], "Several scenarios are named tiny"),
        (["no.yaml"], "no.yaml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_said_before_anything_runs(args, message, folder):
    done = invoke(*args)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert not list(folder.glob("cache/**/*.json"))


def test_a_league_shows_tables_and_writes_files(folder):
    args = ("tiny.yaml", "-p", "fifo", "-p", "earliest-deadline", "--load", "1,4", "--seeds", "2")
    done = invoke(*args, "--json", "out.json", "--report", "out.html", "--heatmap", "out.svg", "--jobs", "2")
    assert done.exit_code == 0, done.stderr
    assert "Standings" in done.stdout
    assert "8 runs were done, 0 were found" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if "│" in line or "─" in line)
    found = json.loads((folder / "out.json").read_text())
    assert found["runs"]["ran"] == 8
    assert [one["load"] for one in found["scenarios"][0]["loads"]] == [1.0, 4.0]
    assert found["scenarios"][0]["loads"][0]["duration_s"] == 2.0
    cells = {(one["policy"], one["load"]): one for one in found["cells"]}
    best = max(one["attainment"]["mean"] for key, one in cells.items() if key[1] == 4.0)
    for cell in cells.values():
        assert 0 <= cell["worst_attainment"]["mean"] <= cell["attainment"]["mean"] <= 1
        assert cell["decision_s"]["mean"] > 0
        assert cell["cost_usd"]["mean"] > 0
    fifo = cells["fifo", 4.0]
    assert fifo["regret"]["mean"] == pytest.approx(best - fifo["attainment"]["mean"])
    assert {one["policy"] for one in found["standings"]} == {"fifo", "earliest-deadline"}
    page = (folder / "out.html").read_text()
    assert "Standings" in page
    assert "fairlead league tiny.yaml --policy fifo" in page
    assert (folder / "out.svg").read_text().startswith('<svg xmlns="http://www.w3.org/2000/svg"')

    again = invoke(*args, "--json", "-", "--jobs", "1")
    alike = json.loads(again.stdout)
    assert alike["runs"] == {**found["runs"], "ran": 0, "found": 8}
    assert alike["cells"] == found["cells"]


def test_touching_a_policy_runs_that_policy_again_and_an_error_is_a_cell(touchy):
    args = ("-p", "fifo", "-p", "touchy", "--seeds", "1")
    first = outside(touchy, *args)
    assert first.returncode == 0, first.stderr
    assert "2 runs were done, 0 were found" in first.stdout
    touchy.write_text(TOUCHY.format(line="pass  # touched"))
    second = outside(touchy, *args)
    assert "1 runs were done, 1 were found" in second.stdout
    touchy.write_text(TOUCHY.format(line="raise ZeroDivisionError('nothing left')"))
    third = outside(touchy, *args)
    assert third.returncode == 1
    assert "1 runs were done, 1 were found" in third.stdout
    assert "touchy on tiny at load 1: PolicyError" in third.stderr
    assert "nothing left" in third.stderr


def test_a_policy_that_takes_too_long_is_shown_and_fails_the_league(touchy):
    touchy.write_text(TOUCHY.format(line="while True: pass"))
    done = outside(touchy, "-p", "fifo", "-p", "touchy", "--seeds", "1", "--limit-s", "3")
    assert done.returncode == 1
    assert "Too slow in 1 cell, counted as 0 %: touchy on tiny at load 1." in done.stderr
    assert "slow" in done.stdout


def test_an_app_is_told_which_policy_and_how_much_load(folder):
    (folder / "small.py").write_text(APP)
    done = invoke("small.py", "-p", "fifo", "-p", "fairlead", "--load", "0.25,8", "--seeds", "1", "--jobs", "1")
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "small.py is not measured, so its times are assumed" in text
    assert "in time up to load 0.25" in text
    assert "breaks at load 8. Next: fairlead serve small.py --policy" in text


def test_an_interrupt_ends_a_league_at_once(folder):
    words = ["-m", "fairlead", "league", "quickstart", "--jobs", "1", "--load", "1,3"]
    running = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    assert running.stderr.readline().startswith("League: ")
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=120)
    assert running.returncode == 130
    assert "Interrupted" in told
    assert "Traceback" not in told
