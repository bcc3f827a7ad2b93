"""Asynchronous calls: on disk before the acknowledgement, and one end for each.

What needs no socket is in `test_gateway_on_virtual_time.py`.
"""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path

import pytest
from gateway_world import Refuse, Running, SmallHost, running, wait_until
from small_disks import fill, mounted

from fairlead.engine.live.journal import Journal
from fairlead.engine.live.values import LostValueError

ATTEMPTS: list[int] = []


def busy_twice(value, _):
    ATTEMPTS.append(value)
    if len(ATTEMPTS) < 3:
        raise Refuse("rejected", "busy", 0.05)
    return len(ATTEMPTS)


def always_busy(value, _):
    raise Refuse("rejected", "busy", 5.0)


LOSSES = []


def lost_twice(value, _):
    LOSSES.append(value)
    if len(LOSSES) < 3:
        raise LostValueError("an input cannot be read: node a is gone")
    return value


def always_lost(value, _):
    raise LostValueError("an input cannot be read: node a is gone")


FUNCTIONS = {
    "shop.lost": lost_twice,
    "shop.gone": always_lost,
    "shop.echo": lambda value, _: value,
    "shop.limit": lambda value, deadline_s: None if deadline_s == float("inf") else deadline_s,
    "shop.boom": lambda value, _: 1 / value,
    "shop.slow": lambda value, _: "slow",
    "shop.busy": busy_twice,
    "shop.jammed": always_busy,
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    host = SmallHost(dict(FUNCTIONS), delay_s={"shop.slow": 60.0})
    with running(host, tmp_path_factory.mktemp("state")) as gateway:
        yield gateway


TOKEN = "a-token-for-operators"
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}


def accept(gateway, workflow, value, headers=None, **more):
    answer = gateway.send("POST", f"/v1/workflows/{workflow}/async", {"input": value, **more}, headers)
    assert answer.status in (200, 202), answer.body
    assert answer.headers["location"] == answer.json()["status_url"]
    return answer


def final(gateway, url, headers=None):
    wait_until(lambda: gateway.send("GET", url, headers=headers).json()["state"] != "accepted")
    return gateway.send("GET", url, headers=headers).json()


def test_accept_state_and_result(gateway):
    url = accept(gateway, "echo", {"a": 1}, {"X-Request-ID": "mine-7"}).json()["status_url"]
    state = final(gateway, url)
    assert state["state"] == "completed"
    assert state["workflow"] == "shop.echo"
    assert state["attempts"] == 1
    assert state["request_id"] == "mine-7"
    assert state["accepted_at"] <= state["finished_at"]
    result = gateway.send("GET", f"{url}/result")
    assert (result.status, result.json()["output"]) == (200, {"a": 1})


def test_the_synchronous_path_accepts_by_preference(gateway):
    answer = gateway.send("POST", "/v1/workflows/echo", {"input": 5}, {"Prefer": "wait=1, respond-async"})
    assert answer.status == 202
    assert final(gateway, answer.headers["location"])["state"] == "completed"
    assert gateway.send("POST", "/v1/workflows/echo", {"input": 5}, {"Prefer": "respond-asynchronously"}).status == 200


def test_without_a_deadline_it_may_take_any_time(gateway):
    url = accept(gateway, "limit", 0).json()["status_url"]
    assert final(gateway, url)["deadline"] is None
    assert gateway.send("GET", f"{url}/result").json()["output"] is None
    url = accept(gateway, "limit", 0, deadline_ms=60_000).json()["status_url"]
    assert final(gateway, url)["deadline"] is not None
    assert 50 < gateway.send("GET", f"{url}/result").json()["output"] <= 60


def test_a_failure_is_kept_with_its_reason(gateway):
    url = accept(gateway, "boom", 0).json()["status_url"]
    assert final(gateway, url)["reason"] == "ZeroDivisionError: division by zero"
    result = gateway.send("GET", f"{url}/result")
    assert (result.status, result.code) == (409, "failed")
    assert result.json()["error"]["reason"] == "ZeroDivisionError: division by zero"


def test_what_has_not_ended_has_no_result_and_can_be_cancelled_once(gateway):
    url = accept(gateway, "slow", 0).json()["status_url"]
    early = gateway.send("GET", f"{url}/result")
    assert (early.status, early.json()["state"]) == (202, "accepted")
    assert "retry-after" in early.headers
    assert gateway.send("DELETE", url).status == 202
    assert final(gateway, url)["state"] == "cancelled"
    assert gateway.send("GET", f"{url}/result").code == "cancelled"
    again = gateway.send("DELETE", url)
    assert (again.status, again.code) == (409, "ended")


def test_a_refused_one_is_handed_over_again_until_it_is_taken(gateway):
    ATTEMPTS.clear()
    url = accept(gateway, "busy", 9).json()["status_url"]
    state = final(gateway, url)
    assert (state["state"], state["attempts"]) == ("completed", 1)
    assert ATTEMPTS == [9, 9, 9]


def test_one_whose_values_were_lost_with_a_node_runs_again_from_its_input(gateway):
    LOSSES.clear()
    assert final(gateway, accept(gateway, "lost", 7).json()["status_url"])["state"] == "completed"
    assert LOSSES == [7, 7, 7]
    state = final(gateway, accept(gateway, "gone", 7).json()["status_url"])  # not for ever
    assert (state["state"], state["reason"]) == ("failed", "an input cannot be read: node a is gone")
    assert gateway.host.calls.count("shop.gone") == 4


def test_a_caller_that_waits_is_told_that_a_node_was_lost(gateway):
    answer = gateway.send("POST", "/v1/workflows/gone", {"input": 7})
    assert (answer.status, answer.code) == (503, "value_lost")
    assert "retry-after" in answer.headers


def test_a_refused_one_whose_deadline_is_nearer_than_the_next_try_ends(gateway):
    url = accept(gateway, "jammed", 0, deadline_ms=2_000).json()["status_url"]
    state = final(gateway, url)
    assert (state["state"], state["reason"]) == ("rejected", "busy")


def test_one_that_pauses_can_be_cancelled(gateway):
    url = accept(gateway, "jammed", 0).json()["status_url"]
    wait_until(lambda: "shop.jammed" in gateway.host.calls)
    assert gateway.send("DELETE", url).status == 202
    assert final(gateway, url)["state"] == "cancelled"


def test_a_key_gives_the_same_request_again_and_another_input_is_refused(gateway):
    first = accept(gateway, "echo", 1, {"Idempotency-Key": "order-1"})
    again = accept(gateway, "echo", 1, {"Idempotency-Key": "order-1"})
    assert (first.status, again.status) == (202, 200)
    assert first.json() == again.json()
    other = gateway.send("POST", "/v1/workflows/echo/async", {"input": 2}, {"Idempotency-Key": "order-1"})
    assert (other.status, other.code) == (422, "key_conflict")
    assert accept(gateway, "limit", 2, {"Idempotency-Key": "order-1"}).status == 202  # another workflow's own


@pytest.mark.parametrize(
    "id", ["0" * 32, "..%2F..%2Fetc%2Fpasswd", "..", "%00" * 32, "A" * 32, "0" * 31, "'%20OR%201=1--", "0" * 5000]
)
@pytest.mark.parametrize(("method", "tail"), [("GET", ""), ("GET", "/result"), ("DELETE", "")])
def test_an_id_that_is_none_is_not_found(gateway, id, method, tail):
    assert gateway.send(method, f"/v1/requests/{id}{tail}").status == 404


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ({"input": 1, "callback_url": "http://localhost/x"}, {}, 403),
        ({"input": 1, "callback_url": 5}, {}, 400),
        ({"input": 1, "unknown": 5}, {}, 400),
        ({"input": 1}, {"Idempotency-Key": "\xfc"}, 400),
        ({"input": 1}, {"X-Deadline-Ms": "-5"}, 400),
    ],
    ids=["callbacks-are-off", "callback-is-no-text", "unknown-key", "key-is-not-ascii", "deadline"],
)
def test_nothing_wrong_is_accepted(gateway, body, headers, status):
    before = len(gateway.host.calls)
    assert gateway.send("POST", "/v1/workflows/echo/async", body, headers).status == status
    assert gateway.send("POST", "/v1/workflows/none/async", body, headers).status in (400, 404)
    assert len(gateway.host.calls) == before


def test_a_cancel_on_a_full_disk_is_not_acknowledged(tmp_path, monkeypatch):
    monkeypatch.setattr(Journal, "settled", partialmethod(Journal.settled, timeout_s=1.0))
    host = SmallHost({"shop.slow": lambda value, _: value}, delay_s={"shop.slow": 600.0})
    with mounted(tmp_path / "disk", "8m") as disk, running(host, disk, max_async=2, drain_limit_s=0.1) as gateway:
        urls = [accept(gateway, "slow", number).json()["status_url"] for number in range(4)]
        wait_until(lambda: len(host.calls) == 2)
        log = disk / "journal.sqlite-wal"
        os.truncate(log, log.stat().st_size)
        refused = {}
        numbers = iter(range(10_000))
        while len(refused) < 2:  # a little still fits into what the log has
            fill(disk / "filler")
            if not refused:
                more = gateway.send("POST", "/v1/workflows/slow/async", {"input": "x" * 100_000})
                if more.status == 202:
                    assert next(numbers) < 1000
                    continue
            url = urls[len(refused)]  # one that runs, one that waits
            answer = gateway.send("DELETE", url)
            assert (answer.status, answer.code) == (507, "journal_full")
            assert "retry-after" in answer.headers
            assert gateway.send("GET", url).json()["state"] == "accepted"
            refused[url] = answer
        (disk / "filler").unlink()
        for url in urls[:2]:
            assert final(gateway, url)["state"] == "cancelled"


def test_a_callback_is_told_of_the_end(tmp_path):
    got: list[dict] = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Receiver) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        base = f"http://127.0.0.1:{server.server_port}"
        try:
            with running(SmallHost(dict(FUNCTIONS)), tmp_path, callback_prefixes=(f"{base}/done",)) as gateway:
                refused = gateway.send("POST", "/v1/workflows/echo/async", {"input": 1, "callback_url": f"{base}/else"})
                assert (refused.status, refused.code) == (403, "callback_refused")
                accepted = accept(gateway, "echo", 4, callback_url=f"{base}/done/1").json()
                wait_until(lambda: got)
                wait_until(lambda: gateway.send("GET", accepted["status_url"]).json()["callback"] == "delivered")
                header = {"X-Callback-Url": f"{base}/done/2", "Content-Type": "application/json"}
                assert gateway.send("POST", "/async-function/echo", b"[1]", header).status == 202
                wait_until(lambda: len(got) == 2)
        finally:
            server.shutdown()
            serving.join()
    assert got[0]["id"] == accepted["id"]
    assert got[0]["state"] == "completed"


SERVER = """
import asyncio, socket, sys
from contextlib import contextmanager
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from gateway_world import SmallHost
from fairlead.engine.live.gateway import Settings
from fairlead.engine.live.gateway.server import serve
from fairlead.engine.live.journal import Journal

async def main():
    state = Path(sys.argv[1])
    host = SmallHost({"shop.work": lambda value, _: value + 1}, delay_s={"shop.work": 0.05})
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        print(listening.getsockname()[1], flush=True)
        settings = Settings(state=state, max_async=50)
        await serve(host, Journal(state / "journal.sqlite"), settings, [listening], asyncio.Event())

asyncio.run(main())
"""


@contextmanager
def killed_in_the_end(script, state):
    """A gateway in a process of its own, as a client sees it."""
    command = [sys.executable, "-c", script, str(state), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            client = Running.__new__(Running)
            client.port, client.cacert = int(server.stdout.readline()), None
            wait_until(lambda: _answers(client))
            yield client
        finally:
            os.kill(server.pid, signal.SIGKILL)


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path):
    acknowledged: dict[str, int] = {}
    for round_ in range(3):
        with killed_in_the_end(SERVER, tmp_path) as client:
            for number in range(30):
                value = round_ * 100 + number
                acknowledged[accept(client, "work", value).json()["id"]] = value
    with killed_in_the_end(SERVER, tmp_path) as client:
        for id, value in acknowledged.items():
            assert final(client, f"/v1/requests/{id}")["state"] == "completed"
            assert client.send("GET", f"/v1/requests/{id}/result").json()["output"] == value + 1


def _answers(client) -> bool:
    try:
        return client.send("GET", "/healthz", timeout_s=5.0).status == 200
    except OSError:
        return False
