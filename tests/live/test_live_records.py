"""A served app's records, end to end: top, explain, report and replay of real requests to real processes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import fairlead

SOURCE = Path(fairlead.__file__).parents[1]
APP = """
import time

from fairlead.app import App

app = App("shop")


@app.function(batch=(1, 2, 4), batched=True)
def price(values):
    time.sleep(0.01)
    return [value + 1 for value in values]


@app.function
def pack(value):
    return value * 2


app.workflow("order", price >> pack, slo="5s")
"""


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FAIRLEAD_TOKEN")}
    return {**kept, "PYTHONPATH": str(SOURCE), **more}


def cli(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fairlead", *args]
    return subprocess.run(
        command, cwd=cwd, env=environment(COLUMNS="120"), capture_output=True, text=True, timeout=300, check=False
    )


def call(url: str, value: int) -> dict[str, object]:
    body = json.dumps({"input": value}).encode()
    asked = Request(f"{url}/v1/workflows/order", body, {"Content-Type": "application/json"})
    with urlopen(asked, timeout=60) as answer:
        return json.load(answer)


@contextmanager
def served(folder: Path, *options: str) -> Iterator[str]:
    """The shop, served from a folder; gives its address."""
    (folder / "app.py").write_text(APP)
    command = [sys.executable, "-m", "fairlead", "serve", "app.py", "--port", "0", *options]
    told = folder / ".fairlead" / "app" / "gateway.json"
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment(), stdout=log, stderr=log)
        try:
            until = time.monotonic() + 60
            while not told.exists():
                assert time.monotonic() < until, (folder / "log").read_text()
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
            yield json.loads(told.read_bytes())["url"]
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder from which an app was served, what it answered, and what `top` showed meanwhile."""
    folder = tmp_path_factory.mktemp("shop")
    with served(folder) as url:
        answers = [call(url, value) for value in range(5)]
        seen = cli("top", "--json", cwd=folder)
        drawn = cli("top", "--once", "--url", url, cwd=folder)
        time.sleep(0.6)  # two periods of the writer: what is asked for now is of a run that still goes on
        running = cli("report", ".fairlead/app/runs/1", "--json", "-", cwd=folder)
    return folder, answers, seen, drawn, running


def test_top_shows_what_is_served(shop):
    _, _, seen, drawn, _ = shop
    assert seen.returncode == drawn.returncode == 0, seen.stderr + drawn.stderr
    (app,) = json.loads(seen.stdout)["apps"]
    (workflow,) = app["workflows"]
    assert (app["name"], workflow["name"], workflow["offered"], workflow["in_time"]) == ("shop", "order", 5, 5)
    assert re.search(r"order\s+5\.00 s\s+0", drawn.stdout)
    assert re.search(r"price\s+0\s+0\s+1\s+0", drawn.stdout)


def test_a_run_that_goes_on_is_reported(shop):
    *_, running = shop
    (result,) = json.loads(running.stdout)["results"]
    assert (result["engine"], result["requests"], result["completed"], result["slo_attainment"]) == ("live", 5, 5, 1.0)


def test_an_answer_s_id_is_explained(shop):
    folder, answers, *_ = shop
    assert [answer["output"] for answer in answers] == [2, 4, 6, 8, 10]
    done = cli("explain", str(answers[2]["id"]), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Request 2 of order, under fairlead: answered after")
    assert "price: " in done.stdout
    assert "pack: " in done.stdout
    assert ".fairlead/app/runs/1" in done.stdout
    told = json.loads(cli("explain", "2", "--json", "-", cwd=folder).stdout)
    assert [stage["stage"] for stage in told["stages"]] == ["price", "pack"]
    assert told["stages"][0]["run_s"] >= 0.01


def test_the_reasons_of_fairlead_are_told_and_replayed_exactly(tmp_path):
    with served(tmp_path, "--policy", "fairlead") as url:
        answers = [call(url, value) for value in range(3)]
    done = cli("explain", str(answers[2]["id"]), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Request 2 of order, under fairlead: answered after")
    assert "Admitted: it had 5.00 s, and its plan takes " in done.stdout
    assert "Plan: price with 1 vCPU" in done.stdout
    assert "fairlead promised an answer by " in done.stdout
    assert done.stdout.count("  Node: ") == 2
    told = json.loads(cli("explain", "2", "--json", "-", cwd=tmp_path).stdout)
    assert [stage["note"]["function"] for stage in told["stages"]] == ["price", "pack"]
    assert all(stage["expected_s"] == stage["note"]["expected_s"] for stage in told["stages"])
    exact = cli("replay", ".fairlead/app", "--exact", cwd=tmp_path)
    assert exact.stdout.startswith("Identical: "), exact.stdout + exact.stderr


@pytest.mark.parametrize(
    ("request_id", "message"),
    [
        ("99", "has no request 99. It has 5 requests, 0 to 4."),
        ("other-1-0", "No run of other, generation 1, is in"),
        ("nonsense", "No request 'nonsense' is in a journal"),
    ],
)
def test_a_request_that_is_not_there_is_said_not_to_be(shop, request_id, message):
    folder, *_ = shop
    done = cli("explain", request_id, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert message.replace(", is in", " is in") in done.stderr


def test_the_live_run_is_replayed_exactly_and_under_other_policies(shop):
    folder, *_ = shop
    exact = cli("replay", ".fairlead/app", "--exact", cwd=folder)
    assert exact.returncode == 0, exact.stdout + exact.stderr
    assert exact.stdout.startswith("Identical: ")
    done = cli("replay", ".fairlead", "-p", "fifo", "-p", "earliest-deadline", "--json", "-", cwd=folder)
    assert done.returncode == 0, done.stderr
    recorded, *replayed = json.loads(done.stdout)["results"]
    assert [result["policy"] for result in (recorded, *replayed)] == ["fairlead", "fifo", "earliest-deadline"]
    assert {result["completed"] for result in (recorded, *replayed)} == {5}


def test_without_a_gateway_top_says_what_to_do(tmp_path):
    done = cli("top", "--once", cwd=tmp_path)
    assert done.returncode == 2
    assert "Name it with --url" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--url", "http://127.0.0.1:9"), "does not answer"),
        (("--url", "ftp://x"), "must look like http://127.0.0.1:8000"),
        (("--url", "http://127.0.0.1:99999"), "from 1 to 65535; got 'http://127.0.0.1:99999'"),
        (("--every", "0"), "--every must be from 0.1"),
    ],
)
def test_top_refuses_wrong_use_in_words(tmp_path, arguments, message):
    done = cli("top", "--once", *arguments, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
