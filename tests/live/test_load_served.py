"""`fairlead load` on what `fairlead serve` serves: it finds the workflow, its example, and what is refused."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

APP = """
from time import sleep
from fairlead.app import App

app = App("site")
app.node("one", vcpus=1)


@app.function
def double(number):
    sleep(0.01)
    return 2 * number


@app.function
def fail(value):
    raise ValueError("never")


app.workflow("double", double, example=21)
app.workflow("fail", fail)
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "app.py").write_text(APP)
    environment = {key: value for key, value in os.environ.items() if key != "FAIRLEAD_TOKEN"}
    command = [sys.executable, "-m", "fairlead", "serve", str(folder / "app.py"), "--port", "0"]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [*command, "--state", str(folder / "state")], stdout=out, stderr=err, env=environment, cwd=folder
        )
    try:
        yield _address(process, folder)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], folder: Path) -> str:
    limit = monotonic() + 60
    while monotonic() < limit and process.poll() is None:
        for line in (folder / "out").read_text().splitlines():
            if line.startswith("Serving"):
                return line.split()[-1]
        sleep(0.05)
    raise AssertionError((folder / "err").read_text())


def load(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "FAIRLEAD_TOKEN"}
    command = [sys.executable, "-m", "fairlead", "load", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


def loaded(*arguments: str) -> dict[str, object]:
    done = load(*arguments, "--json", "-", "-q")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_the_example_of_the_app_is_sent(gateway):
    result = loaded(gateway, "--workflow", "double", "--rate", "20", "--arrivals", "even", "--duration", "500ms")
    assert (result["answered"], result["errors"]) == (10, {})
    assert result["url"] == f"{gateway}/v1/workflows/site.double"


def test_an_input_of_ones_own_is_sent(gateway):
    """Null cannot be doubled."""
    result = loaded(gateway, "--workflow", "site.double", "--input", "null", "--rate", "10", "--duration", "500ms")
    assert result["answered"] == 0
    assert set(result["errors"]) == {"502"}


def test_one_of_several_workflows_has_to_be_named(gateway):
    done = load(gateway, "--rate", "1")
    assert done.returncode == 2
    assert "site.double, site.fail" in done.stderr


def test_a_workflow_that_is_not_served_is_said_with_those_that_are(gateway):
    done = load(gateway, "--workflow", "duble", "--rate", "1")
    assert done.returncode == 2
    assert "site.double" in done.stderr


def test_a_deadline_that_cannot_be_met_is_refused_in_time(gateway):
    """A run takes 10 ms, so 400 a second are four times what one instance can do."""
    arguments = [
        "--rate",
        "400",
        "--duration",
        "3s",
        "--warm-up",
        "1s",
        "--deadline-ms",
        "1000",
        "--workflow",
        "double",
    ]
    result = loaded(gateway, *arguments)
    assert result["offered"] > 600
    assert result["refused"]
    assert all(name.startswith(("429", "504")) for name in result["refused"])
    assert 0 < result["in_time"] <= result["answered"] < result["offered"]
