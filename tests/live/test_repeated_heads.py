"""Requests that repeat a head are not parsed again, and are answered exactly as if they were."""

import json
import re
import socket
import time

import numpy as np
import pytest
from gateway_world import SmallHost, running

from fairlead.engine.live.gateway.app import ENDPOINTS
from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.engine.live.gateway.protocol import HttpConnection
from fairlead.engine.live.gateway.repeats import KnownHead, known_head

TOKEN = b"Authorization: Bearer correct-horse-battery"
ANSWER = re.compile(rb"HTTP/1\.1 (\d{3}) .*?content-length: (\d+)\r\n.*?\r\n\r\n", re.DOTALL)


def call(body, *headers, path=b"/v1/workflows/echo", token=TOKEN):
    fixed = [b"Host: localhost", b"Content-Type: application/json", b"Content-Length: %d" % len(body), token]
    return b"\r\n".join([b"POST %b HTTP/1.1" % path, *fixed, *headers]) + b"\r\n\r\n" + body


def inputs(value):
    return json.dumps({"input": value}).encode()


class Client:
    """Sends segments one by one, and reads whole answers."""

    def __init__(self, port):
        self._address = ("127.0.0.1", port)
        self._link = None

    def ask(self, segments, answers):
        """Status and output of each answer; the connection is renewed where it ended."""
        if self._link is None:
            self._link = socket.create_connection(self._address, timeout=30)
            self._link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, segment in enumerate(segments):
            if number:
                time.sleep(0.02)  # so that it is read apart
            self._link.sendall(segment)
        found, text = [], b""
        while len(found) < answers:
            part = self._link.recv(65536)
            text += part
            while (head := ANSWER.match(text)) and len(text) >= head.end() + int(head[2]):
                body = json.loads(text[head.end() : head.end() + int(head[2])])
                found.append((int(head[1]), body.get("output"), body.get("error", {}).get("code")))
                text = text[head.end() + int(head[2]) :]
            if not part:
                break
        if len(found) < answers or found[-1][0] in (413, 429, 431) or any(b"close" in one for one in segments):
            self._link.close()
            self._link = None
        return found

    def close(self):
        if self._link is not None:
            self._link.close()


@pytest.fixture
def gateway(tmp_path):
    host = SmallHost({"shop.echo": lambda value, _: value})
    with running(host, tmp_path, token=TOKEN.split()[-1].decode(), max_open_bytes=4096) as gateway:
        yield gateway


def test_only_the_first_of_equal_heads_is_parsed(monkeypatch, gateway):
    parsed = []
    complete = HttpConnection.on_headers_complete
    monkeypatch.setattr(HttpConnection, "on_headers_complete", lambda self: (parsed.append(1), complete(self)))
    client = Client(gateway.port)
    for value in range(5):
        assert client.ask([call(inputs(value))], 1) == [(200, value, None)]
    assert client.ask([call(inputs(12))], 1) == [(200, 12, None)]  # another length, and so another head
    assert len(parsed) == 2
    client.close()


STEPS = (
    ([call(inputs(1))], 1),
    ([call(inputs(2))], 1),
    ([call(inputs(1)), call(inputs(3))], 2),
    ([call(inputs(1)) + call(inputs(4))], 2),  # one segment
    ([call(inputs(5))[:-4], call(inputs(5))[-4:]], 1),
    ([call(inputs(6))[:40], call(inputs(6))[40:]], 1),
    ([call(inputs(7)) + call(inputs(8))[:-2], call(inputs(8))[-2:]], 2),
    ([call(b'{"inpux":1}x'[:12])], 1),  # as long as a valid one
    ([call(b"{" * 12)], 1),
    ([call(inputs(9), b"Connection: close")], 1),
    ([call(inputs(9), b"Connection: keep-alive")], 1),
    ([call(inputs(1), token=b"Authorization: Bearer correct-horse-batterx")], 1),
    ([call(inputs(1), path=b"/v1/workflows/none")], 1),
    ([call(inputs("x" * 5000))], 1),  # more than there is room for
    ([b"\r\n" + call(inputs(1))], 1),
    ([call(inputs(1), b"X-Deadline-Ms: 5000")], 1),
    ([call(inputs(1), b"Transfer-Encoding: chunked")], 1),  # with a length too
)


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_the_same_as_if_every_head_were_parsed(monkeypatch, gateway, seed):
    rng = np.random.default_rng(seed)
    steps = [STEPS[i] for i in rng.permutation(3 * len(STEPS)) % len(STEPS) for _ in range(rng.integers(1, 4))]

    def answers():
        client = Client(gateway.port)
        found = [client.ask(*step) for step in steps]
        client.close()
        return found

    repeated = answers()
    monkeypatch.setattr(KnownHead, "fits", lambda self, data: False)
    assert repeated == answers()
    assert {status for found in repeated for status, _, _ in found} >= {200, 400, 401, 404}


def test_the_room_that_bodies_take_is_given_back(gateway):
    client = Client(gateway.port)
    for _ in range(20):  # together more than there is room for
        assert client.ask([call(inputs("x" * 400))], 1)[0][0] == 200
    client.close()


@pytest.mark.parametrize(
    ("headers", "is_kept"),
    [
        ({b"content-length": b"3"}, True),
        ({b"content-length": b"3", b"expect": b"100-continue"}, False),
        ({b"content-length": b"3", b"upgrade": b"h2c"}, False),
        ({b"transfer-encoding": b"chunked"}, False),
        ({b"content-length": b"4"}, False),
        ({b"content-length": b"3", b"connection": b"keep-alive"}, True),
    ],
    ids=["plain", "expects", "upgrade", "chunked", "another-length", "says-that-it-stays"],
)
def test_a_head_that_does_not_mean_all_there_is_is_not_remembered(headers, is_kept):
    exchange = Exchange("POST", "/", b"", headers)
    exchange.endpoint = ENDPOINTS[0]
    assert (known_head(b"POST / HTTP/1.1\r\n\r\nabc", 3, exchange) is not None) == is_kept
