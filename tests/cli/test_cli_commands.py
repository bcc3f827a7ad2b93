"""The other commands: demo, policies, report, and the frame around them."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from run_cli import SOURCE, run_cli
from typer.testing import CliRunner

import fairlead
from fairlead.cli import COMMANDS, app
from fairlead.cli.policies import describe
from fairlead.policy import Policy, policy_names


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*args: str, code: int = 0):
    result = CliRunner().invoke(app, args)
    assert result.exit_code == code, result.output
    return result


def test_demo_serves_for_real_and_says_what_is_next(folder):
    done = run_cli("demo", "--seconds", "1", cwd=folder)
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.startswith(("fifo", "fairlead"))}
    assert set(rows) == {"fifo", "fairlead"}
    assert all(0 <= float(row[1].rstrip("%")) <= 100 for row in rows.values())  # how many depends on the machine
    assert "<html" in Path("runs/demo/report.html").read_text()
    assert json.loads(Path("runs/demo/trace.json").read_text())["traceEvents"]
    run = next(line for line in done.stdout.splitlines() if " replay " in line).split(" replay ")[1].split()[0]
    invoke("replay", run, "--policy", "clockwork")


def test_every_policy_is_listed():
    listed = json.loads(invoke("policies", "--json").stdout)["policies"]
    assert tuple(one["name"] for one in listed) == policy_names()
    assert all(one["summary"] and one["role"] in ("dispatch", "scale") for one in listed)
    text = invoke("policies").stdout
    assert all(name in text for name in policy_names())


def test_every_parameter_of_every_policy_is_documented():
    for one in json.loads(invoke("policies", "--json").stdout)["policies"]:
        for parameter in one["parameters"]:
            assert parameter["text"], f"{one['name']}: {parameter['name']} is not in the Args of its docstring"


def test_one_policy_is_shown_with_its_parameters():
    text = invoke("policies", "earliest-deadline").stdout
    assert "headroom  float, default 0.1" in text
    assert "Share of the remaining time" in text
    assert "policies/earliest-deadline" in text
    one = json.loads(invoke("policies", "earliest-deadline", "--json").stdout)
    assert (one["parameters"][0]["name"], one["parameters"][0]["default"]) == ("headroom", 0.1)


@dataclass
class Described(Policy):
    """Does one thing.

    And explains it.

    Args:
        limit: At most so many,
            whatever happens.
        mode: How.

    Raises:
        ValueError: Never.
    """

    limit: float = float("inf")
    mode: Literal["fast", "cheap"] = "fast"
    window: int | None = None


def test_parameters_are_read_from_the_docstring():
    entry = describe("described", Described)
    assert (entry.summary, entry.details) == ("Does one thing.", "And explains it.")
    assert [(one.name, one.type, one.text) for one in entry.parameters] == [
        ("limit", "float", "At most so many, whatever happens."),
        ("mode", "fast | cheap", "How."),
        ("window", "int or none", ""),
    ]
    assert json.dumps(entry.as_json(), allow_nan=False)


def test_stored_runs_give_the_same_results():
    ran = invoke("simulate", "kaas-example", "-p", "kaas-srtf", "-p", "kaas-balance", "--out", "o", "--json", "-")
    read = invoke("report", "o", "--json", "-")
    by_policy = [sorted(json.loads(one.stdout)["results"], key=lambda result: result["policy"]) for one in (ran, read)]
    assert by_policy[0] == by_policy[1]


def test_stored_run_gives_a_table_a_page_and_a_trace():
    invoke("simulate", "kaas-example", "--out", "o")
    text = invoke("report", "o/kaas-balance-seed-0", "--html", "page.html", "--trace", "trace.json").stdout
    assert "kaas-example, seed 0" in text
    assert Path("page.html").exists()
    assert json.loads(Path("trace.json").read_text())["otherData"]["policy"] == "kaas-balance"


def test_runs_that_differ_in_their_settings_only_are_not_averaged():
    invoke("simulate", "kaas-example", "--out", "a")
    invoke("simulate", "kaas-example", "--out", "b", "--set", "functions.bert.cold_start_s=60")
    found = json.loads(invoke("report", "a", "b", "--json", "-").stdout)["results"]
    assert [one["point"] for one in found] == [{"run": "a"}, {"run": "b"}]
    assert "run" in invoke("report", "a", "b").stdout


def test_runs_that_differ_in_a_parameter_are_told_apart_by_it():
    for mode in ("compat", "online"):
        invoke("simulate", "kaas-example", "-p", "kaas-srtf", "--set", f"policy.mode={mode}", "--out", mode)
    shown = invoke("report", "compat", "online", "--trace", "trace.json").stdout
    assert "kaas-srtf (mode=compat)" in shown
    assert "kaas-srtf (mode=online)" in shown
    assert Path("trace-kaas-srtf-mode=compat.json").exists()


def test_stored_points_are_in_the_order_of_their_numbers():
    invoke("simulate", "kaas-gpus", "--set", "duration_s=20", "--out", "o", "--quiet")
    found = json.loads(invoke("report", "o", "--json", "-").stdout)["results"]
    counts = [one["point"]["cluster.nodes.0.count"] for one in found]
    assert counts == sorted(counts)
    assert max(counts) > 9


def test_same_run_named_twice_counts_once():
    invoke("simulate", "kaas-example", "--out", "a")
    found = json.loads(invoke("report", "a", "a/kaas-balance-seed-0", "--json", "-").stdout)["results"]
    assert len(found) == 1


def test_runs_of_different_scenarios_are_not_compared():
    invoke("simulate", "kaas-example", "--out", "a")
    invoke("simulate", "kaas-example-stated", "--out", "b")
    assert "different scenarios" in invoke("report", "a", "b", code=2).stderr


def test_version_and_help(folder):
    assert invoke("--version").stdout.startswith("fairlead ")
    text = invoke("--help").stdout
    assert all(command in text for command in COMMANDS)
    for command in COMMANDS:
        assert "Usage: " in invoke(command, "--help").stdout
    assert run_cli("--version", cwd=folder).stdout.startswith("fairlead ")


def test_the_frame_starts_without_engine_and_tables(folder):
    code = "import sys, fairlead.cli; print(sorted({'numpy', 'polars', 'fairlead.engine'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr


def test_every_public_name_is_there_when_asked_for():
    assert set(fairlead.__all__) <= set(dir(fairlead))
    for name in fairlead.__all__:
        value = getattr(fairlead, name)
        assert getattr(value, "__name__", name) == name  # INPUT is a value without one
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        fairlead.simulat  # noqa: B018
