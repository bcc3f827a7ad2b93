"""Clients that send too much, too little, too slowly or nonsense: each gets a clear status, and others are served."""

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from serving import TOKEN, Serving, read_status, request_bytes, rss_bytes, serving, wait_for, write_app

APP = """
@app.function(batch=4)
def echo(items):
    return items

@app.function
def slow(x):
    Path(__file__).with_name("begun").touch()
    while Path(__file__).with_name("hold").exists():
        time.sleep(0.01)
    return x

app.workflow("echo", echo)
app.workflow("slow", slow)
"""
ECHO = "/v1/workflows/echo"
MOST_BODY = 1 << 20
MEMORY_ROOM = 40 << 20  # what the gateway may hold more after an attack than before


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clients")
    app = write_app(folder / "app.py", APP)
    with serving(
        app, folder / "state", "--policy", "fifo", "--max-body-mb", "1", "--limit", "receive_limit_s=5"
    ) as served:
        for n in range(20):
            assert served.call("echo", n).status == 200
        yield served


@pytest.fixture(autouse=True)
def others_are_served(request):
    """Whatever a client did: the gateway is the same one, no larger, and answers."""
    if "world" not in request.fixturenames:
        yield
        return
    world = request.getfixturevalue("world")
    gateway, before = world.gateway, rss_bytes(world.gateway)
    yield
    assert world.gateway == gateway, world.err
    assert_served(world)
    assert rss_bytes(gateway) - before < MEMORY_ROOM


def assert_served(world: Serving) -> None:
    assert world.call("echo", "still here").json["output"] == "still here"


# --- bodies --------------------------------------------------------------------------------------------------------


def test_a_body_that_is_declared_too_large_is_refused_without_being_read(world):
    assert world.status_of(request_bytes(ECHO, b"", length=MOST_BODY + 1)) == 413
    assert world.status_of(request_bytes(ECHO, b"", length=10**15)) == 413


def test_a_body_that_becomes_too_large_in_chunks_is_refused(world):
    kind = "content-type: application/json\r\ntransfer-encoding: chunked"
    head = f"POST {ECHO} HTTP/1.1\r\nhost: 127.0.0.1\r\n{kind}\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    with world.raw(head.encode()) as connection:
        for _ in range(3 * MOST_BODY // 65536):
            connection.sendall(chunk)
        connection.sendall(b"0\r\n\r\n")
        assert read_status(connection) == 413


def test_a_flood_of_oversized_bodies_does_not_fill_the_memory(world):
    body = b'{"input": "' + b"x" * (8 * MOST_BODY) + b'"}'

    def send(_: int) -> int:
        return world.ask("POST", ECHO, body).status

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(send, range(24))) == {413}


def test_a_body_that_ends_early_is_given_up_with_the_connection(world):
    whole = request_bytes(ECHO, b'{"input": 1}')
    for cut in (10, 60, len(whole) - 5):
        with world.raw(whole[:cut]) as connection:
            connection.shutdown(socket.SHUT_WR)
            assert read_status(connection) in (0, 400, 408)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"input": 1',
        b'{"input": NaN}',
        b'{"input": 1}{"input": 2}',
        b'\xff\xfe{"input": 1}',
        b'{"input": "\xc3\x28"}',
        b"[1, 2]",
        b'"text"',
        b'{"inptu": 1}',
        b'{"input": 1, "deadline_ms": "soon"}',
        b'{"input": 1, "deadline_ms": -1}',
        b'{"input": 1, "budget_usd": 1e999}',
        b'{"input": 123456789012345678901234567890}',
        b"[" * 100_000,
        b'{"input": ' + b"[" * 90_000 + b"]" * 90_000 + b"}",
        b'{"input": ' + b'{"a":' * 90_000 + b"1" + b"}" * 90_001,
    ],
    ids=lambda body: body[:30].decode("latin-1") + (f"...{len(body)}" if len(body) > 30 else ""),
)
def test_a_body_that_is_not_what_it_must_be_is_a_400_that_says_why(world, body):
    for path in (ECHO, f"{ECHO}/async"):
        reply = world.ask("POST", path, body)
        assert reply.status == 400
        assert reply.json["error"]["code"] in ("invalid_json", "invalid_body")
        assert len(reply.message) > 10


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_a_body_of_another_kind_is_a_415(world, kind):
    assert world.ask("POST", ECHO, b'{"input": 1}', headers={"content-type": kind}).status == 415


@pytest.mark.parametrize("value", ["soon", "-5", "0", "nan", "inf", "1_000", "", "1e400", "٣"])
def test_a_deadline_that_is_none_is_a_400(world, value):
    header = {"x-deadline-ms": value.encode()}
    assert world.ask("POST", ECHO, b'{"input": 1}', headers=header).status == 400


# --- paths and methods ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/v1/requests/../../../etc/passwd",
        "/v1/requests/..%2f..%2f..%2fetc%2fpasswd",
        "/v1/requests/%2e%2e/%2e%2e/apps.json",
        "/v1/requests/..%5c..%5capps.json",
        "/v1/requests/%00",
        "/v1/requests/" + "a" * 5000,
        "/v1/requests/' OR 1=1 --".replace(" ", "%20"),
        "/v1/requests/%ff%fe",
        "/v1/apps/..%2f..%2fetc",
        "/v1/apps/../../etc/passwd",
        "/v1/apps/demo/functions/..%2f..%2fx",
        "/v1/workflows/..%2f..%2fx",
        "/../../etc/passwd",
        "//etc/passwd",
        "/v2/models/..%2fx",
        "/function/..%2fx",
    ],
)
def test_a_path_that_climbs_or_makes_no_sense_finds_nothing(world, path):
    for method in ("GET", "DELETE", "POST", "PUT"):
        body = None if method in ("GET", "DELETE") else b"{}"
        reply = world.ask(method, path, body)
        assert reply.status in (400, 403, 404, 405, 415, 422), (method, reply)
        assert b"root:" not in reply.body


def test_an_app_name_that_climbs_writes_nothing_outside_its_folder(tmp_path):
    app = write_app(tmp_path / "app.py", APP)
    with serving(app, tmp_path / "state", "--allow-deploy", token=TOKEN) as world:
        for name in ("../evil", "..", ".", "a/b", "a\0b", "x" * 100, "-x", "%2e%2e"):
            reply = world.ask("POST", "/v1/apps", {"name": name, "source": "1"})
            assert reply.status in (400, 422), reply
        for name in ("..%2fevil", "%2e%2e", "a%00b", "..%5cevil"):
            assert world.ask("PUT", f"/v1/apps/{name}", {"source": "1"}).status in (400, 404, 422)
        assert not list(tmp_path.rglob("*evil*"))
        for headers in (
            {},
            {"authorization": "Bearer "},
            {"authorization": f"Basic {TOKEN}"},
            {"authorization": TOKEN},
        ):
            assert ask_with(world, headers) == 401
        assert ask_with(world, {"authorization": f"Bearer {TOKEN[:-1]}"}) == 401
        assert ask_with(world, {"authorization": f"Bearer {TOKEN}x"}) == 401
        assert ask_with(world, {"authorization": b"Bearer \xff\xfe"}) == 401
        assert ask_with(world, {"authorization": f"Bearer {TOKEN}"}) == 200
        world.token = None
        for method, path in (
            ("GET", "/v1/apps"),
            ("DELETE", "/v1/apps/demo"),
            ("GET", "/v1/nothing"),
            ("GET", "/metrics"),
        ):
            assert world.ask(method, path).status == 401
        assert world.ask("GET", "/healthz").status == 200


def ask_with(world: Serving, headers: dict) -> int:
    given, world.token = world.token, None
    try:
        return world.ask("POST", ECHO, b'{"input": 1}', headers=headers).status
    finally:
        world.token = given


def test_without_a_token_code_cannot_be_uploaded(world):
    assert world.ask("PUT", "/v1/apps/demo", {"source": "1"}).status == 403
    assert world.ask("POST", "/v1/apps", {"name": "x", "source": "1"}).status == 403


def test_a_page_of_another_origin_and_a_foreign_host_are_refused(world):
    assert world.ask("POST", ECHO, b'{"input": 1}', headers={"origin": "http://evil.example"}).status == 403
    assert world.ask("POST", ECHO, b'{"input": 1}', headers={"host": "evil.example"}).status == 403


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE", "TRACE", "CONNECT", "BREW"])
def test_a_method_that_is_not_for_this_path_is_refused(world, method):
    status = world.status_of(f"{method} {ECHO} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
    assert status in (400, 405)


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), (0, 400)),  # a TLS hello
        (b"\x00" * 1000, (0, 400)),
        (b"GET / HTTP/9.9\r\n\r\n", (0, 400, 403, 404, 505)),
        (b"POST " + ECHO.encode() + b" HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -5\r\n\r\n", (400,)),
        (
            b"POST "
            + ECHO.encode()
            + b" HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
            (400,),
        ),
        (
            b"POST " + ECHO.encode() + b" HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\n"
            b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            (400,),
        ),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", (414, 431)),
        (b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"a" * 100_000 + b"\r\n\r\n", (431,)),
        (b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"x: y\r\n" * 20_000 + b"\r\n", (431,)),
    ],
    ids=["tls", "zeros", "version", "negative", "two-lengths", "smuggling", "long-line", "long-header", "many-headers"],
)
def test_bytes_that_are_no_request_or_too_long_are_refused(world, data, statuses):
    with world.raw() as connection:
        with suppress(ConnectionError):  # it may be refused before it is all sent
            connection.sendall(data)
        assert read_status(connection) in statuses


# --- time ----------------------------------------------------------------------------------------------------------


def drip(connection, data):
    with suppress(ConnectionError):  # on a busy machine it may have been given up by now
        connection.sendall(data)


def test_slow_senders_are_given_up_and_hold_nobody_up(world):
    """Byte by byte, in the head and in the body; and nothing at all."""
    head, body = request_bytes(ECHO, b"", length=50), request_bytes(ECHO, b'{"input"', length=50)
    with ExitStack() as stack:
        in_head = [stack.enter_context(world.raw(head[:20])) for _ in range(50)]
        in_body = [stack.enter_context(world.raw(body)) for _ in range(50)]
        silent = [stack.enter_context(world.raw(b"")) for _ in range(50)]
        for n in range(6):
            for connection in in_head:
                drip(connection, head[20 + n : 21 + n])
            for connection in in_body:
                drip(connection, b" ")
            assert_served(world)
            time.sleep(0.2)
        assert {read_status(connection) for connection in in_head + in_body} == {408}
        assert {read_status(connection) for connection in silent} == {0}


def test_pipelined_requests_are_answered_in_order(world):
    requests = [request_bytes(ECHO, json.dumps({"input": n}).encode()) for n in range(16)]
    with world.raw(b"".join(requests)) as connection:
        data = b""
        while data.count(b'"in_time"') < len(requests):
            part = connection.recv(65536)
            assert part, data
            data += part
    outputs = [int(part.split(b'"output":')[1].split(b",")[0]) for part in data.split(b"HTTP/1.1 200")[1:]]
    assert outputs == list(range(16))


def test_a_thousand_idle_connections_leave_room_for_others(world):
    gateway, before = world.gateway, rss_bytes(world.gateway)
    with ExitStack() as stack:
        for n in range(1000):
            connection = stack.enter_context(world.raw())
            if n % 2:  # half of them have been served before they idle
                connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
                assert read_status(connection) == 200
        for _ in range(20):
            assert_served(world)
        assert rss_bytes(gateway) - before < MEMORY_ROOM
    wait_for(lambda: connections_of(world) < 20)


def connections_of(world: Serving) -> int:
    text = world.ask("GET", "/metrics").body.decode()
    return int(
        float(next(line.split()[-1] for line in text.splitlines() if line.startswith("fairlead_gateway_connections ")))
    )


def test_a_client_that_leaves_cancels_its_request(world):
    folder = world.state.parent
    hold = folder / "hold"
    hold.touch()
    with world.raw(request_bytes("/v1/workflows/slow", b'{"input": 1.0}')):
        wait_for(lambda: (folder / "begun").exists())
        waiting = [stand_in_line(world) for _ in range(5)]  # they stand in line behind it
        wait_for(lambda: world.workflow("slow")["open"] == 6)
        for connection in waiting:
            connection.close()
        wait_for(lambda: world.workflow("slow")["open"] == 1)
    wait_for(lambda: world.workflow("slow")["open"] == 0)
    status = world.workflow("slow")
    assert (status["cancelled"], status["completed"]) == (6, 0)
    hold.unlink()
    assert world.call("slow", 0).status == 200


def stand_in_line(world: Serving) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", world.port), timeout=60)
    connection.sendall(request_bytes("/v1/workflows/slow", b'{"input": 1.0}'))
    return connection
