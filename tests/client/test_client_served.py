"""The client against `fairlead serve`: calls, refusals, deadlines, keys, cancellation, threads, arrays and bytes."""

import asyncio
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gateway_world import SmallHost, running
from serving import TOKEN, Serving, wait_for

from fairlead import AsyncClient, Client
from fairlead.client import (
    CancelledCallError,
    FailedError,
    InvalidCallError,
    LateError,
    RefusedError,
    UnauthorizedError,
)
from fairlead.client.tls import TLSError

APP = '''
import time
from pathlib import Path
import numpy as np
from fairlead import App

app = App("shop")


@app.function(batch=8)
def double(xs):
    return [2 * x for x in xs]


@app.function
def hold(folder):
    """Says that it has begun, and goes on once it may."""
    with open(Path(folder, "began"), "a") as file:
        file.write("x")
    until = time.monotonic() + 300
    while not Path(folder, "go").exists() and time.monotonic() < until:
        time.sleep(0.005)
    return "held"


@app.function
def broken(x):
    raise ValueError(f"no such size: {x}")


@app.function
def total(rows):
    return np.asarray(rows, np.float32).sum(axis=0)


@app.function
def flip(data):
    return data[::-1]


app.workflow("double", double, slo="300s", example=1)
app.workflow("hold", hold, slo="300s")
app.workflow("broken", broken)
app.workflow("total", total, slo="300s")
app.workflow("flip", flip, slo="300s")
'''


MOST = 12
"""Open calls of one workflow with --max-open 20: the 2 that are kept for it, and the 10 that are for all."""


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    folder = tmp_path_factory.mktemp("client")
    (folder / "app.py").write_text(APP, encoding="utf-8")
    serving = Serving(folder / "app.py", folder / "state", "--no-records", "--max-open", "20", token=TOKEN)
    try:
        yield serving.wait_until_serving()
    finally:
        serving.end()


@pytest.fixture
def client(serving):
    with Client(f"http://127.0.0.1:{serving.port}", token=TOKEN, timeout="300s") as client:
        yield client


def began(folder):
    file = folder / "began"
    return file.read_text() if file.exists() else ""


def metric(serving, name):
    for line in serving.ask("GET", "/metrics").body.decode().splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[-1])
    return 0.0


def test_a_call_gives_the_output_and_what_the_gateway_says_of_it(client):
    answer = client.call("double", 21, deadline="250s")
    assert (answer.output, answer.in_time, answer.attempts) == (42, True, 1)
    assert 0 < answer.latency_s <= answer.elapsed_s < answer.deadline_s <= 250
    assert answer.id.startswith("shop-1-")
    assert client.call("double", 1, app="shop").output == 2
    assert client.call("shop.double", 1).deadline_s == 300
    html = answer._repr_html_()
    assert "<pre>42</pre>" in html
    assert "in time" in html


def test_many_threads_share_a_client_and_its_connections(serving, client):
    before = metric(serving, "fairlead_gateway_connections_accepted_total")
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda n: client.call("double", n).output, range(160))) == [2 * n for n in range(160)]
    assert metric(serving, "fairlead_gateway_connections_accepted_total") - before <= 8 + 2  # and those that ask here


def test_async_calls_run_side_by_side(serving):
    async def calls():
        async with AsyncClient(f"http://127.0.0.1:{serving.port}", token=TOKEN, timeout="300s") as client:
            answers = await asyncio.gather(*(client.call("double", n) for n in range(40)))
            handle = await client.submit("double", 5)
            return [answer.output for answer in answers], await handle.result("300s"), (await handle.status()).state

    assert asyncio.run(calls()) == ([2 * n for n in range(40)], 10, "completed")


def test_a_call_whose_deadline_passes_ends_and_takes_its_request_along(serving, client, tmp_path):
    with pytest.raises(LateError) as late:
        client.call("hold", str(tmp_path), deadline="300ms")
    assert isinstance(late.value, TimeoutError)
    wait_for(lambda: serving.workflow("hold", "shop")["cancelled"] == 1)
    (tmp_path / "go").touch()
    assert serving.workflow("hold", "shop")["completed"] == 0


def test_a_key_makes_two_calls_one_request(client, tmp_path):
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(client.call, "hold", str(tmp_path), idempotency_key="order-17") for _ in range(2)]
        wait_for(lambda: began(tmp_path) == "x")
        (tmp_path / "go").touch()
        first, second = (call.result() for call in calls)
    assert (first.output, first.id) == ("held", second.id)
    assert client.call("hold", str(tmp_path), idempotency_key="order-17").id == first.id
    assert began(tmp_path) == "x"
    with pytest.raises(InvalidCallError) as conflict:
        client.call("hold", "elsewhere", idempotency_key="order-17")
    assert conflict.value.code == "key_conflict"


def test_an_asynchronous_request_is_cancelled_once(serving, client, tmp_path):
    handle = client.submit("hold", str(tmp_path))
    wait_for(lambda: began(tmp_path) == "x")
    with pytest.raises(LateError, match="has not ended in the time given"):
        handle.result(timeout="50ms")
    assert handle.status().state == "accepted"
    assert handle.cancel()
    (tmp_path / "go").touch()
    again = client.request(handle.id)
    assert again.status().state == "cancelled"
    assert "cancelled" in again._repr_html_()
    assert not again.cancel()
    with pytest.raises(CancelledCallError):
        again.result()
    with pytest.raises(InvalidCallError) as unknown:
        client.request("0" * 32).status()
    assert unknown.value.code == "unknown_request"


def test_a_function_that_fails_is_an_error_with_its_own_words(client):
    with pytest.raises(FailedError, match="no such size: 3") as failed:
        client.call("broken", 3)
    assert failed.value.attempts == 1
    assert 'raise ValueError(f"no such size: {x}")' in failed.value.traceback
    with pytest.raises(FailedError, match="no such size: 4"):
        client.submit("broken", 4).result("300s")


def test_bytes_and_arrays_go_as_they_are(client):
    data = bytes(range(256)) * 8
    flipped = client.call("flip", data, deadline="300s")
    assert flipped.output == data[::-1]
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert client.call("total", rows).output == [3.0, 5.0, 7.0]
    inferred = client.infer("total", rows)
    found = inferred.output
    assert flipped.id.startswith("shop-1-")  # it is in a header where the body is the output alone
    assert int(inferred.id.removeprefix("shop-1-")) > int(flipped.id.removeprefix("shop-1-"))
    assert found.dtype == np.float32
    assert found.tolist() == [3.0, 5.0, 7.0]
    assert client.submit("flip", data[:3]).result("300s") == "AgEA"  # the result of a request is JSON: base64
    with pytest.raises(TypeError, match="bytes can be sent as the whole input only"):
        client.call("flip", [data])
    with pytest.raises(TypeError, match="a value of type set cannot be sent"):
        client.call("double", {1, 2})
    with pytest.raises(ValueError, match="not JSON compliant"):
        client.call("double", float("nan"))


@pytest.mark.parametrize("token", ["wrong", ""])
def test_a_wrong_token_is_told_with_what_to_do(serving, token):
    with (
        Client(f"http://127.0.0.1:{serving.port}", token=token) as client,
        pytest.raises(UnauthorizedError) as refused,
    ):
        client.call("double", 1)
    assert refused.value.status == 401
    assert any("FAIRLEAD_TOKEN" in note for note in refused.value.__notes__)


def test_an_unknown_workflow_names_the_closest(client):
    with pytest.raises(InvalidCallError, match="Did you mean 'double'"):
        client.call("doubel", 1)


def test_a_refused_call_comes_again_when_it_was_told_to(serving, tmp_path):
    url = f"http://127.0.0.1:{serving.port}"
    with ThreadPoolExecutor(MOST + 1) as threads, Client(url, token=TOKEN, retries=100_000, timeout="300s") as client:
        first = [threads.submit(client.call, "hold", str(tmp_path)) for _ in range(MOST)]
        wait_for(lambda: serving.workflow("hold", "shop")["open"] == MOST)
        refused_before = metric(serving, 'fairlead_http_responses_total{status="429"}')
        late = threads.submit(client.call, "hold", str(tmp_path))
        wait_for(lambda: metric(serving, 'fairlead_http_responses_total{status="429"}') > refused_before)
        with Client(url, token=TOKEN, retries=0) as once, pytest.raises(RefusedError) as refused:
            once.call("hold", str(tmp_path))
        assert refused.value.code == "inbox_full"
        assert refused.value.retry_after_s > 0
        (tmp_path / "go").touch()
        assert [call.result().output for call in first] == ["held"] * MOST
        assert late.result().output == "held"
        assert late.result().attempts > 1
        assert began(tmp_path) == "x" * (MOST + 1)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_over_tls_the_certificate_is_verified(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(cert), "-keyout", str(key)]
    subprocess.run([*make.split(), *names], check=True, capture_output=True)
    host = SmallHost({"shop.echo": lambda value, _: value})
    with running(host, tmp_path / "state", certfile=cert, keyfile=key) as gateway:
        url = f"https://127.0.0.1:{gateway.port}"
        with Client(url, token="", cacert=cert) as client:
            assert client.call("echo", [1]).output == [1]
        with Client(url, token="") as client, pytest.raises(TLSError, match="certificate to trust with cacert=FILE"):
            client.call("echo", [1])
