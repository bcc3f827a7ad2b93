"""`fairlead train simppo`: what it writes, what it refuses before any work, and how it ends early."""

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
from fairlead.policy.simppo.checkpoint import Checkpoint, Description, Trained, read_checkpoint, write_checkpoint
from fairlead.policy.simppo.observation import Encoding

TINY = ("--functions", "2", "--episodes", "2", "--periods", "5")

ON_GPUS = """
name: on-gpus
duration_s: 10
cluster: {nodes: [{name: n, vcpus: 8, vgpus: 4}]}
functions:
  detect:
    latency: {table: [{batch: 1, vcpus: 1, vgpus: 1, seconds: 0.1}]}
workflows: {main: {stages: {detect: []}, slo: {latency_s: 1}}}
arrivals: [{workflow: main, process: poisson, rate_rps: 1}]
"""

CHAIN = """
name: pair
duration_s: 10
cluster: {nodes: [{name: n, vcpus: 8}]}
functions:
  first: {latency: {law: {t1_s: 0.1, fixed: 0.0, gamma: 1}}}
  second: {latency: {law: {t1_s: 0.1, fixed: 0.0, gamma: 1}}}
workflows: {main: {stages: {first: [], second: [first]}, slo: {latency_s: 1}}}
arrivals: [{workflow: main, process: deterministic, interval_s: 1}]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRLEAD_TRACEBACK", raising=False)
    (tmp_path / "on-gpus.yaml").write_text(ON_GPUS, encoding="utf-8")
    (tmp_path / "pair.yaml").write_text(CHAIN, encoding="utf-8")
    return tmp_path


def train(*args: str):
    return CliRunner().invoke(app, ["train", "simppo", *args])


def agents(path: Path, encoding: Encoding, *, hidden: int = 64, is_shared: bool = False) -> Path:
    """A file of two agents that were never trained."""
    widths, arrays = (encoding.size, hidden, hidden), {}
    for network, outputs in (("actor", 7), ("critic", 1)):
        for i, (inputs, units) in enumerate(zip(widths, (*widths[1:], outputs), strict=True)):
            count = 1 if is_shared else 2
            arrays[f"{network}.{i}.weight"] = np.zeros((count, inputs, units), np.float32)
            arrays[f"{network}.{i}.bias"] = np.zeros((count, units), np.float32)
    trained = tuple(
        Trained(function=name, time_s=0.1, slo_s=1.0, reward=0.5, reward_deviation=0.1) for name in ("a", "b")
    )
    description = Description(
        own=encoding.own,
        others=encoding.others,
        slots=encoding.slots,
        is_workflow_aware=encoding.is_workflow_aware,
        actions=7,
        activation="relu",
        is_shared=is_shared,
        slo_weight=0.7,
        period_s=10.0,
        most_replicas=20,
        preset="modern",
        scenario="two",
        seed=0,
        episodes=1,
        agents=trained,
    )
    write_checkpoint(Checkpoint(description=description, arrays=arrays), path)
    return path


def test_training_writes_agents_curve_and_json_and_the_agents_serve(folder):
    done = train(*TINY, "--seed", "3", "--figures", "figures", "--json", "out.json")
    assert done.exit_code == 0, done.output
    assert "2 agents have a reward of" in done.stdout
    assert "--scaler simppo --set scaler.checkpoint=agents.safetensors" in done.stdout

    found = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert (found["episodes"], found["steps"], found["is_steady"], found["is_interrupted"]) == (2, 10, False, False)
    assert list(found["by_function"]) == ["base64", "primes"]
    assert len(found["curve"]) == 2
    assert found["reward"] == pytest.approx(sum(found["curve"]) / 2)
    assert found["reward"] == pytest.approx(sum(one["reward"] for one in found["by_function"].values()) / 2)
    for one in found["by_function"].values():
        assert 0 <= one["slo_preservation"] <= 1
        assert 0 <= one["utilisation"] <= 1
    assert min(found["environment_steps_per_s"], found["learner_steps_per_s"], found["seconds"]) > 0

    description = read_checkpoint(folder / found["checkpoint"]).description
    assert [agent.function for agent in description.agents] == ["base64", "primes"]
    assert (description.seed, description.episodes, description.preset) == (3, 2, "modern")

    assert (folder / "figures/learning.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert (folder / "figures/learning.svg").read_text(encoding="utf-8").startswith("<svg xmlns=")
    page = (folder / "figures/learning.html").read_text(encoding="utf-8")
    assert '<th scope="row">primes</th>' in page
    assert f"<td>{found['by_function']['primes']['reward']:.3f}</td>" in page
    assert "fairlead train simppo --functions 2 --episodes 2 --periods 5 --seed 3" in page
    assert "http" not in page.replace("http-endpoint", "").replace("http-equiv", "")  # nothing is fetched

    command = next(line for line in done.stdout.splitlines() if line.startswith("Try it: "))
    words = command.removeprefix("Try it: fairlead ").split()
    served = CliRunner().invoke(app, [*words, "--set", "duration_s=30", "--json", "-", "--quiet"])
    assert served.exit_code == 0, served.output
    assert json.loads(served.stdout)["results"][0]["scaler"] == "simppo"


def test_training_goes_on_from_a_file_with_what_its_agents_see(folder):
    agents(folder / "first.safetensors", Encoding(own="six", others="none"), is_shared=True)
    done = train(*TINY, "--from", "first.safetensors", "--out", "second.safetensors", "--quiet")
    assert (done.exit_code, done.stdout) == (0, "")
    first, second = (read_checkpoint(folder / f"{name}.safetensors") for name in ("first", "second"))
    assert second.description.encoding == first.description.encoding
    assert second.description.is_shared
    assert [agent.function for agent in second.description.agents] == ["base64", "primes"]


def test_the_paper_preset_is_unmasked_and_named_in_the_file(folder):
    done = train(*TINY, "--preset", "paper", "--json", "-")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["preset"] == "paper"
    checkpoint = read_checkpoint(folder / "agents.safetensors")
    assert checkpoint.description.preset == "paper"
    assert "returns.mean" not in checkpoint.arrays  # values are not normalised there


def test_interrupt_ends_training_after_the_update_and_keeps_what_was_learnt(folder, monkeypatch):
    def reach(self: ShareProgress, share: float, doing: str = "") -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ShareProgress, "reach", reach)
    before = signal.getsignal(signal.SIGINT)
    done = train("--functions", "1", "--episodes", "1000", "--periods", "500", "--json", "out.json")
    assert done.exit_code == 130, done.output
    found = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert (found["steps"], found["is_interrupted"], found["is_steady"]) == (1000, True, False)  # one rollout
    assert 2 <= found["episodes"] < 1000
    assert read_checkpoint(folder / "agents.safetensors").description.episodes == found["episodes"]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("simppo-112",), "Did you mean 'simppo-12'?"),
        (("nowhere.yaml",), "there is no such file"),
        (("on-gpus.yaml",), "function detect runs only on GPUs"),
        (("pair.yaml", "--apart"), "no workflow uses first alone"),
        (("pair.yaml",), "workflow main has Deterministic"),
        (("pair.yaml", "--functions", "3"), "leave one of them out"),
        (("--episodes", "-1"), "'--episodes': must be a whole number of at least 1; got '-1'"),
        (("--periods", "0"), "'--periods': must be a whole number of at least 1; got '0'"),
        (("--slo-weight", "1.5"), "--slo-weight"),
        (("--others", "some"), "--others"),
        (("--out", "pair.yaml/agents.safetensors"), "--out pair.yaml/agents.safetensors: cannot be written"),
        (("--out", "."), "is a folder; a file is needed"),
        (("--figures", "pair.yaml"), "is a file; a folder is needed"),
        (("--from", "nowhere.safetensors"), "nowhere.safetensors: cannot be read"),
        (("--from", "pair.yaml"), "pair.yaml: is not a safetensors file"),
        (("--from", "cut.safetensors"), "cut.safetensors: is not a safetensors file, or is cut off"),
        (("--from", "six.safetensors", "--own", "seven"), "its agents see six of their own and none of the others"),
        (("--from", "six.safetensors", "--workflow-aware"), "cannot see six of their own and none of the others, work"),
        (("--from", "six.safetensors", "--shared"), "its agents have a network each"),
        (("--from", "small.safetensors"), "its networks have hidden layers (8, 8) with relu"),
        (("--from", "few.safetensors"), "its agents see at most 1 others one by one"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_use_is_said_in_one_line_before_any_work(folder, args, expected):
    six = agents(folder / "six.safetensors", Encoding(own="six", others="none"))
    (folder / "cut.safetensors").write_bytes(six.read_bytes()[:-100])
    agents(folder / "small.safetensors", Encoding(), hidden=8)
    agents(folder / "few.safetensors", Encoding(others="concat", slots=1))
    done = train(*args, "--quiet")
    assert done.exit_code == 2, done.output
    assert expected in done.stderr
    assert "Traceback" not in done.output
    assert done.stdout == ""
    assert done.stderr.count("Error: ") == 1
    assert not (folder / "agents.safetensors").exists()


@pytest.mark.parametrize(("module", "name"), [("torch", "PyTorch"), ("matplotlib", "matplotlib")])
def test_missing_extra_is_said_in_one_line(monkeypatch, module, name):
    monkeypatch.setitem(sys.modules, module, None)
    done = train(*TINY, "--figures", "figures")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"needs {name}. Install it with: pip install 'fairlead[learn]'." in done.stderr


def test_the_group_alone_says_what_can_be_trained():
    done = CliRunner().invoke(app, ["train"])
    assert "simppo" in done.output
    assert "Train agents that scale functions" in done.output


def test_help_loads_nothing_of_the_extra(folder):
    code = (
        "import sys; from typer.testing import CliRunner; from fairlead.cli import app\n"
        "assert 'SCENARIO' in CliRunner().invoke(app, ['train', 'simppo', '--help']).stdout\n"
        "sys.exit(' '.join({'torch', 'numba', 'matplotlib', 'safetensors'} & set(sys.modules)) or 0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
