"""`fairlead plan`: the best configurations, the front as a picture, and the verdict."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from fairlead.cli import app

# One vCPU-second costs $9.44e-06: 0.1, 0.12 or 0.2 vCPU-seconds for `slow`, 0.02 for `fixed`.
CHAIN = """
name: small
duration_s: 10
cluster: {nodes: [{name: n, kind: n, vcpus: 8, memory_gb: 16}]}
functions:
  slow: {latency: {table: [{seconds: 0.1}, {vcpus: 2, seconds: 0.06}, {vcpus: 4, seconds: 0.05}]}}
  fixed: {latency: {table: [{seconds: 0.02}]}}
workflows:
  main: {stages: {slow: [], fixed: [slow]}, slo: {latency_s: 0.1}}
arrivals: [{workflow: main, process: poisson, rate_rps: 1}]
policy: {dispatch: fifo}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("small.yaml").write_text(CHAIN)


def plan(*args, code=0):
    result = CliRunner().invoke(app, ["plan", "small.yaml", *args])
    assert result.exit_code == code, result.output
    return result


def in_one_line(text):
    return " ".join(text.split())


def test_what_can_be_met_is_said_with_its_cost():
    text = in_one_line(plan().stdout)
    assert "Verdict (100 ms): can be met: the cheapest takes 80 ms at $1.32e-06 per request." in text


def test_what_cannot_be_met_ends_with_1_and_names_what_can():
    text = in_one_line(plan("--slo", "50ms", code=1).stdout)
    assert (
        "Verdict (50 ms): cannot: the fastest possible is 70 ms at $2.08e-06, "
        "the cheapest within 1.2x of that is 80 ms at $1.32e-06." in text
    )
    assert "main: the fastest" in text


def test_what_is_fast_but_too_dear_says_so():
    text = in_one_line(plan("--set", "workflows.main.slo.cost_usd=1.2e-6", code=1).stdout)
    assert "Verdict (100 ms at $1.2e-06): cannot:" in text
    assert "in time but over the cost limit, the cheapest is 80 ms at $1.32e-06." in text


def test_the_best_choices_are_listed_by_what_differs():
    lines = [line.split() for line in plan("--slo", "1s").stdout.splitlines()]
    ranked = [line for line in lines if line[:1] in (["1"], ["2"], ["3"]) and "ms" in line]
    assert ranked == [
        ["1", "120", "ms", "$1.13e-06", "as", "above"],
        ["2", "80", "ms", "$1.32e-06", "slow", "1x", "2", "vCPU", "(60", "ms,", "$1.13e-06)"],
        ["3", "70", "ms", "$2.08e-06", "slow", "1x", "4", "vCPU", "(50", "ms,", "$1.89e-06)"],
    ]


def test_the_front_is_drawn_with_the_slo_in_it():
    text = plan().stdout
    assert text.count("●") == 2  # in the picture and in its key
    assert "SLO 100 ms" in text
    assert len([line for line in text.splitlines() if "┆" in line]) == 11
    assert "SLO 10 s is far to the right." in plan("--slo", "10s").stdout
    assert "SLO 1 ms is far to the left." in plan("--slo", "1ms", code=1).stdout


@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_is_wider_than_the_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", f"{columns}")
    assert max(map(len, plan("--slo", "1s").stdout.splitlines())) <= columns


def test_json_holds_the_best_choices_and_the_verdict():
    found = json.loads(plan("--json", "--slo", "1s", "--top", "2").stdout)
    assert found["is_met"] is True
    assert found["verdict"].startswith("can be met: ")
    assert [(round(each["latency_s"], 9), each["stages"][0]["vcpus"]) for each in found["top"]] == [
        (0.12, 1),
        (0.08, 2),
    ]
    assert found["stages"] == found["top"][0]["stages"]
    assert [round(each["latency_s"], 9) for each in found["front"]] == [0.07, 0.08, 0.12]
    missed = json.loads(plan("--json", "--slo", "50ms", code=1).stdout)
    assert (missed["is_met"], missed["top"]) == (False, [])
    assert missed["verdict"].startswith("cannot: the fastest possible is 70 ms")
    assert (round(missed["fastest"]["latency_s"], 9), round(missed["near_fastest"]["latency_s"], 9)) == (0.07, 0.08)


def test_the_figure_shows_the_front_and_the_slo():
    assert "Wrote out/front.svg" in plan("--figure", "out/front.svg").stdout
    text = Path("out/front.svg").read_text()
    ElementTree.fromstring(text)
    for label in ("main: what each latency costs at least", "front (3)", "SLO 100 ms", "cheapest in time, 80 ms"):
        assert label in text
    assert "front: 0.08, 1.32" in text.replace(" (3)", "")  # a point, in USD per million


def test_where_no_figure_can_be_written_is_wrong_use():
    assert "--figure" in plan("--figure", ".", code=2).stderr
    assert "--top" in plan("--top", "0", code=2).stderr


READER = """
from fairlead import App

app = App("reader", policy="fifo")
app.node("box", vcpus=8)
a, b = (app.function(name=name, warm=4)(lambda x: x) for name in "ab")
app.workflow("main", a >> b, slo="100ms")
"""


def plan_app(*args, code=0):
    Path("reader.py").write_text(READER)
    result = CliRunner().invoke(app, ["plan", "reader.py", "--machine", "none", *args])
    assert result.exit_code == code, result.output
    return result


def test_a_rate_gives_figures_with_intervals_and_says_what_is_assumed():
    done = plan_app("--rate", "5", "--seeds", "2")
    text = in_one_line(done.stdout)
    assert "answered within 100 ms 100.0 % [100.0, 100.0]" in text
    assert "latency p50 20 ms [20, 20]" in text  # the 10 ms that are assumed of each function
    assert "a, b: never measured, so times are assumed. Run: fairlead profile" in in_one_line(done.stderr)
    found = json.loads(plan_app("--rate", "5", "--seeds", "2", "--json").stdout)
    assert found["p50_s"]["mean"] == pytest.approx(0.020)
    assert found["seeds"] == [0, 1]
    assert "never measured" in plan_app().stderr


def test_splits_are_compared_and_one_is_advised():
    text = in_one_line(plan_app("--granularity", "--rate", "5", "--seeds", "2").stdout)
    assert "5/s a | b 100.0 ± 0.0 % 20 ms 20 ms" in text
    assert "Composed from the times of their parts, not measured: a+b." in text
    assert "Advice: At 5/s take a | b. a | b: app.workflow(...) without fuse" in text
    found = json.loads(plan_app("--granularity", "--rate", "5", "--seeds", "2", "--json").stdout)
    assert [row["fuse"] for row in found["splits"]] == [[], ["a+b"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rate", "0"), "--rate must be a positive number of requests per second"),
        (("--rate", "nan"), "--rate must be a positive number of requests per second"),
        (("--seeds", "3"), "--seeds goes with --rate or --granularity."),
        (("--granularity", "--figure", "x.svg"), "--figure draws configurations"),
        (("--granularity", "--workflow", "other"), "reader has no workflow 'other'"),
    ],
)
def test_wrong_use_of_what_is_simulated_is_refused(arguments, message):
    assert message in in_one_line(plan_app(*arguments, code=2).stderr)


def test_only_an_app_has_splits():
    assert "is no app file" in in_one_line(plan("--granularity", code=2).stderr)
