"""The dashboard's side of the gateway: its files, the stream of pictures, the history, and the limits of each."""

import gzip
import hashlib
import json
import os
import re
import socket
import zipfile
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from math import isnan
from pathlib import Path

import numpy as np
import pytest
from gateway_world import Refuse, SmallHost, running, wait_until
from serving import children, command

from fairlead.engine.live.gateway.assets import assets
from fairlead.engine.live.gateway.history import COARSE_POINTS, COARSE_S, COLUMNS, FINE_POINTS, History
from fairlead.engine.live.gateway.quantiles import cell, percentiles
from fairlead.engine.live.gateway.recent import KEPT
from fairlead.engine.live.gateway.tallies import Tally
from fairlead.engine.live.values import Ending

ROOT = Path(__file__).parents[2]
WEB = files("fairlead.web")
TOKEN = "a-token-of-some-length"
MOST_GZIPPED = 100_000


def echo(value, _):
    if value == "no":
        raise Refuse("rejected", "too much is ahead of it")
    return value


@pytest.fixture
def gateway(tmp_path):
    with running(SmallHost({"shop.echo": echo}), tmp_path) as gateway:
        yield gateway


@contextmanager
def listening(gateway, head="GET /v1/dashboard/events HTTP/1.1\r\nhost: localhost\r\n\r\n", receive_bytes=None):
    """A connection that has asked for the stream."""
    with socket.socket() as link:
        if receive_bytes is not None:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        link.settimeout(60)
        link.connect(("127.0.0.1", gateway.port))
        link.sendall(head.encode())
        yield link


def pictures(link):
    """The pictures of a stream, one after the other."""
    data = b""
    while part := link.recv(65536):
        data += part
        *events, data = re.split(rb"\n\n", data)
        for event in events:
            if (found := re.search(rb"data: (\{.*\})", event)) is not None:
                yield json.loads(found[1])


# --- files ----------------------------------------------------------------------------------------------------------


def test_the_page_and_all_that_it_loads_first_are_below_100_kb_compressed(gateway):
    page = gateway.send("GET", "/", headers={"Accept": "text/html", "Accept-Encoding": "gzip"})
    text = gzip.decompress(page.body).decode()
    loaded = re.findall(r'(?:src|href)="/ui/([\w.]+)"', text)
    total = len(page.body)
    for name in loaded:
        answer = gateway.send("GET", f"/ui/{name}", headers={"Accept-Encoding": "gzip"})
        assert answer.headers["content-encoding"] == "gzip"
        total += len(answer.body)
    assert {"app.js", "preact.js", "uplot.js", "dashboard.css", "theme.css"} <= set(loaded)
    assert total < MOST_GZIPPED, total
    scripts = {name for name in assets() if name.endswith(".js")}
    assert scripts <= set(loaded), "an ES module that is not named in the page is found late"


def test_the_page_loads_nothing_from_elsewhere_and_runs_no_inline_script(gateway):
    page = gateway.send("GET", "/", headers={"Accept": "text/html"})
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe-inline" not in page.headers["content-security-policy"]
    for name, asset in assets().items():
        text = asset.body.decode()
        if name == "index.html":
            assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
        found = re.findall(r"""(?:src|href|from|import|url\(|fetch\()\s*=?\s*["'(]?(https?:)?//""", text)
        assert not found, name


def test_a_file_that_is_not_there_is_a_404(gateway):
    for path in ("/ui/missing.js", "/ui/..%2Findex.html", "/ui/"):
        answer = gateway.send("GET", path)
        assert answer.status == 404
        assert answer.code == "unknown_path"


def test_files_are_open_and_data_is_not(tmp_path):
    with running(SmallHost({"shop.echo": echo}), tmp_path, token=TOKEN) as it:
        assert it.send("GET", "/").status == 200
        assert it.send("GET", "/ui/app.js").status == 200
        for path in ("", "/events", "/history/shop.echo", "/requests/shop-1-1"):
            assert it.send("GET", f"/v1/dashboard{path}").status == 401
        assert it.send("POST", "/v1/dashboard/replays", {"app": "shop", "policies": ["fifo"]}).status == 401
        told = it.send("GET", "/v1/dashboard", headers={"Authorization": f"Bearer {TOKEN}"}).json()
    assert told["has_token"] is True


def test_what_others_wrote_is_as_it_was_published():
    table = WEB.joinpath("vendor/README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| (\S+) \|.*\| ([0-9a-f]{64}) \|$", table, re.MULTILINE))
    there = {file.name: file.read_bytes() for file in WEB.joinpath("vendor").iterdir()}
    assert set(listed) == {name for name in there if name.endswith((".js", ".css"))}
    for name, sha256 in listed.items():
        assert hashlib.sha256(there[name]).hexdigest() == sha256, name
        assert len(there[name]) < 400_000
    for licence in set(re.findall(r"LICENSE\.\w+", table)):
        assert len(there[licence]) > 1000


def test_the_wheel_has_every_file_of_the_page(tmp_path):
    wheels = pytest.importorskip("hatchling.builders.wheel")
    (built,) = wheels.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = set(zipfile.ZipFile(built).namelist())
    web = ROOT / "src" / "fairlead" / "web"
    wanted = {f"fairlead/web/{file.relative_to(web)}" for file in web.rglob("*.*") if file.suffix != ".pyc"}
    assert len(wanted) > 20
    assert wanted <= names


# --- pictures -------------------------------------------------------------------------------------------------------


def test_a_picture_comes_at_once_and_then_others(gateway):
    for value in (1, 2, "no"):
        gateway.send("POST", "/v1/workflows/echo", {"input": value})
    with listening(gateway) as link:
        found = pictures(link)
        first, second = next(found), next(found)
        assert gateway.send("POST", "/v1/workflows/echo", {"input": 3}).status == 200
        third = next(one for one in found if one["workflows"]["shop.echo"]["ended"])
    assert first["workflows"]["shop.echo"]["ended"] == []  # what ended before is in the history
    assert second["at"] > first["at"]
    (ended,) = third["workflows"]["shop.echo"]["ended"]
    assert (ended["id"], ended["kind"]) == ("shop-1-4", "in_time")
    past = gateway.send("GET", "/v1/dashboard/history/echo").json()
    assert [one["kind"] for one in past["ended"]] == ["in_time", "in_time", "rejected", "in_time"]
    assert set(past["columns"]) == {"t", *COLUMNS}


def test_an_old_client_gets_the_stream_without_chunks(gateway):
    head = "GET /v1/dashboard/events HTTP/1.0\r\nhost: localhost\r\n\r\n"
    with listening(gateway, head) as link:
        data = b""
        while data.count(b"\n\n") < 2:
            data += link.recv(65536)
    answer, _, body = data.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in answer
    assert b"connection: close" in answer
    assert body.startswith(b"retry: 2000\ndata: {")


def test_a_head_request_gets_no_stream(gateway):
    answer = gateway.send("HEAD", "/v1/dashboard/events")
    assert answer.status == 200
    assert answer.body == b""


def test_no_more_dashboards_than_the_limit(tmp_path):
    with running(SmallHost({"shop.echo": echo}), tmp_path, max_dashboards=2) as it:
        with listening(it) as one, listening(it) as other:
            next(pictures(one)), next(pictures(other))
            refused = it.send("GET", "/v1/dashboard/events")
            assert (refused.status, refused.code) == (503, "too_many_dashboards")
            assert next(pictures(other))["dashboards"] == 2
        wait_until(lambda: _is_taken(it))  # those that left make room


def _is_taken(gateway):
    with listening(gateway) as link:
        return b" 200 " in link.recv(100)


@pytest.mark.slow
def test_a_client_that_does_not_read_is_disconnected(tmp_path):
    class LargeHost(SmallHost):
        def obstacles(self):
            return ("x" * 600_000,)

    with running(LargeHost({"shop.echo": echo}), tmp_path, max_dashboards=1) as it, listening(it, receive_bytes=4096):
        wait_until(lambda: _is_taken(it))


def test_an_ending_gateway_ends_the_streams(tmp_path):
    with running(SmallHost({"shop.echo": echo}), tmp_path) as it, listening(it) as link:
        next(pictures(link))
        it.begin_stop()
        rest = b""
        while part := link.recv(65536):
            rest += part
    assert rest.endswith(b"0\r\n\r\n")


def test_the_range_of_a_history_is_one_of_two(gateway):
    assert gateway.send("GET", "/v1/dashboard/history/echo?range=6h").status == 200
    assert gateway.send("GET", "/v1/dashboard/history/echo?range=1y").status == 400
    assert gateway.send("GET", "/v1/dashboard/history/none").status == 404


# --- questions about the records ------------------------------------------------------------------------------------


def test_a_run_without_records_says_so(gateway):
    story = gateway.send("GET", "/v1/dashboard/requests/shop-1-7")
    assert (story.status, story.code) == (409, "no_records")
    replays = gateway.send("POST", "/v1/dashboard/replays", {"app": "shop", "policies": ["fifo"]})
    assert (replays.status, replays.code) == (409, "no_records")


@pytest.mark.parametrize("id", ["x", "shop-1", "-1-1", "shop-1-1%20--json", "..%2F..-1-1"])
def test_what_is_no_id_of_a_request_is_a_404(gateway, id):
    assert gateway.send("GET", f"/v1/dashboard/requests/{id}").status == 404


@pytest.mark.parametrize(
    "change",
    [
        {"policies": ["nothing"]},
        {"policies": []},
        {"policies": ["fifo"] * 5},
        {"policies": ["os:system"]},
        {"last_s": 1e9},
    ],
    ids=["unknown", "none", "too-many", "an-address", "too-long"],
)
def test_a_question_that_cannot_be_asked_is_refused(gateway, change):
    body = {"app": "shop", "policies": ["fifo"], **change}
    assert gateway.send("POST", "/v1/dashboard/replays", body).status == 400


def test_what_the_records_do_not_say_is_told(gateway, tmp_path):
    (tmp_path / "runs" / "1").mkdir(parents=True)
    answer = gateway.send("GET", "/v1/dashboard/requests/shop-1-7")
    assert (answer.status, answer.code) == (422, "not_analysed")
    assert "no run is here" in answer.json()["error"]["message"]


def analyses():
    """The processes that analyse something for the gateway, which is in this process."""
    return [pid for pid in children(os.getpid()) if "fairlead.cli explain" in command(pid)]


def test_one_question_is_answered_at_a_time_and_ends_with_its_client(gateway, tmp_path):
    (tmp_path / "runs" / "1").mkdir(parents=True)
    os.mkfifo(tmp_path / "runs" / "1" / "live.json")  # whoever opens it to read waits for ever
    head = "GET /v1/dashboard/requests/shop-1-7 HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with ExitStack() as links:
        asked = [links.enter_context(listening(gateway, head)) for _ in range(4)]
        wait_until(lambda: len(analyses()) == 1)
        (first,) = analyses()
        wait_until(lambda: os.getpriority(os.PRIO_PROCESS, first) == 19)
        refused = gateway.send("GET", "/v1/dashboard/requests/shop-1-7")
        assert (refused.status, refused.code) == (429, "too_many_analyses")
        asked[0].close()
        wait_until(lambda: analyses() and analyses() != [first])  # the next one has its turn
    wait_until(lambda: not analyses())


# --- what is kept ---------------------------------------------------------------------------------------------------


def ending(outcome="completed", latency_s=0.1, number=0):
    return Ending(
        request=number, workflow="echo", outcome=outcome, arrival=0.0, end=latency_s, deadline=1.0, cost_usd=0.5
    )


def test_percentiles_of_the_histogram_are_those_of_the_numbers():
    latencies = np.random.default_rng(1).lognormal(-3, 1, 20_000)
    cells = {}
    for latency_s in latencies:
        cells[cell(latency_s)] = cells.get(cell(latency_s), 0) + 1
    assert percentiles(cells) == pytest.approx(np.percentile(latencies, [50, 95, 99]), rel=0.03)
    assert all(map(isnan, percentiles({})))


def test_a_point_has_what_happened_since_the_last():
    tally, history = Tally(), History()
    history.tick(tally, 100.0, 1.0)
    tally.in_time, tally.cost_usd, tally.cells = 30, 1.5, {cell(0.1): 30}
    tally.outcomes["completed"], tally.outcomes["rejected"] = 40, 10
    history.tick(tally, 102.0, 2.0)
    point = dict(zip(COLUMNS, history.last, strict=True))
    assert (point["in_time"], point["late"], point["rejected"], point["cost_usd"]) == (15, 5, 5, 0.75)
    assert point["p50_s"] == pytest.approx(0.1, rel=0.02)


def test_the_history_is_bounded():
    tally, history = Tally(), History()
    for second in range(COARSE_S * (COARSE_POINTS + 10)):
        tally.in_time += 2
        tally.outcomes["completed"] += 2
        history.tick(tally, 1000.0 + second, 1.0)
    fine, coarse = history.fine.columns(), history.coarse.columns()
    assert len(fine["t"]) == FINE_POINTS
    assert fine["t"] == sorted(fine["t"])
    assert len(coarse["t"]) == COARSE_POINTS
    assert set(coarse["in_time"]) == {2.0}


def test_refusals_do_not_push_answers_out_of_the_last_requests():
    tally = Tally()
    tally.recent.add(ending(number=7), 1)
    for number in range(10_000):
        tally.recent.add(ending("rejected", number=number), 1)
    found = tally.recent.after(0, 1000, "shop")
    assert len(found) == 1 + KEPT
    assert (found[0].id, found[0].kind) == ("shop-1-7", "in_time")
    assert [one.number for one in found] == sorted(one.number for one in found)
    assert tally.recent.after(found[-1].number, 1000, "shop") == []
