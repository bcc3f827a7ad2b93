"""Which calls are sent again, when, and which never: against a server that answers by a script."""

import asyncio
import gc
import json
import threading
import time
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import pytest

from fairlead import AsyncClient, Client
from fairlead.client import (
    CancelledCallError,
    FailedError,
    LateError,
    NoAnswerError,
    RefusedError,
)
from fairlead.client.errors import retry_after_s

ANSWER = (200, {}, {"id": "a-1-0", "output": 7, "latency_ms": 1.0, "deadline_ms": None, "in_time": True})
BREAK = "break"
HANG = "hang"


def refusal(status, code, after_ms=None):
    headers = {} if after_ms is None else {"Retry-After": "1", "Retry-After-Ms": str(after_ms)}
    return status, headers, {"error": {"code": code, "message": f"It was {code}.", "reason": "because"}}


class Scripted(ThreadingHTTPServer):
    """Gives the answers of a script in turn, the last one for ever; keeps what it was asked, and when."""

    daemon_threads = True

    def __init__(self, *script):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = list(script)
        self.asked = []
        self.lock = threading.Lock()

    def next(self, request):
        with self.lock:
            self.asked.append((time.monotonic(), request.path, dict(request.headers)))
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        step = self.server.next(self)
        if step == BREAK:
            self.connection.close()
            self.close_connection = True
            return
        if step == HANG:
            self.rfile.read(1)  # until the client hangs up
            self.close_connection = True
            return
        status, headers, body = step
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST  # noqa: N815

    def handle(self):
        with suppress(OSError, ValueError):  # the client hung up, as some tests want
            super().handle()

    def log_message(self, *args):
        pass


@contextmanager
def scripted(*script, **settings):
    with Scripted(*script) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with Client(f"http://127.0.0.1:{server.server_port}", token="", **settings) as client:
                yield server, client
        finally:
            server.shutdown()
            thread.join()


def test_a_refusal_is_answered_by_coming_again_not_before_it_was_told():
    with scripted(refusal(429, "rejected", 120), refusal(503, "not_ready", 40), ANSWER) as (server, client):
        answer = client.call("main", 1)
    assert (answer.output, answer.attempts) == (7, 3)
    first, second, third = (instant for instant, _, _ in server.asked)
    assert second - first >= 0.12
    assert third - second >= 0.04
    assert answer.elapsed_s >= 0.16


def test_a_proxy_may_say_when_to_come_again_by_an_instant():
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert retry_after_s({"retry-after": formatdate(time.time() + 100, usegmt=True)}) == pytest.approx(100, abs=5)
    for text in ("soon", "", "-5", "Wed, 21 Oct 99999999999999 07:28:00 GMT", "\u0665"):
        assert retry_after_s({"retry-after": text}) is None
    assert retry_after_s({"retry-after": "3", "retry-after-ms": "250"}) == 0.25


def test_headers_without_an_end_are_not_collected():
    large = {f"X-{number}": "y" * 1000 for number in range(90)}  # 90 KB, in fewer headers than http.client takes
    with scripted((200, large, ANSWER[2])) as (_, client), pytest.raises(NoAnswerError, match="more than 64 KB"):
        client.call("w", 1)


def test_a_name_stays_one_segment_of_the_path():
    with scripted(ANSWER) as (server, client):
        client.call("../../v1/apps?x#y", 1)
        assert [path for _, path, _ in server.asked] == ["/v1/workflows/..%2F..%2Fv1%2Fapps%3Fx%23y"]


def test_what_a_function_says_does_not_control_a_terminal():
    said = {"code": "function_failed", "message": "gone\x1b[2J", "reason": None, "traceback": "line\n\x1b[31mred"}
    with scripted((502, {}, {"error": said})) as (_, client), pytest.raises(FailedError) as caught:
        client.call("w", 1)
    assert str(caught.value) == "gone\ufffd[2J"
    assert caught.value.__notes__ == ["line\n\ufffd[31mred"]
    assert caught.value.traceback == said["traceback"]


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # as an event loop leaves connections that are kept
def test_an_async_client_serves_one_event_loop_after_another():
    with scripted(ANSWER) as (server, _):
        client = AsyncClient(f"http://127.0.0.1:{server.server_port}", token="", connections=1)

        async def twice():
            return [answer.output for answer in await asyncio.gather(client.call("w", 1), client.call("w", 2))]

        assert [asyncio.run(twice()) for _ in range(3)] == [[7, 7]] * 3
        asyncio.run(client.close())
        gc.collect()


def test_no_retry_passes_the_deadline():
    with scripted(refusal(429, "rejected", 60_000)) as (server, client):
        with pytest.raises(RefusedError) as refused:
            client.call("main", 1, deadline="30s")
        assert refused.value.retry_after_s == 60.0
        assert refused.value.reason == "because"
        assert refused.value.attempts == len(server.asked) == 1
        with pytest.raises(RefusedError):
            client.call("main", 1, deadline=30)  # seconds


def test_each_attempt_is_told_what_is_left():
    with scripted(refusal(429, "rejected", 100), ANSWER) as (server, client):
        client.call("main", 1, deadline="100s")
    told = [float(headers["X-Deadline-Ms"]) for _, _, headers in server.asked]
    assert told[1] + 0 < 99_000 or told[0] - told[1] >= 100
    assert told[0] <= 100_000


def test_what_may_have_run_is_sent_again_only_if_that_does_no_harm():
    for step in (BREAK, refusal(429, "dropped", 1), refusal(503, "cancelled", 1), refusal(503, "value_lost", 1)):
        with scripted(step, ANSWER) as (server, client):
            with pytest.raises((NoAnswerError, RefusedError, CancelledCallError)):
                client.call("main", 1)
            assert len(server.asked) == 1
        with scripted(step, ANSWER) as (server, client):
            assert client.call("main", 1, idempotent=True).attempts == 2


HOPELESS = {
    "invalid_body": 400,
    "unauthorized": 401,
    "unknown_workflow": 404,
    "body_too_large": 413,
    "too_many_items": 422,
    "function_failed": 502,
    "deadline_passed": 504,
}


def test_what_cannot_get_better_is_never_sent_again():
    for code, status in HOPELESS.items():
        with scripted(refusal(status, code, 1), ANSWER) as (server, client):
            with pytest.raises(Exception, match=f"It was {code}") as found:
                client.call("main", 1, idempotent=True)
            assert (found.value.status, found.value.code, len(server.asked)) == (status, code, 1)


def test_retries_end():
    with scripted(refusal(429, "inbox_full", 1), retries=2) as (server, client):
        with pytest.raises(RefusedError) as refused:
            client.call("main", 1)
        assert refused.value.attempts == len(server.asked) == 3


def test_the_same_key_goes_with_every_attempt_of_a_submit():
    with scripted(BREAK, (202, {}, {"id": "ab", "status_url": "/"})) as (server, client):
        assert client.submit("main", 1).id == "ab"
    keys = [headers["Idempotency-Key"] for _, _, headers in server.asked]
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert server.asked[0][1] == "/v1/workflows/main/async"


def test_a_result_is_asked_for_as_often_as_told():
    state = {"id": "ab", "workflow": "main", "state": "accepted", "attempts": 1, "accepted_at": "now"}
    waiting = (202, {"Retry-After-Ms": "50"}, state)
    with scripted(waiting, waiting, (200, {}, {"id": "ab", "output": [1]})) as (server, client):
        assert client.request("ab").result() == [1]
    instants = [instant for instant, _, _ in server.asked]
    assert len(instants) == 3
    assert min(later - earlier for earlier, later in pairwise(instants)) >= 0.05


def test_a_cancelled_await_hangs_up():
    async def cancelled(url):
        async with AsyncClient(url, token="") as client:
            task = asyncio.create_task(client.call("main", 1))
            while not server.asked:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await client.call("main", 2)).output

    with scripted(HANG, ANSWER) as (server, _):
        assert asyncio.run(cancelled(f"http://127.0.0.1:{server.server_port}")) == 7


def test_a_server_that_hangs_ends_with_the_deadline_or_the_timeout():
    with scripted(HANG, timeout="100ms") as (_, client):
        with pytest.raises(LateError, match="within 50 ms"):
            client.call("main", 1, deadline="50ms")
        with pytest.raises(NoAnswerError, match=r"in the time that was set \(timeout\)") as none:
            client.call("main", 1)
        assert none.value.was_sent


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, {}, {"hello": 1}), r"the answer \(200\) is not that of a Fairlead gateway"),
        ((302, {"Location": "/"}, {}), "Redirects are not followed"),
        ((500, {}, []), r"the answer \(500\) is not that of"),
    ],
)
def test_another_server_is_told_apart(answer, message):
    with scripted(answer) as (server, client):
        with pytest.raises(NoAnswerError, match=message):
            client.call("main", 1)
        assert len(server.asked) == 1


def test_nobody_there_is_tried_again_and_then_told():
    with Scripted(ANSWER) as server:
        port = server.server_port
    with Client(f"http://127.0.0.1:{port}", retries=1) as client:
        with pytest.raises(NoAnswerError, match="cannot be reached") as none:
            client.call("main", 1)
        assert (none.value.attempts, none.value.was_sent) == (2, False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Client("127.0.0.1:8000"), "the URL must look like http://127.0.0.1:8000"),
        (lambda: Client("http://127.0.0.1:1/?a=b"), "the URL of a gateway has no query"),
        (lambda: Client("http://127.0.0.1:1", token="a b"), "token must consist of printable ASCII"),
        (lambda: Client("http://127.0.0.1:1", retries=-1), "retries must be a whole number of at least 0"),
        (lambda: Client("http://127.0.0.1:1", timeout=0), "timeout must be a positive duration"),
        (lambda: Client("https://127.0.0.1:1", cacert="missing.pem"), "missing.pem: cannot be read"),
        (lambda: Client("http://127.0.0.1:1").call("x", deadline="soon"), "deadline must be a positive duration"),
        (lambda: Client("http://127.0.0.1:1").call("x", idempotency_key="a\nb"), "printable ASCII characters"),
        (lambda: Client("http://127.0.0.1:1").infer("x", {}), "inputs must have at least one array"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_sent(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_closed_client_says_so():
    client = Client("http://127.0.0.1:1")
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="this client is closed"):
        client.call("main")
