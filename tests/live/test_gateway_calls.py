"""Synchronous calls: what comes back, for every way in which a request can end."""

import socket
import threading

import pytest
from gateway_world import Refuse, SmallHost, running, wait_until


def deadline_of(_, deadline_s):
    return deadline_s


def ends(outcome, reason, retry_after_s=None):
    def function(value, _):
        raise Refuse(outcome, reason, retry_after_s)

    return function


HOST_FUNCTIONS = {
    "shop.echo": lambda value, _: value,
    "shop.limit": deadline_of,
    "shop.boom": lambda value, _: value["missing"],
    "shop.full": ends("rejected", "predicted finish is late", 1.2),
    "shop.unsure": ends("rejected", "no reason to wait"),
    "shop.late": ends("dropped", "no time left"),
    "shop.slow": lambda value, _: "slow",
    "shop.set": lambda value, _: {(1, 2): "a key that JSON does not have"},
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    host = SmallHost(dict(HOST_FUNCTIONS), delay_s={"shop.slow": 30.0, "shop.late": 0.05})
    with running(host, tmp_path_factory.mktemp("state")) as gateway:
        yield gateway


def test_an_answer_comes_with_its_latency_and_deadline(gateway):
    answer = gateway.send("POST", "/v1/workflows/echo", {"input": {"a": [1, None, "x"]}})
    assert answer.status == 200
    body = answer.json()
    assert body["output"] == {"a": [1, None, "x"]}
    assert body["id"].startswith("shop-1-")
    assert body["deadline_ms"] == pytest.approx(1000, abs=0.01)  # the workflow's own
    assert 0 < body["latency_ms"] < 1000
    assert body["in_time"] is True


def test_the_full_name_works_too(gateway):
    assert gateway.send("POST", "/v1/workflows/shop.echo", {"input": 1}).json()["output"] == 1


@pytest.mark.parametrize(
    ("in_body", "in_header", "expected_s"),
    [(500, None, 0.5), (None, "250", 0.25), (500, "250", 0.25), (100, "250.5", 0.1), (None, None, 1.0)],
    ids=["body", "header", "header-is-smaller", "body-is-smaller", "neither-takes-the-objective"],
)
def test_the_smaller_deadline_counts(gateway, in_body, in_header, expected_s):
    body = {"input": 0} | ({"deadline_ms": in_body} if in_body else {})
    headers = {"X-Deadline-Ms": in_header} if in_header else {}
    assert gateway.send("POST", "/v1/workflows/limit", body, headers).json()["output"] == pytest.approx(expected_s)


@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan", "inf", "1e400", "1_0", ""])
def test_a_deadline_header_that_is_no_time_is_refused(gateway, value):
    answer = gateway.send("POST", "/v1/workflows/echo", {"input": 0}, {"X-Deadline-Ms": value})
    assert (answer.status, answer.code) == (400, "invalid_header")


def test_a_rejection_says_when_to_come_again(gateway):
    answer = gateway.send("POST", "/v1/workflows/full", {"input": 0})
    assert (answer.status, answer.code) == (429, "rejected")
    assert answer.json()["error"]["reason"] == "predicted finish is late"
    assert answer.headers["retry-after"] == "2"  # whole seconds, rounded up
    assert answer.headers["retry-after-ms"] == "1200"


def test_a_rejection_without_a_computed_time_asks_for_a_second(gateway):
    assert gateway.send("POST", "/v1/workflows/unsure", {"input": 0}).headers["retry-after-ms"] == "1000"


def test_dropped_for_want_of_time_is_504_and_dropped_before_is_429(gateway):
    late = gateway.send("POST", "/v1/workflows/late", {"input": 0, "deadline_ms": 1})
    assert (late.status, late.code) == (504, "deadline_passed")
    early = gateway.send("POST", "/v1/workflows/late", {"input": 0, "deadline_ms": 60_000})
    assert (early.status, early.code) == (429, "dropped")
    assert "retry-after" in early.headers


def test_a_function_that_fails_gives_its_own_message(gateway):
    answer = gateway.send("POST", "/v1/workflows/boom", {"input": {}})
    assert (answer.status, answer.code) == (502, "function_failed")
    assert "KeyError: 'missing'" in answer.json()["error"]["message"]


def test_an_answer_that_json_cannot_hold_is_the_functions_fault(gateway):
    answer = gateway.send("POST", "/v1/workflows/set", {"input": {}})
    assert answer.status == 502


def test_a_misspelt_workflow_is_told_its_neighbour(gateway):
    answer = gateway.send("POST", "/v1/workflows/ecco", {"input": 0})
    assert (answer.status, answer.code) == (404, "unknown_workflow")
    assert "Did you mean 'echo'?" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        (b'{"input": 1,}', 400, "invalid_json", "byte 12"),
        (b'{"input": NaN}', 400, "invalid_json", "byte 10"),
        (b'{"input": "\xff"}', 400, "invalid_json", "utf-8"),
        (b"", 400, "invalid_json", "truncated"),
        (b"[1]", 400, "invalid_body", "Expected `object`"),
        (b"{}", 400, "invalid_body", "`input`"),
        (b'{"input": 1, "deadline": 5}', 400, "invalid_body", "unknown field `deadline`"),
        (b'{"input": 1, "deadline_ms": "5"}', 400, "invalid_body", "$.deadline_ms"),
        (b'{"input": 1, "deadline_ms": 0}', 400, "invalid_body", "$.deadline_ms"),
        (b'{"input": 1, "budget_usd": -1}', 400, "invalid_body", "$.budget_usd"),
        (b'{"input": 36893488147419103232}', 400, "invalid_body", "2**64"),
        (b'{"input": ' + b"[" * 90_000 + b"]" * 90_000 + b"}", 400, "invalid_json", "nested too deeply"),
        (b'{"input": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}", 400, "invalid_json", "nested too deeply"),
    ],
    ids=[
        "trailing-comma", "nan", "not-utf8", "empty", "array", "no-input", "unknown-key", "text-for-number", "zero",
        "negative-budget", "huge-integer", "deep-arrays", "deep-objects",
    ],
)  # fmt: skip
def test_a_wrong_body_is_told_what_and_where(gateway, body, status, code, words):
    answer = gateway.send("POST", "/v1/workflows/echo", body, {"Content-Type": "application/json"})
    assert (answer.status, answer.code) == (status, code)
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
def test_a_body_that_is_not_declared_as_json_is_refused(gateway, kind):
    assert gateway.send("POST", "/v1/workflows/echo", b'{"input": 1}', {"Content-Type": kind}).status == 415


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"])
def test_json_by_its_other_names_is_taken(gateway, kind):
    assert gateway.send("POST", "/v1/workflows/echo", b'{"input": 1}', {"Content-Type": kind}).status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/workflows", 404),
        ("GET", "/v1/workflows/echo", 405),
        ("POST", "/v1/workflows/", 404),
        ("POST", "/v1/workflows/echo/now", 404),
        ("DELETE", "/healthz", 405),
        ("POST", "/v1/workflows/..%2f..%2fetc", 404),
        ("HEAD", "/healthz", 200),
    ],
)
def test_paths_and_methods_that_are_not_there(gateway, method, path, status):
    answer = gateway.send(method, path)
    assert answer.status == status
    if status == 405:
        assert answer.headers["allow"] == ("POST" if "workflows" in path else "GET")


def test_request_id_and_trace_come_back_if_they_are_valid(gateway):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answer = gateway.send("GET", "/healthz", headers={"X-Request-ID": "order/7:a", "traceparent": trace})
    assert answer.headers["x-request-id"] == "order/7:a"
    assert answer.headers["traceparent"] == trace
    later = gateway.send("GET", "/healthz", headers={"traceparent": f"cc{trace[2:]}-what-is-not-known-yet"})
    assert later.headers["traceparent"] == trace  # as the standard has it: read as the version that is known


@pytest.mark.parametrize("given", ["a b", "x" * 129, "ünlaut".encode().decode("latin-1"), "<script>"])
def test_a_request_id_that_is_not_valid_is_replaced(gateway, given):
    first = gateway.send("GET", "/healthz", headers={"X-Request-ID": given}).headers["x-request-id"]
    second = gateway.send("GET", "/healthz", headers={"X-Request-ID": given}).headers["x-request-id"]
    assert given not in (first, second)
    assert first != second


@pytest.mark.parametrize(
    "trace",
    [
        "00-0-0-0",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"ff-{'a' * 32}-{'b' * 16}-01",
        f"00-{'a' * 32}-{'b' * 16}-01-x",
        f"cc-{'a' * 32}-{'b' * 16}-01x",
        "-" * 20_000,
    ],
)
def test_a_trace_that_is_not_valid_is_dropped(gateway, trace):
    assert "traceparent" not in gateway.send("GET", "/healthz", headers={"traceparent": trace}).headers


def test_a_client_that_leaves_cancels_its_request(gateway):
    body = b'{"input": 1}'
    head = b"POST /v1/workflows/slow HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    before, calls = len(gateway.host.cancelled), len(gateway.host.calls)
    with socket.create_connection(("127.0.0.1", gateway.port)) as link:
        link.sendall(head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        wait_until(lambda: len(gateway.host.calls) > calls)
    wait_until(lambda: len(gateway.host.cancelled) == before + 1)
    wait_until(lambda: b"fairlead_gateway_open_requests 0.0" in gateway.send("GET", "/metrics").body)


def test_pipelined_requests_are_answered_in_order(gateway):
    def request(value):
        body = b'{"input": %d}' % value
        head = b"POST /v1/workflows/echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += b"Connection: close\r\n" if value == 11 else b""
        return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)

    text = gateway.raw(b"".join(map(request, range(12))))
    assert [int(part.split(b",")[0]) for part in text.split(b'"output":')[1:]] == list(range(12))


def test_every_answer_was_released(gateway):
    completed = len([name for name in gateway.host.calls if name in ("shop.echo", "shop.limit", "shop.set")])
    assert gateway.host.released == completed


def test_not_ready_is_503_and_says_so(tmp_path):
    host = SmallHost({"shop.echo": lambda value, _: value}, is_ready=False)
    with running(host, tmp_path) as gateway:
        assert gateway.send("GET", "/healthz").status == 200
        ready = gateway.send("GET", "/readyz")
        assert (ready.status, ready.json()) == (503, {"status": "starting"})
        assert gateway.send("GET", "/v2/health/ready").status == 503
        answer = gateway.send("POST", "/v1/workflows/echo", {"input": 1})
        assert (answer.status, answer.code) == (503, "not_ready")
        assert "retry-after" in answer.headers
        host.is_ready = True
        assert gateway.send("POST", "/v1/workflows/echo", {"input": 1}).status == 200


def test_when_told_to_stop_open_calls_finish_and_new_ones_are_refused(tmp_path):
    host = SmallHost({"shop.slow": lambda value, _: value}, delay_s={"shop.slow": 1.0})
    answers = []
    with running(host, tmp_path) as gateway:
        caller = threading.Thread(
            target=lambda: answers.append(gateway.send("POST", "/v1/workflows/slow", {"input": 7, "deadline_ms": 9e4}))
        )
        caller.start()
        wait_until(lambda: len(host.calls) == 1)
        gateway.begin_stop()
        wait_until(lambda: gateway.send("GET", "/readyz").status == 503)
        refused = gateway.send("POST", "/v1/workflows/slow", {"input": 8})
        assert (refused.status, refused.code) == (503, "draining")
        caller.join()
    assert answers[0].json()["output"] == 7
    assert host.calls == ["shop.slow"]


def test_a_full_inbox_refuses_before_the_policy_is_asked(tmp_path):
    host = SmallHost(
        {"shop.slow": lambda value, _: value, "shop.quick": lambda value, _: value}, delay_s={"shop.slow": 60.0}
    )
    with running(host, tmp_path, max_open=8) as gateway:
        body = b'{"input": 1}'
        request = (
            b"POST /v1/workflows/slow HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        links = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(6)]
        try:
            for link in links:  # its own share is 2, and 4 are for whoever comes first
                link.sendall(request)
            wait_until(lambda: len(host.calls) == 6)
            refused = gateway.send("POST", "/v1/workflows/slow", {"input": 1})
            assert (refused.status, refused.code) == (429, "inbox_full")
            assert int(refused.headers["retry-after-ms"]) >= 1
            assert len(host.calls) == 6
            assert gateway.send("POST", "/v1/workflows/quick", {"input": 2}).status == 200  # its share is kept for it
        finally:
            for link in links:
                link.close()
        wait_until(lambda: len(host.cancelled) == 6)
