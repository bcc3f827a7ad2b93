"""What a client or a function may send: refused before it costs anything, and secrets that functions never see."""

import asyncio
import json
import os

import numpy as np
import pytest
from serving import TOKEN, kill, serving, wait_for, write_app

from fairlead.engine.live.journal import Accept, Journal
from fairlead.engine.live.values import decode, encode

SECRET = "a-secret-that-signs-callbacks"

APP = """
from fairlead.app import each

IMPORTED_WITH = dict(os.environ)

@app.function(vcpus=0.25)
def same(x):
    return x

@app.function(vcpus=0.25)
def numbers(n):
    return list(range(n))

@app.function(vcpus=0.25)
def text(n):
    return "x" * n

class Unspeakable(Exception):
    def __str__(self):
        raise ValueError("no words")

@app.function(vcpus=0.25)
def odd(what):
    if what == "surrogate in an error":
        raise ValueError("half a pair: \\ud800")
    if what == "error without a text":
        raise Unspeakable()
    if what == "surrogate in a result":
        return ["\\ud800"]
    if what == "fork":
        return [os.fork(), os.getpid()][1]
    if what == "fork and raise":
        if os.fork() == 0:
            raise ValueError("the child")
    if what == "pid":
        return os.getpid()
    return what

@app.function(vcpus=0.25)
def look(what):
    if what == "environment":
        return [dict(os.environ), IMPORTED_WITH]
    pids = [os.getppid(), int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])]
    return [environment_of(pid) for pid in pids]

def environment_of(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except PermissionError:  # as it is for all users but root
        return ""

app.workflow("map", each(same), slo="60s")
app.workflow("split", numbers >> each(same), slo="60s")
app.workflow("same", same, slo="60s")
app.workflow("text", text, slo="60s")
app.workflow("odd", odd, slo="60s")
app.workflow("look", look, slo="60s")
"""


async def journaled(state, *values):
    """Requests that an earlier gateway, with other limits or another app, accepted."""
    state.mkdir()
    journal = Journal(state / "journal.sqlite")
    await journal.open()
    kept = [
        await journal.accept(Accept(workflow="demo.map", body=encode(value)), then=lambda _: None) for value in values
    ]
    await journal.close()
    return [entry.id for entry in kept]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limits")
    old = asyncio.run(journaled(folder / "state", [0] * 101, {"not": "a list"}, [1, 2]))
    limits = [
        word
        for limit in ("max_items=100", "max_containers=1000", "max_result_bytes=200000")
        for word in ("--limit", limit)
    ]
    app = write_app(folder / "app.py", APP)
    env = {"FAIRLEAD_CALLBACK_SECRET": SECRET}
    with serving(app, folder / "state", "--policy", "fifo", *limits, token=TOKEN, env=env) as served:
        served.old = old
        yield served
    assert "Traceback" not in "".join(line for line in served.own_err.splitlines() if "app.py" not in line)


def refused(reply, code):
    assert (reply.status, reply.json["error"]["code"]) == (422, code), reply.body
    return reply.message


ENDPOINTS = {
    "sync": ("/v1/workflows/map", lambda value: {"input": value}),
    "async": ("/v1/workflows/map/async", lambda value: {"input": value}),
    "function": ("/function/map", lambda value: value),
    "async-function": ("/async-function/map", lambda value: value),
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_map_takes_a_list_of_at_most_max_items(world, endpoint):
    path, body = ENDPOINTS[endpoint]
    message = refused(world.ask("POST", path, body([0] * 101)), "too_many_items")
    assert "at most 100 items; got 101" in message
    message = refused(world.ask("POST", path, body({"a": 1})), "not_a_list")
    assert "must be a list; got dict" in message
    assert world.ask("POST", path, body([0] * 100)).status in (200, 202)


def test_a_map_over_an_empty_list_is_answered_at_once(world):
    assert world.call("map", []).json["output"] == []
    assert world.call("split", 0).json["output"] == []


def test_a_tensor_that_a_map_cannot_take_is_refused(world):
    def infer(size, shape):
        tensor = {"name": "x", "shape": shape, "datatype": "INT64", "data": [0] * size}
        return world.ask("POST", "/v2/models/map/infer", {"inputs": [tensor]})

    assert infer(101, [101]).status == 422
    assert infer(1, []).status == 422
    assert infer(100, [100]).json["outputs"][0]["shape"] == [100]


def test_requests_that_were_journaled_before_the_limit_fail_with_the_reason(world):
    too_many, no_list, fine = (world.wait_for_end(id) for id in world.old)
    assert (too_many["state"], no_list["state"], fine["state"]) == ("failed", "failed", "completed")
    assert "at most 100 items; got 101" in too_many["reason"]
    assert "must be a list; got dict" in no_list["reason"]


def test_a_function_that_gives_too_many_items_to_a_map_fails_that_request(world):
    assert world.call("split", 100).json["output"] == list(range(100))
    reply = world.call("split", 101)
    assert reply.status == 502
    assert "may have at most 100 items (max_items); got 101" in reply.message
    assert world.wait_for_end(world.send("split", 101).json["id"])["state"] == "failed"


@pytest.mark.parametrize("path", ["/v1/workflows/same", "/v1/workflows/same/async", "/function/same"])
def test_lists_and_objects_of_a_body_are_counted(world, path):
    def body(containers, extra=b""):  # the call's own object is one
        text = b"[" + b",".join([b"{}"] * (containers - 2)) + extra + b"]"
        return text if path.startswith("/function") else b'{"input":' + text + b"}"

    refused(world.ask("POST", path, body(1002)), "too_many_containers")
    assert world.ask("POST", path, body(1000)).status in (200, 202)
    quoted = json.dumps('[{" \\' * 2000).encode()  # brackets in a string are none
    assert world.ask("POST", path, body(900, b"," + quoted)).status in (200, 202)


def test_an_answer_beyond_the_limit_fails_its_request_and_leaves_nothing(world):
    message = refused(world.call("text", 300_000), "result_too_large")
    assert "the answer has 300005 bytes, and max_result_bytes is 200000" in message
    state = world.wait_for_end(world.send("text", 300_000).json["id"])
    assert state["state"] == "failed"
    assert "max_result_bytes is 200000" in state["reason"]
    assert world.call("text", 150_000).json["output"] == "x" * 150_000
    refused(world.ask("POST", "/function/text", 300_000), "result_too_large")
    folder = next(f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if f"fairlead-{world.gateway}-" in name)
    wait_for(lambda: not os.listdir(folder))


def test_asynchronous_answers_from_shared_memory_are_the_same(world):
    id = world.send("text", 150_000).json["id"]
    assert world.wait_for_end(id)["state"] == "completed"
    assert world.ask("GET", f"/v1/requests/{id}/result").json["output"] == "x" * 150_000
    id = world.send("map", ["a", "b"]).json["id"]
    assert world.wait_for_end(id)["state"] == "completed"
    assert world.ask("GET", f"/v1/requests/{id}/result").json["output"] == ["a", "b"]


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("surrogate in an error", r"half a pair: \ud800"),
        ("error without a text", "Unspeakable"),
        ("surrogate in a result", "surrogates not allowed"),
    ],
)
def test_text_that_cannot_be_sent_fails_its_request_and_not_its_instance(world, what, reason):
    before = world.call("odd", "pid").json["output"]
    reply = world.call("odd", what)
    assert reply.status == 502
    assert reason in reply.message
    assert world.call("odd", "pid").json["output"] == before


@pytest.mark.parametrize("what", ["fork", "fork and raise"])
def test_a_child_that_comes_back_from_its_fork_does_not_serve(world, what):
    before = world.call("odd", "pid").json["output"]
    for _ in range(5):
        assert world.call("odd", what).json["output"] in (before, what)
    assert [world.call("odd", n).json["output"] for n in range(10)] == list(range(10))
    assert world.call("odd", "pid").json["output"] == before


def test_functions_do_not_see_the_secrets_of_the_gateway(world):
    assert world.call("same", 1).status == 200  # the token holds
    assert world.ask("GET", "/v1/apps", headers={"authorization": "Bearer wrong"}).status == 401
    for environment in world.call("look", "environment").json["output"]:
        assert "PATH" in environment
        assert not {"FAIRLEAD_TOKEN", "FAIRLEAD_CALLBACK_SECRET"} & set(environment)
    for text in world.call("look", "parents").json["output"]:
        assert TOKEN not in text
        assert SECRET not in text


def test_a_gateway_that_was_started_again_has_its_token_still(world):
    before = world.gateway
    kill(before)
    wait_for(lambda: world.serving_gateway not in (None, before), 60)
    assert world.call("same", 1, timeout_s=60).json["output"] == 1
    assert world.ask("GET", "/v1/apps", headers={"authorization": "Bearer wrong"}).status == 401
    assert TOKEN not in "".join(world.call("look", "parents").json["output"])


def test_an_array_without_elements_stands_for_a_bounded_number_of_lists():
    for shape in ((0, 10**9), (1000, 0), (3, 0, 5), (0,)):
        assert decode(encode(np.zeros(shape))).shape == shape
    for shape in ((10**9, 0), (10**6, 10**6, 0)):  # no bytes, and a billion lists as JSON
        with pytest.raises(ValueError, match="stands for more than 100000 empty lists"):
            decode(encode(np.zeros(shape)))
