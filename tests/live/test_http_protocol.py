"""HTTP/1.1 at the level of bytes: framing, pipelining, limits, and connections that end without a trace."""

import gc
import json
import re
import socket
import ssl
import subprocess
import time
import weakref
from contextlib import ExitStack, suppress

import pytest
from gateway_world import SmallHost, read_all, running, wait_until

from fairlead.engine.live.gateway import Settings
from fairlead.engine.live.gateway.protocol import HttpConnection
from fairlead.errors import ConfigError

TOKEN = "correct-horse-battery"
ALIVE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def host(delay_s=0.0):
    return SmallHost({"shop.echo": lambda value, _: value}, delay_s={"shop.echo": delay_s} if delay_s else {})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with running(host(), tmp_path_factory.mktemp("state")) as gateway:
        yield gateway


def call(value, *headers, path="/v1/workflows/echo"):
    """A whole request that echoes a value."""
    body = json.dumps({"input": value}).encode()
    fixed = [b"Host: localhost", b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    head = b"\r\n".join([b"POST %b HTTP/1.1" % path.encode(), *fixed, *headers])
    return head + b"\r\n\r\n" + body


def chunked(*chunks, trailers=b"", headers=b""):
    head = (
        b"POST /v1/workflows/echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n"
    )
    return head + headers + b"\r\n" + b"".join(chunks) + b"0\r\n" + trailers + b"\r\n"


def chunk(data, extension=b""):
    return b"%x%b\r\n%b\r\n" % (len(data), extension, data)


def statuses(text):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) [A-Z]", text)]


def settled(link):
    """All that the other side sends until it closes, also where it resets the connection."""
    text = b""
    with suppress(ConnectionError):
        while part := link.recv(65536):
            text += part
    return text


# --- pipelining ------------------------------------------------------------------------------------------------------


def test_requests_sent_ahead_are_answered_in_order(gateway):
    text = gateway.raw(b"".join(call(number) for number in range(10)) + LAST)
    assert statuses(text) == [200] * 11
    assert [text.index(b'"output":%d,' % number) for number in range(10)] == sorted(
        text.index(b'"output":%d,' % number) for number in range(10)
    )


def test_beyond_the_limit_requests_sent_ahead_get_429_and_the_end(gateway):
    calls = len(gateway.host.calls)
    text = gateway.raw(b"".join(call(number) for number in range(100)))
    assert statuses(text) == [200] * 16 + [429]
    assert b'"too_many_pipelined"' in text
    assert len(gateway.host.calls) == calls + 16


def test_a_flood_of_requests_sent_ahead_is_not_kept(tmp_path):
    slow = host(delay_s=30.0)
    with running(slow, tmp_path, token=TOKEN, drain_limit_s=0.1) as gateway, ExitStack() as stack:
        link = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=60))
        with suppress(ConnectionError, TimeoutError):
            for _ in range(100):
                link.sendall(ALIVE * 2000)
        assert gateway.send("GET", "/healthz").status == 200


def test_while_one_is_in_work_the_rest_of_the_stream_is_not_read(tmp_path):
    slow = host(delay_s=0.5)
    with running(slow, tmp_path) as gateway, socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as link:
        link.sendall(call(1))
        wait_until(lambda: len(slow.calls) == 1)
        link.sendall(call(2))
        link.sendall(call(3, b"Connection: close"))
        text = read_all(link)
    assert statuses(text) == [200, 200, 200]


# --- framing ---------------------------------------------------------------------------------------------------------

UPGRADE = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__")


@pytest.mark.parametrize("is_split", [False, True], ids=["in-one-segment", "in-two-segments"])
def test_an_offered_upgrade_is_ignored_and_its_body_read_once(gateway, is_split):
    calls = len(gateway.host.calls)
    request = call("plain", *UPGRADE)
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as link:
        cut = request.index(b"\r\n\r\n") + 4 if is_split else len(request)
        link.sendall(request[:cut])
        if is_split:
            link.sendall(request[cut : cut + 3])
            link.sendall(request[cut + 3 :])
        link.sendall(LAST)
        text = read_all(link)
    assert statuses(text) == [200, 200]
    assert b'"output":"plain"' in text
    assert len(gateway.host.calls) == calls + 1


def test_the_body_of_an_upgrade_is_never_a_request_of_its_own(gateway):
    calls = len(gateway.host.calls)
    hidden = call("hidden")
    head = b"POST /v1/workflows/echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: %d\r\n\r\n" % len(hidden)
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as link:
        link.sendall(head)
        link.sendall(hidden)
        link.sendall(LAST)
        text = read_all(link)
    assert statuses(text) == [400, 200]  # the body is no JSON
    assert len(gateway.host.calls) == calls


@pytest.mark.parametrize(
    "last",
    [
        b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        call(1, b"Connection: close, upgrade", b"Upgrade: h2c", b"Content-Encoding: gzip"),
        call(1, b"Connection: close, upgrade", b"Upgrade: h2c"),
    ],
    ids=["refused-early", "refused-upgrade", "closing-upgrade"],
)
def test_what_follows_the_last_request_in_its_segment_never_runs(gateway, last):
    calls = len(gateway.host.calls)
    text = gateway.raw(last + call("hidden") + call("hidden"))
    assert len(statuses(text)) == 1
    assert b"connection: close" in text
    assert b"hidden" not in text
    assert len(gateway.host.calls) == calls + (statuses(text) == [200])


def test_an_upgrade_with_chunks_is_read_as_chunks(gateway):
    text = gateway.raw(chunked(chunk(b'{"input": '), chunk(b"7}"), headers=b"Upgrade: h2c\r\n"))
    assert statuses(text) == [200]
    assert b'"output":7' in text


def test_nothing_after_a_request_that_closes_is_read(gateway):
    calls = len(gateway.host.calls)
    assert statuses(gateway.raw(call(1, b"Connection: close") + call(2))) == [200]
    assert len(gateway.host.calls) == calls + 1


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost, other\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (b"GET /healthz\r\n\r\n", 505),
        (b"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200),
        (b"GET http://attacker.example/v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 403),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET /v1%2Fstatus HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"GET /%76%31/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"GET /v1/requests/%ff HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 400),
        (call(1, b"Content-Encoding: gzip", b"Connection: close"), 415),
        (call(1, b"Content-Encoding: identity", b"Connection: close"), 200),
        (call(1, b"Expect: magic"), 417),
        (chunked(chunk(b"{}")).replace(b"chunked", b"gzip, chunked"), 501),
    ],
    ids=[
        "no-host", "two-hosts", "host-list", "host-with-blank", "old-without-host", "ancient", "whole-url",
        "whole-url-of-another", "asterisk", "connect", "encoded-slash", "encoded-fixed-segment", "not-utf-8", "gzip",
        "identity", "other-expectation", "other-transfer-coding",
    ],
)  # fmt: skip
def test_heads_are_read_by_the_rules(gateway, request_, status):
    assert statuses(gateway.raw(request_)) == [status]


def test_an_old_client_that_wants_to_stay_is_told_that_it_may(gateway):
    ask = b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    text = gateway.raw(ask + b"GET /healthz HTTP/1.0\r\n\r\n")
    assert statuses(text) == [200, 200]
    assert text.lower().count(b"connection: keep-alive") == 1


def test_an_expected_body_is_asked_for(gateway):
    request = call(5, b"Expect: 100-continue", b"Connection: close")
    cut = request.index(b"\r\n\r\n") + 4
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as link:
        link.sendall(request[:cut])
        assert link.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        link.sendall(request[cut:])
        assert b'"output":5' in read_all(link)


def test_head_answers_have_no_body(gateway):
    text = gateway.raw(LAST.replace(b"GET", b"HEAD"))
    assert text.startswith(b"HTTP/1.1 200 ")
    assert text.endswith(b"\r\n\r\n")


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        chunked(chunk(b'{"input": 1}'), trailers=b"".join(b"T%d: %b\r\n" % (i, b"x" * 90) for i in range(5000))),
        chunked(chunk(b'{"input": 1}'), trailers=b"T: " + b"x" * 500_000 + b"\r\n"),
        chunked(*(chunk(b" ", b";" + b"x" * 500) for _ in range(1000))),
        chunked(*(chunk(b"  ") for _ in range(20_000))),
        chunked(*(chunk(b" " * 64) for _ in range(5_000)), trailers=b"T: " + b"x" * 500_000 + b"\r\n"),
    ],
    ids=["many-trailers", "one-large-trailer", "chunk-extensions", "tiny-chunks", "trailer-after-chunks"],
)
def test_trailers_and_chunk_extensions_count_as_head(gateway, request_):
    assert statuses(gateway.raw(request_)) == [431]


def test_small_chunks_and_a_trailer_are_fine(gateway):
    text = b'{"input": "%b"}' % (b"x" * 60_000)
    pieces = [chunk(text[first : first + 16]) for first in range(0, len(text), 16)]
    assert statuses(gateway.raw(chunked(*pieces, trailers=b"T: v\r\n"))) == [200]


def test_a_refusal_comes_before_the_body_is_read(tmp_path):
    with running(host(), tmp_path, token=TOKEN) as gateway:
        head = b"POST /v1/workflows/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n"
        text = gateway.raw(head)
        assert statuses(text) == [401]
        assert b"connection: close" in text


def test_a_refusal_with_a_small_body_keeps_the_connection(tmp_path):
    with running(host(), tmp_path, token=TOKEN) as gateway:
        assert statuses(gateway.raw(call(1) + call(2) + LAST)) == [401, 401, 200]


def test_an_endpoint_that_reads_no_body_takes_none_that_is_large(gateway):
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    assert statuses(gateway.raw(head + b"Content-Length: 100000\r\n\r\n")) == [413]
    assert statuses(gateway.raw(head + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000)) == [200]


def test_a_refusal_is_told_even_if_its_short_body_never_comes(tmp_path):
    with running(host(), tmp_path, token=TOKEN, receive_limit_s=0.5) as gateway:
        assert statuses(gateway.raw(call(1)[:-4], timeout_s=20.0)) == [401]


def test_a_client_that_reads_slowly_gets_its_whole_answer(tmp_path):
    large = SmallHost({"shop.echo": lambda value, _: "x" * 12_000_000})
    with running(large, tmp_path, idle_limit_s=0.5, max_result_bytes=20_000_000) as gateway:
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        link.settimeout(20)
        with link:
            link.connect(("127.0.0.1", gateway.port))
            link.sendall(call(1, b"Connection: close"))
            received = 0
            while part := link.recv(1 << 20):
                received += len(part)
                time.sleep(0.02)  # some seconds in all, several times the limit
    assert received > 12_000_000


def test_answers_are_sent_to_their_end_when_the_gateway_stops(tmp_path):
    large = SmallHost({"shop.echo": lambda value, _: "x" * 8_000_000})
    with running(large, tmp_path) as gateway, ExitStack() as stack:
        link = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=20))
        link.sendall(call(1))
        received = len(link.recv(1000))
        gateway.begin_stop()
        while part := link.recv(1 << 20):
            received += len(part)
    assert received > 8_000_000


# --- many connections ------------------------------------------------------------------------------------------------


def test_idle_connections_make_room_for_new_ones(tmp_path):
    with running(host(), tmp_path, token=TOKEN, max_connections=20) as gateway, ExitStack() as stack:
        for number in range(60):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=60))
            link.sendall((ALIVE, call(1), call(1)[:30])[number % 3])
            if number % 3 < 2:
                assert link.recv(65536)
        known = {"Authorization": f"Bearer {TOKEN}"}
        for _ in range(3):
            assert gateway.send("GET", "/v1/status", headers=known).status == 200


def test_clients_that_never_read_make_room_too(tmp_path):
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running(host(), tmp_path, token=TOKEN, max_connections=4) as gateway, ExitStack() as stack:
        address = ("127.0.0.1", gateway.port)
        links = [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(4)]
        for _ in range(12):  # a few at a time: some 10 MB of answers each, more than the kernel takes for it
            for link in links:
                with suppress(ConnectionError):
                    link.sendall(ask * 16)
            time.sleep(0.1)
        for _ in range(3):
            assert gateway.send("GET", "/healthz").status == 200


def test_a_known_connection_outlives_strangers(tmp_path):
    with running(host(), tmp_path, token=TOKEN, max_connections=20) as gateway, ExitStack() as stack:
        known = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=60))
        request = call(1, b"Authorization: Bearer " + TOKEN.encode())
        known.sendall(request)
        assert known.recv(65536).startswith(b"HTTP/1.1 200 ")
        for _ in range(60):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=60))
            link.sendall(ALIVE)
            assert link.recv(65536)
        known.sendall(request)
        assert known.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_when_every_connection_is_in_work_a_new_one_gets_503(tmp_path):
    slow = host(delay_s=30.0)
    with running(slow, tmp_path, max_connections=3, drain_limit_s=0.1) as gateway, ExitStack() as stack:
        for number in range(3):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=60))
            link.sendall(call(1))
            wait_until(lambda number=number: len(slow.calls) == number + 1)
        text = gateway.raw(b"")
        assert statuses(text) == [503]
        assert b"retry-after: 1" in text
        assert b"too_many_connections" in text


def test_a_stranger_may_idle_only_briefly(tmp_path):
    with running(host(), tmp_path, token=TOKEN, receive_limit_s=0.3, idle_limit_s=600.0) as gateway:
        assert statuses(gateway.raw(ALIVE, timeout_s=20.0)) == [200]  # and then the end
        known = call(1, b"Authorization: Bearer " + TOKEN.encode())
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as link:
            link.sendall(known)
            assert link.recv(65536)
            link.settimeout(1.5)
            with pytest.raises(TimeoutError):
                link.recv(1)


def test_a_closed_connection_leaves_nothing_to_collect(tmp_path, monkeypatch):
    seen = weakref.WeakSet()
    made = HttpConnection.connection_made

    def noted(self, transport):
        seen.add(self)
        made(self, transport)

    monkeypatch.setattr(HttpConnection, "connection_made", noted)
    gc.disable()
    try:
        with running(host(), tmp_path) as gateway:
            for number in range(40):
                with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as link:
                    link.sendall((call(1), call(1)[:-3], ALIVE, b"nonsense\r\n\r\n")[number % 4])
                    if number % 4 != 1:
                        assert link.recv(65536)
            wait_until(lambda: len(seen) <= 1)  # without the collector
    finally:
        gc.enable()


def test_a_client_that_leaves_its_requests_behind_leaves_no_traceback(tmp_path, caplog):
    with running(host(delay_s=0.2), tmp_path) as gateway:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as link:
                link.sendall(call(1) * 5)
        wait_until(lambda: gateway.send("GET", "/healthz").status == 200)
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", str(files[0]),
         "-keyout", str(files[1])],
        check=True, capture_output=True,
    )  # fmt: skip
    return files


def test_with_a_certificate_the_gateway_speaks_tls(tmp_path, certificate):
    certfile, keyfile = certificate
    with running(host(), tmp_path, certfile=certfile, keyfile=keyfile) as gateway:
        context = ssl.create_default_context(cafile=str(certfile))
        assert gateway.send("GET", "/healthz").json() == {"status": "alive"}
        raw = socket.create_connection(("127.0.0.1", gateway.port), timeout=60)
        with context.wrap_socket(raw, server_hostname="localhost") as link:
            assert link.version() in ("TLSv1.2", "TLSv1.3")
            link.sendall(call(1) + call(2, b"Connection: close"))
            assert statuses(settled(link)) == [200, 200]
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as link:
            link.sendall(ALIVE)
            assert b"200" not in settled(link)  # plain HTTP gets nothing


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"certfile": None}, "belong together"),
        ({"certfile": "missing.pem"}, "No such file"),
        ({"certfile": "garbage.pem"}, "cannot be used"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_named(tmp_path, certificate, changes, words):
    (tmp_path / "garbage.pem").write_text("nothing\n")
    files = {"certfile": certificate[0], "keyfile": certificate[1]}
    files |= {name: None if value is None else tmp_path / value for name, value in changes.items()}
    with pytest.raises(ConfigError, match=words), running(host(), tmp_path, **files):
        pass


def test_settings_name_a_certificate_without_its_key(tmp_path, certificate):
    with pytest.raises(ConfigError, match="belong together"):
        Settings(state=tmp_path, certfile=certificate[0]).check()
