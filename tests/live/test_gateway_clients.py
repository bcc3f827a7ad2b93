"""Bad clients: slow, oversized, truncated, wrong, many. Clear answers, and everybody else is still served."""

import ctypes
import http.client
import re
import resource
import socket
import struct
import threading
import time
from contextlib import ExitStack

import pytest
from gateway_world import SmallHost, running, wait_until

from fairlead.engine.live.gateway import Settings, read_token
from fairlead.engine.live.gateway.app import ENDPOINTS
from fairlead.errors import ConfigError

SO_ATTACH_FILTER = 26  # of Linux
TOKEN = "correct-horse-battery"
HEAD = b"POST /v1/workflows/echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def host():
    return SmallHost({"shop.echo": lambda value, _: value})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    limits = {"max_body_bytes": 10_000, "max_head_bytes": 4_000}
    with running(host(), tmp_path_factory.mktemp("state"), **limits) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    """One that waits half a second for a request; nothing else is sent to it, for a busy machine may take longer."""
    with running(host(), tmp_path_factory.mktemp("state"), receive_limit_s=0.5) as gateway:
        yield gateway


def still_serves(gateway):
    return gateway.send("POST", "/v1/workflows/echo", {"input": 1}).status == 200


def test_a_body_that_is_declared_too_large_is_not_read(gateway):
    text = gateway.raw(HEAD + b"Content-Length: 10001\r\nExpect: 100-continue\r\n\r\n")
    assert text.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in text
    assert b'"body_too_large"' in text


def test_a_body_that_is_too_large_gets_its_answer_though_it_was_being_sent(gateway):
    answer = gateway.send("POST", "/v1/workflows/echo", b" " * 3_000_000, {"Content-Type": "application/json"})
    assert (answer.status, answer.code) == (413, "body_too_large")
    assert answer.headers["connection"] == "close"


def test_a_body_that_grows_too_large_in_chunks_is_cut_off(gateway):
    chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
    text = gateway.raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 12 + b"0\r\n\r\n")
    assert text.startswith(b"HTTP/1.1 413 ")
    assert still_serves(gateway)


def test_a_body_of_exactly_the_limit_is_taken(gateway):
    body = b'{"input": "' + b"x" * (10_000 - 13) + b'"}'
    assert len(body) == 10_000
    assert gateway.send("POST", "/v1/workflows/echo", body, {"Content-Type": "application/json"}).status == 200


def test_chunks_are_put_together(gateway):
    text = gateway.raw(
        HEAD + b'Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\n{"inp\r\n8\r\nut": 42}\r\n0\r\n\r\n'
    )
    assert b'"output":42' in text


@pytest.mark.parametrize(
    "start",
    [b"POST /v1/work", HEAD, HEAD + b"Content-Length: 100\r\n\r\n", HEAD + b'Content-Length: 100\r\n\r\n{"input"'],
    ids=["in-the-line", "in-the-head", "before-the-body", "in-the-body"],
)
def test_a_slow_sender_is_told_and_cut_off(impatient, start):
    text = impatient.raw(start)
    assert text.startswith(b"HTTP/1.1 408 ")
    assert b'"request_timeout"' in text


def test_a_sender_that_drips_is_cut_off_all_the_same(impatient):
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=60) as link:
        link.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            drip(link)


def drip(link):
    for _ in range(1000):
        link.sendall(b" ")
        time.sleep(0.05)


@pytest.mark.parametrize("start", [b"", b"\r\n\r\n"], ids=["nothing", "blank-lines"])
def test_a_connection_that_asks_nothing_is_closed(impatient, start):
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=60) as link:
        link.sendall(start)
        assert link.recv(100) == b""


def test_a_truncated_body_harms_nobody(gateway):
    with socket.create_connection(("127.0.0.1", gateway.port)) as link:
        link.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"input": 1')
    calls = len(gateway.host.calls)
    assert still_serves(gateway)
    assert len(gateway.host.calls) == calls + 1


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x02\x00",
        b"NONSENSE\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n\r\n",
        HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
    ],
    ids=["tls", "nonsense", "version", "negative-length", "not-ascii", "two-lengths", "length-and-chunks"],
)
def test_what_is_not_http_gets_400_and_the_door(gateway, text):
    assert gateway.raw(text).startswith(b"HTTP/1.1 400 ")
    assert still_serves(gateway)


@pytest.mark.parametrize(
    "filler",
    [b"X: " + b"a" * 5000 + b"\r\n", b"".join(b"X-%d: %b\r\n" % (i, b"a" * 10) for i in range(500)), b"x: y\r\n" * 700],
    ids=["one-large", "many-small", "one-repeated"],
)
def test_too_much_head_is_431(gateway, filler):
    assert gateway.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + filler + b"\r\n").startswith(b"HTTP/1.1 431 ")
    assert gateway.raw(b"GET /" + b"a" * 5000).startswith(b"HTTP/1.1 431 ")
    assert still_serves(gateway)


def test_a_large_body_is_not_taken_for_a_large_head(gateway):
    body = b'{"input": "' + b"x" * 9_000 + b'"}'
    text = gateway.raw(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    assert text.startswith(b"HTTP/1.1 200 ")


def test_a_connection_serves_many_requests(gateway):
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=10)
    try:
        for value in range(30):
            body = b'{"input": %d}' % value
            connection.request("POST", "/v1/workflows/echo", body, {"Content-Type": "application/json"})
            assert b'"output":%d,' % value in connection.getresponse().read()
    finally:
        connection.close()


def test_an_idle_connection_is_closed_after_its_time(tmp_path):
    with running(host(), tmp_path, idle_limit_s=0.3) as gateway:
        text = gateway.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert text.endswith(b'{"status":"alive"}')


def test_a_thousand_idle_connections_leave_the_others_served_and_memory_bounded(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        with running(host(), tmp_path, idle_limit_s=60.0) as gateway, ExitStack() as stack:
            assert still_serves(gateway)
            before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for number in range(1000):
                link = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
                if number % 2:
                    link.sendall(HEAD)  # half of them begin and do not go on
            wait_until(lambda: b"fairlead_gateway_connections 1001.0" in gateway.send("GET", "/metrics").body)
            assert all(still_serves(gateway) for _ in range(20))
            grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
            assert grown_kb < 64_000  # 64 kB each, with what this test itself holds
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_a_follower_whose_network_is_gone_gives_its_place_back(tmp_path):
    with (
        running(host(), tmp_path, idle_limit_s=2.0, max_dashboards=1) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port)) as follower,
    ):
        follower.sendall(b"GET /v1/dashboard/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert follower.recv(15) == b"HTTP/1.1 200 OK"
        assert gateway.send("GET", "/v1/dashboard/events").status == 503
        drop = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # a filter that takes no packet
        follower.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(drop)))
        wait_until(lambda: b"fairlead_gateway_connections 1.0" in gateway.send("GET", "/metrics").body, 60)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with running(host(), tmp_path_factory.mktemp("state"), token=TOKEN) as gateway:
        yield gateway


@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer wrong-token-altogether", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}",
     TOKEN, "Bearer \xfc\xfc\xfc"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/status", "/metrics", "/v1/requests/x", "/nothing/here"])
def test_a_wrong_token_gets_nothing(guarded, given, path):
    answer = guarded.send("GET", path, headers={} if given is None else {"Authorization": given})
    assert (answer.status, answer.code) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_wrong_token_starts_nothing(guarded):
    assert guarded.send("POST", "/v1/workflows/echo", {"input": 1}).status == 401
    assert guarded.host.calls == []


def test_every_endpoint_but_the_open_ones_wants_the_token_where_it_belongs(guarded):
    opened = ["/v2/health/live", "/v2/health/ready", "/", "/healthz", "/readyz", "/openapi.json", "/docs", "/ui/{file}"]
    assert [(each.method, each.path) for each in ENDPOINTS if each.is_open] == [("GET", path) for path in opened]
    misplaced = {"Cookie": f"token={TOKEN}", "Proxy-Authorization": f"Bearer {TOKEN}", "X-Token": TOKEN}
    for each in ENDPOINTS:
        path = re.sub(r"\{[a-z]+\}", "demo", each.path)
        for asked in (path, f"{path}?token={TOKEN}&access_token={TOKEN}"):
            answer = guarded.send(each.method, asked, headers=misplaced)
            assert answer.status == 401 or each.is_open, asked


@pytest.mark.parametrize("path", [each.path for each in ENDPOINTS if not each.is_open])
def test_a_page_of_another_site_reaches_no_endpoint_without_a_token(gateway, path):
    asked = re.sub(r"\{[a-z]+\}", "demo", path)
    for method in {each.method for each in ENDPOINTS if each.path == path}:
        for given in ({"Origin": "http://attacker.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "a.example"}):
            assert gateway.send(method, asked, headers={"Host": "localhost", **given}).status == 403, (method, given)


@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", f"bearer {TOKEN}"])
def test_the_right_token_gets_everything(guarded, given):
    assert guarded.send("GET", "/v1/status", headers={"Authorization": given}).status == 200
    assert guarded.send("GET", "/metrics", headers={"Authorization": given, "Host": "example.org"}).status == 200


@pytest.mark.parametrize(
    "path", ["/", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/openapi.json", "/docs"]
)
def test_health_and_the_document_need_none(guarded, path):
    assert guarded.send("GET", path).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:80"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "attacker.example"}, 403),
        ({"Host": "127.0.0.1.attacker.example"}, 403),
        ({"Host": "localhost", "Origin": "http://localhost"}, 200),
        ({"Host": "localhost", "Origin": "http://attacker.example"}, 403),
        ({"Host": "localhost", "Origin": "null"}, 403),
        ({"Host": "localhost", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),  # an image
        ({"Host": "localhost", "Sec-Fetch-Site": "same-site"}, 403),  # another port of this machine
        ({"Host": "localhost", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Host": "localhost", "Sec-Fetch-Site": "none"}, 200),  # typed by hand
    ],
)
def test_without_a_token_only_this_machine_is_answered(gateway, headers, status):
    assert gateway.send("GET", "/v1/status", headers=headers).status == status


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"token": "short"}, "at least 16"),
        ({"token": "has a blank in the middle"}, "without blanks"),
        ({"allow_deploy": True}, "needs a token"),
        ({"max_open": 0}, "max_open"),
        ({"receive_limit_s": float("nan")}, "receive_limit_s"),
    ],
)
def test_wrong_settings_are_named(tmp_path, changes, words):
    with pytest.raises(ConfigError, match=words):
        Settings(state=tmp_path, **changes).check()


def test_without_a_token_only_loopback_is_listened_on(tmp_path):
    with socket.create_server(("0.0.0.0", 0)) as everybody, socket.create_server(("127.0.0.1", 0)) as us:
        Settings(state=tmp_path).check([us])
        Settings(state=tmp_path, token=TOKEN).check([everybody])
        with pytest.raises(ConfigError, match="can be reached by others"):
            Settings(state=tmp_path).check([us, everybody])


def test_the_token_comes_from_a_file_or_the_environment(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(file, {}) == TOKEN
    assert read_token(None, {"FAIRLEAD_TOKEN": TOKEN}) == TOKEN
    assert read_token(None, {}) is None
    with pytest.raises(ConfigError, match="FAIRLEAD_TOKEN"):
        read_token(None, {"FAIRLEAD_TOKEN": ""})
    with pytest.raises(ConfigError, match="missing"):
        read_token(tmp_path / "missing", {})


def test_bodies_of_open_requests_have_a_bound_in_all(tmp_path):
    slow = SmallHost({"shop.slow": lambda value, _: len(value)}, delay_s={"shop.slow": 30.0})
    with running(slow, tmp_path, max_open_bytes=250_000, drain_limit_s=0.1) as gateway:
        body = b'{"input": "' + b"x" * 100_000 + b'"}'
        request = HEAD.replace(b"echo", b"slow") + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        with ExitStack() as stack:
            for number in range(2):
                stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port))).sendall(request)
                wait_until(lambda number=number: len(slow.calls) == number + 1)
            refused = gateway.send("POST", "/v1/workflows/slow", body, {"Content-Type": "application/json"})
            assert (refused.status, refused.code) == (429, "inbox_full")
            assert len(slow.calls) == 2
        wait_until(lambda: len(slow.cancelled) == 2)  # both clients left: there is room again
        slow.delay_s.clear()
        assert gateway.send("POST", "/v1/workflows/slow", body, {"Content-Type": "application/json"}).status == 200


def test_what_is_still_open_when_time_is_up_is_told_so(tmp_path):
    slow = SmallHost({"shop.slow": lambda value, _: value}, delay_s={"shop.slow": 60.0})
    answers = []
    with running(slow, tmp_path, drain_limit_s=0.2) as gateway:
        caller = threading.Thread(
            target=lambda: answers.append(gateway.send("POST", "/v1/workflows/slow", {"input": 1}))
        )
        caller.start()
        wait_until(lambda: len(slow.calls) == 1)
        gateway.begin_stop()
        caller.join()
    assert (answers[0].status, answers[0].code) == (503, "cancelled")
    assert "retry-after" in answers[0].headers
