"""Open Inference Protocol: tensors in, tensors out, the protocol's own errors."""

import json
from math import prod

import numpy as np
import pytest
from gateway_world import Refuse, SmallHost, running
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.live.gateway.problems import Problem
from fairlead.engine.live.gateway.raw_tensors import write
from fairlead.engine.live.gateway.tensors import Tensor, from_plain, inputs_of, require_room, to_plain
from fairlead.engine.live.values import encode

TOKEN = "a-token-of-some-length"


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
    assert gateway.send("GET", "/v2/").json() == gateway.send("GET", "/v2").json()
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
    st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=5) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(value=NESTED)
def test_every_answer_is_some_tensor_that_reads_back(value):
    made, _ = write(from_plain("output", value), is_raw=False)
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
    with pytest.raises(Problem, match="both lists and elements"):
        to_plain(Tensor("x", [2], "INT8", [[1], 2]))


@pytest.mark.parametrize(
    ("shape", "lists"),
    [([], 1), ([7], 1), ([7, 3], 8), ([7, 1, 1, 1], 22), ([2, 3, 5], 9), ([10**9, 0], 0), ([2**62] * 31 + [0], 0)],
)
def test_the_lists_that_a_shape_stands_for_are_counted_before_they_are_made(shape, lists):
    tensors = [Tensor("x", shape, "INT8"), Tensor("y", shape, "INT8")]
    require_room(tensors, 2 * lists)
    if lists:
        with pytest.raises(Problem, match=f"{2 * lists} nested lists"):
            require_room(tensors, 2 * lists - 1)


def test_a_tensor_of_many_small_lists_is_refused_at_once(tmp_path):
    with running(SmallHost({"shop.echo": lambda value, _: value}), tmp_path, max_containers=70) as gateway:
        assert infer(gateway, "echo", tensor([1] * 9, [9, 1, 1, 1, 1, 1, 1, 1])).status == 200  # 7 * 9 + 1
        answer = infer(gateway, "echo", tensor([1] * 10, [10, 1, 1, 1, 1, 1, 1, 1]))
        assert answer.status == 400
        assert "71 nested lists; at most 70 are taken (max_containers)" in answer.json()["error"]
        assert gateway.host.calls == ["shop.echo"]


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_a_whole_number_of_a_floating_point_type_stays_one(gateway, datatype):
    answer = infer(gateway, "echo", tensor([1], [1, 1], datatype))
    assert answer.json()["outputs"] == [tensor([1.0], [1, 1], datatype, "output")]
    assert isinstance(answer.json()["outputs"][0]["data"][0], float)


@pytest.mark.parametrize(
    ("value", "datatype", "inputs"),
    [
        ([2**63], "UINT64", []),
        ([2**63 - 1, -1], "INT64", []),
        ([1, 2], "UINT8", [("UINT8", [2])]),
        ([1, 2], "INT64", [("UINT8", [3])]),  # another shape: a count, not an element
        ([1, 256], "INT64", [("UINT8", [2])]),  # does not fit
        ([1, 2], "INT64", [("FP32", [2])]),  # whole numbers are no floating-point numbers
        ([0.5], "FP32", [("FP32", [2, 2])]),
        ([0.5, 1], "FP16", [("FP16", [9])]),
        ([1e39], "FP64", [("FP32", [1])]),  # does not fit
        ([70000.0], "FP64", [("FP16", [1])]),
        ([float("inf")], "FP16", [("FP16", [1])]),
        ([0.5], "FP32", [("FP32", [1]), ("FP32", [2])]),
        ([0.5], "FP64", [("FP32", [1]), ("FP16", [2])]),  # they do not agree
        ([0.5], "FP32", [("FP32", [1]), ("INT8", [2])]),
        (["a"], "BYTES", [("FP32", [1])]),
        ([True], "BOOL", [("FP32", [1])]),
        (np.array([1, 2], np.int16), "INT16", [("FP32", [1])]),  # an array keeps its own
        (np.array([[0.5]], np.float16), "FP16", [("FP64", [1])]),
        (np.array([0.5], ">f4"), "FP32", []),
        (np.array(["a", "b"]), "BYTES", []),
    ],
)
def test_an_output_takes_the_datatype_of_the_inputs_where_it_fits(value, datatype, inputs):
    given = [Tensor(f"x{number}", shape, kind) for number, (kind, shape) in enumerate(inputs)]
    made = from_plain("output", value, given)
    assert (made.datatype, made.shape) == (datatype, list(np.shape(value)))


def test_an_output_of_an_inputs_name_takes_that_inputs_datatype():
    inputs = [Tensor("a", [1], "FP16"), Tensor("b", [1], "FP32")]
    assert from_plain("b", [0.5], inputs).datatype == "FP32"


def test_bytes_that_are_no_text_are_base64_in_json():
    made, _ = write(from_plain("output", [b"\xff\x00", "a"]), is_raw=False)
    assert (made.datatype, made.parameters) == ("BYTES", {"content_type": "base64"})
    assert json.loads(json.dumps(made.data, default=lambda part: part.hex())) == ["ff00", "61"]


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        ([[0.5, 1.5], [2.5, 3.5]], [("input", "FP64", [-1, 2])]),
        ([1, 2, 3], [("input", "INT64", [-1])]),
        ("ada", [("input", "BYTES", [])]),
        (np.zeros((8, 28, 28), np.float32), [("input", "FP32", [-1, 28, 28])]),
        ({"text": "ada", "limits": [1, 2]}, [("text", "BYTES", []), ("limits", "INT64", [-1])]),
        ({"only": [1]}, [("input", "BYTES", [-1])]),  # one tensor arrives bare: no tensor gives this object
        ([[1], [1, 2]], [("input", "BYTES", [-1])]),
        (None, [("input", "BYTES", [-1])]),
    ],
)
def test_a_models_inputs_are_those_of_its_example(example, expected):
    found = inputs_of(encode(example))
    assert [(tensor.name, tensor.datatype, tensor.shape) for tensor in found] == expected
    assert inputs_of(None)[0].shape == [-1]


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/v2/nothing/here", {}, 404),
        ("GET", "/v2/models/none", {}, 404),
        ("GET", "/v2/models/none/ready", {}, 404),
        ("DELETE", "/v2/models/echo", {}, 405),
        ("POST", "/v2/models/echo/infer", {"Authorization": "Bearer wrong"}, 401),
        ("GET", "/v2/nothing", {"Authorization": "Bearer wrong"}, 401),
        ("POST", "/v2/models/echo/infer", {"Content-Type": "text/plain"}, 415),
        ("POST", "/v2/models/echo/infer", {"Content-Length": "100000"}, 413),
        ("POST", "/v2/models/echo/infer", {}, 400),
    ],
)
def test_every_error_below_v2_has_the_protocols_form(guarded, method, path, headers, status):
    answer = guarded.send(method, path, headers={"Authorization": f"Bearer {TOKEN}", **headers})
    assert answer.status == status
    assert isinstance(answer.json()["error"], str)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    limits = {"token": TOKEN, "max_body_bytes": 10_000}
    with running(SmallHost({"shop.echo": lambda value, _: value}), tmp_path_factory.mktemp("state"), **limits) as it:
        yield it
