"""`fairlead train darly`: what it writes, what it refuses before any work, and how it ends early."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from run_cli import SOURCE
from typer.testing import CliRunner

from fairlead.cli import app
from fairlead.cli.progress import ShareProgress
from fairlead.policy.darly.checkpoint import read_checkpoint
from fairlead.policy.darly.features import NAMES


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRLEAD_TRACEBACK", raising=False)
    (tmp_path / "a-file").write_text("x", encoding="utf-8")
    return tmp_path


def train(*args: str):
    return CliRunner().invoke(app, ["train", "darly", *args])


def try_it(done, *args: str):
    """What the next command to try brings, with these arguments added."""
    command = next(line for line in done.stdout.splitlines() if line.startswith("Try it: "))
    words = command.removeprefix("Try it: fairlead ").split()
    served = CliRunner().invoke(app, [*words, *args, "--set", "duration_s=300", "--json", "-", "--quiet"])
    assert served.exit_code == 0, served.output
    return json.loads(served.stdout)["results"][0]


def test_training_writes_agent_curve_and_json_and_the_agent_serves(folder):
    done = train("--steps", "30", "--seed", "3", "--figures", "figures", "--json", "out.json")
    assert done.exit_code == 0, done.output
    assert "darly-fullmap meets" in done.stdout

    found = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert (found["policy"], found["steps"], found["is_interrupted"]) == ("darly-fullmap", 30, False)
    assert (found["schedule"], found["pressure_curves"], found["preset"]) == ("published", "logs", "published")
    scores = {score["name"]: score for score in found["scores"]}
    assert list(scores) == ["learning", "its last fifth", "served", "nothing moved"]
    assert [score["steps"] for score in found["scores"]] == [30, 6, 30, 30]
    assert scores["learning"]["met"] == pytest.approx(sum(found["is_met"]) / 30)
    assert scores["learning"]["reward"] == pytest.approx(sum(found["rewards"]) / 30)
    # Five phases of six steps, the first three with the looser objective: of the last six steps none is.
    assert scores["learning"]["met"] == pytest.approx(
        (18 * scores["learning"]["loose"] + 12 * scores["learning"]["strict"]) / 30
    )
    assert scores["its last fifth"]["loose"] is None
    assert scores["nothing moved"]["refused"] == 0

    description = read_checkpoint(folder / found["checkpoint"]).description
    assert (description.scheduler, description.seed, description.steps) == ("fullmap", 3, 30)
    assert description.nodes == ("w01", "w02", "w03", "w04")
    assert description.hidden == (256, 128, 64)

    assert (folder / "figures/learning.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert (folder / "figures/learning.svg").read_text(encoding="utf-8").startswith("<svg xmlns=")
    page = (folder / "figures/learning.html").read_text(encoding="utf-8")
    assert '<th scope="row">nothing moved</th>' in page
    assert "fairlead train darly --steps 30 --seed 3" in page
    assert try_it(done)["scaler"] == "darly-fullmap"


def test_an_agent_for_any_workflow_serves_in_the_same_way(folder):
    done = train("--scheduler", "any", "--episodes", "1", "--out", "mine.safetensors", "--json", "out.json")
    assert done.exit_code == 0, done.output
    found = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert (found["policy"], found["episodes"], found["steps"]) == ("darly-any", 1, 48)
    assert found["schedule"] is found["preset"] is found["pressure_curves"] is None
    description = read_checkpoint(folder / "mine.safetensors").description
    assert (description.scheduler, description.features) == ("any", NAMES)
    assert (description.groups, description.nodes) == ((), ())
    assert try_it(done)["scaler"] == "darly-any"


def test_the_same_seed_trains_the_same_agent(folder):
    for name in ("one", "two"):
        assert train("--steps", "20", "--out", f"{name}.safetensors", "--quiet").exit_code == 0
    one, two = (read_checkpoint(folder / f"{name}.safetensors").arrays for name in ("one", "two"))
    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_options_reach_the_agent(folder):
    args = ("--scheduler", "kubernetes", "--steps", "10", "--preset", "ours", "--pressure-curves", "chapter-4")
    done = train(*args, "--as-published", "--json", "-")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["schedule"], found["pressure_curves"], found["preset"]) == ("random", "chapter-4", "ours")
    description = read_checkpoint(folder / "agent.safetensors").description
    assert (description.scheduler, description.is_as_published) == ("kubernetes", True)
    assert description.hidden == (128, 64)
    assert description.actions == 4


def test_interrupt_ends_training_after_the_step_and_keeps_what_was_learnt(folder, monkeypatch):
    def reach(self: ShareProgress, share: float, doing: str = "") -> None:
        assert doing.endswith("met recently")
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ShareProgress, "reach", reach)
    before = signal.getsignal(signal.SIGINT)
    done = train("--steps", "50", "--json", "out.json")
    assert done.exit_code == 130, done.output
    found = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert (found["steps"], found["is_interrupted"]) == (10, True)
    assert read_checkpoint(folder / "agent.safetensors").description.steps == 10
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--scheduler", "sorcerer"), "--scheduler"),
        (("--steps", "0"), "'--steps': must be a whole number of at least 1; got '0'"),
        (("--steps", "many"), "'--steps': must be a whole number of at least 1; got 'many'"),
        (("--seed", "-1"), "'--seed': must be a whole number of at least 0; got '-1'"),
        (("--schedule", "quiet"), "--schedule"),
        (("--pressure-curves", "chapter-5"), "--pressure-curves"),
        (("--preset", "theirs"), "--preset"),
        (("--episodes", "3"), "--episodes is for --scheduler any; darly-fullmap learns by --steps"),
        (("--scheduler", "any", "--steps", "3"), "give --episodes"),
        (("--scheduler", "any", "--preset", "published"), "--preset is for the cluster of Darly"),
        (("--scheduler", "any", "--as-published"), "--as-published is for the cluster of Darly"),
        (("--scheduler", "any", "--schedule", "random"), "--schedule is for the cluster of Darly"),
        (("--out", "a-file/agent.safetensors"), "--out a-file/agent.safetensors: cannot be written"),
        (("--out", "."), "is a folder; a file is needed"),
        (("--out", "same", "--json", "same"), "--out and --json name the same file"),
        (("--figures", "a-file"), "is a file; a folder is needed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_use_is_said_in_one_line_before_any_work(folder, args, expected):
    done = train(*args, "--quiet")
    assert done.exit_code == 2, done.output
    assert expected in done.stderr
    assert "Traceback" not in done.output
    assert done.stdout == ""
    assert sorted(path.name for path in folder.iterdir()) == ["a-file"]


@pytest.mark.parametrize(
    ("module", "name"),
    [("torch", "PyTorch"), ("stable_baselines3", "Stable-Baselines3"), ("matplotlib", "matplotlib")],
)
def test_missing_extra_is_said_in_one_line(monkeypatch, module, name):
    monkeypatch.setitem(sys.modules, module, None)
    done = train("--steps", "10", "--figures", "figures")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"needs {name}. Install it with: pip install 'fairlead[learn]'." in done.stderr


def test_help_loads_nothing_of_the_extra(folder):
    code = (
        "import sys; from typer.testing import CliRunner; from fairlead.cli import app\n"
        "assert '--pressure-curves' in CliRunner().invoke(app, ['train', 'darly', '--help']).stdout\n"
        "sys.exit(' '.join({'torch', 'numba', 'matplotlib', 'safetensors', 'gymnasium'} & set(sys.modules)) or 0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
