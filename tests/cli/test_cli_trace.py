"""`fairlead trace`: what is shown, what is written, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead.cli import app
from fairlead.workload.traces import read
from fairlead.workload.traces.trace import DURATION_COLUMNS, MEMORY_COLUMNS

CALLS = "HashOwner,HashApp,HashFunction,Trigger,480,481,482\no,a,f,http,60,0,30\no,a,g,timer,1,1,1\np,b,h,http,0,0,7\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    day = Path("day")
    day.mkdir()
    (day / "invocations.csv").write_text(CALLS)
    times = "".join(f"{key},500,1,1,1{',500' * 7}\n" for key in ("o,a,f", "o,a,g"))
    (day / "durations.csv").write_text(f"HashOwner,HashApp,HashFunction,{','.join(DURATION_COLUMNS)}\n{times}")
    memory = "".join(f"{key},1{',128' * 9}\n" for key in ("o,a", "p,b"))
    (day / "memory.csv").write_text(f"HashOwner,HashApp,{','.join(MEMORY_COLUMNS)}\n{memory}")


def trace(*args, code=0):
    result = CliRunner().invoke(app, ["trace", *args])
    assert result.exit_code == code, result.output
    return result


def lines(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_info_shows_the_trace_as_tables():
    shown = lines(trace("info", "day").stdout)
    assert "functions 3 in 2 apps of 2 owners" in shown
    assert "minutes 3 (from 480 to 482)" in shown
    assert "calls 100" in shown
    assert "calls per second 0.5556 on average, 1.017 in the busiest minute" in shown
    assert "busy vCPUs 0.2778 on average, if no call waits" in shown
    assert "the top 1 % of functions 90.0 % of the calls" in shown
    assert "http 2 66.7 % 97 97.0 %" in shown
    assert "memory 64.0 MB 64.0 MB 64.0 MB 96.0 MB 127 MB 128 MB" in shown
    assert "Note: functions without times: 1." in shown


def test_info_as_json_holds_the_figures():
    found = json.loads(trace("info", "day", "--json").stdout)
    assert (found["functions"], found["invocations"], found["minutes"]) == (3, 100, 3)
    assert found["invocations_by_trigger"] == {"http": 97, "timer": 3}
    assert found["notes"] == {"functions without times": 1}


@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_is_wider_than_the_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", f"{columns}")
    assert max(map(len, trace("info", "day").stdout.splitlines())) <= columns


def test_a_sample_is_written_as_three_files_and_says_what_is_next():
    done = trace("sample", "day", "--functions", "2", "--minutes", "480:481", "--out", "part", "--seed", "1")
    found = read(Path("part"))
    assert (len(found), found.first_minute, found.minutes) == (2, 480, 2)
    assert f"Wrote part: 2 functions, 2 minutes, {found.invocations} calls." in done.stdout
    assert "fairlead trace info part" in done.stdout
    assert sorted(file.name for file in Path("part").iterdir()) == ["durations.csv", "invocations.csv", "memory.csv"]


def test_a_scaled_trace_has_its_share_of_the_calls():
    assert (
        "Wrote tenth: 3 functions, 3 minutes, 10 calls."
        in trace("scale", "day", "--factor", "0.1", "--out", "tenth").stdout
    )
    assert read(Path("tenth")).rows(0, 3).tolist() == [[6, 0, 3], [0, 0, 0], [0, 0, 1]]


def test_a_generated_trace_can_be_looked_at():
    done = trace("generate", "--functions", "40", "--minutes", "10", "--invocations", "4000", "--out", "made")
    assert "Wrote made: 40 functions, 10 minutes, " in done.stdout
    assert "functions 40 in " in " ".join(lines(trace("info", "made").stdout))


def test_a_file_of_calls_is_read_too():
    Path("calls.txt").write_text("app,func,end_timestamp,duration\na,f,61,1\na,f,10,1\n")
    assert "calls 2" in lines(trace("info", "calls.txt").stdout)


@pytest.mark.parametrize(
    ("args", "phrase"),
    [
        (("info", "none"), "there is no such folder"),
        (("info", "day/memory.csv"), "give their folder, day"),
        (("info", "day", "--day", "2"), "invocations_per_function_md.anon.d02.csv is wanted"),
        (("sample", "day", "--functions", "4", "--out", "x"), "--functions 4: the trace has 3."),
        (("sample", "day", "--functions", "1", "--minutes", "1:2", "--out", "x"), "in order and from 480 to 482"),
        (("sample", "day", "--functions", "1", "--minutes", "480", "--out", "x"), "as in 480:959"),
        (("sample", "day", "--functions", "1", "--out", "day"), "is the trace itself"),
        (("sample", "day", "--functions", "1", "--out", "day/memory.csv"), "is a file; a folder is needed"),
        (("scale", "day", "--factor", "0", "--out", "x"), "factor must be positive"),
        (("scale", "day", "--factor", "0.001", "--out", "x"), "nothing is left of 100 calls"),
        (("generate", "--functions", "9", "--invocations", "3", "--out", "x"), "at least one per function"),
        (("sample", "day", "--out", "x"), "--functions"),
    ],
)
def test_wrong_use_ends_with_2_and_says_why(args, phrase):
    assert phrase in " ".join(trace(*args, code=2).stderr.split())


def test_a_bad_line_is_named():
    Path("day/invocations.csv").write_text(CALLS + "o,a,i,http,1,many,1\n")
    text = trace("info", "day", code=2).stderr
    assert "day/invocations.csv: line 5, column 481: must be a whole number from 0 to 2147483647; got 'many'." in text


def test_neither_looking_nor_writing_loads_the_compiler():
    code = (
        "import sys; from typer.testing import CliRunner; from fairlead.cli import app; "
        "done = CliRunner().invoke(app, ['trace', 'info', 'day']); sys.exit(done.exit_code or 'numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
