"""Callbacks: which URLs are called, with what, how often, and what is left after a crash."""

import asyncio
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.live.callbacks import AllowList, CallbackRefusedError, Courier, is_signed, parse_url, sign
from fairlead.engine.live.journal import Accept, Final, Journal
from fairlead.errors import ConfigError

ENDING = Final(state="completed", result=msgspec.msgpack.encode({"total": 7}), cost_usd=0.25)


class Receiver:
    """A server that notes what it is sent, and answers what it is told to: a status, silence, or raw bytes."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls: list[tuple[str, dict[str, str], bytes]] = []
        self.open = self.most_open = 0

    async def __call__(self, reader, writer):
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:-2])}
            self.calls.append((head[0], headers, await reader.readexactly(int(headers["content-length"]))))
            answer = self.answers.pop(0) if self.answers else 204
            if answer is None:
                await reader.read()  # until the caller gives up
            elif isinstance(answer, bytes):
                writer.write(answer)
            else:
                writer.write(f"HTTP/1.1 {answer} Whatever\r\nLocation: http://127.0.0.1:1/\r\n\r\n".encode())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def receiving(receiver, tls=None):
    server = await asyncio.start_server(receiver, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def calling_back(path, prefixes, **options):
    """A journal and a courier of short patience."""
    journal = Journal(path)
    pending = await journal.open()
    assert pending == ()
    courier = Courier(journal, AllowList(prefixes), **{"pause_s": 0.01, "timeout_s": 5.0, **options})
    courier.start()
    try:
        yield journal, courier
    finally:
        await courier.close()
        await journal.close()


async def end_one(journal, url, final=ENDING, **fields) -> str:
    id = (await journal.accept(Accept(workflow="shop.order", body=b"\x01", callback_url=url, **fields))).id
    journal.finish(id, final)
    return id


async def settled(journal, id):
    """The entry, once its callback is delivered or given up."""
    for _ in range(3000):
        entry = await journal.get(id)
        if entry.delivery in ("delivered", "failed"):
            return entry
        await asyncio.sleep(0.02)
    raise AssertionError(f"still {entry.delivery} after {entry.delivery_attempts} attempts: {entry.delivery_note}")


def deliver(tmp_path, receiver, final=ENDING, url="http://127.0.0.1:{port}/hook?x=1", fields=None, **options):
    """End one request with this receiver behind its callback; how the delivery stands in the end."""

    async def run():
        async with (
            receiving(receiver) as port,
            calling_back(tmp_path / "j.sqlite", [f"http://127.0.0.1:{port}/hook"], **options) as (journal, courier),
        ):
            entry = await settled(journal, await end_one(journal, url.format(port=port), final, **(fields or {})))
            return entry, courier.stats()

    return asyncio.run(run())


def test_an_ending_is_posted_once_with_its_id_and_the_clients_headers(tmp_path):
    receiver = Receiver()
    fields = {"request_id": "r-1", "traceparent": "00-ab-cd-01"}
    entry, stats = deliver(tmp_path, receiver, fields=fields)
    ((line, headers, body),) = receiver.calls
    assert line == "POST /hook?x=1 HTTP/1.1"
    assert headers["x-fairlead-request"] == entry.id
    assert (headers["x-request-id"], headers["traceparent"]) == ("r-1", "00-ab-cd-01")
    assert headers["content-type"] == "application/json"
    assert "x-fairlead-signature" not in headers
    sent = json.loads(body)
    assert (sent["id"], sent["workflow"], sent["state"]) == (entry.id, "shop.order", "completed")
    assert (sent["result"], sent["result_omitted"], sent["cost_usd"]) == ({"total": 7}, False, 0.25)
    assert (entry.delivery, entry.delivery_attempts) == ("delivered", 1)
    assert (stats.delivered, stats.failed, stats.retries) == (1, 0, 0)


def test_a_failure_is_told_with_its_reason(tmp_path):
    receiver = Receiver()
    deliver(tmp_path, receiver, Final(state="failed", reason="it raised"))
    sent = json.loads(receiver.calls[0][2])
    assert (sent["state"], sent["reason"], sent["result"], sent["result_omitted"]) == (
        "failed",
        "it raised",
        None,
        False,
    )


def test_a_receiver_that_shares_the_secret_can_tell_who_called(tmp_path):
    receiver = Receiver()
    deliver(tmp_path, receiver, secret=b"s3cret", clock=lambda: 1000.0)
    ((_, headers, body),) = receiver.calls
    header = headers["x-fairlead-signature"]
    assert is_signed(b"s3cret", header, body, now=1100.0)
    assert not is_signed(b"other", header, body, now=1100.0)
    assert not is_signed(b"s3cret", header, body + b" ", now=1100.0)
    assert not is_signed(b"s3cret", header, body, now=1400.0)  # replayed
    assert not is_signed(b"s3cret", "t=1000,sha256=é", body, now=1000.0)
    assert not is_signed(b"s3cret", "", body, now=1000.0)


def test_a_signature_is_hmac_sha256_over_instant_and_body():
    # printf '7.{}' | openssl dgst -sha256 -hmac key
    assert sign(b"key", 7, b"{}") == "t=7,sha256=77bc83bd1f40422311e47918b203449aecf84b02c1568bb1b570ac2a474cc2d8"


@pytest.mark.parametrize(
    "answer", [503, 500, 429, 408, b"", b"SSH-2.0-hello\r\n", b"x" * 10_000], ids=lambda answer: str(answer)[:12]
)
def test_what_may_pass_is_tried_again(tmp_path, answer):
    receiver = Receiver(answer, answer)
    entry, stats = deliver(tmp_path, receiver)
    assert len(receiver.calls) == 3
    assert (entry.delivery, entry.delivery_attempts, stats.retries) == ("delivered", 3, 2)


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 404, 410])
def test_redirects_and_refusals_are_final(tmp_path, status):
    receiver = Receiver(status)
    entry, stats = deliver(tmp_path, receiver)
    assert len(receiver.calls) == 1
    assert (entry.delivery, stats.failed) == ("failed", 1)
    assert f"answered {status}" in entry.delivery_note


def test_informational_answers_are_skipped(tmp_path):
    receiver = Receiver(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")
    entry, _ = deliver(tmp_path, receiver)
    assert (entry.delivery, len(receiver.calls)) == ("delivered", 1)


def test_a_silent_receiver_is_given_up_after_the_last_attempt(tmp_path):
    receiver = Receiver(None, None, None, None)
    entry, _ = deliver(tmp_path, receiver, timeout_s=0.5, max_attempts=3)
    assert (entry.delivery, entry.delivery_attempts, len(receiver.calls)) == ("failed", 3, 3)
    assert "no answer within 0.5 s, at the last of 3 attempts" in entry.delivery_note


def test_an_answer_drop_by_drop_does_not_stretch_the_time_limit(tmp_path):
    class Dripping(Receiver):
        async def __call__(self, reader, writer):
            self.calls.append(("", {}, b""))
            try:
                for _ in range(2000):
                    writer.write(b"H")
                    await writer.drain()
                    await asyncio.sleep(0.01)
            except ConnectionError:
                pass
            finally:
                writer.close()

    entry, _ = deliver(tmp_path, Dripping(), timeout_s=0.2, max_attempts=1)
    assert "no answer within 0.2 s" in entry.delivery_note


@pytest.mark.parametrize(
    "result",
    [msgspec.msgpack.encode("x" * 5000), msgspec.msgpack.encode(["é" * 400] * 3), b"\xc1not MessagePack"],
    ids=["too-long", "too-long-as-json", "unreadable"],
)
def test_a_result_that_does_not_fit_is_left_out_and_that_is_said(tmp_path, result):
    receiver = Receiver()
    deliver(tmp_path, receiver, Final(state="completed", result=result), max_body_bytes=2000)
    body = receiver.calls[0][2]
    sent = json.loads(body)
    assert (sent["state"], sent["result"], sent["result_omitted"]) == ("completed", None, True)
    assert len(body) <= 2000


def test_nobody_listens_and_later_somebody_does(tmp_path):
    async def run():
        receiver = Receiver()
        async with receiving(receiver) as port:
            pass  # the port is free again
        async with calling_back(tmp_path / "j.sqlite", [f"http://127.0.0.1:{port}"], max_attempts=50) as (journal, _):
            id = await end_one(journal, f"http://127.0.0.1:{port}/")
            while (await journal.get(id)).delivery_attempts < 2:
                await asyncio.sleep(0.01)
            server = await asyncio.start_server(receiver, "127.0.0.1", port)
            entry = await settled(journal, id)
            server.close()
            await server.wait_closed()
            return entry, len(receiver.calls)

    entry, calls = asyncio.run(run())
    assert (entry.delivery, calls) == ("delivered", 1)


def test_a_receiver_that_hangs_holds_up_nobody_else(tmp_path):
    async def run():
        hanging, fine = Receiver(*[None] * 200), Receiver()
        async with (
            receiving(hanging) as bad,
            receiving(fine) as good,
            calling_back(
                tmp_path / "j.sqlite", [f"http://127.0.0.1:{bad}", f"http://127.0.0.1:{good}"], timeout_s=60
            ) as (journal, courier),
        ):
            for _ in range(50):
                await end_one(journal, f"http://127.0.0.1:{bad}/")
            ids = [await end_one(journal, f"http://127.0.0.1:{good}/") for _ in range(50)]
            for id in ids:
                assert (await settled(journal, id)).delivery == "delivered"
            return hanging.most_open, courier.stats().waiting

    most_open, waiting = asyncio.run(run())
    assert most_open == 4
    assert waiting == 50


CHILD = """
import asyncio, sys
from pathlib import Path
from fairlead.engine.live.journal import Accept, Final, Journal

async def main():
    journal = Journal(Path(sys.argv[1]))
    await journal.open()
    for _ in range(5):
        id = (await journal.accept(Accept(workflow="shop.order", body=b"x", callback_url=sys.argv[2]))).id
        journal.finish(id, Final(state="completed", result=b"\\x07"))
        await journal.wait(id, 60)
        print(id, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_what_was_not_delivered_before_a_crash_is_delivered_after_it_and_only_then(tmp_path):
    path = tmp_path / "j.sqlite"

    async def run():
        receiver = Receiver()
        async with receiving(receiver) as port:
            url = f"http://127.0.0.1:{port}/hook"
            with subprocess.Popen([sys.executable, "-c", CHILD, str(path), url], stdout=subprocess.PIPE) as child:
                try:
                    ids = [child.stdout.readline().decode().strip() for _ in range(5)]
                finally:
                    os.kill(child.pid, signal.SIGKILL)
            async with calling_back(path, [url]) as (journal, _):
                for id in ids:
                    assert (await settled(journal, id)).delivery == "delivered"
            async with calling_back(path, [url]) as (_, courier):
                waiting = courier.stats().waiting
                await asyncio.sleep(0.2)
        return ids, [json.loads(body)["id"] for _, _, body in receiver.calls], waiting

    ids, called, waiting = asyncio.run(run())
    assert sorted(called) == sorted(ids)
    assert waiting == 0


def test_a_url_that_is_no_longer_allowed_is_not_called(tmp_path):
    async def run():
        receiver = Receiver()
        async with receiving(receiver) as port:
            async with calling_back(tmp_path / "j.sqlite", ["http://127.0.0.1:1/elsewhere"]) as (journal, _):
                entry = await settled(journal, await end_one(journal, f"http://127.0.0.1:{port}/"))
            return entry, receiver.calls

    entry, calls = asyncio.run(run())
    assert calls == []
    assert "not below any prefix" in entry.delivery_note


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with the openssl command")
def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*make, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)

    async def run():
        receiver = Receiver()
        async with receiving(receiver, tls) as port:
            prefix = f"https://127.0.0.1:{port}"
            async with calling_back(tmp_path / "j.sqlite", [prefix], max_attempts=2) as (journal, _):
                return await settled(journal, await end_one(journal, f"{prefix}/x")), receiver.calls

    entry, calls = asyncio.run(run())
    assert calls == []
    assert "CERTIFICATE_VERIFY_FAILED" in entry.delivery_note


ALLOWED = AllowList(["http://hooks.example/in", "https://Other.example:8443/", "http://127.0.0.1:9000", "http://[::1]"])


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example/in",
        "http://hooks.example/in/",
        "http://HOOKS.example:80/in/a/b?c=/../d",
        "https://other.example:8443/anything",
        "https://other.example:8443",
        "http://127.0.0.1:9000/x",
        "http://[::1]/x",
    ],
)
def test_a_url_below_a_listed_prefix_is_allowed(url):
    assert ALLOWED.check(url) == parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example/inside",
        "http://hooks.example/",
        "http://hooks.example:8080/in",
        "https://hooks.example/in",
        "http://hooks.example.evil/in",
        "http://evil.hooks.example/in",
        "http://hooks.example@evil/in",
        "http://evil@hooks.example/in",
        "http://hooks.example:80@evil/in",
        "http://hooks.example\\@evil/in",
        "http://hooks.example/in/../admin",
        "http://hooks.example/in/%2e%2e/admin",
        "http://hooks.example/in/..;/admin",
        "http://hooks.example/in%2f..%2fadmin",
        "http://hooks.example/in/%252e%252e/admin",
        "http://hooks.example/in/%0d%0aX:1",
        "http://hooks.example/in#x",
        "http://hooks.example./in",
        "http://hooks.example/in x",
        "http://hooks.example/in\r\nX: 1",
        "http://hooks.example/in\n",
        "http://hooks.example/ïn",
        "http://hooks.example:/in",
        "http://hooks.example:080/in",
        "http://hooks.example:99999/in",
        "http:hooks.example/in",
        "//hooks.example/in",
        "hooks.example/in",
        "ftp://hooks.example/in",
        "file:///etc/passwd",
        "http://127.1:9000/",
        "http://0x7f.1:9000/",
        "http://0x7f000001:9000/",
        "http://2130706433:9000/",
        "http://0177.0.0.1:9000/",
        "http://127.0.0.1.:9000/",
        "http://127.0.0.01:9000/",
        "http://[::ffff:127.0.0.1]:9000/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://[::1%25eth0]/",
        "http://[::1/",
        "http://localhost:9000/",
        "",
        "http://hooks.example/in/" + "x" * 2048,
    ],
)
def test_every_other_spelling_is_refused(url):
    with pytest.raises(CallbackRefusedError):
        ALLOWED.check(url)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="htp:/@#?%2ef.[]0x7hooksample;\\\r\n in", max_size=40))
def test_whatever_follows_the_prefix_the_call_goes_to_the_listed_host(tail):
    try:
        target = ALLOWED.check(f"http://hooks.example/in{tail}")
    except CallbackRefusedError:
        return
    assert target.origin == ("http", "hooks.example", 80)
    assert target.path.startswith("/in")
    assert not {"\r", "\n", " ", "\\", "#"} & set(target.path)
    assert ".." not in target.path.partition("?")[0].split("/")


def test_an_empty_list_refuses_and_says_what_to_do():
    with pytest.raises(CallbackRefusedError, match="--callback-allow"):
        AllowList([]).check("http://hooks.example/in")


def test_every_fault_of_a_list_is_told_at_once():
    with pytest.raises(ConfigError) as caught:
        AllowList(["http://ok.example", "ftp://a", "http://u@b/", "http://c/?q", "http://1.2/"])
    assert len(caught.value.faults) == 4
