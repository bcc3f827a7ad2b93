"""What is said and kept when a run does not end well."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep

import failing_policies
import pytest
from run_cli import SOURCE
from typer.testing import CliRunner

from fairlead.cli import app, runs
from fairlead.report import read_run

SHORT = ("--set", "duration_s=4", "--set", "warmup_s=1")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRLEAD_TRACEBACK", raising=False)
    failing_policies.register(monkeypatch)
    return tmp_path


def invoke(*args: str):
    return CliRunner().invoke(app, args)


def test_raising_policy_keeps_its_records_and_says_where():
    done = invoke("simulate", "quickstart", *SHORT, "-p", "raising", "--out", "records")
    assert done.exit_code == 1
    assert "Policy 'raising' failed at 1." in done.stderr
    assert "ZeroDivisionError: no more capacity" in done.stderr
    assert "Traceback" not in done.stderr
    kept = read_run("records/failed-raising-seed-0")
    assert kept.requests.height > 10
    assert "records/failed-raising-seed-0" in done.stderr


def test_raising_policy_keeps_its_records_without_being_asked():
    done = invoke("simulate", "quickstart", *SHORT, "-p", "raising")
    assert done.exit_code == 1
    assert read_run("runs/failed-quickstart-raising-seed-0").policy == "raising"
    assert "runs/failed-quickstart-raising-seed-0" in done.stderr


def test_what_was_finished_before_a_failure_is_kept():
    done = invoke(
        *("simulate", "quickstart", *SHORT, "-p", "fifo", "-p", "raising", "--seeds", "2"),
        *("--json", "results.json", "--out", "records"),
    )
    assert done.exit_code == 1
    assert "2 of 4 runs were finished" in done.stderr
    assert [one["policy"] for one in json.loads(Path("results.json").read_text())["results"]] == ["fifo", "fifo"]
    assert invoke("report", "records", "--json", "-").stdout.count('"policy": "fifo"') == 2


def test_traceback_is_shown_when_it_is_asked_for(monkeypatch):
    monkeypatch.setenv("FAIRLEAD_TRACEBACK", "1")
    done = invoke("simulate", "quickstart", *SHORT, "-p", "raising")
    assert 'raise ZeroDivisionError("no more capacity' in done.stderr


def test_refused_actions_are_a_warning_with_the_first_reason():
    done = invoke("simulate", "quickstart", *SHORT, "-p", "clumsy", "--seeds", "2")
    assert done.exit_code == 0
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("Warning")]
    assert "clumsy" in warning
    assert "actions were refused; the first at 0" in warning
    assert "987654" in warning


def test_unforeseen_error_is_short_and_tells_how_to_see_more(monkeypatch):
    def fail(*args: object, **kwargs: object) -> None:
        raise KeyError("queue")

    monkeypatch.setattr(runs, "simulate", fail)
    done = invoke("simulate", "quickstart")
    assert done.exit_code == 1
    assert "KeyError: 'queue'" in done.stderr
    assert "FAIRLEAD_TRACEBACK=1" in done.stderr
    assert "Traceback" not in done.stderr


def test_policy_that_cannot_be_loaded_does_not_hide_the_others():
    done = invoke("policies")
    assert done.exit_code == 0
    assert "'missing' cannot be loaded" in done.stderr
    assert "earliest-deadline" in done.stdout


@contextmanager
def started(*args: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "fairlead", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_interrupt_keeps_what_was_finished(jobs):
    with started("simulate", "quickstart", *SHORT, "--seeds", "5000", "--jobs", jobs, "--out", "o") as process:
        while not list(Path("o").glob("*/run.json")):
            assert process.poll() is None, process.stderr.read()
            sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers hear it too
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "Interrupted: " in said
    assert "Traceback" not in said
    assert len(list(Path("o").glob("*/run.json"))) < 5000


def test_an_interrupt_that_somebody_swallows_is_heard_after_the_run(monkeypatch):
    real, seeds = runs.simulate, []

    def swallow(*args: object, **kwargs: object):
        seeds.append(kwargs["seed"])
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        return real(*args, **kwargs)

    monkeypatch.setattr(runs, "simulate", swallow)
    done = invoke("simulate", "quickstart", *SHORT, "--seeds", "3")
    assert (done.exit_code, seeds) == (130, [0])
    assert "Interrupted: 1 of 3 runs were finished" in done.stderr


def test_reader_that_leaves_early_is_no_failure_to_shout_about():
    with started("policies", "--json") as process:
        process.stdout.close()
        assert process.stderr.read() == ""
