"""Open Inference Protocol: tensors in, tensors out, the protocol's own errors."""

import json
from math import prod

import numpy as np
import pytest
from gateway_world import Refuse, SmallHost, running
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.tensors import Tensor, from_plain, to_plain


def refuse(value, _):
    raise Refuse("rejected", "no room", 0.4)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    functions = {
        "shop.echo": lambda value, _: value,
        "shop.limit": lambda value, deadline_s: deadline_s,
        "shop.full": refuse,
        "shop.boom": lambda value, _: 1 / 0,
        "shop.two": lambda value, _: {"label": ["cat"], "score": [0.5, 1]},
    }
    with running(SmallHost(functions), tmp_path_factory.mktemp("state")) as gateway:
        yield gateway


def tensor(data, shape, datatype="INT64", name="x"):
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def infer(gateway, model, *inputs, **more):
    return gateway.send("POST", f"/v2/models/{model}/infer", {"inputs": list(inputs), **more})


def test_one_input_arrives_as_nested_lists(gateway):
    answer = infer(gateway, "echo", tensor([1, 2, 3, 4, 5, 6], [2, 3]), id="call-1")
    body = answer.json()
    assert answer.status == 200
    assert (body["model_name"], body["model_version"], body["id"]) == ("echo", "1", "call-1")
    assert body["outputs"] == [tensor([1, 2, 3, 4, 5, 6], [2, 3], name="output")]
    assert body["parameters"]["in_time"] is True


def test_several_inputs_arrive_by_name_and_an_object_gives_several_outputs(gateway):
    answer = infer(gateway, "echo", tensor([True], [1], "BOOL", "a"), tensor(["u", "v"], [2], "BYTES", "b"))
    assert answer.json()["outputs"] == [tensor([True], [1], "BOOL", "a"), tensor(["u", "v"], [2], "BYTES", "b")]
    two = infer(gateway, "two", tensor([1], [1])).json()["outputs"]
    assert two == [tensor(["cat"], [1], "BYTES", "label"), tensor([0.5, 1], [2], "FP64", "score")]
    wanted = infer(gateway, "two", tensor([1], [1]), outputs=[{"name": "score"}]).json()["outputs"]
    assert [output["name"] for output in wanted] == ["score"]


def test_the_deadline_is_a_parameter(gateway):
    answer = infer(gateway, "limit", tensor([1], [1]), parameters={"deadline_ms": 300, "priority": 3})
    assert answer.json()["outputs"][0]["data"] == [pytest.approx(0.3)]


@pytest.mark.parametrize("path", ["/v2/models/echo", "/v2/models/echo/versions/1"])
def test_a_workflow_is_a_model(gateway, path):
    assert gateway.send("GET", path).json()["versions"] == ["1"]
    assert gateway.send("GET", f"{path}/ready").json() == {"name": "echo", "ready": True}
    assert gateway.send("POST", f"{path}/infer", {"inputs": [tensor([1], [1])]}).status == 200


def test_the_server_says_who_it_is_and_that_it_lives(gateway):
    assert gateway.send("GET", "/v2").json()["name"] == "fairlead"
    assert gateway.send("GET", "/v2/health/live").json() == {"live": True}
    assert gateway.send("GET", "/v2/health/ready").json() == {"ready": True}


@pytest.mark.parametrize(
    ("model", "body", "status", "words"),
    [
        ("none", {"inputs": [tensor([1], [1])]}, 404, "No workflow named 'none'"),
        ("echo/versions/2", {"inputs": [tensor([1], [1])]}, 404, "version 1 only"),
        ("echo", {"inputs": []}, 400, "inputs"),
        ("echo", {"inputs": [tensor([1, 2], [3])]}, 400, "2 elements"),
        ("echo", {"inputs": [tensor([1], [1], "INT65")]}, 400, "datatype"),
        ("echo", {"inputs": [tensor([300], [1], "UINT8")]}, 400, "300 is not of type UINT8"),
        ("echo", {"inputs": [tensor([True], [1], "INT8")]}, 400, "True is not of type INT8"),
        ("echo", {"inputs": [tensor([1], [1]), tensor([1], [1])]}, 400, "same name"),
        ("echo", {"inputs": [tensor([1], [1])], "parameters": {"deadline_ms": "x"}}, 400, "deadline_ms"),
        ("two", {"inputs": [tensor([1], [1])], "outputs": [{"name": "sore"}]}, 400, "Available: label, score"),
        ("full", {"inputs": [tensor([1], [1])]}, 429, "no room"),
        ("boom", {"inputs": [tensor([1], [1])]}, 502, "division by zero"),
    ],
)
def test_errors_have_the_protocols_form(gateway, model, body, status, words):
    answer = gateway.send("POST", f"/v2/models/{model}/infer", body)
    assert answer.status == status
    assert words in answer.json()["error"]


NESTED = st.recursive(
    st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(value=NESTED)
def test_every_answer_is_some_tensor_that_reads_back(value):
    made = from_plain("output", value)
    back = to_plain(made)
    if made.parameters:  # no regular shape, or no common type: JSON text
        assert json.loads(back[0]) == json.loads(json.dumps(value).replace("Infinity", "null").replace("-null", "null"))
    elif isinstance(value, list):
        assert back == ([] if 0 in made.shape else value)
    else:
        assert back == [value]


@settings(max_examples=60, deadline=None)
@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_reshaping_keeps_the_order(shape):
    elements = np.arange(prod(shape))
    nested = elements.reshape(shape).tolist()
    assert to_plain(Tensor("x", shape, "INT32", elements.tolist())) == nested
    assert to_plain(Tensor("x", shape, "INT32", nested)) == nested  # given as nested lists already


@pytest.mark.parametrize("shape", [[10**9, 0], [0, 10**18], [2**62] * 10 + [0]])
def test_an_empty_shape_cannot_be_used_to_fill_the_memory(shape):
    assert to_plain(Tensor("x", shape, "FP32", [])) == []


def test_data_that_is_nested_too_deeply_is_refused():
    data: list = [1]
    for _ in range(100):
        data = [data]
    with pytest.raises(Problem, match="32 deep"):
        to_plain(Tensor("x", [1], "INT8", data))
