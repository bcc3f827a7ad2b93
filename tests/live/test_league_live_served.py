"""`fairlead league --live` with real gateways: what comes out, what is kept, and what it says of apps that fail."""

import json

import pytest
from typer.testing import CliRunner

from fairlead.cli import app

APP = """
from fairlead import App

app = App("tiny")


@app.function
def same(value):
    return value


app.workflow("one", same, slo="30s", example=1)
app.workflow("two", same, slo="30s", example={"a": [1, 2]})
"""
BROKEN = """
from fairlead import App

app = App("broken")


@app.function
def fail(value):
    raise ConnectionError("nothing listens on port 4568")


app.workflow("main", fail, slo="30s", example=1)
"""


@pytest.fixture(autouse=True)
def _unmeasured_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def run(*words: object):
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, ["league", *map(str, words)])


def test_two_policies_are_served_predicted_and_kept(tmp_path):
    file, found = tmp_path / "tiny.py", tmp_path / "found.json"
    file.write_text(APP)
    words = [file, "--live", "--load", "0.5", "--seconds", "0.5", "--capacity", "40", "--json", found]
    first = run(*words, "--policy", "fifo")
    assert first.exit_code == 0, first.output
    kept = json.loads(found.read_text())["cells"]
    page = tmp_path / "page.html"
    second = run(*words, "--policy", "fifo", "--policy", "fairlead", "--resume", "--report", page)
    assert second.exit_code == 0, second.output
    assert "Live league: 1 cells." in second.output
    league = json.loads(found.read_text())
    assert league["cells"][0] == kept[0]
    assert [app["capacity_rps"] for app in league["apps"]] == [40]
    assert [cell["policy"] for cell in league["cells"]] == ["fifo", "fairlead"]
    for cell in league["cells"]:
        live, predicted = cell["live"]["live"], cell["predicted"]
        assert live["requests"] == predicted["requests"] > 0  # the very same arrivals
        assert set(live["by_workflow"]) <= {"one", "two"}
        assert {name: part["requests"] for name, part in live["by_workflow"].items() if part["requests"]} == {
            name: part["requests"] for name, part in predicted["by_workflow"].items()
        }
        assert live["answers"] > 0
        assert live["cost_usd"] > 0
        assert cell["live"]["decisions"]["count"] >= live["answers"]
        assert cell["live"]["gateway_cpu_s"] > 0
    assert "tiny, load 0.5: 20.0 requests/s (capacity 40.0, given)" in second.output
    assert max(map(len, second.stdout.splitlines())) <= 80 or str(tmp_path) in second.stdout
    assert "Live league" in page.read_text()


def test_an_app_that_needs_something_else_says_so(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    result = run(file, "--live", "--policy", "fifo", "--seconds", "0.5")
    assert result.exit_code == 1
    assert "workflow 'main' does not answer its example" in result.output
    assert "nothing listens on port 4568" in result.output
    assert "start that first" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--live"], "Name the apps to serve"),
        (["{app}", "--live", "--seeds", "2", "--no-cache"], "--seeds, --no-cache are for simulated leagues"),
        (["quickstart", "--seconds", "2"], "--seconds needs --live"),
        (["{app}", "--live", "--seconds", "0"], "--seconds must be positive"),
        (["{app}", "--live", "--capacity", "-1"], "--capacity must be a positive number"),
        (["{app}", "--live", "--policy", "fifoo"], "Did you mean 'fifo'"),
        (["{app}", "--live", "--resume"], "--resume needs --json FILE"),
        (["{app}", "{folder}/twin.py", "--live"], "Several apps are named tiny"),
        (["{folder}/none.py", "--live"], "there is no such app file"),
        (["quickstart", "--live"], "there is no such app file"),
    ],
)
def test_wrong_use_is_told_before_anything_is_served(tmp_path, words, said):
    (tmp_path / "tiny.py").write_text(APP)
    (tmp_path / "twin.py").write_text(APP)
    result = run(*(word.format(app=tmp_path / "tiny.py", folder=tmp_path) for word in words))
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.output.split())


def test_a_file_of_other_settings_is_not_resumed(tmp_path):
    (tmp_path / "tiny.py").write_text(APP)
    (tmp_path / "old.json").write_text('{"seconds": 3, "seed": 0}')
    result = run(tmp_path / "tiny.py", "--live", "--seconds", "4", "--json", tmp_path / "old.json", "--resume")
    assert result.exit_code == 2
    assert "was run with --seconds 3; got 4" in " ".join(result.output.split())
    assert (tmp_path / "old.json").read_text() == '{"seconds": 3, "seed": 0}'
