"""`fairlead stress` as people use it: what it prints, what it refuses, and that nothing outlives it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from emulated import children, emulated_node, has_cgroups, holders, is_alive, wait_until
from typer.testing import CliRunner

import fairlead
from fairlead.cli import app
from fairlead.stress import draw_schedule, parse_schedule

SOURCE = Path(fairlead.__file__).parents[1]


def run(*args):
    return CliRunner().invoke(app, ["stress", *args])


def test_a_drawn_schedule_is_printed_as_a_file_that_replays_it(tmp_path):
    args = ("--random", "--seed", "3", "--phases", "4", "--for", "10s", "--node", "w01", "--node", "w02")
    done = run(*args, "--dry-run")
    assert done.exit_code == 0
    assert parse_schedule(done.stdout, "x") == draw_schedule(("w01", "w02"), phases=4, seconds=10, seed=3)
    (tmp_path / "again.yaml").write_text(done.stdout)
    assert run("--schedule", str(tmp_path / "again.yaml"), "--dry-run").stdout == done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "one of --cpu SHARE, --schedule FILE and --random"),
        (("--cpu", "50%", "--random"), "one of --cpu SHARE, --schedule FILE and --random"),
        (("--cpu", "half"), "--cpu must be a share"),
        (("--cpu", "50%", "--for", "soon"), "--for must be a positive duration"),
        (("--cpu", "50%", "--burner", "pyton"), "Did you mean 'python'?"),
        (("--cpu", "50%", "--burner", "python", "--cache"), "presses on the CPU only"),
        (("--cpu", "50%", "--burner", "python", "--node", "nowhere"), "No node named 'nowhere'"),
        (("--cpu", "50%", "--burner", "python", "--cpus", "x"), "CPUs are written as"),
        (("--random", "--cache"), "go with --cpu"),
        (("--schedule", "no.yaml"), "no.yaml: cannot be read"),
        (("--schedule", "no.yaml", "--for", "3s"), "leave out --node and --for"),
        (("--cpu", "50%", "--node", "w01", "--node", "w01", "--dry-run"), "--node names 'w01' twice"),
        (("--cpu", "50%", "--seed", "0", "--dry-run"), "they go with --random"),
        (("--schedule", "no.yaml", "--phases", "2"), "they go with --random"),
    ],
    ids=[
        *("nothing", "two", "share", "time", "burner", "kind", "node", "cpus", "random-kind", "file", "file-and-time"),
        *("twice", "seed", "phases"),
    ],
)
def test_wrong_use_is_said(args, message):
    done = run(*args)
    assert done.exit_code in (1, 2)
    assert message in done.output


def test_an_absent_stress_ng_is_said(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    done = run("--cpu", "50%", "--for", "1s")
    assert done.exit_code == 1
    assert "apt-get install stress-ng" in done.output


def start(*args):
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", "stress", "--burner", "python", *args],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for line in process.stdout:
        if line.startswith("phase 1"):
            return process
    raise AssertionError(f"it ended with {process.wait()}")


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="interrupt", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, id="terminate", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, -9, id="kill"),
    ],
)
def test_nothing_is_left_however_it_is_ended(number, code):
    with start("--cpu", "20%", "--for", "60s") as process:
        below = children(process.pid)
        assert below
        process.send_signal(number)
        assert process.wait(60) == code
        assert wait_until(lambda: not any(map(is_alive, below)))
        assert wait_until(lambda: not holders(process.pid))


@pytest.mark.skipif(not has_cgroups(), reason="no control groups can be made here")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["terminate", "kill"])
def test_a_node_gets_its_part_back_however_it_is_ended(number):
    with emulated_node() as node:
        before = node.limits()
        args = ("--cpu", "50%", "--for", "60s", "--node", "mine", "--cgroup", str(node.place.cgroup))
        with start(*args) as process:
            assert node.limits() != before
            process.send_signal(number)
            process.wait(60)
            assert wait_until(lambda: node.limits() == before)
            assert wait_until(lambda: not holders(process.pid))


def test_it_ends_by_itself_when_its_time_is_over():
    began = time.monotonic()
    with start("--cpu", "10%", "--for", "0.5s", "--no-groups") as process:
        below = children(process.pid)
        assert process.wait(60) == 0
        assert time.monotonic() - began >= 0.5
        assert not any(map(is_alive, below))
