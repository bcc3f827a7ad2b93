"""The fuzzer finds nothing in a served app, and finds what is wrong in servers that are wrong."""

import socket
import threading
from collections import Counter
from contextlib import contextmanager, suppress

import pytest
from fuzz_cases import Fuzz
from fuzz_links import Link, ViolationError
from fuzz_outcome import Limits
from fuzz_parts import Case, Do
from fuzzing import fuzz, fuzzed_app
from serving import TOKEN

LIMITS = Limits(health_s=10.0, memory_mb=400.0)  # of a machine that may be busy with anything else
DOCUMENT = {"paths": {"/healthz": {"get": {}}, "/v1/workflows/{name}": {"post": {}}}}
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-request-id: %d\r\n\r\nok"
ALIVE = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx-request-id: %d\r\n\r\n"


def attack(folder, requests: int, seed: int, **how) -> str:
    with fuzzed_app(folder) as (served, look):
        address = ("127.0.0.1", served.port)
        outcome = fuzz(address, TOKEN, requests=requests, seed=seed, out=folder, pid=lambda: served.gateway, **how)
    look(outcome)
    assert not outcome.faults(LIMITS), outcome.table(LIMITS)
    assert outcome.requests >= requests
    return outcome.table(LIMITS)


def test_a_served_app_withstands_three_thousand_fuzzed_requests(tmp_path):
    attack(tmp_path, 3_000, seed=1, links=16, flood_mb=2)


@pytest.mark.slow
def test_a_served_app_withstands_two_hundred_thousand_fuzzed_requests(tmp_path, capsys):
    table = attack(tmp_path, 200_000, seed=2, idle=200, flood_mb=16)
    with capsys.disabled():
        print(f"\n{table}")  # noqa: T201


def test_a_case_depends_on_the_seed_and_its_number_only():
    some, same, other = (Fuzz(seed, TOKEN, DOCUMENT) for seed in (5, 5, 6))
    first = [some.case(number).steps for number in range(200)]
    assert [same.case(number).steps for number in reversed(range(200))][::-1] == first
    assert [other.case(number).steps for number in range(200)] != first


@contextmanager
def scripted(answer: bytes):
    """A server that answers the first bytes of each connection with these and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):  # a client may have left
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()
        thread.join()


def play(case: Case, answer: bytes) -> Counter:
    """One case against that server; the statuses of the answers."""
    statuses: Counter[int] = Counter()
    with scripted(answer) as address:
        link = Link(address, statuses)
        link.socket.settimeout(20)
        link.begin(case)
        try:
            goes_on = link.play()
            while goes_on:
                goes_on = link.read()
        finally:
            link.close()
    return statuses


def case(*ids: int, steps=None, **how) -> Case:
    sent = b"".join(ALIVE % id for id in ids)
    return Case("test", [sent] if steps is None else steps, list(ids), how.pop("due", len(ids)), **how)


def test_answers_in_order_are_no_violation():
    assert play(case(1, 2), OK % 1 + OK % 2) == {200: 2}


def test_an_answer_to_head_has_no_body():
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-request-id: 1\r\n\r\n"
    assert play(case(1, 2, heads={1}), head + OK % 2) == {200: 2}
    with pytest.raises(ViolationError, match="no valid answer"):
        play(case(1, 2, heads={1}), OK % 1 + OK % 2)


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-request-id: %d\r\n\r\n"


def test_a_stream_may_come_where_it_was_asked_for():
    assert play(case(1, 2, parts=2), OK % 1 + CHUNKED % 2 + b"2\r\nab\r\nA\r\n0123456789\r\n1") == {200: 2}
    assert play(case(1, 2, heads={1}), CHUNKED % 1 + OK % 2) == {200: 2}


@pytest.mark.parametrize(
    ("sent", "answer", "found"),
    [
        (case(1), b"HTTP/1.1 500 No\r\ncontent-length: 0\r\nx-request-id: 1\r\n\r\n", "status 500"),
        (case(1), b"HTTP/1.1 503 No\r\ncontent-length: 0\r\nx-request-id: 1\r\n\r\n", "Retry-After"),
        (case(1, 2), OK % 2 + OK % 1, "out of order"),
        (case(1, 2), OK % 1 + OK % 1, "second answer"),
        (case(1), OK % 1 + OK % 1, "more answers"),
        (case(1), OK % 7, "another connection"),
        (case(1, 2), OK % 1, "closed without an answer"),
        (case(1), (OK % 1).replace(b": 1", b": marker"), "has been executed"),
        (case(1, 2), (OK % 1).replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + OK % 2, "while others are due"),
        (
            case(1, 2, due=1),
            (OK % 1).replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + OK % 2,
            "after the one that closes",
        ),
        (case(1, must_refuse={1}), OK % 1, "must be refused"),
        (case(1), b"HTTP/1.1 200 OK\r\nx-request-id: 1\r\n\r\n", "content lengths"),
        (case(1), b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "transfer coding"),
        (case(1, 2, parts=0), CHUNKED % 1, "transfer coding"),
        (case(1, parts=1), CHUNKED % 1 + b"2\r\nabc\r\n", "goes on after its end"),
        (case(1, parts=1), CHUNKED % 1 + b"2;x\r\n", "size of a chunk"),
        (case(1, parts=1), CHUNKED % 1 + b"0\r\n\r\n", "stream that ends"),
        (case(1, parts=1), CHUNKED % 1 + b"2\r\nab", "stream that ends"),
        (case(1), b"HTTP/1.1 200 OK\r\nbad header: 1\r\n\r\n", "not a valid head"),
        (case(1), b"hello", "begins with"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_server_must_not_do_is_found(sent, answer, found):
    with pytest.raises(ViolationError, match=found):
        play(sent, answer)


def test_a_client_that_leaves_expects_nothing():
    assert play(case(1, steps=[ALIVE % 1, Do.RESET], is_lost=True), b"") == {}
