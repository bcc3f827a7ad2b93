"""`fairlead load` on what `fairlead serve` serves: it finds the workflow, its example, and what is refused."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from typer.testing import CliRunner, Result

from fairlead.cli import app

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
app.workflow("timed", double, example=1, slo="9s")


@app.function
def size(data):
    assert isinstance(data, bytes), type(data)
    return len(data)


app.workflow("raw", size, example=bytes(range(256)), slo="9s")
"""
TWIN = """
from fairlead.app import App

app = App("twin")


@app.function
def same(value):
    return value


app.workflow("fail", same)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def gateway(folder):
    (folder / "app.py").write_text(APP)
    (folder / "twin.py").write_text(TWIN)
    environment = {key: value for key, value in os.environ.items() if key != "FAIRLEAD_TOKEN"}
    command = [sys.executable, "-m", "fairlead", "serve", "app.py", "twin.py", "--port", "0"]
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
            if line.startswith("Watch"):
                return line.split()[4]
        sleep(0.05)
    raise AssertionError((folder / "err").read_text())


def load(*arguments: str) -> Result:
    return fairlead("load", *arguments)


def fairlead(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"FAIRLEAD_TOKEN": None})


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
    assert done.exit_code == 2
    assert "site.double, site.fail" in done.stderr


def test_a_workflow_that_is_not_served_is_said_with_those_that_are(gateway):
    done = load(gateway, "--workflow", "duble", "--rate", "1")
    assert done.exit_code == 2
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


def test_the_objective_of_the_workflow_is_the_deadline(gateway):
    result = loaded(gateway, "--workflow", "timed", "--rate", "10", "--arrivals", "even", "--duration", "500ms")
    assert (result["answered"], result["in_time"], result["deadline_s"]) == (5, 5, 9.0)


def test_a_workflow_without_an_objective_has_no_deadline(gateway):
    result = loaded(gateway, "--workflow", "double", "--rate", "10", "--arrivals", "even", "--duration", "500ms")
    assert result["deadline_s"] is None


def test_a_name_of_two_workflows_is_announced_in_full_and_otherwise_said_to_be_ambiguous(gateway, folder):
    told = (folder / "out").read_text()
    assert f"POST {gateway}/v1/workflows/site.fail " in told
    assert f"POST {gateway}/v1/workflows/twin.fail " in told
    assert f"POST {gateway}/v1/workflows/double " in told
    assert "--workflow" in told  # without, the load that is proposed would not know which
    says = "2 workflows are named 'fail'. Use the full name: site.fail, twin.fail."
    with pytest.raises(HTTPError) as answer:
        urlopen(Request(f"{gateway}/v1/workflows/fail", b'{"input": 1}', {"Content-Type": "application/json"}))
    with answer.value as reply:
        assert (reply.code, json.load(reply)["error"]["message"]) == (404, says)
    done = load(gateway, "--workflow", "fail", "--rate", "1")
    assert (done.exit_code, done.stderr) == (2, f"Error: {says}\n")


def test_explain_finds_a_state_folder_of_any_name_by_the_url(gateway, folder, tmp_path, monkeypatch):
    """The latest run is of the app that was served last, to which no request is sent."""
    monkeypatch.chdir(tmp_path)
    done = fairlead("explain", "0", "--url", gateway)
    assert done.exit_code == 2
    assert f"{folder}/state/runs/2 has no request 0. It has none." in done.stderr


def test_top_finds_the_gateway_by_its_folder_while_it_runs(gateway, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = fairlead("top", "--json", "--state", str(folder / "state"))
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["state"] == str(folder / "state")


def test_an_example_of_bytes_is_sent_as_bytes(gateway):
    result = loaded(gateway, "--workflow", "raw", "--rate", "20", "--arrivals", "even", "--duration", "500ms")
    assert (result["answered"], result["errors"]) == (10, {})


def test_a_file_says_when_what_is_sent_to_which_workflow(gateway, tmp_path):
    file = tmp_path / "arrivals.jsonl"
    lines = [
        {"at_s": 0.3, "workflow": "timed", "input": 4},
        {"at_s": 0.1, "workflow": "double", "input": [1]},
        {"at_s": 0.2, "workflow": "site.timed", "deadline_ms": 0.2},  # its example, which takes 10 ms
        {"at_s": 0.2, "input": "ab"},
        {"at_s": 0.4, "workflow": "raw"},
        {"at_s": 0.4, "workflow": "raw", "input": "text"},  # which the function refuses
    ]
    file.write_text("# a comment\n\n" + "\n".join(map(json.dumps, lines)), encoding="utf-8")
    result = loaded(gateway, "--arrivals", str(file), "--workflow", "double")
    assert (result["offered"], result["answered"]) == (6, 4)
    counts = {name: (each["offered"], each["answered"]) for name, each in result["by_call"].items()}
    assert counts == {"site.double": (2, 2), "site.timed": (2, 1), "site.raw": (2, 1)}
    assert result["errors"] == {"502": 1}
    assert sum(result["refused"].values()) == 1
    shown = load(gateway, "--arrivals", str(file), "--workflow", "double").stdout
    assert "each request with its own deadline" in shown
    assert "site.timed" in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"at_s": 0.1}\n0.2\n', "line 2: Expected `object`, got `float`"),
        ('{"at_s": 0.1}\n\n{"at": 1}\n', "line 3: Object contains unknown field `at`"),
        ('{"at_s": -1}', "line 1: Expected `float` >= 0.0 - at `$.at_s`"),
        ('{"at_s": 1, "input": }', "line 1: JSON is malformed"),
        ('{"at_s": 1, "deadline_ms": 0}', "line 1: Expected `float` > 0.0 - at `$.deadline_ms`"),
        ('{"input": 1}', "line 1: Object missing required field `at_s`"),
        ("0.1\nsoon\n", "line 2: must be an instant in seconds; got 'soon'"),
        ("# nothing\n", "holds no arrival; each line is a number of seconds, or JSON"),
        ('{"at_s": 0.1, "workflow": "dubble"}', "No workflow named 'dubble'. Available: site.double"),
        ('{"at_s": 0.1}', "serves 5 workflows; say --workflow NAME"),
    ],
)
def test_a_wrong_file_of_arrivals_is_told_by_its_line(gateway, tmp_path, text, message):
    file = tmp_path / "arrivals"
    file.write_text(text, encoding="utf-8")
    done = load(gateway, "--arrivals", str(file))
    assert done.exit_code in (1, 2)
    assert message in " ".join(done.stderr.split())


def test_a_file_that_says_what_is_sent_allows_no_other_input(gateway, tmp_path):
    file = tmp_path / "arrivals"
    file.write_text('{"at_s": 0.1}', encoding="utf-8")
    done = load(gateway, "--arrivals", str(file), "--input", "1")
    assert done.exit_code == 2
    assert "says what is sent: leave out --input" in " ".join(done.stderr.split())
